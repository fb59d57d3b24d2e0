"""Stored cells as the arrays that the estimators take.

Axes: E events.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from stemmatics.core.facts import Fact
from stemmatics.facts.cross import BASE, CELLS, DESCENDANT, MAIN_ARM, OWN, PERMUTED_ARM
from stemmatics.facts.paths import NLL_COLUMNS
from stemmatics.math.factorial import Cells
from stemmatics.measure.base import Tables


@dataclass(frozen=True, eq=False)
class CrossedEvents:
    """Events of one support, readout, boundary and arm, in the order of their numbers.

    ``index_E`` is the prompt's row in the corpus; ``changed_after_base_E`` says whether the top token
    changes with the late layers on the base's state, ``changed_after_desc_E`` on the descendant's;
    ``distance_E`` is the distance of the two states as a share of the base's length.
    """

    cells: Cells
    index_E: npt.NDArray[np.int64]
    changed_after_base_E: npt.NDArray[np.int64]
    changed_after_desc_E: npt.NDArray[np.int64]
    distance_E: npt.NDArray[np.float64]

    @property
    def num_events(self) -> int:
        """Number of events."""
        return len(self.index_E)


class StoredCells:
    """The tables of a ``cross`` fact, read once."""

    def __init__(self, fact: Fact, tables: Tables) -> None:
        self._columns = _columns(tables.read(fact, "cells"))
        (self.summary,) = tables.read(fact, "crossing").to_pylist()

    @property
    def refusal(self) -> str:
        """Why the pair was not crossed; empty if it was."""
        return str(self.summary.get("refusal") or "")

    @property
    def main_boundary(self) -> int:
        """The boundary of the main numbers and of the controls."""
        return int(self.summary["main_boundary"])

    @property
    def boundaries(self) -> list[int]:
        """All boundaries of the profile."""
        return sorted({int(boundary) for boundary in self._columns["boundary"]})

    @property
    def control_arms(self) -> list[str]:
        """States that replaced the descendant's, other than its own and the permuted ones."""
        arms = {str(arm) for arm in self._columns["arm"]} - {MAIN_ARM}
        return sorted(arm for arm in arms if not arm.startswith(PERMUTED_ARM))

    @property
    def permuted_arms(self) -> list[str]:
        """Draws of the permuted state."""
        return sorted({str(arm) for arm in self._columns["arm"] if str(arm).startswith(PERMUTED_ARM)})

    @property
    def largest_distance(self) -> float:
        """Largest distance of the two earlier states over events and boundaries; NaN without events."""
        distances = self._columns["distance"][self._columns["arm"] == MAIN_ARM]
        return float(distances.max()) if distances.size else float("nan")

    def events(
        self, support: str, *, readout: str = DESCENDANT, boundary: int | None = None, arm: str = MAIN_ARM
    ) -> CrossedEvents:
        """Events of one kind, at the main boundary if none is given."""
        at = self.main_boundary if boundary is None else boundary
        if readout != OWN:
            return self._stored(support, readout, at, arm)
        base, descendant = (self._stored(support, name, at, arm) for name in (BASE, DESCENDANT))
        cells = Cells(
            base.cells.base_base_E,
            descendant.cells.base_descendant_E,
            base.cells.descendant_base_E,
            descendant.cells.descendant_descendant_E,
        )
        return CrossedEvents(
            cells,
            descendant.index_E,
            descendant.changed_after_base_E,
            descendant.changed_after_desc_E,
            descendant.distance_E,
        )

    def _stored(self, support: str, readout: str, boundary: int, arm: str) -> CrossedEvents:
        columns = self._columns
        keep = (columns["support"] == support) & (columns["readout"] == readout)
        keep &= (columns["boundary"] == boundary) & (columns["arm"] == arm)
        order = np.argsort(columns["event"][keep], kind="stable")
        rows = {name: column[keep][order] for name, column in columns.items()}
        return CrossedEvents(
            Cells(*(rows[name].astype(np.float64) for name in CELLS)),
            rows["index"],
            rows["changed_after_base"],
            rows["changed_after_desc"],
            rows["distance"],
        )


class StoredPaths:
    """The tables of a ``paths`` fact, read once. Axes: N paths, E events."""

    def __init__(self, fact: Fact, tables: Tables) -> None:
        rows = tables.read(fact, "paths").to_pylist()
        self.outcomes = Counter(row["outcome"] for row in rows)
        read = [row for row in rows if row["num_tokens"]]
        self.index_N = np.array([row["index"] for row in read], dtype=np.int64)
        self.num_tokens_N = np.array([row["num_tokens"] for row in read], dtype=np.float64)
        self.nll_N4 = np.array([[row[name] for name in NLL_COLUMNS] for row in read]).reshape(-1, 4)
        self._products = {row["index"]: (row["fourth_by_sum"], row["sum_by_sum"]) for row in read}
        self._columns = _columns(tables.read(fact, "path_cells"))
        (self.summary,) = tables.read(fact, "path_summary").to_pylist()

    @property
    def refusal(self) -> str:
        """Why there are no paths; empty if there are."""
        return str(self.summary.get("refusal") or "")

    def products_of(self, index_E: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """``fourth_by_sum`` and ``sum_by_sum`` of the paths of some events [E, 2]."""
        return np.array([self._products[int(index)] for index in index_E]).reshape(-1, 2)

    def events(self, support: str) -> tuple[Cells, npt.NDArray[np.int64]]:
        """Margins under the descendant's readout, and the prompts' rows, in the order of the events."""
        columns = self._columns
        keep = (columns["support"] == support) & (columns["readout"] == DESCENDANT)
        order = np.argsort(columns["event"][keep], kind="stable")
        rows = {name: column[keep][order] for name, column in columns.items()}
        return Cells(*(rows[name].astype(np.float64) for name in CELLS)), rows["index"].astype(np.int64)


def _columns(table: pa.Table) -> dict[str, npt.NDArray[np.generic]]:
    return {name: table.column(name).to_numpy(zero_copy_only=False) for name in table.column_names}
