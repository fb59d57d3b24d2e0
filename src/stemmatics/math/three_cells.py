"""Events chosen by three cells and measured by the fourth: the sign, the temperature, whether halves fit.

Axes: E events, Q prompts, C cells (base_base, base_desc, desc_base, desc_desc; earlier state first).

Events picked where two models part are picked by the cells (b,b) and (d,d) themselves, and (d,d) is then
large at them by selection. Here the events are the first positions of the base's own greedy path at which
z_bd + z_db - z_bb has another most probable token than z_bb; z_dd is not looked at.

What is left is one-sided. Where all four cells carry noise of their own, the choice favours events at which
that of (b,d) and (d,b) is large, and the interaction leans below 0; so a negative sign needs the published
support, which leans above 0, on its side too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from stemmatics.math.factorial import PROMPT, Cells, no_events, sums_by_prompt
from stemmatics.math.intervals import Interval
from stemmatics.math.rates import bootstrap_many, difference_of_ratios, ratio_of_sums

FEWEST_PROMPTS = 20
"""Under so many prompts neither a sign nor a fit is called."""
FIT_MARGIN = 1.0
"""Nats a token by which a hybrid may be worse than the worse natural cell."""
PUBLISHED_LEVEL = 0.99
NATURAL, HYBRID = (0, 3), (1, 2)
Sign = Literal["positive", "negative", "undetermined"]
Fit = Literal["fit", "do not fit", "undetermined"]


def sign_of(interaction: Interval, published: Interval) -> Sign:
    """The sign of an interaction at events chosen by three cells.

    Args:
        interaction: at those events, 95%.
        published: at first disagreements, 99%.

    Positive if the first lies above 0; negative if both lie below 0. Never with under
    ``FEWEST_PROMPTS`` prompts.
    """
    if interaction.n < FEWEST_PROMPTS:
        return "undetermined"
    if interaction.lo > 0:
        return "positive"
    enough = published.n >= FEWEST_PROMPTS
    return "negative" if enough and interaction.hi < 0 and published.hi < 0 else "undetermined"


def prompts_needed(interval: Interval) -> float:
    """About how many prompts of this kind would take the interval off 0; NaN for a mean of 0.

    A half width falls with the root of the number of prompts. At least ``FEWEST_PROMPTS``.
    """
    half = max(interval.hi - interval.value, interval.value - interval.lo)
    if math.isnan(half) or not interval.value:
        return math.nan
    return float(max(FEWEST_PROMPTS, math.ceil(interval.n * (half / interval.value) ** 2)))


@dataclass(frozen=True)
class PathLosses:
    """Losses of a path's tokens, nats/token; ``n`` counts prompts.

    ``excess`` is by (hybrid, natural) the paired difference of their losses, as positions of ``CELLS``.
    """

    cells: list[Interval]
    excess: dict[tuple[int, int], Interval]

    @property
    def worse_natural(self) -> int:
        """The natural cell with the larger loss."""
        return max(NATURAL, key=lambda cell: self.cells[cell].value)

    @property
    def fit(self) -> Fit:
        """Whether the halves fit: the whole interval of a difference lies on one side of the margin.

        They do not if a hybrid is worse than both natural cells by more than ``FIT_MARGIN``; they do if
        each hybrid is within it of one of them.
        """
        if self.cells[0].n < FEWEST_PROMPTS:
            return "undetermined"
        if any(all(self.excess[hybrid, natural].lo > FIT_MARGIN for natural in NATURAL) for hybrid in HYBRID):
            return "do not fit"
        if all(any(self.excess[hybrid, natural].hi < FIT_MARGIN for natural in NATURAL) for hybrid in HYBRID):
            return "fit"
        return "undetermined"


def path_losses(
    nll_EC: npt.ArrayLike,
    num_tokens_E: npt.ArrayLike,
    *,
    rng: np.random.Generator,
    prompts_E: npt.ArrayLike | None = None,
    level: float = 0.95,
) -> PathLosses:
    """Losses and differences from sums by path [E, 4] and their numbers of tokens [E].

    Several paths of one prompt are resampled together. All intervals share one set of resamples.
    """
    nll, tokens = np.asarray(nll_EC, dtype=np.float64), np.asarray(num_tokens_E, dtype=np.float64)
    pairs = [(hybrid, natural) for hybrid in HYBRID for natural in NATURAL]
    if not len(tokens):
        return PathLosses([no_events(level)] * 4, dict.fromkeys(pairs, no_events(level)))
    prompts = np.arange(len(tokens)) if prompts_E is None else np.asarray(prompts_E)
    rates = np.stack([nll, np.repeat(tokens[:, None], 4, 1)], axis=-1)
    columns = [np.stack([nll[:, natural], tokens, nll[:, hybrid], tokens], -1) for hybrid, natural in pairs]
    cells = bootstrap_many(sums_by_prompt(prompts, rates), ratio_of_sums, rng=rng, level=level, unit=PROMPT)
    excess = bootstrap_many(
        sums_by_prompt(prompts, np.stack(columns, 1)), difference_of_ratios, rng=rng, level=level, unit=PROMPT
    )
    return PathLosses(cells, dict(zip(pairs, excess, strict=True)))


@dataclass(frozen=True)
class Rescaled:
    """The interaction with (d,d) multiplied by one fitted inverse temperature, and that number."""

    interaction: Interval
    inverse_temperature: Interval


def rescaled_interaction(
    cells: Cells,
    prompts_E: npt.ArrayLike,
    fourth_by_sum_E: npt.ArrayLike,
    sum_by_sum_E: npt.ArrayLike,
    *,
    rng: np.random.Generator,
    level: float = 0.95,
) -> Rescaled:
    """What is left of the interaction if the fourth cell is the sum of both effects at another temperature.

    Args:
        cells: margins of E events, one a prompt.
        prompts_E: labels of prompts.
        fourth_by_sum_E: inner product over the vocabulary of z_dd with a = z_bd + z_db - z_bb, centred and
            weighted by the base's probabilities, summed over the positions of the event's path.
        sum_by_sum_E: the same of a with itself.
        rng: the only source of randomness.
        level: of the intervals.

    z_dd is regressed on a, which is free of the noise of z_dd: slope = <z_dd, a> / <a, a>, and the inverse
    temperature is 1 / slope. (The regression of a on z_dd errs towards 1 - noise of z_dd.) Prompts are
    resampled with their products, so the interval holds the fit's own error. In simulation a fourth cell
    that is 10 or 25% sharper and nothing else comes out above 0 in at most 3% of studies; where all four
    cells carry noise of their own the number leans below 0, and only "above 0" is evidence.
    """
    fourth_E = cells.descendant_descendant_E
    rest_E = cells.base_base_E - cells.base_descendant_E - cells.descendant_base_E
    if not fourth_E.size:
        return Rescaled(no_events(level), no_events(level))
    products = [np.asarray(products_E, dtype=np.float64) for products_E in (fourth_by_sum_E, sum_by_sum_E)]
    columns_E15 = np.stack([fourth_E, rest_E, np.ones_like(rest_E), *products], axis=1)[:, None]
    columns_Q15 = sums_by_prompt(prompts_E, columns_E15)

    def inverse_temperature(sums: Any) -> Any:
        return sums[..., 4] / sums[..., 3]

    def interaction(sums: Any) -> Any:
        return (inverse_temperature(sums) * sums[..., 0] + sums[..., 1]) / sums[..., 2]

    (interval,) = bootstrap_many(columns_Q15, interaction, rng=rng, level=level, unit=PROMPT)
    (scale,) = bootstrap_many(columns_Q15, inverse_temperature, rng=rng, level=level, unit=PROMPT)
    return Rescaled(interval, scale)
