"""The ladder: who stands above whom after the fine-tune, and where that differs from the released order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from stemmatics.core.results import Estimate
from stemmatics.facts.pinned import Pinned
from stemmatics.math.intervals import Interval
from stemmatics.math.placing import LEVEL
from stemmatics.math.ranks import kendall_tau_b, spearman_interval
from stemmatics.math.recovery import Ladder, UnknownBase, ladder
from stemmatics.math.register_agreement import agreement_by_registers, limits_if_varied
from stemmatics.math.seeds import family_bootstrap
from stemmatics.measure.inputs import ALL
from stemmatics.measure.recovery.losses import Losses
from stemmatics.measure.recovery.say import Say

UNITS = "nats/byte"
# resamples of whole families for the agreement of orders: a percentile interval, not a tail
_RESAMPLES = 2000


def ladder_estimates(
    pinned: Pinned, losses: Losses, placed: Mapping[str, tuple[UnknownBase, str]], rng: np.random.Generator
) -> list[Estimate]:
    """Positions, losses, steps to the next, ties, reversals, and the agreement of the two orders."""
    names = losses.names
    native_M = np.array([losses.loss(losses.arms[name].native_N) for name in names])
    made = ladder(
        names,
        np.stack([losses.arms[name].rebased for name in names], axis=1),
        losses.scores.num_bytes_N,
        rng=rng,
        native_loss_M=native_M,
        document_groups=losses.scores.group_N,
    )
    say = Say(losses)
    found = _positions(made, native_M, placed, say)
    found += _ties(made, say)
    found += _reversals(made, say)
    families = [pinned.stemma.family(name) for name in names]
    return found + _agreement(made, native_M, families, losses, rng)


def _positions(
    made: Ladder, native_M: Any, placed: Mapping[str, tuple[UnknownBase, str]], say: Say
) -> list[Estimate]:
    """Each model's losses and where it stands: a base-unknown one by the estimate of its base's loss."""
    stands = {name: made.rebased[place].value for place, name in enumerate(made.names)}
    stands |= {name: unknown.value for name, (unknown, _) in placed.items()}
    ranks = {name: rank for rank, name in enumerate(sorted(stands, key=lambda one: stands[one]), 1)}
    found = []
    for place, name in enumerate(made.names):
        subject = {"checkpoint": name}
        found.append(say.interval(made.rebased[place], "rebased", subject, name))
        found.append(say.number(float(native_M[place]), "native", subject, name))
        found.append(say.number(float(ranks[name]), "rank", subject, name, units="rank", unit="model"))
        if name in placed:
            found += _placed(name, *placed[name], say)
    for lower, higher in zip(made.order, made.order[1:], strict=False):
        pair = made.names[lower], made.names[higher]
        gap = made.differences[min(lower, higher), max(lower, higher)]
        step = gap if lower < higher else _turned(gap)
        found.append(say.interval(step, "step", {"lower": pair[0], "higher": pair[1]}, *pair))
    return found


def _placed(name: str, unknown: UnknownBase, rule: str, say: Say) -> list[Estimate]:
    offset = unknown.offset
    interval = Interval(
        unknown.value,
        unknown.value - unknown.bar,
        unknown.value + unknown.bar,
        LEVEL,
        "recovered less offset",
        offset.num_pairs,
        "pair",
        float("nan"),
        float("nan"),
        offset.note,
    )
    subject = {"checkpoint": name}
    return [
        say.interval(interval, "placed", {**subject, "rule": rule}, name),
        say.number(offset.value, "offset", subject, name, n=offset.num_pairs, unit="pair", note=offset.note),
    ]


def _turned(gap: Interval) -> Interval:
    return Interval(
        -gap.value, -gap.hi, -gap.lo, gap.level, gap.method, gap.n, gap.unit, gap.smallest_effect,
        gap.standard_error, gap.note,
    )  # fmt: skip


def _ties(made: Ladder, say: Say) -> list[Estimate]:
    """Membership in groups that can't be told apart; a group of one is none."""
    found = []
    groups = [group for group in made.groups if len(group) > 1]
    for number, group in enumerate(groups):
        for place in group:
            name = made.names[place]
            subject = {"checkpoint": name, "group": f"{number:03d}"}
            found.append(say.number(1.0, "tie", subject, name, units="", unit="model"))
    return found


def _reversals(made: Ladder, say: Say) -> list[Estimate]:
    """Pairs that the fine-tune turns round: the gap of re-based losses, and that of native ones."""
    count = float(len(made.reversals))
    found = [say.number(count, "reversals", {}, *made.names, units="pairs", unit="model")]
    for one in made.reversals:
        pair = made.names[one.lower], made.names[one.higher]
        gap = made.differences[min(one.lower, one.higher), max(one.lower, one.higher)]
        gap = gap if one.lower < one.higher else _turned(gap)
        subject = {"lower": pair[0], "higher": pair[1]}
        found.append(say.interval(gap, "reversal", subject, *pair))
        found.append(say.number(one.first_gap, "reversal.native", subject, *pair))
    return found


def _agreement(
    made: Ladder,
    native_M: Any,
    families: Sequence[str],
    losses: Losses,
    rng: np.random.Generator,
) -> list[Estimate]:
    say = Say(losses)
    if len(made.names) < 3:
        # two models agree or they do not; no correlation says more
        return []
    rebased_M = np.array([one.value for one in made.rebased])

    def kendall(models: Any, _families: Any) -> float:
        return kendall_tau_b(native_M[models], rebased_M[models])

    both = {
        "spearman": spearman_interval(native_M, rebased_M, families, rng=rng, num_resamples=_RESAMPLES),
        "kendall": family_bootstrap(families, kendall, rng=rng, num_resamples=_RESAMPLES),
    }
    found = [
        say.interval(limits_if_varied(interval), f"order.{name}", {}, *made.names, units="rank correlation")
        for name, interval in both.items()
    ]
    registers = [register for register in losses.scores.registers() if register != ALL]
    if len(registers) > 1:
        found += _by_registers(registers, families, losses, rng)
    return found


def _by_registers(
    registers: Sequence[str], families: Sequence[str], losses: Losses, rng: np.random.Generator
) -> list[Estimate]:
    say = Say(losses)
    rows = [losses.scores.rows(register) for register in registers]
    arms = [losses.arms[name] for name in losses.names]
    native_RM = [[arm.native_N[row].sum() for arm in arms] for row in rows]
    rebased_RM = [[arm.rebased[row].sum() for arm in arms] for row in rows]
    bytes_R = [losses.scores.num_bytes_N[row].sum() for row in rows]
    found = agreement_by_registers(native_RM, rebased_RM, bytes_R, families, rng=rng)
    return [
        say.interval(
            interval, "order.registers", {"registers": str(size)}, *losses.names, units="rank correlation"
        )
        for size, interval in enumerate(found, 1)
    ]
