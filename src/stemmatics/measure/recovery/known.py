"""What pairs with known bases say of those without: offsets, resolution, coverage, the uncertainty table."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import compress
from typing import Any

import numpy as np

from stemmatics.core.results import Estimate
from stemmatics.facts.pinned import Pinned
from stemmatics.facts.registry import registry_fact
from stemmatics.math.placing import (
    DISTILLED,
    calibration,
    offset_rule,
    other_generations,
    place,
)
from stemmatics.math.recovery import (
    Calibration,
    NestedCoverage,
    Resolution,
    UnknownBase,
    distillation_flag,
    nested_coverage,
    pairs_of,
    resolution,
    size_slope,
)
from stemmatics.measure.base import Tables
from stemmatics.measure.recovery.left_out import left_out
from stemmatics.measure.recovery.losses import Losses
from stemmatics.measure.recovery.needs import NAME, Arms, origin_of
from stemmatics.measure.recovery.pairs import Pair, PairFound
from stemmatics.measure.recovery.say import Say

UNITS = "nats/byte"
Row = Mapping[str, Any]


def registry_rows(arms: Arms, corpus: str, tables: Tables) -> tuple[list[Row], list[Row]]:
    """Imported pairs that compare (same recipe hash and text), and those of another recipe or text."""
    name = arms.settings.registry
    if name is None:
        return [], []
    fact = registry_fact(arms.pinned, name)
    if not tables.has(fact):
        return [], []
    pins = arms.pinned.pins.corpora
    ours = arms.settings.recipe.hash(str(pins[arms.settings.pool]["content_sha256"]))
    text = pins[corpus]["content_sha256"]
    rows = tables.read(fact, "registry").to_pylist()
    same = [(row["recipe_hash"], row["corpus_sha256"]) == (ours, text) for row in rows]
    return list(compress(rows, same)), [row for row, kept in zip(rows, same, strict=True) if not kept]


def known_pairs(pinned: Pinned, found: Mapping[Pair, PairFound], imported: Sequence[Row]) -> Calibration:
    """Residuals of this run's pairs and of imported ones."""
    residuals = [one.residual.value for one in found.values()]
    origins: list[Any] = [origin_of(pinned, name) for _, name in found]
    return calibration([*residuals, *(float(row["residual"]) for row in imported)], [*origins, *imported])


def place_all(arms: Arms, losses: Losses, known: Calibration) -> dict[str, tuple[UnknownBase, str]]:
    """The base's loss behind every model whose base is unknown, and the rule that gave the offset."""
    found = {}
    for name in arms.unknown:
        if name in losses.arms:
            origin = origin_of(arms.pinned, name)
            unknown = place(
                losses.arms[name].rebased,
                losses.scores.num_bytes_N,
                losses.scores.group_N,
                known,
                origin,
            )
            refused = other_generations(known, origin)
            found[name] = (unknown, offset_rule(unknown.offset, refused))
    return found


def borrowed(arms: Arms, losses: Losses, others: Sequence[Row]) -> list[Estimate]:
    """Placements by the offset of another recipe or text: apart from the rest, and flagged."""
    if not others:
        return []
    known = calibration([float(row["residual"]) for row in others], list(others))
    found = []
    for name, (unknown, rule) in place_all(arms, losses, known).items():
        found.append(
            Estimate(
                measure=NAME,
                quantity="recovery.borrowed",
                subject={"checkpoint": name, "corpus": losses.corpus, "rule": rule},
                value=unknown.value,
                lo=unknown.value - unknown.bar,
                hi=unknown.value + unknown.bar,
                level=unknown.offset.level,
                method="recovered less borrowed offset",
                n=unknown.offset.num_pairs,
                unit="pair",
                units=UNITS,
                facts=tuple(fact.key for fact in losses.arms[name].facts),
                note="borrowed: the offset is of another recipe or text",
            )
        )
    return found


