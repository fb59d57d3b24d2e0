"""Results of a pair under every correction: loss increase, shares with two kinds of interval, fits.

Axes: D EVAL documents, R draws.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from stemmatics.core.facts import Fact
from stemmatics.core.results import Category, Estimate, Refusal, Result, Results
from stemmatics.facts.prior import (
    AT_EDGE,
    BIAS,
    CAPPED,
    FULL,
    HALF,
    IN_SAMPLE,
    INFIMUM,
    JOINT,
    NOT_CONVERGED,
    ONE_STEP,
    OWN,
    SELECTED,
    SOME_TARGETS_IN_REST,
    TEMPERATURE,
)
from stemmatics.math.intervals import Interval, unknown
from stemmatics.math.prior import check_refits, shapley_split, with_fit_inside
from stemmatics.math.rates import loss_rates, ratios_of_means
from stemmatics.math.scipy_modules import stats
from stemmatics.measure.base import Tables
from stemmatics.measure.inputs import FloatArray
from stemmatics.measure.present import ResultBuilder, known
from stemmatics.measure.prior.floors import floor_results
from stemmatics.measure.prior.settings import NAME
from stemmatics.measure.prior.sums import (
    HEADLINE,
    NET,
    NONE,
    RECOVERED,
    SHARES,
    Arm,
    Model,
    Pair,
    ShareName,
    incomparable,
    read_models,
    refusal_of,
)

CONTAINS_ZERO = "the interval of the loss increase contains 0"
IMPROVED = "the descendant improved, so there is no loss increase to recover"
UNREACHED = "the fit is an infimum that gives some targets of EVAL no probability"
PARTS = (TEMPERATURE, BIAS, "rest")
# how redrawn fits by one Newton step compare with full refits of the same draws
CLOSE, FAR = "close to full refits", "far from full refits"
# whether more FIT text still raises a share
RISING, NOT_RISING = "still rising", "not seen to rise"
_RISE_REASONS = {
    RISING: "the interval of the rise from half of the FIT text to all of it lies above 0",
    NOT_RISING: "the interval of the rise from half of the FIT text to all of it does not lie above 0",
}
_LEVEL = 0.95
# standard error of a share below which float32 logits explain all of its variation
_ROUNDING = 1e-4
_OF_INCREASE = "of delta"
_PER_TOKEN = "nats/token"  # noqa: S105 - a unit
_FLAG_REASONS = {
    AT_EDGE: "the fitted temperature is at the edge of its range",
    NOT_CONVERGED: "the fit stopped before it reached its tolerance",
    CAPPED: "the held-out loss was still falling at the last allowed step",
    INFIMUM: "ids that the fit text never has run to minus infinity: an infimum, which no fit attains",
    SOME_TARGETS_IN_REST: "some EVAL targets have no bias of their own, so this is a ceiling for fewer ids",
}


def pair_results(
    subject: Mapping[str, str],
    facts: tuple[Fact, Fact],
    floor: Fact | None,
    tables: Tables,
    rng: np.random.Generator,
) -> list[Result]:
    """Everything about one pair on one corpus; a refused loss increase where it can't be compared."""
    refuse = ResultBuilder(NAME, subject, facts).refusal
    for fact in facts:
        if reason := refusal_of(fact, tables):
            return [refuse("delta", reason)]
    old, new = (read_models(fact, tables)[OWN] for fact in facts)
    if reason := incomparable(old, new):
        return [refuse("delta", reason)]
    pair = Pair(subject, facts, old, new)
    results = [*share_results(pair, rng), *fit_results(pair)]
    if floor is not None and tables.has(floor):
        among = Results(results)
        shares = {arm: shown_share(among, arm=arm[0], reading=arm[1]) for arm in pair.arms}
        results += floor_results(pair, floor, tables, shares)
    return results


def shown_share(results: Results, which: ShareName = NET, /, **subject: str) -> Estimate | Refusal | None:
    """The recovered share that is shown: with the fits redrawn, if there is one."""
    for quantity in (f"prior.{which}_redrawn", f"prior.{which}"):
        share = results.find(quantity, **subject) or results.refusal(quantity, **subject)
        if share is not None:
            return share
    return None


def share_results(pair: Pair, rng: np.random.Generator) -> list[Result]:
    """Loss increase, shares, parts, the lower bound of the ceiling, checks of the redrawn fits."""
    increases = loss_increases(pair, rng)
    reason = why_no_share(increases[0])
    return [
        *increases,
        *shares(pair, rng, reason),
        *parts(pair, rng, reason),
        *rises(pair, rng, reason),
        *ceiling(pair, reason),
        *refit_checks(pair, reason),
    ]


def why_no_share(increase: Estimate) -> str:
    """Why there is no share of a loss increase, or the empty string."""
    if not (known(increase.lo) and known(increase.hi)):
        return f"the interval of the loss increase is unknown ({increase.note})"
    if increase.lo <= 0 <= increase.hi:
        return CONTAINS_ZERO
    return IMPROVED if increase.hi < 0 else ""


