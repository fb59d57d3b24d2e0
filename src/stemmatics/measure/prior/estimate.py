"""A base and a descendant under every correction: shares with two kinds of interval.

Axes: D EVAL documents, P problems, R draws.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from stemmatics.core.facts import Fact
from stemmatics.core.results import Estimate
from stemmatics.math.intervals import Interval, unknown
from stemmatics.math.prior import (
    HOLDS_ZERO,
    IMPROVED,
    check_refits,
    shapley_split,
    with_fit_inside,
)
from stemmatics.math.rates import loss_rates, ratios_of_means
from stemmatics.math.scipy_modules import stats
from stemmatics.measure.inputs import FloatArray
from stemmatics.measure.present import estimate_from
from stemmatics.measure.prior.needs import NAME
from stemmatics.measure.prior.sums import NONE, Arm, Model

HEADLINE = tuple((arm, "selected") for arm in ("bias", "temperature", "joint"))
PARTS = ("temperature", "bias", "rest")
# of a share: what float32 logits leave of an exact 1
_ROUNDING = 1e-4
OFF = "one step is far from full refits, so the redrawn interval is only rough"


@dataclass(frozen=True, eq=False)
class Pair:
    """Two models on the same EVAL documents."""

    subject: Mapping[str, str]
    facts: tuple[Fact, ...]
    old: Model
    new: Model

    @property
    def loss_increase(self) -> FloatArray:
        """Loss increase by document, nats on the shared support."""
        return self.new.nll[NONE] - self.old.nll[NONE]

    @property
    def arms(self) -> list[Arm]:
        """Those that both models have, the model as it is apart."""
        return [arm for arm in self.new.nll if arm != NONE and arm in self.old.nll]

    def net_gain(self, arm: Arm) -> FloatArray:
        """Numerator of S_sym by document."""
        return self.new.gain(arm) - self.old.gain(arm)

    def exact(self, quantity: str, value: float, units: str, *, note: str = "", **subject: str) -> Estimate:
        """A number without an interval of its own."""
        return Estimate(
            measure=NAME,
            quantity=quantity,
            subject={**self.subject, **subject},
            value=value,
            n=len(self.loss_increase),
            units=units,
            facts=tuple(fact.key for fact in self.facts),
            note=note,
        )

    def from_interval(
        self, quantity: str, interval: Interval, units: str, *, note: str = "", **subject: str
    ) -> Estimate:
        """A number with one."""
        return estimate_from(
            interval,
            measure=NAME,
            quantity=quantity,
            subject={**self.subject, **subject},
            units=units,
            facts=self.facts,
            note=note,
        )


def incomparable(old: Model, new: Model) -> str:
    """Why two models can't be compared by token, or the empty string."""
    if old.said["token_ids_sha256"] != new.said["token_ids_sha256"]:
        return "the tokenizers differ: the two models do not see the same tokens of this corpus"
    if old.said["prefix_id"] != new.said["prefix_id"]:
        return f"the prefix ids differ ({old.said['prefix_id']} and {new.said['prefix_id']})"
    if old.said["dtype"] != new.said["dtype"]:
        return f"they were scored in different precision ({old.said['dtype']} and {new.said['dtype']})"
    same = np.array_equal(old.index_D, new.index_D) and np.array_equal(old.num_tokens_D, new.num_tokens_D)
    return "" if same else "they did not score the same tokens in every document"


def refused(subject: Mapping[str, str], facts: Sequence[Fact], reason: str) -> Estimate:
    """The unknown loss increase of a pair that has no shares, with the reason in its note."""
    return Estimate(
        measure=NAME,
        quantity="prior.delta",
        subject=subject,
        value=math.nan,
        units="nats/token",
        facts=tuple(fact.key for fact in facts),
        note=f"refused: {reason}",
    )


def pair_estimates(pair: Pair, rng: np.random.Generator) -> list[Estimate]:
    """Loss increase, shares, parts, redrawn fits, ceilings."""
    found = deltas(pair, rng)
    delta = found[0]
    reason = ""
    if not (math.isfinite(delta.lo) and math.isfinite(delta.hi)) or delta.lo <= 0 <= delta.hi:
        reason = HOLDS_ZERO
    elif delta.hi < 0:
        reason = IMPROVED
    found += shares(pair, rng, reason)
    found += parts(pair, rng, reason)
    found += ceiling(pair, reason)
    found += refit_checks(pair, reason)
    return found


def deltas(pair: Pair, rng: np.random.Generator) -> list[Estimate]:
    """The loss increase on the shared support, on all ids, and what the excluded ids add: they add up."""
    excluded_D = pair.new.excluded_D - pair.old.excluded_D
    columns = np.stack([pair.loss_increase, pair.loss_increase + excluded_D, excluded_D], axis=1)
    tokens = np.broadcast_to(pair.old.num_tokens_D[:, None], columns.shape)
    intervals = loss_rates(columns, tokens, rng=rng, groups=pair.old.group_D)
    quantities = ("prior.delta", "prior.delta_full", "prior.excluded")
    return [
        pair.from_interval(quantity, interval, "nats/token")
        for quantity, interval in zip(quantities, intervals, strict=True)
    ]


def _ratios(
    pair: Pair, columns: Sequence[FloatArray], rng: np.random.Generator, reason: str
) -> list[Interval]:
    """Each over the loss increase; all unknown, with the reason, where there is one."""
    if reason:
        num = len(pair.loss_increase)
        return [unknown(math.nan, level=0.95, n=num, unit="document", note=reason) for _ in columns]
    found = ratios_of_means(np.stack(columns, axis=1), pair.loss_increase, rng=rng, groups=pair.old.group_D)
    return [_settled(interval) for interval in found]


