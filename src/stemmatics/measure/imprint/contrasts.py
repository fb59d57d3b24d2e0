"""Deviations, imprints, selectivity and equivalence after SFT: contrasts of nodes over cells and runs.

Axes: C cells, S runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from stemmatics.core.facts import Fact
from stemmatics.core.results import Result
from stemmatics.math.imprint import EQUIVALENCE_LEVEL, Noise, RunsAndCells, over_runs, p_of
from stemmatics.math.intervals import Interval
from stemmatics.math.seeds import MOST_FOR_EXACT, sign_flip_exact
from stemmatics.measure.imprint.needs import SFT, NodeId
from stemmatics.measure.imprint.nodes import LOSS, MARGIN, METRICS, SHARES, UNITS, Node, Nodes
from stemmatics.measure.imprint.settings import NAME, ImprintSettings, Tree
from stemmatics.measure.imprint.verdicts import (
    Evidence,
    direction,
    equivalence_verdict,
    holm_of,
    visibility,
)
from stemmatics.measure.inputs import FloatArray
from stemmatics.measure.present import ResultBuilder


@dataclass(frozen=True)
class Term:
    """One term of a contrast: a branch at a stage, with its weight."""

    branch: str
    stage: str
    weight: float


def difference_after_sft(branch: str, against: str) -> list[Term]:
    """A branch minus another, both after SFT."""
    return [Term(branch, SFT, 1), Term(against, SFT, -1)]


def deviation(branch: str, end: str) -> list[Term]:
    """The change of a branch from after SFT to an end."""
    return [Term(branch, end, 1), Term(branch, SFT, -1)]


def imprint(branch: str, against: str, end: str) -> list[Term]:
    """The deviation of a branch minus that of another."""
    return selectivity(branch, [against], end)


def selectivity(branch: str, others: Sequence[str], end: str) -> list[Term]:
    """The deviation of a branch minus the mean deviation of others."""
    subtracted = [
        replace(term, weight=-term.weight / len(others)) for other in others for term in deviation(other, end)
    ]
    return [*deviation(branch, end), *subtracted]


@dataclass(frozen=True)
class Contrast:
    """A contrast of one metric in the complete runs, with what it was computed from."""

    runs_and_cells: RunsAndCells | None
    by_run_S: FloatArray
    facts: Sequence[Fact]
    num_runs_missing: int

    @property
    def num_cells(self) -> int:
        """Cells; 0 for a loss, which has none."""
        return 0 if self.runs_and_cells is None else len(self.runs_and_cells.values_CS)

    @property
    def noises(self) -> list[Noise]:
        """Sources of chance; of a loss its runs alone."""
        if self.runs_and_cells is not None:
            return self.runs_and_cells.noises
        num = self.by_run_S.size
        error = float(self.by_run_S.std(ddof=1) / np.sqrt(num)) if num > 1 else float("nan")
        return [Noise("run", error, num)]

    @property
    def p_value(self) -> float:
        """Of runs and requests; of a loss, whose interval is over runs alone, Student's."""
        return p_of(float(self.by_run_S.mean()), self.noises)

    @property
    def these_cells(self) -> Interval:
        """Over runs."""
        return self._noted(over_runs(self.by_run_S))

    def requests_like_these(self, level: float = 0.95) -> Interval:
        """Over runs and requests; of a loss over runs."""
        if self.runs_and_cells is None:
            return self._noted(over_runs(self.by_run_S, level=level))
        return self._noted(self.runs_and_cells.requests_like_these(level))

    def _noted(self, interval: Interval) -> Interval:
        total = self.by_run_S.size + self.num_runs_missing
        incomplete = (
            f"{self.num_runs_missing} of {total} runs are incomplete" if self.num_runs_missing else ""
        )
        return replace(interval, note="; ".join(filter(None, [interval.note, incomplete])))


