"""The ladder: models in order of their loss after the fine-tune, and where the released order differs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from stemmatics.core.results import Category, Estimate, Result
from stemmatics.facts.pinned import Pinned
from stemmatics.math.intervals import Interval
from stemmatics.math.ranks import kendall_tau_b, spearman_interval
from stemmatics.math.rates import paired_differences
from stemmatics.math.recovery import LEVEL, Ladder, ladder
from stemmatics.math.register_agreement import agreement_by_registers, limits_if_varied
from stemmatics.math.run_noise import run_component, with_runs
from stemmatics.math.seeds import family_bootstrap
from stemmatics.measure.inputs import ALL, FloatArray
from stemmatics.measure.recovery.losses import Losses
from stemmatics.measure.recovery.offsets import UnknownBase, unknown_base_results

CORRELATION = "rank correlation"
# resamples of whole families for the agreement of orders: a percentile interval, not a tail
_RESAMPLES = 2000


def ladder_results(
    pinned: Pinned,
    losses: Losses,
    unknown: Mapping[str, UnknownBase],
    noise: Interval,
    rng: np.random.Generator,
) -> list[Result]:
    """Ranks, losses, steps to the next model, ties, reversals, and the agreement of the two orders.

    ``unknown`` are the models whose base is unknown: the estimated base is ranked in place of the model, with
    its bar. Bars are 90%, and so is every interval of a ladder that has one; 95% in a ladder without.
    """
    names = losses.names
    native_M = np.array([losses.native_loss(name) for name in names])
    estimates = [unknown[name].estimate if name in unknown else None for name in names]
    level = LEVEL if unknown else 0.95
    rungs = ladder(
        names,
        np.stack([losses.arms[name].rebased for name in names], axis=1),
        losses.scores.num_bytes_N,
        rng=rng,
        native_loss_M=native_M,
        offset_M=[each.offset.value if each else 0.0 for each in estimates],
        bar_M=[each.half_width if each else 0.0 for each in estimates],
        run_half_widths=_run_half_widths(losses, noise, level),
        document_groups=losses.scores.group_N,
        level=level,
    )
    families = [pinned.stemma.family(name) for name in names]
    return [
        *_models(rungs, native_M, unknown, losses),
        *_steps(rungs, unknown, losses),
        *_ties(rungs, losses),
        *_reversals(rungs, losses, noise, rng),
        *_agreement(rungs, native_M, families, losses, rng),
    ]


def _run_half_widths(losses: Losses, noise: Interval, level: float) -> dict[tuple[int, int], float]:
    """What run noise adds to each difference; nothing where no arm has two runs."""
    if math.isnan(noise.value):
        return {}
    runs = [losses.arms[name].num_runs for name in losses.names]
    return {
        (i, j): run_component(noise, [runs[i], runs[j]], level=level).hi
        for i, j in itertools.combinations(range(len(runs)), 2)
    }


def _models(
    rungs: Ladder, native_M: FloatArray, unknown: Mapping[str, UnknownBase], losses: Losses
) -> list[Result]:
    """Each model's losses and rank; where its base is unknown it is ranked by the base's estimated loss."""
    ranks = {rungs.names[model]: rank for rank, model in enumerate(rungs.order, 1)}
    results: list[Result] = []
    for name, rebased, native in zip(rungs.names, rungs.rebased, native_M, strict=True):
        build = losses.results(name, checkpoint=name)
        results += [
            build.interval("rebased", rebased),
            build.number("native", float(native)),
            build.number("rank", float(ranks[name]), units="rank", unit="model"),
        ]
        if name in unknown:
            results += unknown_base_results(build, unknown[name])
    return results


def _between(intervals: Mapping[tuple[int, int], Interval], lower: int, higher: int) -> Interval:
    """Value of ``higher`` less value of ``lower``, positions in the ladder's names."""
    if lower < higher:
        return intervals[lower, higher]
    gap = intervals[higher, lower]
    return Interval(
        -gap.value, -gap.hi, -gap.lo, gap.level, gap.method, gap.n, gap.unit, gap.smallest_effect,
        gap.standard_error, gap.note,
    )  # fmt: skip