def loss_increases(pair: Pair, rng: np.random.Generator) -> list[Estimate]:
    """The loss increase on the shared support, on all ids, and what the excluded ids add: they add up."""
    excluded_D = pair.new.excluded_D - pair.old.excluded_D
    columns = np.stack([pair.loss_increase, pair.loss_increase + excluded_D, excluded_D], axis=1)
    tokens = np.broadcast_to(pair.old.num_tokens_D[:, None], columns.shape)
    intervals = loss_rates(columns, tokens, rng=rng, groups=pair.old.group_D)
    return [
        pair.builder.interval(quantity, interval, units=_PER_TOKEN)
        for quantity, interval in zip(("delta", "delta_full", "excluded"), intervals, strict=True)
    ]


def shares(pair: Pair, rng: np.random.Generator, reason: str) -> list[Result]:
    """Both shares of every arm with the fits held fixed, and with them redrawn where they were."""
    arms = pair.arms
    columns = [pair.new.gain(arm) for arm in arms] + [pair.net_gain(arm) for arm in arms]
    intervals = _ratios(pair, columns, rng, reason)
    results: list[Result] = []
    for arm, recovered, net in zip(arms, intervals[: len(arms)], intervals[len(arms) :], strict=True):
        builder = pair.builder.about(arm=arm[0], reading=arm[1])
        for share, interval in ((RECOVERED, recovered), (NET, net)):
            results.append(_share(builder, share, interval))
            redrawn_R = pair.redrawn_shares(arm, ONE_STEP, share)
            if redrawn_R.size:
                results.append(_share(builder, f"{share}_redrawn", with_fit_inside(interval, redrawn_R)))
    for arm in [arm for arm in pair.new.fits if arm in pair.old.fits and arm not in (NONE, *arms)]:
        builder = pair.builder.about(arm=arm[0], reading=arm[1])
        results += [builder.refusal(name, reason or UNREACHED) for name in SHARES]
    return results


def _share(builder: ResultBuilder, quantity: str, interval: Interval) -> Result:
    """A share of the loss increase; a refusal with the reason where it is not defined."""
    if not known(interval.value):
        return builder.refusal(quantity, interval.note)
    return builder.interval(quantity, interval, units=_OF_INCREASE)


def _ratios(
    pair: Pair, columns: Sequence[FloatArray], rng: np.random.Generator, reason: str
) -> list[Interval]:
    """Each column over the loss increase; all unknown, with the reason as note, where there is one."""
    if reason:
        num = len(pair.loss_increase)
        return [unknown(math.nan, level=_LEVEL, n=num, unit="document", note=reason) for _ in columns]
    intervals = ratios_of_means(
        np.stack(columns, axis=1), pair.loss_increase, rng=rng, groups=pair.old.group_D
    )
    return [_with_rounding_limits(interval) for interval in intervals]


def _with_rounding_limits(interval: Interval) -> Interval:
    """Limits for a share that varies between documents by rounding alone, where a bootstrap gives none.

    A change that a correction undoes exactly has such a share; its jackknife error is known.
    """
    if (known(interval.lo) and known(interval.hi)) or not interval.standard_error < _ROUNDING:
        return interval
    reach = float(stats.t.ppf((1 + interval.level) / 2, interval.n - 1)) * interval.standard_error
    return replace(
        interval,
        lo=interval.value - reach,
        hi=interval.value + reach,
        method="jackknife-t",
        note="varies by rounding alone",
    )


def parts(pair: Pair, rng: np.random.Generator, reason: str) -> list[Result]:
    """The loss increase in three parts: temperature, bias (Shapley), and the rest; and their differences."""
    if any(arm not in pair.arms for arm in HEADLINE):
        return []
    bias, temperature, joint = (pair.net_gain(arm) for arm in HEADLINE)
    gain_of = dict(
        zip(PARTS, (*shapley_split(temperature, bias, joint), pair.loss_increase - joint), strict=True)
    )
    contrasts = [(part, other) for part in PARTS for other in PARTS if part != other]
    columns = [*gain_of.values(), *(gain_of[part] - gain_of[other] for part, other in contrasts)]
    intervals = _ratios(pair, columns, rng, reason)
    bias_R, temperature_R, joint_R = (pair.redrawn_shares(arm, ONE_STEP) for arm in HEADLINE)
    if bias_R.size and bias_R.shape == temperature_R.shape == joint_R.shape:
        split = zip(PARTS, (*shapley_split(temperature_R, bias_R, joint_R), 1.0 - joint_R), strict=True)
        share_of = dict(split)
        draws = [*share_of.values(), *(share_of[part] - share_of[other] for part, other in contrasts)]
        intervals = [
            with_fit_inside(interval, draw_R) for interval, draw_R in zip(intervals, draws, strict=True)
        ]
    return [
        *(
            _share(pair.builder.about(part=part), "part", interval)
            for part, interval in zip(PARTS, intervals, strict=False)
        ),
        *(
            _share(pair.builder.about(part=part, over=other), "lead", interval)
            for (part, other), interval in zip(contrasts, intervals[len(PARTS) :], strict=True)
        ),
    ]


