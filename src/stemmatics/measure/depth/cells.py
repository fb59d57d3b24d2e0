"""Crossed cells as the arrays that the estimators take.

Axes: E events.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from stemmatics.core.facts import Fact
from stemmatics.facts.cross import CELLS
from stemmatics.math.factorial import Cells
from stemmatics.measure.base import Tables

DESCENDANT, BASE, OWN = "descendant", "base", "own"
READOUTS = (DESCENDANT, BASE, OWN)
MAIN, PERMUTED = "main", "permuted"


@dataclass(frozen=True, eq=False)
class Rows:
    """Events of one support, readout, boundary and arm, in the order of their numbers."""

    cells: Cells
    index_E: npt.NDArray[np.int64]
    changed_after_base_E: npt.NDArray[np.int64]
    changed_after_desc_E: npt.NDArray[np.int64]
    distance_E: npt.NDArray[np.float64]

    @property
    def num_events(self) -> int:
        """How many there are."""
        return len(self.index_E)


class Crossed:
    """A ``cross`` fact's tables, read once."""

    def __init__(self, fact: Fact, tables: Tables) -> None:
        self.fact = fact
        self._frame = _columns(tables.read(fact, "cells"))
        (self.summary,) = tables.read(fact, "crossing").to_pylist()

    @property
    def refusal(self) -> str:
        """Why the pair was not crossed; empty where it was."""
        return str(self.summary.get("refusal") or "")

    @property
    def main_boundary(self) -> int:
        """The boundary of the main numbers and of the controls."""
        return int(self.summary["main_boundary"])

    @property
    def boundaries(self) -> list[int]:
        """All boundaries of the profile."""
        return sorted({int(number) for number in self._frame["boundary"]})

    @property
    def arms(self) -> list[str]:
        """States that stood in the descendant's place, its own left out."""
        return sorted({str(name) for name in self._frame["arm"]} - {MAIN})

    @property
    def largest_distance(self) -> float:
        """Of the two earlier states, over all events and boundaries; NaN without events."""
        mine = self._frame["distance"][self._frame["arm"] == MAIN]
        return float(mine.max()) if mine.size else float("nan")

    def rows(
        self, support: str, *, readout: str = DESCENDANT, boundary: int | None = None, arm: str = MAIN
    ) -> Rows:
        """Rows of one kind; ``own`` lets the late stack's owner read out."""
        wanted = self.main_boundary if boundary is None else boundary
        if readout == OWN:
            parts = {
                name: self.rows(support, readout=name, boundary=wanted, arm=arm)
                for name in (BASE, DESCENDANT)
            }
            base, descendant = parts[BASE].cells, parts[DESCENDANT].cells
            cells = Cells(
                base.base_base_E,
                descendant.base_descendant_E,
                base.descendant_base_E,
                descendant.descendant_descendant_E,
            )
            other = parts[DESCENDANT]
            return Rows(
                cells, other.index_E, other.changed_after_base_E, other.changed_after_desc_E, other.distance_E
            )
        frame = self._frame
        keep = (frame["support"] == support) & (frame["readout"] == readout)
        keep &= (frame["boundary"] == wanted) & (frame["arm"] == arm)
        order = np.argsort(frame["event"][keep], kind="stable")
        picked = {name: column[keep][order] for name, column in frame.items()}
        return Rows(
            Cells(*(picked[name].astype(np.float64) for name in CELLS)),
            picked["index"],
            picked["changed_after_base"],
            picked["changed_after_desc"],
            picked["distance"],
        )


def _columns(table: pa.Table) -> dict[str, npt.NDArray[np.generic]]:
    return {name: table.column(name).to_numpy(zero_copy_only=False) for name in table.column_names}
