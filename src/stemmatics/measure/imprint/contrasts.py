"""Deviations, imprints and equivalence after SFT: contrasts of nodes over prompts and runs.

Axes: Q prompts, S runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from stemmatics.core.facts import Fact
from stemmatics.core.results import Result
from stemmatics.math.equivalence import equivalence
from stemmatics.math.intervals import Interval, combine_independent, t_interval, unknown
from stemmatics.math.scipy_modules import special
from stemmatics.math.seeds import sign_flip_exact
from stemmatics.measure.imprint.needs import SFT, NodeId
from stemmatics.measure.imprint.nodes import LOSS, METRICS, Node, Nodes
from stemmatics.measure.imprint.settings import NAME, ImprintSettings, Tree
from stemmatics.measure.inputs import FloatArray
from stemmatics.measure.present import ResultBuilder, known

SHARE_UNITS, LOSS_UNITS = "share of prompts", "nats/byte"
EQUIVALENT, DIFFERENT, UNDETERMINED = "equivalent", "different", "undetermined"
# two one-sided tests at 5%
EQUIVALENCE_LEVEL = 0.90
# with this many prompts that all change the same way, the exact sign test gives p = 2 / 2^6, under 5%
FEWEST_FLIPS = 6
_ROUNDING = 1e-12


@dataclass(frozen=True)
class Term:
    """One term of a contrast: a branch at a stage, with its sign."""

    branch: str
    stage: str
    sign: int


def difference_after_sft(branch: str, against: str) -> list[Term]:
    """A branch minus another, both after SFT."""
    return [Term(branch, SFT, 1), Term(against, SFT, -1)]


def deviation(branch: str, end: str) -> list[Term]:
    """The change of a branch from after SFT to an end."""
    return [Term(branch, end, 1), Term(branch, SFT, -1)]


def imprint(branch: str, against: str, end: str) -> list[Term]:
    """The deviation of a branch minus that of another."""
    subtracted = [replace(term, sign=-term.sign) for term in deviation(against, end)]
    return [*deviation(branch, end), *subtracted]


@dataclass(frozen=True)
class Contrasts:
    """All contrasts of one tree."""

    name: str
    tree: Tree
    settings: ImprintSettings
    nodes: Nodes

    def results(self) -> Iterator[Result]:
        """Deviations of every branch, imprints against the control, equivalence after SFT."""
        for metric in METRICS:
            units = LOSS_UNITS if metric == LOSS else SHARE_UNITS
            builder = ResultBuilder(NAME, {"tree": self.name, "metric": metric}, units=units)
            for end in self.tree.ends:
                for branch in self.tree.branches:
                    own = builder.about(branch=branch, end=end)
                    yield from self._crossed("deviation", deviation(branch, end), metric, own)
                for branch, against in self.tree.contrasts():
                    own = builder.about(branch=branch, end=end, against=against)
                    yield from self._imprint(imprint(branch, against, end), metric, own)
            for branch, against in self.tree.contrasts():
                yield from self._after_sft(metric, builder.about(branch=branch, against=against))

    def _imprint(self, terms: Sequence[Term], metric: str, builder: ResultBuilder) -> Iterator[Result]:
        """The contrast over prompts and runs; over runs only, with the sign-flip test."""
        yield from self._crossed("contrast", terms, metric, builder)
        by_run_S, facts = self._by_run(terms, metric)
        if not by_run_S.size:
            return
        builder = builder.with_facts(*facts)
        if metric != LOSS:
            yield builder.interval("by_runs", over_runs(by_run_S))
        test = sign_flip_exact(by_run_S)
        for quantity, value in (("p", test.p_value), ("smallest_p", test.smallest_p)):
            yield builder.number(quantity, value, n=test.n, unit="run", units="")

    def _after_sft(self, metric: str, builder: ResultBuilder) -> Iterator[Result]:
        """The difference before anything follows: over prompts and runs, and in each run."""
        terms = difference_after_sft(builder.subject["branch"], builder.subject["against"])
        if metric == LOSS:
            yield from self._crossed("after_sft", terms, metric, builder)
            return
        columns, facts = self._by_prompt(terms, metric)
        if columns:
            builder = builder.with_facts(*facts)
            at_95, at_90 = (
                self._over_prompts_and_runs(columns, level, largest=1.0)
                for level in (0.95, EQUIVALENCE_LEVEL)
            )
            yield builder.interval("after_sft", at_95)
            yield builder.interval("after_sft.inside", at_90)
            verdict, reason = equivalence_verdict(at_90, at_95, self.settings.margin)
            yield builder.category("after_sft.verdict", verdict, reason, n=at_90.n, unit=at_90.unit)
        yield from self._after_sft_by_run(terms, metric, builder)

    def _after_sft_by_run(
        self, terms: Sequence[Term], metric: str, builder: ResultBuilder
    ) -> Iterator[Result]:
        for run, (node, control) in self._complete_runs(terms, metric).items():
            own = builder.about(run=str(run)).with_facts(
                *_distinct([node.facts[metric], control.facts[metric]])
            )
            node_Q, control_Q = node.outcomes_Q[metric], control.outcomes_Q[metric]
            num_gained, num_lost = int((node_Q > control_Q).sum()), int((node_Q < control_Q).sum())
            test = equivalence(num_gained, num_lost, node_Q.size, margin=self.settings.margin)
            yield own.interval("after_sft.run", test.interval)
            for quantity, value in (
                ("after_sft.p", test.test.p_value),
                ("after_sft.smallest_margin", test.smallest_margin),
                ("after_sft.num_needed", float(test.num_needed)),
            ):
                yield own.number(quantity, value, n=node_Q.size, unit="prompt", units="")
            reason = _RUN_REASONS[test.verdict]
            yield own.category("after_sft.run_verdict", test.verdict, reason, n=node_Q.size, unit="prompt")

    def _crossed(
        self, quantity: str, terms: Sequence[Term], metric: str, builder: ResultBuilder
    ) -> Iterator[Result]:
        """A contrast with its interval over prompts and runs; that of a loss is over runs only."""
        if metric == LOSS:
            by_run_S, facts = self._by_run(terms, metric)
            if by_run_S.size:
                interval = self._with_notes(t_interval(by_run_S, unit="run"), by_run_S.size)
                yield builder.with_facts(*facts).interval(quantity, interval)
            return
        columns, facts = self._by_prompt(terms, metric)
        if columns:
            # one prompt can move each pair of terms by 1
            interval = self._over_prompts_and_runs(columns, largest=len(terms) / 2)
            yield builder.with_facts(*facts).interval(quantity, interval)

    def _over_prompts_and_runs(
        self, columns: Sequence[FloatArray], level: float = 0.95, *, largest: float
    ) -> Interval:
        values_QS = np.stack(columns, axis=1)
        return self._with_notes(over_prompts_and_runs(values_QS, level, largest=largest), len(columns))

    def _complete_runs(self, terms: Sequence[Term], metric: str) -> Mapping[int, list[Node]]:
        """The nodes of all terms, for the runs in which none is missing."""
        complete = {}
        for run in self.tree.runs:
            nodes = [self.nodes.get(NodeId(self.name, term.branch, run, term.stage)) for term in terms]
            measured = [node for node in nodes if node is not None and metric in node.facts]
            if len(measured) == len(terms):
                complete[run] = measured
        return complete

    def _by_prompt(self, terms: Sequence[Term], metric: str) -> tuple[list[FloatArray], list[Fact]]:
        """The contrast of each prompt, [Q] for each complete run."""
        columns: list[FloatArray] = []
        facts = []
        for nodes in self._complete_runs(terms, metric).values():
            outcomes = [node.outcomes_Q[metric] for node in nodes]
            columns.append(
                np.sum([term.sign * x_Q for term, x_Q in zip(terms, outcomes, strict=True)], axis=0)
            )
            facts += [node.facts[metric] for node in nodes]
        return columns, _distinct(facts)

    def _by_run(self, terms: Sequence[Term], metric: str) -> tuple[FloatArray, list[Fact]]:
        """The contrast of each complete run, of rates."""
        values, facts = [], []
        for nodes in self._complete_runs(terms, metric).values():
            rates = [node.rate(metric) for node in nodes]
            values.append(float(np.sum([term.sign * rate for term, rate in zip(terms, rates, strict=True)])))
            facts += [node.facts[metric] for node in nodes]
        return np.array(values), _distinct(facts)

    def _with_notes(self, interval: Interval, num_runs: int) -> Interval:
        """With notes on runs that are missing."""
        notes = [interval.note] if interval.note else []
        total = len(self.tree.runs)
        if num_runs < total:
            notes.append(f"{total - num_runs} of {total} runs are incomplete")
        if num_runs == 1:
            notes.append("one run: variation between runs is unknown")
        return replace(interval, note="; ".join(notes))


def _distinct(facts: Sequence[Fact]) -> list[Fact]:
    return list(dict.fromkeys(facts))


def over_prompts_and_runs(values_QS: FloatArray, level: float = 0.95, *, largest: float = 1.0) -> Interval:
    """The combined interval of ``math.seeds.crossed_prompts_seeds``, without resampling.

    Only standard errors enter it, and that of a mean over prompts follows from a formula. Runs with
    identical means say nothing about the variation between runs: the interval then covers prompts only,
    and is never narrower than Clopper and Pearson's for 0 of Q prompts times ``largest``, the most that
    one prompt can contribute. Where no outcome changed at all, the smallest effect is the one that changes
    ``FEWEST_FLIPS`` prompts the same way (what the exact sign test needs) with 80% power.
    """
    prompts = replace(t_interval(values_QS.mean(1), level=level, unit="prompt"), value=0.0)
    if values_QS.shape[1] < 2 or not _identical(values_QS.mean(0)):
        runs = t_interval(values_QS.mean(0), level=level, unit="run")
        return combine_independent([runs, prompts], [1.0, 1.0], level=level)
    num, value = len(values_QS), float(values_QS.mean())
    bound = -largest * math.expm1(math.log((1 - level) / 2) / num)
    note = "identical runs: the interval covers prompts only, and variation between runs is unknown"
    if values_QS.any():
        reach, method = max(bound, prompts.hi), "t"
        effect, error = prompts.smallest_effect, prompts.standard_error
    else:
        reach, method, error = bound, "Clopper-Pearson", math.nan
        few = num < FEWEST_FLIPS
        effect = math.nan if few else float(special.betaincinv(FEWEST_FLIPS, num - FEWEST_FLIPS + 1, 0.8))
    return Interval(value, value - reach, value + reach, level, method, num, "prompt", effect, error, note)


def over_runs(by_run_S: FloatArray) -> Interval:
    """Student's interval; unknown where the runs are identical, since so few say nothing about variation."""
    if by_run_S.size > 1 and _identical(by_run_S):
        note = "identical runs: variation between runs is unknown"
        return unknown(float(by_run_S[0]), level=0.95, n=by_run_S.size, unit="run", note=note)
    return t_interval(by_run_S, unit="run")


