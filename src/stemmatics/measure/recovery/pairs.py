"""Base and descendant on the same held-out text: residual, drop, rebase shift, and their noise."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from stemmatics.core.facts import Fact
from stemmatics.core.results import Estimate
from stemmatics.math.intervals import Interval
from stemmatics.math.rates import loss_rates
from stemmatics.math.run_noise import pooled_deviation, run_component, with_runs
from stemmatics.measure.inputs import ALL, Batch, FloatArray
from stemmatics.measure.present import estimate_from
from stemmatics.measure.recovery.losses import Arm, Losses
from stemmatics.measure.recovery.needs import NAME

UNITS = "nats/byte"
Pair = tuple[str, str]


@dataclass(frozen=True)
class PairFound:
    """What one pair gave on one corpus; ``whole`` and ``moved`` hold the run noise too.

    ``moved`` is the change of the residual from the first pool to the second, None where there is none.
    """

    pair: Pair
    residual: Interval
    drop: Interval
    shift: Interval
    run: Interval
    whole: Interval
    moved: Interval | None

    @property
    def within_noise(self) -> bool:
        """Whether the residual is no larger than two runs of one arm differ; no where that is unknown."""
        return abs(self.residual.value) <= self.run.hi if not math.isnan(self.run.hi) else False


def noise_of(losses: Losses) -> Interval:
    """Standard deviation of the loss between runs of one arm, pooled over all that were repeated."""
    return pooled_deviation(losses.run_losses(name) for name in losses.names)


def columns_of(base: Arm, descendant: Arm) -> dict[str, FloatArray]:
    """The numerators of a pair's quantities by document, in nats."""
    found = {
        "residual": descendant.rebased - base.rebased,
        "drop": descendant.native_N - descendant.rebased,
        "shift": base.native_N - base.rebased,
    }
    if base.second_N is not None and descendant.second_N is not None:
        # one run went through the second pool: it is held against the first run of the first
        found["moved"] = (descendant.second_N - base.second_N) - (descendant.runs_RN[0] - base.runs_RN[0])
        found["second"] = descendant.second_N - base.second_N
    return found


def read_pairs(
    losses: Losses, wanted: Sequence[Pair], noise: Interval, rng: np.random.Generator
) -> dict[Pair, PairFound]:
    """Every pair's intervals; all documents are resampled together, so the arms stay paired."""
    names: list[tuple[Pair, str]] = []
    columns: list[FloatArray] = []
    for pair in losses.pairs(wanted):
        for quantity, column_N in columns_of(*(losses.arms[name] for name in pair)).items():
            names.append((pair, quantity))
            columns.append(column_N)
    if not columns:
        return {}
    scores = losses.scores
    intervals = loss_rates(np.stack(columns, axis=1), scores.num_bytes_N, rng=rng, groups=scores.group_N)
    by_name = dict(zip(names, intervals, strict=True))
    return {pair: _pair_found(losses, pair, by_name, noise) for pair in losses.pairs(wanted)}


def _pair_found(
    losses: Losses, pair: Pair, by_name: dict[tuple[Pair, str], Interval], noise: Interval
) -> PairFound:
    num_runs = [losses.arms[name].num_runs for name in pair]
    run = run_component(noise, num_runs)
    moved = by_name.get((pair, "moved"))
    return PairFound(
        pair=pair,
        residual=by_name[pair, "residual"],
        drop=by_name[pair, "drop"],
        shift=by_name[pair, "shift"],
        run=run,
        whole=with_runs(by_name[pair, "residual"], run),
        moved=None if moved is None else with_runs(moved, run_component(noise, [1, 1, 1, 1])),
    )


def pair_estimates(losses: Losses, found: Iterable[PairFound]) -> list[Estimate]:
    """What is kept of each pair."""
    estimates: list[Estimate] = []
    for one in found:
        base, descendant = one.pair
        arms = [losses.arms[name] for name in one.pair]
        subject = {"base": base, "descendant": descendant, "corpus": losses.corpus}
        facts = [fact for arm in arms for fact in arm.facts]
        parts = {
            "residual": one.whole,
            "residual.documents": one.residual,
            "residual.runs": _exact(one.run),
            "drop": one.drop,
            "shift": one.shift,
        }
        if math.isnan(one.run.standard_error):
            # without repeats the documents' interval is all there is; the note says what it lacks
            note = "run noise is not in it: no arm has two runs"
            parts["residual"] = replace(one.residual, note="; ".join(filter(None, (one.residual.note, note))))
        for quantity, interval in parts.items():
            estimates.append(_estimate(interval, quantity, subject, facts))
        if one.moved is not None:
            more = [arm.second_fact for arm in arms if arm.second_fact is not None]
            estimates.append(_estimate(one.moved, "residual.moved", subject, [*facts, *more], tag="control"))
    return estimates


def _exact(run: Interval) -> Interval:
    """The standard error that run noise gives a difference, as a plain number."""
    value = run.standard_error
    return Interval(value, math.nan, math.nan, run.level, "exact", run.n, run.unit, math.nan, math.nan)


def _estimate(
    interval: Interval, quantity: str, subject: dict[str, str], facts: Sequence[Fact], **more: Any
) -> Estimate:
    return estimate_from(
        interval,
        measure=NAME,
        quantity=f"recovery.{quantity}",
        subject=subject,
        units=UNITS,
        facts=facts,
        **more,
    )


def by_register(losses: Losses, wanted: Sequence[Pair], rng: np.random.Generator) -> list[Estimate]:
    """The residual in each register, documents alone."""
    batch = Batch(rng)
    scores = losses.scores
    for base, descendant in losses.pairs(wanted):
        arms = losses.arms[base], losses.arms[descendant]
        for register in scores.registers():
            if register != ALL:
                batch.add(
                    scores,
                    scores.rows(register),
                    arms[1].rebased - arms[0].rebased,
                    scores.num_bytes_N,
                    measure=NAME,
                    quantity="recovery.register",
                    subject={
                        "base": base,
                        "descendant": descendant,
                        "corpus": losses.corpus,
                        "register": register,
                    },
                    units=UNITS,
                    facts=[fact for arm in arms for fact in arm.facts],
                )
    return batch.estimates()


def noise_estimates(losses: Losses, noise: Interval) -> list[Estimate]:
    """The run noise, and how many arms it comes from."""
    repeated = [name for name in losses.names if losses.arms[name].num_runs > 1]
    facts = [fact for name in repeated for fact in losses.arms[name].facts]
    subject = {"corpus": losses.corpus}
    return [
        estimate_from(
            noise,
            measure=NAME,
            quantity="recovery.noise",
            subject=subject,
            units=UNITS,
            facts=facts,
            tag="seed",
        )
    ]
