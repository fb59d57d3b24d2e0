"""Deviations, imprints and equivalence: contrasts over prompts and runs.

Axes: Q prompts, S runs. A value of a prompt is 1 where it was refused (or answered rightly), else 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from stemmatics.core.facts import Fact
from stemmatics.core.results import Estimate
from stemmatics.math.equivalence import equivalence
from stemmatics.math.intervals import Interval, combine_independent, t_interval, unknown
from stemmatics.math.scipy_modules import special
from stemmatics.math.seeds import sign_flip_exact
from stemmatics.measure.imprint.needs import NAME, SFT, ImprintSettings, Tree
from stemmatics.measure.imprint.nodes import METRICS, Answers, FloatArray, Strands
from stemmatics.measure.present import estimate_from

SHARE, LOSS = "share of prompts", "nats/byte"
EQUIVALENCE_LEVEL = 0.90
ALPHA = 0.05
# Of so many prompts that all turn one way, the exact sign test gives p = 2 / 2^6, under 5%.
FEWEST_FLIPS = 6
_ROUNDING = 1e-12


@dataclass(frozen=True)
class Corner:
    """One term of a contrast: a branch at a stage, and the sign with which it enters."""

    branch: str
    stage: str
    sign: float


@dataclass
class Contrasts:
    """All contrasts of one tree."""

    name: str
    tree: Tree
    settings: ImprintSettings
    strands: Strands

    def all(self) -> Iterator[Estimate]:
        """Deviations of every branch, imprints against the control, equivalence after SFT."""
        for metric in (*METRICS, "loss"):
            for end in self.tree.ends:
                for branch in self.tree.branches:
                    subject = {"tree": self.name, "branch": branch, "end": end, "metric": metric}
                    yield from self._over(
                        "deviation", [Corner(branch, end, 1), Corner(branch, SFT, -1)], metric, subject
                    )
                for branch, against in self.tree.contrasts():
                    subject = {"tree": self.name, "branch": branch, "end": end, "metric": metric}
                    yield from self._imprint(branch, against, end, metric, subject)
            for branch, against in self.tree.contrasts():
                yield from self._after_sft(branch, against, metric)

    def _imprint(
        self, branch: str, against: str, end: str, metric: str, subject: dict[str, str]
    ) -> Iterator[Estimate]:
        corners = [
            Corner(branch, end, 1),
            Corner(branch, SFT, -1),
            Corner(against, end, -1),
            Corner(against, SFT, 1),
        ]
        subject = {**subject, "against": against}
        yield from self._over("contrast", corners, metric, subject)
        by_run_S, facts = self._by_run(corners, metric)
        test = sign_flip_exact(by_run_S)
        if by_run_S.size and metric != "loss":
            yield self._say("by_runs", _over_runs(by_run_S), subject, metric, facts)
        for quantity, value in (("p", test.p_value), ("smallest_p", test.smallest_p)):
            if by_run_S.size:
                yield self._number(quantity, value, subject, facts, n=test.n, unit="run")

    def _after_sft(self, branch: str, against: str, metric: str) -> Iterator[Estimate]:
        """The difference before anything follows: by run on the same prompts, and over runs."""
        corners = [Corner(branch, SFT, 1), Corner(against, SFT, -1)]
        subject = {"tree": self.name, "branch": branch, "against": against, "metric": metric}
        yield from self._over("after_sft", corners, metric, subject)
        if metric == "loss":
            return
        yield from self._over("after_sft.inside", corners, metric, subject, level=EQUIVALENCE_LEVEL)
        for run, pair in self._pairs(branch, against, metric):
            own = {**subject, "run": str(run)}
            first_Q, second_Q = (one.shares_Q[metric] for one in pair)
            tested = equivalence(
                int((first_Q > second_Q).sum()),
                int((first_Q < second_Q).sum()),
                first_Q.size,
                margin=self.settings.margin,
            )
            facts = [one.facts[metric] for one in pair]
            yield self._say("after_sft.run", tested.interval, own, metric, facts)
            for quantity, value in (
                ("after_sft.p", tested.test.p_value),
                ("after_sft.smallest_margin", tested.smallest_margin),
                ("after_sft.num_needed", float(tested.num_needed)),
            ):
                yield self._number(quantity, value, own, facts, n=first_Q.size, unit="prompt")

    def _pairs(self, branch: str, against: str, metric: str) -> Iterator[tuple[int, tuple[Answers, Answers]]]:
        for run in self._runs():
            first = self.strands.at(self.name, branch, run, SFT)
            second = self.strands.at(self.name, against, run, SFT)
            if first and second and metric in first.shares_Q and metric in second.shares_Q:
                yield run, (first, second)

    def _runs(self) -> range:
        return range(1, len(self.tree.branches[self.tree.control]) + 1)

    def _complete(self, corners: Sequence[Corner], metric: str) -> Iterator[list[Answers]]:
        """The answers at all corners, for the runs in which none is missing."""
        for run in self._runs():
            there = [self.strands.at(self.name, one.branch, run, one.stage) for one in corners]
            known = [one for one in there if one is not None and metric in one.facts]
            if len(known) == len(corners):
                yield known

    def _over(
        self,
        quantity: str,
        corners: Sequence[Corner],
        metric: str,
        subject: dict[str, str],
        level: float = 0.95,
    ) -> Iterator[Estimate]:
        """The contrast with its interval over prompts and runs; loss over runs alone."""
        if metric == "loss":
            by_run_S, facts = self._by_run(corners, metric)
            if by_run_S.size:
                interval = t_interval(by_run_S, level=level, unit="run")
                yield self._say(quantity, self._noted(interval, by_run_S.size), subject, metric, facts)
            return
        columns, facts = [], []
        for answers in self._complete(corners, metric):
            columns.append(_signed(corners, answers, lambda one: one.shares_Q[metric]))
            facts += [one.facts[metric] for one in answers]
        if columns:
            values_QS = np.stack(columns, axis=1)
            both = over_prompts_and_runs(values_QS, level, largest=len(corners) / 2)
            yield self._say(quantity, self._noted(both, len(columns)), subject, metric, facts)

    def _by_run(self, corners: Sequence[Corner], metric: str) -> tuple[FloatArray, list[Fact]]:
        """The contrast of each run: of means over prompts, or of rates in nats/byte."""
        values, facts = [], []
        for answers in self._complete(corners, metric):
            values.append(float(_signed(corners, answers, lambda one: _mean(one, metric))))
            facts += [one.facts[metric] for one in answers]
        return np.array(values), facts

    def _noted(self, interval: Interval, num_runs: int) -> Interval:
        """With what a reader has to know about runs that are not there."""
        notes = [interval.note] if interval.note else []
        if num_runs < len(self._runs()):
            notes.append(f"{len(self._runs()) - num_runs} of {len(self._runs())} runs are incomplete")
        if num_runs == 1:
            notes.append("one run: nothing is known of other seeds")
        return replace(interval, note="; ".join(notes))

    def _say(
        self,
        quantity: str,
        interval: Interval,
        subject: dict[str, str],
        metric: str,
        facts: Sequence[Fact],
    ) -> Estimate:
        return estimate_from(
            interval,
            measure=NAME,
            quantity=f"{NAME}.{quantity}",
            subject=subject,
            units=LOSS if metric == "loss" else SHARE,
            facts=list(dict.fromkeys(facts)),
        )

    def _number(
        self,
        quantity: str,
        value: float,
        subject: dict[str, str],
        facts: Sequence[Fact],
        *,
        n: int,
        unit: str,
    ) -> Estimate:
        return Estimate(
            measure=NAME,
            quantity=f"{NAME}.{quantity}",
            subject=subject,
            value=value,
            n=n,
            unit=unit,
            facts=tuple(fact.key for fact in dict.fromkeys(facts)),
        )


def over_prompts_and_runs(values_QS: FloatArray, level: float = 0.95, *, largest: float = 1.0) -> Interval:
    """The combined interval of ``math.seeds.crossed_prompts_seeds``, without its resamples.

    Only standard errors enter it, and that of a mean over prompts is the same by formula. Runs that are all
    alike show no variation by chance: the limits are then by prompts alone, and never nearer than Clopper
    and Pearson's for none of Q prompts times ``largest``, the most that one prompt can move. Where no answer
    changed at all, the smallest effect is the one that turns ``FEWEST_FLIPS`` prompts the same way, which
    the exact sign test needs, in four of five repeats.
    """
    prompts = replace(t_interval(values_QS.mean(1), level=level, unit="prompt"), value=0.0)
    if values_QS.shape[1] < 2 or not _alike(values_QS.mean(0)):
        runs = t_interval(values_QS.mean(0), level=level, unit="run")
        return combine_independent([runs, prompts], [1.0, 1.0], level=level)
    num, value = len(values_QS), float(values_QS.mean())
    bound = -largest * math.expm1(math.log((1 - level) / 2) / num)
    note = "runs all alike: the limits are by prompts alone, and nothing is known of other runs"
    if values_QS.any():
        reach, method = max(bound, prompts.hi), "t"
        effect, error = prompts.smallest_effect, prompts.standard_error
    else:
        reach, method, error = bound, "Clopper-Pearson", math.nan
        few = num < FEWEST_FLIPS
        effect = math.nan if few else float(special.betaincinv(FEWEST_FLIPS, num - FEWEST_FLIPS + 1, 0.8))
    return Interval(value, value - reach, value + reach, level, method, num, "prompt", effect, error, note)


def _over_runs(by_run_S: FloatArray) -> Interval:
    """Student's interval; unknown where the runs are all alike, since so few show no variation by chance."""
    if by_run_S.size > 1 and _alike(by_run_S):
        note = "runs all alike: nothing is known of others"
        return unknown(float(by_run_S[0]), level=0.95, n=by_run_S.size, unit="run", note=note)
    return t_interval(by_run_S, unit="run")