def _settled(interval: Interval) -> Interval:
    """Limits for a share that varies between documents by rounding alone, where a bootstrap finds none.

    A change that a correction undoes exactly has such a share; its jackknife error is known.
    """
    unknown_limit = math.isnan(interval.lo) or math.isnan(interval.hi)
    if not (unknown_limit and interval.standard_error < _ROUNDING):
        return interval
    reach = float(stats.t.ppf((1 + interval.level) / 2, interval.n - 1)) * interval.standard_error
    value = interval.value
    note = "varies by rounding alone"
    return replace(interval, lo=value - reach, hi=value + reach, method="jackknife-t", note=note)


def shares(pair: Pair, rng: np.random.Generator, reason: str) -> list[Estimate]:
    """S_card and S_sym of every arm with the fits held; S_sym of the selected fits also with them redrawn."""
    arms = pair.arms
    columns = [pair.new.gain(arm) for arm in arms] + [pair.net_gain(arm) for arm in arms]
    intervals = _ratios(pair, columns, rng, reason)
    found = []
    for place, arm in enumerate(arms):
        name = {"arm": arm[0], "reading": arm[1]}
        card, sym = intervals[place], intervals[place + len(arms)]
        flags = _flags(pair, arm)
        found.append(pair.from_interval("prior.card", card, "of delta", note=flags, **name))
        found.append(pair.from_interval("prior.sym", sym, "of delta", note=flags, **name))
        if arm in HEADLINE:
            redrawn_R = _redrawn_shares(pair, arm, "one_step")
            inside = sym if reason or not redrawn_R.size else with_fit_inside(sym, redrawn_R)
            if redrawn_R.size:
                note = "; ".join(part for part in (flags, OFF if _is_off(pair, arm) else "") if part)
                found.append(pair.from_interval("prior.sym_redrawn", inside, "of delta", note=note, **name))
    return found


def _flags(pair: Pair, arm: Arm) -> str:
    """What is odd about the fits of either model."""
    said = []
    for who, model in (("base", pair.old), ("descendant", pair.new)):
        flags = model.fits[arm]["flags"] if arm in model.fits else []
        said += [f"{who}: {flag.replace('_', ' ')}" for flag in flags]
    return ", ".join(said)


def _is_off(pair: Pair, arm: Arm) -> bool:
    """Whether one Newton step misses full refits by more than half of what they vary by."""
    full_R = _redrawn_shares(pair, arm, "full")
    if len(full_R) < 2:
        return False
    check = check_refits(_redrawn_shares(pair, arm, "one_step")[: len(full_R)], full_R)
    return check.rms_difference > 0.5 * check.sd > 0


def _redrawn_shares(pair: Pair, arm: Arm, kind: str) -> FloatArray:
    """S_sym under each draw of FIT weights, which base and descendant share; EVAL held."""
    new_R, old_R = pair.new.redrawn_gain(arm, kind), pair.old.redrawn_gain(arm, kind)
    if new_R.shape != old_R.shape:
        return np.empty(0)
    increase = float(pair.loss_increase.sum())
    shares_R: FloatArray = (new_R - old_R) / (increase if increase > 0 else np.nan)
    return shares_R


def parts(pair: Pair, rng: np.random.Generator, reason: str) -> list[Estimate]:
    """The loss increase in three: temperature, bias (Shapley), and what no context-free fit takes back."""
    if any(arm not in pair.arms for arm in HEADLINE):
        return []
    bias, temperature, joint = (pair.net_gain(arm) for arm in HEADLINE)
    split = dict(
        zip(PARTS, (*shapley_split(temperature, bias, joint), pair.loss_increase - joint), strict=True)
    )
    contrasts = [(one, other) for one in PARTS for other in PARTS if one != other]
    columns = [split[name] for name in PARTS] + [split[one] - split[other] for one, other in contrasts]
    intervals = _ratios(pair, columns, rng, reason)
    found = [
        pair.from_interval("prior.part", interval, "of delta", part=name)
        for name, interval in zip(PARTS, intervals, strict=False)
    ]
    return found + [
        pair.from_interval("prior.lead", interval, "of delta", part=one, over=other)
        for (one, other), interval in zip(contrasts, intervals[len(PARTS) :], strict=True)
    ]


def ceiling(pair: Pair, reason: str) -> list[Estimate]:
    """The proven lower bound of the best bias on EVAL itself, beside the gain of the closed step."""
    arm = ("in_sample", "")
    if arm not in pair.arms or reason:
        return []
    bound = float(pair.new.fits[arm]["bound_nll_sum"])
    return [pair.exact("prior.bound", bound / float(pair.loss_increase.sum()), "of delta")]


def refit_checks(pair: Pair, reason: str) -> list[Estimate]:
    """How far one Newton step is from full refits of the same draws, in S_sym."""
    found: list[Estimate] = []
    for arm in HEADLINE if not reason else ():
        full_R = _redrawn_shares(pair, arm, "full")
        step_R = _redrawn_shares(pair, arm, "one_step")[: len(full_R)]
        if len(full_R) < 2:
            continue
        check = check_refits(step_R, full_R)
        values: Mapping[str, Any] = {"rms": check.rms_difference, "sd": check.sd, "r": check.correlation}
        found += [
            Estimate(
                measure=NAME,
                quantity=f"prior.refit.{name}",
                subject={**pair.subject, "arm": arm[0], "reading": arm[1]},
                value=value,
                n=check.num_refits,
                unit="refit",
                units="" if name == "r" else "of delta",
                tag="control",
                facts=tuple(fact.key for fact in pair.facts),
            )
            for name, value in values.items()
        ]
    return found