def resolution_estimates(
    pinned: Pinned, losses: Losses, found: Mapping[Pair, PairFound], rng: np.random.Generator
) -> list[Estimate]:
    """How finely recovered losses tell bases apart; nothing under two pairs."""
    if len(found) < 2:
        return []
    pairs = pairs_of(
        family=[pinned.stemma.family(name) for _, name in found],
        base=[base for base, _ in found],
        descendant=[name for _, name in found],
        native_base=[losses.loss(losses.arms[base].native_N) for base, _ in found],
        matched_base=[losses.loss(losses.arms[base].rebased) for base, _ in found],
        native=[losses.loss(losses.arms[name].native_N) for _, name in found],
        recovered=[losses.loss(losses.arms[name].rebased) for _, name in found],
    )
    made = resolution(pairs, rng=rng)
    say = Say(losses)
    parts = {
        "delta95": made.delta95,
        "lofo90": made.lofo90,
        "offset": made.offset,
        "mean_residual": made.mean_residual,
        "sibling_spread": made.sibling_spread,
    }
    estimates = [say.interval(interval, f"resolution.{name}", {}) for name, interval in parts.items()]
    estimates += _bands(made, say)
    estimates += [
        say.number(spread, "siblings", {"base": base}, n=count, unit="descendant")
        for base, (spread, count) in made.siblings.items()
    ]
    nested = nested_coverage(pairs.residuals, pairs.family_N)
    estimates += _coverage(nested, say)
    estimates += left_out(losses, list(found), nested)
    return estimates + _flag(pinned, found, pairs.drops, pairs.family_N, say)


def _bands(made: Resolution, say: Say) -> list[Estimate]:
    """Misordered pairs by band of the true gap; bands that hold no pair are left out."""
    found = []
    for band in made.misorder:
        if band.num_pairs:
            name = f"{band.lo:g} and more" if math.isinf(band.hi) else f"{band.lo:g} to {band.hi:g}"
            found.append(say.interval(band.share, "misorder", {"band": name}, units="share of pairs"))
            found.append(say.number(float(band.num_pairs), "misorder.pairs", {"band": name}, units="pairs"))
    return found


def _coverage(nested: NestedCoverage, say: Say) -> list[Estimate]:
    """Nested: the bar for a family is built without it."""
    note = "" if nested.num_pairs else "too few pairs or families for a bar without each family"
    return [
        say.number(
            nested.covered,
            "resolution.coverage",
            {},
            n=nested.num_pairs,
            unit="pair",
            units="share",
            note=note,
        )
    ]


def _flag(
    pinned: Pinned, found: Mapping[Pair, PairFound], drop_N: Any, family_N: Any, say: Say
) -> list[Estimate]:
    """A threshold on the drop alone; only where both kinds of release are among the known pairs."""
    distilled = [origin_of(pinned, name).recipe_class == DISTILLED for _, name in found]
    if all(distilled) or not any(distilled):
        return []
    flag = distillation_flag(drop_N, distilled, family_N)
    numbers = {
        "threshold": (flag.threshold, UNITS, len(distilled)),
        "sensitivity": (flag.sensitivity, "share", flag.num_distilled),
        "specificity": (flag.specificity, "share", flag.num_other),
    }
    return [
        say.number(value, f"distilled.{name}", {}, units=units, n=count, unit="pair")
        for name, (value, units, count) in numbers.items()
    ]


def size_estimates(
    arms: Arms, losses: Losses, found: Mapping[Pair, PairFound], tables: Tables
) -> list[Estimate]:
    """Residual against log parameters, within each pipeline that was declared for three or more pairs."""
    say = Say(losses)
    by_pipeline: dict[str, list[Pair]] = {}
    for pair in found:
        pipeline = arms.pinned.stemma.lineage(pair[1]).pipeline
        if pipeline is not None and tables.has(arms.arm(pair[1])):
            by_pipeline.setdefault(pipeline, []).append(pair)
    estimates = []
    for pipeline, pairs in by_pipeline.items():
        sizes = [tables.read(arms.arm(name), "arms").to_pylist()[0]["num_parameters"] for _, name in pairs]
        if len(pairs) >= 3 and len(set(sizes)) > 1:
            slope = size_slope(
                np.array([found[pair].residual.value for pair in pairs]),
                np.array(sizes, dtype=np.float64),
            )
            estimates.append(
                say.interval(slope, "size", {"pipeline": pipeline}, units="nats/byte per tenfold size")
            )
    return estimates