def rises(pair: Pair, rng: np.random.Generator, reason: str) -> list[Result]:
    """By how much the joint shares rose from half of FIT to all of it, and whether they are still rising.

    The rise is paired: the same EVAL documents, and the same draws of FIT weights. Without redrawn fits
    nothing is called rising, since the half that was drawn is one of many.
    """
    whole, half = (JOINT, SELECTED), (JOINT, HALF)
    if half not in pair.arms or whole not in pair.arms:
        return []
    columns = [pair.gain(whole, share) - pair.gain(half, share) for share in SHARES]
    results: list[Result] = []
    for share, fixed in zip(SHARES, _ratios(pair, columns, rng, reason), strict=True):
        builder = pair.builder.about(of=share)
        draws = [pair.redrawn_shares(arm, ONE_STEP, share) for arm in (whole, half)]
        redrawn = bool(draws[0].size) and draws[0].shape == draws[1].shape
        interval = with_fit_inside(fixed, draws[0] - draws[1]) if redrawn else fixed
        results.append(_share(builder, "rise", interval))
        if reason or not redrawn or not (known(interval.lo) and known(interval.hi)):
            why = reason or (
                "the interval of the last step is unknown" if redrawn else "no fits were redrawn"
            )
            results.append(builder.refusal("text", why))
        else:
            word = RISING if interval.lo > 0 else NOT_RISING
            results.append(builder.category("text", word, _RISE_REASONS[word]))
    return results


def ceiling(pair: Pair, reason: str) -> list[Estimate]:
    """The proven lower bound of the best bias on EVAL itself, beside the gain of the closed step."""
    arm = (IN_SAMPLE, "")
    if arm not in pair.arms or reason:
        return []
    bound = float(pair.new.fits[arm]["bound_nll_sum"])
    return [pair.builder.number("bound", bound / float(pair.loss_increase.sum()), units=_OF_INCREASE)]


def refit_checks(pair: Pair, reason: str) -> list[Result]:
    """How far one Newton step is from full refits of the same draws, in the net recovered share."""
    results: list[Result] = []
    for arm in HEADLINE if not reason else ():
        full_R = pair.redrawn_shares(arm, FULL)
        step_R = pair.redrawn_shares(arm, ONE_STEP)[: len(full_R)]
        if len(full_R) < 2:
            continue
        check = check_refits(step_R, full_R)
        builder = replace(pair.builder, n=check.num_refits, unit="refit", tag="control")
        builder = builder.about(arm=arm[0], reading=arm[1])
        results += [
            builder.number("refit.rms", check.rms_difference, units=_OF_INCREASE),
            builder.number("refit.sd", check.sd, units=_OF_INCREASE),
            builder.number("refit.r", check.correlation),
            _agreement(builder, check.rms_difference, check.sd),
        ]
    return results


def _agreement(builder: ResultBuilder, rms: float, sd: float) -> Category:
    """Far where one step misses the full refits by more than half of what they vary by."""
    if rms > 0.5 * sd > 0:
        reason = "the difference exceeds half of the refits' standard deviation: the interval is approximate"
        return builder.category("refit.agreement", FAR, reason)
    return builder.category("refit.agreement", CLOSE, "the difference is small beside the refits' variation")


def fit_results(pair: Pair) -> list[Result]:
    """What was fitted in either model: temperature, penalty, losses, distance to the optimum, flags."""
    return [
        result
        for side, model in (("base", pair.old), ("descendant", pair.new))
        for arm in model.fits
        for result in _fit(pair.builder.about(side=side, arm=arm[0], reading=arm[1]), model, arm)
    ]


def _fit(builder: ResultBuilder, model: Model, arm: Arm) -> list[Result]:
    fit = model.fits[arm]
    values = {
        "temperature": (1.0 / fit["inverse_temperature"], ""),
        "penalty": (fit["penalty"], ""),
        "gap": (fit["gap"], _PER_TOKEN),
        "gradient": (fit["gradient_norm"], ""),
        "fit_loss": (_mean(fit["fit_nll_sum"], fit["num_fit_tokens"]), _PER_TOKEN),
        "held_loss": (_mean(fit["held_nll_sum"], fit["num_held_tokens"]), _PER_TOKEN),
        "tokens": (_text_size(fit["num_fit_tokens"], fit["num_held_tokens"]), "tokens"),
    }
    note = str(model.metadata["note"] or "")
    return [
        *(
            builder.number(f"fit.{name}", float(value), units=units, note=note)
            for name, (value, units) in values.items()
            if value is not None
        ),
        *(
            builder.category("fit.flags", flag.replace("_", " "), _FLAG_REASONS.get(flag, ""), flag=flag)
            for flag in fit["flags"]
        ),
    ]


def _mean(total: float | None, count: int | None) -> float | None:
    return None if total is None or not count else total / count


def _text_size(num_fit: int | None, num_held_out: int | None) -> int | None:
    """Tokens that a fit has read: those that it fits, and those that choose its penalty."""
    return None if not num_fit else num_fit + (num_held_out or 0)
