"""Register, forgetting, or both: what two pools and the recall items together say of a pair.

For the whole text and for each register that has enough of it; the rule is ``math.recovery.verdict``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from stemmatics.core.results import Estimate, Result
from stemmatics.facts.pinned import Pinned
from stemmatics.math.intervals import Interval
from stemmatics.math.ranks import spearman_interval
from stemmatics.math.rates import loss_rates
from stemmatics.math.recovery.retention import LEVEL, Retention
from stemmatics.math.recovery.verdict import (
    FEWEST_DOCUMENTS,
    FEWEST_ITEMS,
    FEWEST_RUNS,
    FORGETTING,
    REGISTER,
    STATEMENTS,
    UNDETERMINED,
    VERDICTS,
    Decision,
    Needed,
    Spread,
    decide,
    needed,
    run_half_width,
    run_scale,
    weights_of,
    with_run_noise,
)
from stemmatics.math.register_agreement import limits_if_varied
from stemmatics.measure.inputs import ALL, FloatArray
from stemmatics.measure.present import ResultBuilder
from stemmatics.measure.recovery.losses import ArmSums, Losses
from stemmatics.measure.recovery.needs import PairNames
from stemmatics.measure.recovery.pairs import PairDifferences
from stemmatics.measure.recovery.recall import UNIT, Recall
from stemmatics.measure.recovery.settings import NAME, UNITS

_NO_NEED = Needed(UNDETERMINED, 0, 0, 0)


@dataclass(frozen=True)
class Verdict:
    """One of ``VERDICTS``, with what decided it or what is missing, and the numbers that it rests on.

    ``statements`` and ``retention`` are empty and None where too little is there to form them.
    """

    value: str
    reason: str
    statements: Mapping[str, Interval]
    retention: Retention | None = None
    needed: Needed = _NO_NEED


@dataclass(frozen=True)
class Evidence:
    """The arms of one pair. Axes: N documents, R distinct runs.

    Runs whose sums are the same in every document are one run. ``base_runs`` and ``recovered_runs`` are the
    numbers of the runs that count.
    """

    arms_N: Mapping[str, FloatArray]
    runs_RN: Mapping[str, FloatArray]
    base_runs: tuple[int, ...]
    recovered_runs: tuple[int, ...]

    @classmethod
    def of(cls, base: ArmSums, descendant: ArmSums) -> Evidence:
        """From the sums of both checkpoints; arms of the second pool are absent where it was not read."""
        run_ids = {"base": _distinct(base.runs_RN), "recovered": _distinct(descendant.runs_RN)}
        runs_RN = {
            "base": base.runs_RN[run_ids["base"]],
            "recovered": descendant.runs_RN[run_ids["recovered"]],
        }
        arms_N = {"native": descendant.native_N} | {arm: runs.mean(0) for arm, runs in runs_RN.items()}
        if base.second_N is not None and descendant.second_N is not None:
            arms_N |= {"second base": base.second_N, "second recovered": descendant.second_N}
        return cls(arms_N, runs_RN, tuple(run_ids["base"]), tuple(run_ids["recovered"]))

    def num_runs(self) -> dict[str, int]:
        """How many runs each fine-tuned arm is a mean of."""
        return {arm: len(self.runs_RN.get(arm, [0])) for arm in self.arms_N if arm != "native"}

    def missing(self, num_documents: int, recall: Recall | None) -> list[str]:
        """What a verdict lacks, in words."""
        lacks = []
        if "second base" not in self.arms_N:
            lacks.append("a fine-tune of both on a second pool")
        if min(len(self.base_runs), len(self.recovered_runs)) < FEWEST_RUNS:
            lacks.append("three different runs of base and descendant on the first pool")
        if num_documents < FEWEST_DOCUMENTS:
            lacks.append("twenty different documents")
        if recall is None:
            lacks.append("recall items, of which none were asked")
        elif recall.num_known(self.base_runs) < FEWEST_ITEMS:
            lacks.append("forty different recall items that the matched base answers")
        elif recall.lacks_replies(self.base_runs, self.recovered_runs):
            lacks.append("the replies of every run")
        return lacks


def _distinct(runs_RN: FloatArray) -> list[int]:
    """The first of each set of runs with the same sums."""
    _, first = np.unique(runs_RN, axis=0, return_index=True)
    return sorted(int(run) for run in first)


def verdict(
    losses: Losses, evidence: Evidence, recall: Recall | None, register: str, rng: np.random.Generator
) -> Verdict:
    """The verdict on the documents of one register, ``all`` being the whole text."""
    rows = losses.scores.rows(register)
    num_documents = int(np.unique(losses.scores.group_N[rows]).size)
    run_ids = None
    if recall is not None:
        run_ids = recall.retention(evidence.base_runs, evidence.recovered_runs)
    lacks = evidence.missing(num_documents, recall)
    if "second base" not in evidence.arms_N or min(map(len, evidence.runs_RN.values())) < 2:
        return Verdict(UNDETERMINED, _lacking(lacks), {}, run_ids)
    spreads, statements = _statements(losses, evidence, rows, rng)
    if lacks or run_ids is None:
        return Verdict(UNDETERMINED, _lacking(lacks), statements, run_ids)
    limits = {name: (interval.lo, interval.hi) for name, interval in statements.items()}
    decision = decide(limits, (run_ids.lo, run_ids.hi))
    word = decision.word()
    if word != UNDETERMINED:
        return Verdict(word, _decided(word, decision), statements, run_ids)
    more = needed(
        spreads,
        Spread(float(run_ids.value), float(run_ids.over_items), float(run_ids.over_runs)),
        num_documents=num_documents,
        num_runs=min(len(evidence.base_runs), len(evidence.recovered_runs)),
        num_items=math.ceil(float(run_ids.known)),
    )
    return Verdict(word, _undecided(decision, more), statements, run_ids, more)


def _statements(
    losses: Losses, evidence: Evidence, rows: npt.NDArray[np.bool_], rng: np.random.Generator
) -> tuple[dict[str, Spread], dict[str, Interval]]:
    """Every statement with its whole interval: documents, paired, and runs."""
    scores = losses.scores
    bytes_N = scores.num_bytes_N[rows]
    columns = [
        np.asarray(sum(weight * evidence.arms_N[arm][rows] for arm, weight in weights_of(name).items()))
        for name in STATEMENTS
    ]
    over_documents = loss_rates(
        np.stack(columns, axis=1), bytes_N, rng=rng, groups=scores.group_N[rows], level=LEVEL
    )
    run_losses = [runs_RN[:, rows].sum(1) / bytes_N.sum() for runs_RN in evidence.runs_RN.values()]
    degrees = sum(len(losses_R) - 1 for losses_R in run_losses)
    squares = sum(float(((losses_R - losses_R.mean()) ** 2).sum()) for losses_R in run_losses)
    # runs that all came out alike say nothing of other runs
    deviation = math.sqrt(squares / degrees) if squares else math.nan
    spreads, statements = {}, {}
    for name, documents in zip(STATEMENTS, over_documents, strict=True):
        half = float(run_half_width(deviation, degrees, run_scale(name, evidence.num_runs())))
        low, high = with_run_noise(documents.value, documents.lo, documents.hi, half)
        spreads[name] = Spread(documents.value, (documents.hi - documents.lo) / 2, half)
        statements[name] = replace(
            documents,
            lo=float(low),
            hi=float(high),
            method=f"{documents.method} and t, in quadrature",
            unit="document and run",
            smallest_effect=math.nan,
            standard_error=math.nan,
        )
    return spreads, statements


def _lacking(lacks: Sequence[str]) -> str:
    return f"needs {'; '.join(lacks)}"


def _decided(word: str, decision: Decision) -> str:
    """What decided a verdict."""
    if word == FORGETTING:
        return "recall is lost, and the residual stands on both pools"
    if word == REGISTER:
        return "recall is kept, and a fine-tune takes at least nine tenths of the gap back"
    back = "a fine-tune takes at least nine tenths of the gap back"
    part = "the second pool takes back more than half of what the first leaves"
    return f"recall is lost, and {back if decision.taken_back else part}"


def _undecided(decision: Decision, more: Needed) -> str:
    """What is not shown, and whether more of the same evidence could show it."""
    if decision.retained:
        recall = "recall is kept"
    elif decision.lost:
        recall = "recall is lost"
    else:
        recall = "recall is neither shown to be kept nor to be lost"
    if decision.taken_back:
        residual = "a fine-tune takes the gap back"
    elif decision.stands:
        residual = "the residual stands on both pools"
    elif decision.in_part:
        residual = "the second pool takes back part of what the first leaves"
    else:
        residual = "the residual is neither shown to be taken back nor to stand"
    evidence = f"{recall}; {residual}"
    if more.verdict == UNDETERMINED:
        return f"{evidence}; at these estimates more of the same evidence would not decide"
    kinds = {"documents": more.num_documents, "runs": more.num_runs, "recall items": more.num_items}
    missing = [name for name, count in kinds.items() if count]
    return f"{evidence}; more {' and '.join(missing)} would about decide" if missing else evidence


def verdict_results(
    losses: Losses,
    pairs: Mapping[PairNames, PairDifferences],
    recalls: Mapping[PairNames, Recall],
    rng: np.random.Generator,
) -> list[Result]:
    """The verdict of each pair, on the whole text and by register, and how many pairs have each verdict."""
    results: list[Result] = []
    words = []
    for base, descendant in pairs:
        recall = recalls.get((base, descendant))
        evidence = Evidence.of(losses.arms[base], losses.arms[descendant])
        build = _builder(losses, (base, descendant), recall)
        for register in losses.scores.registers():
            decided = verdict(losses, evidence, recall, register, rng)
            if register == ALL:
                words.append(decided.value)
                results += _results(build, decided, "verdict")
            else:
                results += _results(build.about(register=register), decided, "verdict.register")
    if words:
        build = ResultBuilder(NAME, {"corpus": losses.corpus}, units="pairs", n=len(words), unit="pair")
        results += [build.number("verdicts", float(words.count(word)), verdict=word) for word in VERDICTS]
    return results


def _builder(losses: Losses, pair: PairNames, recall: Recall | None) -> ResultBuilder:
    """With the facts of both checkpoints on both pools, and of the replies."""
    base, descendant = pair
    arms = [losses.arms[name] for name in pair]
    facts = [fact for arm in arms for fact in arm.facts]
    facts += [arm.second_fact for arm in arms if arm.second_fact is not None]
    facts += [] if recall is None else list(recall.facts.values())
    num_items = 0 if recall is None else recall.num_items
    subject = {"base": base, "descendant": descendant, "corpus": losses.corpus}
    return ResultBuilder(NAME, subject, facts, UNITS, n=num_items, unit=UNIT)


def _results(build: ResultBuilder, decided: Verdict, quantity: str) -> list[Result]:
    """The word, the statements that it rests on, the retention, and what would settle it."""
    results: list[Result] = [build.category(quantity, decided.value, decided.reason)]
    results += [
        build.interval(f"{quantity}.statement", interval, statement=name)
        for name, interval in decided.statements.items()
    ]
    if decided.retention is not None and quantity == "verdict":
        results.append(build.interval("verdict.retention", _retention(decided.retention), units="share"))
    counts = {
        "documents": decided.needed.num_documents,
        "runs": decided.needed.num_runs,
        "items": decided.needed.num_items,
    }
    results += [
        build.number(f"{quantity}.needed", float(count), units=units, evidence=units)
        for units, count in counts.items()
        if count
    ]
    return results


def _retention(retention: Retention) -> Interval:
    known = float(retention.known)
    return Interval(
        float(retention.value), float(retention.lo), float(retention.hi), LEVEL,
        "Tango and t over runs, in quadrature",
        round(known) if math.isfinite(known) else 0, "item and run", math.nan, math.nan,
    )  # fmt: skip


def recall_agreement(
    pinned: Pinned,
    corpus: str,
    pairs: Mapping[PairNames, PairDifferences],
    recalls: Mapping[PairNames, Recall],
    rng: np.random.Generator,
) -> list[Estimate]:
    """Spearman's rho of residual and recall change over pairs, families drawn whole."""
    names = [pair for pair in pairs if pair in recalls]
    if len(names) < 2:
        return []
    interval = spearman_interval(
        [pairs[pair].documents.value for pair in names],
        [recalls[pair].change.value for pair in names],
        [pinned.stemma.family(descendant) for _, descendant in names],
        rng=rng,
        num_resamples=2000,
    )
    build = ResultBuilder(NAME, {"corpus": corpus}, units="rank correlation")
    return [build.interval("recall.spearman", limits_if_varied(interval))]