def _identical(by_run_S: FloatArray) -> bool:
    """Up to rounding: means of the same counts may differ in their last digits."""
    return bool(np.ptp(by_run_S) <= _ROUNDING)


def equivalence_verdict(at_90: Interval, at_95: Interval, margin: float) -> tuple[str, str]:
    """Verdict and reason of a difference, from its intervals at 90% and at 95%.

    *equivalent*: the 90% interval lies inside the margin, even where a smaller difference is shown.
    *different*: it does not, and the 95% interval excludes 0. Else *undetermined*.
    """
    if not known(at_90.lo) or not known(at_90.hi):
        return UNDETERMINED, f"the interval is unknown ({at_90.note})"
    if max(-at_90.lo, at_90.hi) < margin:
        return EQUIVALENT, "the 90% interval lies inside the margin"
    if at_95.excludes(0):
        return DIFFERENT, "the 90% interval reaches outside the margin and the 95% interval excludes 0"
    return UNDETERMINED, "the 90% interval reaches outside the margin and the 95% interval includes 0"


_RUN_REASONS = {
    EQUIVALENT: "the 90% interval lies inside the margin",
    DIFFERENT: "the 90% interval reaches outside the margin and McNemar's test rejects equality at 5%",
    UNDETERMINED: "the 90% interval reaches outside the margin and McNemar's test does not reject at 5%",
}
