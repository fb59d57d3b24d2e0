"""The commands as functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from stemmatics.commands.compare import pair_stemma
from stemmatics.core.load import load
from stemmatics.core.results import Estimate, Results
from stemmatics.core.stemma import Stemma
from stemmatics.store.query import connect
from stemmatics.study import run as study
from stemmatics.study.read import load_report_content, open_run
from stemmatics.study.run import Outcome

Listener = Callable[[Mapping[str, Any]], None]


def compare(
    base: str, descendant: str, text: Sequence[str | Path], out: str | Path = "runs/compare", **settings: Any
) -> Outcome:
    """One pair on some texts: loss, where it went, a report in ``out``.

    ``settings`` are those of :func:`stemmatics.commands.compare.pair_stemma`.
    """
    root = Path(out)
    return study.run(pair_stemma(base, descendant, text, name=root.name, **settings), root)


def run(stemma: Stemma | str | Path, out: str | Path | None = None, **settings: Any) -> Outcome:
    """Everything that a stemma asks for; goes on where it stopped."""
    tree = None
    if not isinstance(stemma, Stemma):
        stemma, tree = load(Path(stemma))
    root = Path("runs") / stemma.name if out is None else Path(out)
    return study.run(stemma, root, tree=tree, **settings)


@dataclass(frozen=True)
class Run:
    """A finished run, read back. Tables are Arrow; ``.to_pandas()`` makes data frames of them."""

    root: Path
    manifest: Mapping[str, Any]
    results: Results

    @property
    def estimates(self) -> dict[str, Estimate]:
        """Numbers with their intervals, by id; categories and refusals are in ``results``."""
        return {estimate.id: estimate for estimate in self.results.estimates()}

    def table(self, name: str) -> pa.Table:
        """All rows of a stored table, with the column ``fact``."""
        return connect(open_run(self.root).ledger).table(name).to_arrow_table()

    def frame(self) -> pa.Table:
        """The estimates as a table, the subject as a struct."""
        return pa.Table.from_pylist([one.row() for one in self.estimates.values()])


def load_run(root: str | Path) -> Run:
    """Read a run folder; needs neither torch nor the models."""
    found = open_run(Path(root))
    content = load_report_content(found)
    return Run(Path(root), found.manifest, content.results)
