"""The floor: the base crossed with damaged copies of itself, in the same way as with its descendant."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from stemmatics.core.results import Estimate, Result
from stemmatics.facts.events import FIRST
from stemmatics.facts.paths import THREE_CELLS
from stemmatics.math.factorial import EFFECTS, Cells, FloatArray, factorial
from stemmatics.math.three_cells import path_losses
from stemmatics.measure.base import Tables
from stemmatics.measure.depth.cells import StoredPaths
from stemmatics.measure.depth.needs import FloorDraw
from stemmatics.measure.depth.sign import fit_results
from stemmatics.measure.present import ResultBuilder


def floor_results(
    builder: ResultBuilder, draws: Sequence[FloorDraw], tables: Tables, rng: np.random.Generator
) -> list[Result]:
    """What damage of the same size reports, over draws of the noise; refused where there is no such damage.

    A prompt's events in all draws are one unit; the smallest and largest draw are given beside the mean.
    """
    if not draws:
        return []
    builder = replace(builder, tag="floor")
    stored_draws = [draw for draw in draws if tables.has(draw.noise) and tables.has(draw.paths)]
    if not stored_draws:
        return [builder.refusal("floor.interaction", "the floor failed", "see the failures of the run")]
    results, stored, failure = _noise(builder, stored_draws, tables)
    builder = builder.with_facts(*(draw.paths for draw in stored_draws))
    if not stored:
        return [*results, builder.refusal("floor.interaction", failure)]
    for support in (THREE_CELLS, FIRST):
        results += _effects(builder.about(support=support), support, stored, rng)
    nll, tokens, index = (
        np.concatenate([getattr(paths, name) for paths in stored])
        for name in ("nll_N4", "num_tokens_N", "index_N")
    )
    losses = path_losses(nll, tokens, rng=rng, prompts_E=index)
    return [*results, *fit_results(builder, losses, "floor.")]


def _noise(
    builder: ResultBuilder, draws: Sequence[FloorDraw], tables: Tables
) -> tuple[list[Result], list[StoredPaths], str]:
    """The loss to be matched and each draw's scale; the paths of draws that match it; else the reason."""
    results: list[Result] = []
    stored: list[StoredPaths] = []
    failure = ""
    for number, draw in enumerate(draws, start=1):
        of_noise = replace(builder.with_facts(draw.noise), n=1, unit="pair")
        (noise,) = tables.read(draw.noise, "noise_scale").to_pylist()
        if not results:
            lost = (noise["descendant_nll_sum"] - noise["base_nll_sum"]) / noise["num_bytes"]
            results.append(of_noise.number("floor.loss", lost, units="nats/byte"))
        paths = StoredPaths(draw.paths, tables)
        reason = noise["failure"] or paths.refusal
        if reason:
            failure = failure or reason
            results.append(of_noise.refusal("floor.scale", reason, draw=str(number)))
            continue
        stored.append(paths)
        units = "standard deviations"
        results.append(of_noise.number("floor.scale", noise["scale"], units=units, draw=str(number)))
    return results, stored, failure


def _effects(
    builder: ResultBuilder, support: str, stored: Sequence[StoredPaths], rng: np.random.Generator
) -> list[Estimate]:
    draws = [paths.events(support) for paths in stored]
    columns = Cells.__dataclass_fields__
    together = Cells(*(np.concatenate([getattr(cells, name) for cells, _ in draws]) for name in columns))
    effects = factorial(together, np.concatenate([index_E for _, index_E in draws]), rng=rng)
    means = [cells.interactions.mean() for cells, index_E in draws if index_E.size]
    return [
        *(
            builder.interval(f"floor.{name}", getattr(effects, name).interval, units="logits")
            for name in EFFECTS
        ),
        builder.interval("floor.portable_share", effects.portable_share, units="share"),
        *range_of_draws(builder, "floor", np.array(means)),
    ]


def range_of_draws(builder: ResultBuilder, prefix: str, means_D: FloatArray) -> list[Estimate]:
    """The smallest and the largest mean interaction of any draw; n counts draws."""
    if not means_D.size:
        return []
    builder = replace(builder, n=means_D.size, unit="draw", units="logits")
    return [
        builder.number(f"{prefix}.lowest", float(means_D.min())),
        builder.number(f"{prefix}.highest", float(means_D.max())),
    ]
