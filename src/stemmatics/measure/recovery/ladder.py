"""The ladder: models in order of their loss after the fine-tune, and where the released order differs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from stemmatics.core.results import Category, Estimate, Result
from stemmatics.facts.pinned import Pinned
from stemmatics.math.intervals import Interval
from stemmatics.math.ranks import kendall_tau_b, spearman_interval
from stemmatics.math.recovery import Ladder, ladder
from stemmatics.math.register_agreement import agreement_by_registers, limits_if_varied
from stemmatics.math.seeds import family_bootstrap
from stemmatics.measure.inputs import ALL, FloatArray
from stemmatics.measure.recovery.losses import Losses
from stemmatics.measure.recovery.offsets import Placed, placed_results

CORRELATION = "rank correlation"
# resamples of whole families for the agreement of orders: a percentile interval, not a tail
_RESAMPLES = 2000


def ladder_results(
    pinned: Pinned, losses: Losses, placed: Mapping[str, Placed], rng: np.random.Generator
) -> list[Result]:
    """Ranks, losses, steps to the next model, ties, reversals, and the agreement of the two orders.

    ``placed`` are the models whose base is unknown, with the estimated loss of that base.
    """
    names = losses.names
    native_M = np.array([losses.native_loss(name) for name in names])
    rungs = ladder(
        names,
        np.stack([losses.arms[name].rebased for name in names], axis=1),
        losses.scores.num_bytes_N,
        rng=rng,
        native_loss_M=native_M,
        document_groups=losses.scores.group_N,
    )
    families = [pinned.stemma.family(name) for name in names]
    return [
        *_models(rungs, native_M, placed, losses),
        *_steps(rungs, losses),
        *_ties(rungs, losses),
        *_reversals(rungs, losses),
        *_agreement(rungs, native_M, families, losses, rng),
    ]


def _models(
    rungs: Ladder, native_M: FloatArray, placed: Mapping[str, Placed], losses: Losses
) -> list[Result]:
    """Each model's losses and rank; where its base is unknown it is ranked by the base's estimated loss."""
    ranked_by = {name: rebased.value for name, rebased in zip(rungs.names, rungs.rebased, strict=True)}
    ranked_by |= {name: each.unknown.value for name, each in placed.items()}
    ranks = {name: rank for rank, name in enumerate(sorted(ranked_by, key=lambda name: ranked_by[name]), 1)}
    results: list[Result] = []
    for name, rebased, native in zip(rungs.names, rungs.rebased, native_M, strict=True):
        build = losses.results(name, checkpoint=name)
        results += [
            build.interval("rebased", rebased),
            build.number("native", float(native)),
            build.number("rank", float(ranks[name]), units="rank", unit="model"),
        ]
        if name in placed:
            results += placed_results(build, placed[name])
    return results


def _difference(rungs: Ladder, lower: int, higher: int) -> Interval:
    """Loss of ``higher`` less loss of ``lower``, positions in the ladder's names."""
    if lower < higher:
        return rungs.differences[lower, higher]
    gap = rungs.differences[higher, lower]
    return Interval(
        -gap.value, -gap.hi, -gap.lo, gap.level, gap.method, gap.n, gap.unit, gap.smallest_effect,
        gap.standard_error, gap.note,
    )  # fmt: skip


def _steps(rungs: Ladder, losses: Losses) -> list[Estimate]:
    """From each model to the next one up."""
    steps = []
    for lower, higher in zip(rungs.order, rungs.order[1:], strict=False):
        names = rungs.names[lower], rungs.names[higher]
        build = losses.results(*names, lower=names[0], higher=names[1])
        steps.append(build.interval("step", _difference(rungs, lower, higher)))
    return steps


def letters(number: int) -> str:
    """a, b, ... z, aa, ab, ...: the name of a group, without digits."""
    name = ""
    number += 1
    while number:
        number, left = divmod(number - 1, 26)
        name = chr(ord("a") + left) + name
    return name


def _ties(rungs: Ladder, losses: Losses) -> list[Category]:
    """The groups of indistinguishable models in which each model is, as letters; alone it is in none."""
    groups = [group for group in rungs.groups if len(group) > 1]
    ties = []
    for position, name in enumerate(rungs.names):
        own = [letters(number) for number, group in enumerate(groups) if position in group]
        if own:
            others = sorted({other for group in groups if position in group for other in group} - {position})
            reason = f"cannot be distinguished from {', '.join(rungs.names[other] for other in others)}"
            ties.append(losses.results(name, checkpoint=name).category("tie", " ".join(own), reason))
    return ties


def _reversals(rungs: Ladder, losses: Losses) -> list[Estimate]:
    """Pairs that the fine-tune puts in the opposite order: the gap of re-based losses, and of native ones."""
    count = float(len(rungs.reversals))
    estimates = [losses.results().number("reversals", count, units="pairs", unit="model")]
    for reversal in rungs.reversals:
        names = rungs.names[reversal.lower], rungs.names[reversal.higher]
        build = losses.results(*names, lower=names[0], higher=names[1])
        gap = _difference(rungs, reversal.lower, reversal.higher)
        estimates += [
            build.interval("reversal", gap),
            build.number("reversal.native", reversal.first_gap),
        ]
    return estimates


def _agreement(
    rungs: Ladder,
    native_M: FloatArray,
    families: Sequence[str],
    losses: Losses,
    rng: np.random.Generator,
) -> list[Estimate]:
    """Rank correlations of native and re-based order; none under three models."""
    if len(rungs.names) < 3:
        # two models agree or they do not; no correlation says more
        return []
    rebased_M = np.array([rebased.value for rebased in rungs.rebased])

    def kendall(models: npt.NDArray[np.int64], _families: npt.NDArray[np.generic]) -> float:
        return kendall_tau_b(native_M[models], rebased_M[models])

    correlations = {
        "spearman": spearman_interval(native_M, rebased_M, families, rng=rng, num_resamples=_RESAMPLES),
        "kendall": family_bootstrap(families, kendall, rng=rng, num_resamples=_RESAMPLES),
    }
    build = losses.results()
    estimates = [
        build.interval(f"order.{name}", limits_if_varied(interval), units=CORRELATION)
        for name, interval in correlations.items()
    ]
    registers = [register for register in losses.scores.registers() if register != ALL]
    if len(registers) > 1:
        estimates += _agreement_by_registers(registers, families, losses, rng)
    return estimates


def _agreement_by_registers(
    registers: Sequence[str], families: Sequence[str], losses: Losses, rng: np.random.Generator
) -> list[Estimate]:
    rows = [losses.scores.rows(register) for register in registers]
    arms = [losses.arms[name] for name in losses.names]
    native_RM = [[arm.native_N[row].sum() for arm in arms] for row in rows]
    rebased_RM = [[arm.rebased[row].sum() for arm in arms] for row in rows]
    bytes_R = [losses.scores.num_bytes_N[row].sum() for row in rows]
    intervals = agreement_by_registers(native_RM, rebased_RM, bytes_R, families, rng=rng)
    build = losses.results()
    return [
        build.interval("order.registers", interval, units=CORRELATION, registers=str(size))
        for size, interval in enumerate(intervals, 1)
    ]
