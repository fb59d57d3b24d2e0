"""Whether the halves fit, the sign of the interaction, and what a temperature leaves of it."""

from __future__ import annotations

from dataclasses import replace

from stemmatics.core.results import Estimate, Result
from stemmatics.facts.cross import CELLS
from stemmatics.math.intervals import Interval
from stemmatics.math.three_cells import (
    FEWEST_PROMPTS,
    HYBRID,
    Fit,
    PathLosses,
    Rescaled,
    prompts_needed,
    sign_of,
)
from stemmatics.measure.present import ResultBuilder

NAME = "depth"
_FIT_REASONS: dict[Fit, str] = {
    "fit": "each hybrid is within the margin of a natural cell",
    "do not fit": "a hybrid is worse than both natural cells by more than the margin",
    "undetermined": "too few prompts, or an interval holds the margin",
}
NO_EFFECT = "the interval of the interaction includes 0"
TOO_FEW = "too few prompts have an event"
UNKNOWN_FIT = "whether the halves fit is undetermined"
PUBLISHED_DISAGREES = (
    "the interval lies below 0, but that of the published support does not, and events chosen by three cells "
    "lean below 0 where the cells carry noise of their own"
)
SAME_STATES = "the earlier states are identical"


def fit_results(builder: ResultBuilder, losses: PathLosses, prefix: str = "") -> list[Result]:
    """Losses of the path's tokens by cell, each hybrid against the worse natural cell, and the answer."""
    builder = replace(builder, units="nats/token")
    worse = losses.worse_natural
    results: list[Result] = [
        builder.interval(f"{prefix}path_loss", loss, cell=cell)
        for cell, loss in zip(CELLS, losses.cells, strict=True)
    ]
    results += [
        builder.interval(f"{prefix}excess", losses.excess[hybrid, worse], cell=CELLS[hybrid])
        for hybrid in HYBRID
    ]
    num_prompts = losses.cells[0].n
    fit = builder.category(f"{prefix}fit", losses.fit, _FIT_REASONS[losses.fit], n=num_prompts, unit="prompt")
    return [*results, fit]


def rescaled_estimates(builder: ResultBuilder, rescaled: Rescaled) -> list[Estimate]:
    """The temperature control."""
    builder = replace(builder, tag="control")
    return [
        builder.interval("rescaled", rescaled.interaction, units="logits"),
        builder.interval("inverse_temperature", rescaled.inverse_temperature, units="factor"),
    ]


def sign_results(
    builder: ResultBuilder, interaction: Interval, published: Interval, fit: Fit, *, same_states: bool
) -> list[Result]:
    """The sign of the interaction with its reason; where it is undetermined, how many prompts to add.

    Args:
        builder: of the pair.
        interaction: at the events of three cells, 95%.
        published: at first disagreements, 99%.
        fit: no sign is called unless the halves fit.
        same_states: nothing was crossed.
    """

    def category(value: str, reason: str) -> Result:
        return builder.category("sign", value, reason, n=interaction.n, unit="prompt")

    if same_states:
        return [category("undetermined", SAME_STATES)]
    if fit != "fit":
        return [category("undetermined", UNKNOWN_FIT)]
    sign = sign_of(interaction, published)
    if sign == "positive":
        return [category(sign, "the whole interval lies above 0")]
    if sign == "negative":
        return [category(sign, "the whole interval lies below 0, and that of the published support does too")]
    if interaction.n >= FEWEST_PROMPTS and interaction.hi < 0:
        return [category(sign, PUBLISHED_DISAGREES)]
    reason = TOO_FEW if interaction.n < FEWEST_PROMPTS else NO_EFFECT
    needed = prompts_needed(interaction)
    return [
        category(sign, reason),
        builder.number("prompts_needed", needed, n=interaction.n, unit="prompt", units="prompts"),
    ]
