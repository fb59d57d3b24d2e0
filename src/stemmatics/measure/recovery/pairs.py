"""Base and descendant on the same held-out text: residual, drop, rebase shift, and their noise."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from stemmatics.core.results import Estimate
from stemmatics.math.intervals import Interval
from stemmatics.math.rates import loss_rates
from stemmatics.math.run_noise import pooled_deviation, run_component, with_runs
from stemmatics.measure.inputs import ALL, Batch, FloatArray
from stemmatics.measure.recovery.losses import ArmSums, Losses
from stemmatics.measure.recovery.needs import PairNames
from stemmatics.measure.recovery.settings import NAME, UNITS


@dataclass(frozen=True)
class PairDifferences:
    """The differences of one pair on one corpus, nats/byte.

    ``documents`` is the residual with the noise of documents alone, ``runs`` the part that run noise has
    in it, ``both`` the residual with the two together (unknown limits where run noise is unknown).
    ``moved`` is the change of the residual from the first pool to the second, None where there is none.
    """

    pair: PairNames
    documents: Interval
    runs: Interval
    both: Interval
    drop: Interval
    shift: Interval
    moved: Interval | None

    @property
    def residual(self) -> Interval:
        """The residual with all the noise that is known; the note says where that is documents alone."""
        if not math.isnan(self.runs.standard_error):
            return self.both
        note = "without run noise: no arm has two runs"
        return replace(self.documents, note="; ".join(filter(None, (self.documents.note, note))))


def run_noise(losses: Losses) -> Interval:
    """Standard deviation of the loss between runs of one arm, pooled over all arms with several runs."""
    return pooled_deviation(losses.run_losses(name) for name in losses.names)


def numerators(base: ArmSums, descendant: ArmSums) -> dict[str, FloatArray]:
    """The differences of a pair by document, in nats."""
    columns = {
        "residual": descendant.rebased - base.rebased,
        "drop": descendant.native_N - descendant.rebased,
        "shift": base.native_N - base.rebased,
    }
    if base.second_N is not None and descendant.second_N is not None:
        # the second pool has one run: it is compared with the first run on the first pool
        first_N = descendant.runs_RN[0] - base.runs_RN[0]
        columns["moved"] = (descendant.second_N - base.second_N) - first_N
    return columns


def read_pairs(
    losses: Losses, pair_names: Sequence[PairNames], noise: Interval, rng: np.random.Generator
) -> dict[PairNames, PairDifferences]:
    """Every pair's intervals; all documents are resampled together, so the arms stay paired."""
    names: list[tuple[PairNames, str]] = []
    columns: list[FloatArray] = []
    for pair in losses.pairs(pair_names):
        for quantity, column_N in numerators(*(losses.arms[name] for name in pair)).items():
            names.append((pair, quantity))
            columns.append(column_N)
    if not columns:
        return {}
    scores = losses.scores
    intervals = loss_rates(np.stack(columns, axis=1), scores.num_bytes_N, rng=rng, groups=scores.group_N)
    by_name = dict(zip(names, intervals, strict=True))
    return {pair: _differences(losses, pair, by_name, noise) for pair in losses.pairs(pair_names)}


def _differences(
    losses: Losses, pair: PairNames, by_name: dict[tuple[PairNames, str], Interval], noise: Interval
) -> PairDifferences:
    runs = run_component(noise, [losses.arms[name].num_runs for name in pair])
    moved = by_name.get((pair, "moved"))
    return PairDifferences(
        pair=pair,
        documents=by_name[pair, "residual"],
        runs=runs,
        both=with_runs(by_name[pair, "residual"], runs),
        drop=by_name[pair, "drop"],
        shift=by_name[pair, "shift"],
        moved=None if moved is None else with_runs(moved, run_component(noise, [1, 1, 1, 1])),
    )


def pair_estimates(losses: Losses, differences: Iterable[PairDifferences]) -> list[Estimate]:
    """Residual and its two parts, drop, rebase shift, and what the second pool changes."""
    estimates: list[Estimate] = []
    for each in differences:
        base, descendant = each.pair
        build = losses.results(base, descendant, base=base, descendant=descendant)
        estimates += [
            build.interval("residual", each.residual),
            build.interval("residual.documents", each.documents),
            build.interval("residual.runs", _standard_error(each.runs)),
            build.interval("drop", each.drop),
            build.interval("shift", each.shift),
        ]
        if each.moved is not None:
            arms = [losses.arms[name] for name in each.pair]
            second = [arm.second_fact for arm in arms if arm.second_fact is not None]
            with_second = build.with_facts(*build.facts, *second)
            estimates.append(with_second.interval("residual.moved", each.moved, tag="control"))
    return estimates


def _standard_error(runs: Interval) -> Interval:
    """The standard error that run noise gives a difference, as a plain number of ``runs.n`` runs."""
    error = runs.standard_error
    return Interval(error, math.nan, math.nan, runs.level, "exact", runs.n, runs.unit, math.nan, math.nan)


def register_estimates(
    losses: Losses, pair_names: Sequence[PairNames], rng: np.random.Generator
) -> list[Estimate]:
    """The residual in each register, documents alone."""
    batch = Batch(rng)
    scores = losses.scores
    for base, descendant in losses.pairs(pair_names):
        build = losses.results(base, descendant, base=base, descendant=descendant)
        for register in scores.registers():
            if register != ALL:
                batch.add(
                    scores,
                    scores.rows(register),
                    losses.arms[descendant].rebased - losses.arms[base].rebased,
                    scores.num_bytes_N,
                    measure=NAME,
                    quantity="recovery.register",
                    subject={**build.subject, "register": register},
                    units=UNITS,
                    facts=build.facts,
                )
    return batch.estimates()


def noise_estimate(losses: Losses, noise: Interval) -> Estimate:
    """The run noise, from the arms with several runs."""
    repeated = [name for name in losses.names if losses.arms[name].num_runs > 1]
    facts = [fact for name in repeated for fact in losses.arms[name].facts]
    return losses.results().with_facts(*facts).interval("noise", noise, tag="seed")