@dataclass(frozen=True)
class Contrasts:
    """All contrasts of one tree."""

    name: str
    tree: Tree
    settings: ImprintSettings
    nodes: Nodes

    def results(self) -> Iterator[Result]:
        """Deviations of every branch, imprints against the control, selectivity, equivalence after SFT."""
        for metric in METRICS:
            builder = ResultBuilder(NAME, {"tree": self.name, "metric": metric}, units=UNITS[metric])
            for end in self.tree.ends:
                for branch in self.tree.branches:
                    subject = builder.about(branch=branch, end=end)
                    yield from self._deviation(deviation(branch, end), metric, subject)
            yield from self._imprints(metric, builder)
            yield from self._selectivity(metric, builder)
            for branch, against in self.tree.contrasts():
                yield from self._after_sft(metric, builder.about(branch=branch, against=against))

    def _deviation(self, terms: Sequence[Term], metric: str, builder: ResultBuilder) -> Iterator[Result]:
        contrast = self.contrast(terms, metric)
        if contrast:
            yield builder.with_facts(*contrast.facts).interval("deviation", contrast.requests_like_these())

    def _imprints(self, metric: str, builder: ResultBuilder) -> Iterator[Result]:
        """Every branch and end, with verdicts corrected for their number; the order control apart."""
        main: list[tuple[ResultBuilder, Contrast]] = []
        order: list[tuple[ResultBuilder, Contrast]] = []
        for end in self.tree.ends:
            for branch, against in self.tree.contrasts():
                contrast = self.contrast(imprint(branch, against, end), metric)
                if contrast:
                    subject = builder.about(branch=branch, end=end, against=against)
                    family = main if against == self.tree.control else order
                    family.append((subject.with_facts(*contrast.facts), contrast))
        num_main = sum(against == self.tree.control for _, against in self.tree.contrasts())
        num_order = len(self.tree.contrasts()) - num_main
        yield from self._corrected("contrast", main, num_main * len(self.tree.ends))
        yield from self._corrected("contrast", order, num_order * len(self.tree.ends))

    def _selectivity(self, metric: str, builder: ResultBuilder) -> Iterator[Result]:
        """The target against the mean of the other sources, once for each end."""
        target, others = self.tree.target, self.tree.others()
        if target is None or target == self.tree.control or not others:
            return
        contrasts: list[tuple[ResultBuilder, Contrast]] = []
        for end in self.tree.ends:
            contrast = self.contrast(selectivity(target, others, end), metric)
            if contrast:
                subject = builder.about(branch=target, end=end, against=", ".join(others))
                contrasts.append((subject.with_facts(*contrast.facts), contrast))
        yield from self._corrected("selectivity", contrasts, len(self.tree.ends))

    def _corrected(
        self, quantity: str, contrasts: Sequence[tuple[ResultBuilder, Contrast]], num_declared: int
    ) -> Iterator[Result]:
        """Contrasts that are tested together, with Holm's p over all that were declared."""
        p_K = [contrast.p_value for _, contrast in contrasts]
        for (subject, contrast), p, adjusted in zip(contrasts, p_K, holm_of(p_K, num_declared), strict=True):
            yield from self._tested(quantity, subject, contrast, (p, float(adjusted)), num_declared)

    def _tested(
        self,
        quantity: str,
        builder: ResultBuilder,
        contrast: Contrast,
        p_values: tuple[float, float],
        num: int,
    ) -> Iterator[Result]:
        """A contrast for requests like these and for these cells, with its tests and verdicts."""
        metric = builder.subject["metric"]
        whole = builder.interval(quantity, contrast.requests_like_these())
        yield whole
        yield builder.interval(f"{quantity}.by_runs", contrast.these_cells)
        if contrast.by_run_S.size <= MOST_FOR_EXACT:
            test = sign_flip_exact(contrast.by_run_S)
            for name, value in (("sign_flip_p", test.p_value), ("smallest_p", test.smallest_p)):
                yield builder.number(f"{quantity}.{name}", value, n=test.n, unit="run", units="")
        for name, value in zip(("p", "holm_p"), p_values, strict=True):
            yield builder.number(f"{quantity}.{name}", value, n=whole.n, unit=whole.unit, units="")
        evidence = self._evidence(contrast, metric)
        verdict, reason = direction(whole, p_values[1], num, evidence, contrast.noises)
        yield builder.category(f"{quantity}.verdict", verdict, reason, n=whole.n, unit=whole.unit)
        if metric in SHARES:
            seen, why = visibility(whole)
            yield builder.category(f"{quantity}.visibility", seen, why, n=whole.n, unit=whole.unit)

    def _after_sft(self, metric: str, builder: ResultBuilder) -> Iterator[Result]:
        """The difference before anything follows, at 95%; and its verdict, from the interval at 90%."""
        contrast = self.contrast(
            difference_after_sft(builder.subject["branch"], builder.subject["against"]), metric
        )
        if contrast is None:
            return
        builder = builder.with_facts(*contrast.facts)
        at_95, at_90 = (contrast.requests_like_these(level) for level in (0.95, EQUIVALENCE_LEVEL))
        yield builder.interval("after_sft", at_95)
        bound = self.bound(metric)
        if bound is None or contrast.runs_and_cells is None:
            return
        inside = builder.interval("after_sft.inside", at_90)
        yield inside
        smallest = max(-at_90.lo, at_90.hi)
        yield builder.number("after_sft.smallest_margin", smallest, n=at_90.n, unit=at_90.unit)
        verdict, reason = equivalence_verdict(
            at_90, at_95, bound, self._evidence(contrast, metric), contrast.runs_and_cells.noises
        )
        yield builder.category("after_sft.verdict", verdict, reason, n=at_90.n, unit=at_90.unit)

    def bound(self, metric: str) -> float | None:
        """Within it two branches count as equivalent; None for metrics without."""
        if metric in SHARES:
            return self.settings.margin
        return self.settings.margin_nats if metric == MARGIN else None

    def _evidence(self, contrast: Contrast, metric: str) -> Evidence:
        settings = self.settings
        min_cells = 0 if metric == LOSS else settings.min_cells
        return Evidence(contrast.by_run_S.size, settings.min_runs, contrast.num_cells, min_cells)

    def contrast(self, terms: Sequence[Term], metric: str) -> Contrast | None:
        """The contrast of each complete run; None without any."""
        complete = self._complete_runs(terms, metric)
        if not complete:
            return None
        facts = list(dict.fromkeys(node.facts[metric] for nodes in complete.values() for node in nodes))
        missing = len(self.tree.runs) - len(complete)
        if metric == LOSS:
            means = [_weighted(terms, [node.mean(metric) for node in nodes]) for nodes in complete.values()]
            return Contrast(None, np.array(means, dtype=np.float64), facts, missing)
        columns = [
            _weighted(terms, [node.outcomes[metric].cells for node in nodes]) for nodes in complete.values()
        ]
        labels = next(iter(complete.values()))[0].outcomes[metric].labels
        both = RunsAndCells(np.stack(columns, axis=1), *labels)
        return Contrast(both, both.by_run, facts, missing)

    def _complete_runs(self, terms: Sequence[Term], metric: str) -> Mapping[int, list[Node]]:
        """The nodes of all terms, for the runs in which none is missing; a copy of a run is left out."""
        complete: dict[int, list[Node]] = {}
        seen = set()
        for run in self.tree.runs:
            nodes = [self.nodes.get(NodeId(self.name, term.branch, run, term.stage)) for term in terms]
            measured = [node for node in nodes if node is not None and metric in node.facts]
            origin = tuple(node.facts[metric].key for node in measured)
            if len(measured) == len(terms) and origin not in seen:
                complete[run] = measured
                seen.add(origin)
        return complete


def _weighted(terms: Sequence[Term], values: Sequence[npt.ArrayLike]) -> FloatArray:
    weighted = [term.weight * np.asarray(x) for term, x in zip(terms, values, strict=True)]
    return np.asarray(np.sum(weighted, axis=0), dtype=np.float64)