def _steps(rungs: Ladder, unknown: Mapping[str, UnknownBase], losses: Losses) -> list[Estimate]:
    """From each rank to the next one up; estimated bases with their bars."""
    steps = []
    for lower, higher in itertools.pairwise(rungs.order):
        names = rungs.names[lower], rungs.names[higher]
        build = losses.results(*names, lower=names[0], higher=names[1])
        note = "with the bar of an estimated base" if unknown.keys() & set(names) else ""
        steps.append(build.interval("step", _between(rungs.gaps, lower, higher), note=note))
    return steps


def letters(number: int) -> str:
    """a, b, ... z, aa, ab, ...: the name of a group, without digits."""
    name = ""
    number += 1
    while number:
        number, remainder = divmod(number - 1, 26)
        name = chr(ord("a") + remainder) + name
    return name


def _ties(rungs: Ladder, losses: Losses) -> list[Category]:
    """The groups of indistinguishable models in which each model is, as letters; alone it is in none."""
    groups = [group for group in rungs.groups if len(group) > 1]
    ties = []
    for position, name in enumerate(rungs.names):
        tied_groups = [letters(number) for number, group in enumerate(groups) if position in group]
        if tied_groups:
            others = sorted({other for group in groups if position in group for other in group} - {position})
            reason = f"cannot be distinguished from {', '.join(rungs.names[other] for other in others)}"
            ties.append(losses.results(name, checkpoint=name).category("tie", " ".join(tied_groups), reason))
    return ties


def _reversals(rungs: Ladder, losses: Losses, noise: Interval, rng: np.random.Generator) -> list[Estimate]:
    """Pairs that the fine-tune puts in the opposite order: their re-based gap and their native one.

    Counted twice: all of them, and those of which both gaps are told from 0. The models themselves are
    compared, never an estimated base.
    """
    pairs = [(reversal.lower, reversal.higher) for reversal in rungs.reversals]
    names = [(rungs.names[lower], rungs.names[higher]) for lower, higher in pairs]
    natives = _native_gaps(names, losses, rungs.rebased[0].level, rng) if names else []
    gaps = [_with_run_noise(_between(rungs.differences, *pair), pair, losses, noise) for pair in pairs]
    clear = sum(native.lo > 0 and gap.hi < 0 for native, gap in zip(natives, gaps, strict=True))
    everywhere = losses.results()
    estimates = [
        everywhere.number("reversals", float(len(pairs)), units="pairs", unit="model"),
        everywhere.number("reversals.clear", float(clear), units="pairs", unit="model"),
    ]
    for (lower, higher), gap, native in zip(names, gaps, natives, strict=True):
        build = losses.results(lower, higher, lower=lower, higher=higher)
        estimates += [build.interval("reversal", gap), build.interval("reversal.native", native)]
    return estimates


def _with_run_noise(gap: Interval, pair: tuple[int, int], losses: Losses, noise: Interval) -> Interval:
    """A re-based gap with run noise, where that is known."""
    if math.isnan(noise.value):
        return gap
    runs = [losses.arms[losses.names[position]].num_runs for position in pair]
    return with_runs(gap, run_component(noise, runs, level=gap.level))


def _native_gaps(
    pairs: Sequence[tuple[str, str]], losses: Losses, level: float, rng: np.random.Generator
) -> list[Interval]:
    """Native loss of the second less that of the first."""
    first, second = ([losses.arms[pair[side]].native_N for pair in pairs] for side in (0, 1))
    scores = losses.scores
    return paired_differences(
        np.stack(first, axis=1), np.stack(second, axis=1), scores.num_bytes_N, rng=rng,
        groups=scores.group_N, level=level,
    )  # fmt: skip


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