def _alike(by_run_S: FloatArray) -> bool:
    """Means of the same whole numbers may differ in their last digits."""
    return bool(np.ptp(by_run_S) <= _ROUNDING)


def _signed(
    corners: Sequence[Corner], answers: Sequence[Answers], of: Callable[[Answers], FloatArray]
) -> FloatArray:
    terms = [corner.sign * of(one) for corner, one in zip(corners, answers, strict=True)]
    total: FloatArray = np.sum(terms, axis=0)
    return total


def _mean(answers: Answers, metric: str) -> FloatArray:
    if metric != "loss":
        return np.asarray(answers.shares_Q[metric].mean())
    assert answers.scores is not None, "a node with a fact of its loss has scores"
    return np.asarray(answers.scores.nll_N.sum() / answers.scores.num_bytes_N.sum())


def verdict(inside: Estimate, wide: Estimate, margin: float) -> str:
    """Over runs: *equivalent* where the 90% interval lies inside the margin.

    *Different* where it does not and the 95% interval excludes 0, else *undetermined*.
    """
    if max(-inside.lo, inside.hi) < margin:
        return "equivalent"
    return "different" if wide.lo > 0 or wide.hi < 0 else "undetermined"


def run_verdict(run: Estimate, p_value: Estimate, margin: float) -> str:
    """In one run, by the rules of ``math.equivalence``."""
    if max(-run.lo, run.hi) < margin:
        return "equivalent"
    known = not math.isnan(p_value.value)
    return "different" if known and p_value.value < ALPHA else "undetermined"
