"""Register or forgetting: the verdict from intervals of a few linear combinations of losses.

Axes: C statements, S studies (any shape; none for one study). Losses are in nats/byte.

Of pool j (1 or 2): ``r_j`` = recovered less matched base, ``g_j`` = native less matched base, the gap. All
margins are shares of the gap. A statement is one linear combination of the five arms, and holds where its
whole interval lies on one side of 0; so at the same values a wider interval never adds or changes a verdict.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stemmatics.math.scipy_modules import stats
from stemmatics.math.sums import FloatArray

KAPPA = 0.1
"""Share of the gap within which the residual counts as taken back."""
RETENTION_MARGIN = 0.1
"""Change of retention within which recall counts as kept, and below which as lost."""
FEWEST_RUNS = 3
"""Runs that base and descendant each need on the first pool; one of each is needed on the second."""
FEWEST_ITEMS = 40
"""Items that the matched base must answer, mean over its runs."""
FEWEST_DOCUMENTS = 20
"""Documents (groups of near-duplicates) that the scored text must have."""
LEVEL = 0.95

FORGETTING, REGISTER, BOTH, UNDETERMINED = "forgetting", "register", "both", "undetermined"
VERDICTS = (FORGETTING, REGISTER, BOTH, UNDETERMINED)

ARMS = ("native", "base", "recovered", "second base", "second recovered")
"""The arms that the weights of a statement are about, in their order; the last two are of the second pool."""
STATEMENTS: Mapping[str, tuple[float, ...]] = {
    "gap-first": (1.0, -1.0, 0.0, 0.0, 0.0),
    "gap-second": (1.0, 0.0, 0.0, -1.0, 0.0),
    "above-first": (-KAPPA, KAPPA - 1, 1.0, 0.0, 0.0),
    "above-second": (-KAPPA, 0.0, 0.0, KAPPA - 1, 1.0),
    "not-below-first": (KAPPA, -KAPPA - 1, 1.0, 0.0, 0.0),
    "not-below-second": (KAPPA, 0.0, 0.0, -KAPPA - 1, 1.0),
    "more-than-half": (0.0, 0.5, -0.5, -1.0, 1.0),
}
"""Weights of the arms in ``g_j``, ``r_j - kappa g_j``, ``r_j + kappa g_j`` and ``r_2 - r_1 / 2``."""

BoolArray = npt.NDArray[np.bool_]
Limits = Mapping[str, tuple[npt.ArrayLike, npt.ArrayLike]]
"""Lower and upper limit of each statement."""


def weights_of(statement: str) -> dict[str, float]:
    """The weight of each arm in a statement, those of weight 0 left out."""
    return {arm: weight for arm, weight in zip(ARMS, STATEMENTS[statement], strict=True) if weight}


def run_scale(statement: str, num_runs: Mapping[str, int]) -> float:
    """What the standard deviation of one run is multiplied by in a statement's standard error.

    ``sqrt(sum of weight^2 / runs)`` over the fine-tuned arms; the arm as released has no run.
    """
    return math.sqrt(
        sum(weight**2 / num_runs[arm] for arm, weight in weights_of(statement).items() if arm != "native")
    )


def with_run_noise(
    value: npt.ArrayLike, lo: npt.ArrayLike, hi: npt.ArrayLike, run_half: npt.ArrayLike
) -> tuple[FloatArray, FloatArray]:
    """Limits over documents widened by the half width over runs; distances to the value in quadrature."""
    centre, low, high, reach = (np.asarray(each, dtype=np.float64) for each in (value, lo, hi, run_half))
    return centre - np.hypot(centre - low, reach), centre + np.hypot(high - centre, reach)


def run_half_width(deviation: npt.ArrayLike, degrees: int, scale: float, level: float = LEVEL) -> FloatArray:
    """T quantile times the standard deviation of one run times ``scale``; NaN without degrees of freedom."""
    reach = float(stats.t.ppf((1 + level) / 2, degrees)) if degrees >= 1 else math.nan
    return np.asarray(reach * scale * np.asarray(deviation, dtype=np.float64))


@dataclass(frozen=True, eq=False)
class Decision:
    """What holds, each of shape S. At most one of the three verdicts holds in a study."""

    taken_back: BoolArray
    stands: BoolArray
    in_part: BoolArray
    retained: BoolArray
    lost: BoolArray

    @property
    def forgetting(self) -> BoolArray:
        """Recall is lost and the residual stands."""
        return self.lost & self.stands

    @property
    def register(self) -> BoolArray:
        """Recall is kept and the fine-tune takes the gap back."""
        return self.retained & self.taken_back

    @property
    def both(self) -> BoolArray:
        """Recall is lost, and the gap is taken back, or in part."""
        return self.lost & (self.taken_back | self.in_part)

    def word(self) -> str:
        """The verdict of one study."""
        for name in (FORGETTING, REGISTER, BOTH):
            if bool(getattr(self, name)):
                return name
        return UNDETERMINED


def decide(limits: Limits, retention: tuple[npt.ArrayLike, npt.ArrayLike]) -> Decision:
    """The verdict from the limits of each statement and of the retention.

    *Taken back*: the residual lies within ``kappa`` of the gap on either pool. *Stands*: above it on both,
    and the second pool leaves more than half of what the first leaves. *In part*: above it on the first, and
    the second leaves less than half. All need a gap above 0. *Kept*: retention within its margin. *Lost*:
    below it. A limit that is unknown (NaN) proves nothing.

    That "in part" is also not taken back is left to ``Decision.both``, where it makes no difference: a
    verdict that needs something *not* to be shown could disappear as evidence grows.
    """
    low = {name: np.asarray(limits[name][0], dtype=np.float64) for name in STATEMENTS}
    high = {name: np.asarray(limits[name][1], dtype=np.float64) for name in STATEMENTS}
    gap = {pool: low[f"gap-{pool}"] > 0 for pool in ("first", "second")}
    gone = {pool: gap[pool] & (high[f"above-{pool}"] < 0) & (low[f"not-below-{pool}"] > 0) for pool in gap}
    above = {pool: gap[pool] & (low[f"above-{pool}"] > 0) for pool in gap}
    retention_low, retention_high = (np.asarray(limit, dtype=np.float64) for limit in retention)
    return Decision(
        taken_back=np.asarray(gone["first"] | gone["second"]),
        stands=np.asarray(above["first"] & above["second"] & (low["more-than-half"] > 0)),
        in_part=np.asarray(above["first"] & (high["more-than-half"] < 0)),
        retained=np.asarray((retention_low > -RETENTION_MARGIN) & (retention_high < RETENTION_MARGIN)),
        lost=np.asarray(retention_high < -RETENTION_MARGIN),
    )


# what each verdict rests on: the statements, and the side of 0 on which each must lie
_TAKEN_BACK = {
    pool: {f"gap-{pool}": 1, f"above-{pool}": -1, f"not-below-{pool}": 1} for pool in ("first", "second")
}
_STANDS = {"gap-first": 1, "gap-second": 1, "above-first": 1, "above-second": 1, "more-than-half": 1}
_IN_PART = {"gap-first": 1, "above-first": 1, "more-than-half": -1}


@dataclass(frozen=True)
class Spread:
    """One number with its two half widths: over documents or items, and over runs."""

    value: float
    over_units: float
    over_runs: float


@dataclass(frozen=True)
class Needed:
    """How much evidence would about settle a verdict, at these estimates; 0 where no more is needed.

    ``verdict`` is the one that the estimates would give with intervals of no width, ``undetermined`` where
    none would: then no number of units settles it, and the counts are 0.
    """

    verdict: str
    num_documents: int
    num_runs: int
    num_items: int


def needed(
    spreads: Mapping[str, Spread],
    retention: Spread,
    *,
    num_documents: int,
    num_runs: int,
    num_items: int,
) -> Needed:
    """About how many documents, runs of each arm, and answered items would settle the verdict.

    A statement at distance d from 0 holds where documents and runs in quadrature reach less than d. Each part
    may take d / sqrt(2), or what the other leaves of it. Half widths fall with the root of the number of
    units, those of runs also with the t quantile. Where two ways lead to the same verdict, the one that
    needs the smaller factor counts.
    """
    exact = {name: (spread.value, spread.value) for name, spread in spreads.items()}
    word = decide(exact, (retention.value, retention.value)).word()
    if word == UNDETERMINED:
        return Needed(word, 0, 0, 0)
    edge = (
        RETENTION_MARGIN - abs(retention.value) if word == REGISTER else -RETENTION_MARGIN - retention.value
    )
    items, item_runs = _settles(Spread(edge, retention.over_units, retention.over_runs), num_items, num_runs)
    ways = {FORGETTING: [_STANDS], REGISTER: list(_TAKEN_BACK.values())}.get(
        word, [*_TAKEN_BACK.values(), _IN_PART]
    )
    best: tuple[float, int, int] | None = None
    for way in ways:
        if any(side * spreads[name].value <= 0 for name, side in way.items()):
            continue
        counts = [_settles(spreads[name], num_documents, num_runs) for name in way]
        documents, runs = max(count for count, _ in counts), max(count for _, count in counts)
        factor = max(documents / num_documents, runs / num_runs)
        if best is None or factor < best[0]:
            best = factor, documents, runs
    assert best is not None, "the verdict at these estimates rests on one of its ways"
    _, documents, runs = best
    return Needed(
        word,
        documents if documents > num_documents else 0,
        max(runs, item_runs) if max(runs, item_runs) > num_runs else 0,
        items if items > num_items else 0,
    )


def _settles(spread: Spread, num_units: int, num_runs: int) -> tuple[int, int]:
    """Units and runs with which a number is told from 0."""
    distance = abs(spread.value)
    if math.hypot(spread.over_units, spread.over_runs) < distance:
        return num_units, num_runs
    share = distance / math.sqrt(2)
    units = num_units
    if spread.over_units > share:
        # the runs may already reach less than their share
        room = math.sqrt(distance**2 - min(spread.over_runs, share) ** 2)
        units = math.ceil(num_units * (spread.over_units / room) ** 2) if room else num_units
    remaining = math.sqrt(max(distance**2 - min(spread.over_units, share) ** 2, 0.0))
    return units, _runs_for(spread.over_runs, remaining, num_runs)


def _runs_for(half_width: float, target: float, num_runs: int, most: int = 200) -> int:
    """Runs of each arm at which a half width over ``num_runs`` of each falls to ``wanted``."""
    if half_width <= target:
        return num_runs

    def reach(runs: int) -> float:
        return float(stats.t.ppf((1 + LEVEL) / 2, 2 * runs - 2)) / math.sqrt(runs)

    start = reach(num_runs)
    for runs in range(num_runs + 1, most):
        if half_width * reach(runs) / start <= target:
            return runs
    return most
