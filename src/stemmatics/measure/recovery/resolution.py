"""How finely recovered losses tell bases apart, from the pairs whose base is known."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from stemmatics.core.results import Estimate
from stemmatics.facts.pinned import Pinned
from stemmatics.math.rates import loss_rates
from stemmatics.math.recovery import (
    LEVEL,
    MEASURED_RULES,
    Calibration,
    NestedCoverage,
    Resolution,
    nested_coverage,
    pairs_of,
    resolution,
    size_slope,
)
from stemmatics.math.recovery.offsets import coverage_by_family
from stemmatics.measure.base import Tables
from stemmatics.measure.inputs import FloatArray
from stemmatics.measure.recovery.losses import Losses
from stemmatics.measure.recovery.needs import Arms, PairNames
from stemmatics.measure.recovery.offsets import with_bar
from stemmatics.measure.recovery.pairs import PairDifferences


def resolution_estimates(
    pinned: Pinned,
    losses: Losses,
    names: Sequence[PairNames],
    known: Calibration,
    rng: np.random.Generator,
) -> list[Estimate]:
    """Gap errors, offsets, misorder, coverage and bases seen through a descendant; none under two pairs.

    ``known`` holds these pairs first, in their order, then imported ones.
    """
    if len(names) < 2:
        return []
    pairs = pairs_of(
        family=[pinned.stemma.family(descendant) for _, descendant in names],
        base=[base for base, _ in names],
        descendant=[descendant for _, descendant in names],
        native_base=[losses.native_loss(base) for base, _ in names],
        matched_base=[losses.rebased_loss(base) for base, _ in names],
        native=[losses.native_loss(descendant) for _, descendant in names],
        recovered=[losses.rebased_loss(descendant) for _, descendant in names],
    )
    resolved = resolution(pairs, rng=rng)
    build = losses.results()
    parts = {
        "delta95": resolved.delta95,
        "lofo90": resolved.lofo90,
        "offset": resolved.offset,
        "mean_residual": resolved.mean_residual,
        "sibling_spread": resolved.sibling_spread,
    }
    nested = nested_coverage(known)
    return [
        *(build.interval(f"resolution.{name}", interval) for name, interval in parts.items()),
        *_misorder(resolved, losses),
        *(
            build.number("siblings", spread, n=count, unit="descendant", base=base)
            for base, (spread, count) in resolved.siblings.items()
        ),
        *_coverage(nested, known, losses),
        *left_out_estimates(losses, names, nested),
    ]


def _misorder(resolved: Resolution, losses: Losses) -> list[Estimate]:
    """Misordered pairs by band of the true gap; bands that hold no pair are left out."""
    estimates = []
    for band in resolved.misorder:
        if band.num_pairs:
            name = f"{band.lo:g} and more" if math.isinf(band.hi) else f"{band.lo:g} to {band.hi:g}"
            build = losses.results(band=name)
            estimates += [
                build.interval("misorder", band.share, units="share of pairs"),
                build.number("misorder.pairs", float(band.num_pairs), units="pairs"),
            ]
    return estimates


def _coverage(nested: NestedCoverage, known: Calibration, losses: Losses) -> list[Estimate]:
    """How often the bar built without a family covers its residuals, by class and by the rule that applied.

    The bar is that for the base's loss on this text: the offset's error alone.
    """
    estimates = []
    kinds = sorted(set(zip(known.recipe_class_N.tolist(), nested.source_N.tolist(), strict=True)))
    for recipe_class, source in kinds:
        rows = (known.recipe_class_N == recipe_class) & (nested.source_N == source)
        share = coverage_by_family(nested.is_covered[rows], known.family_N[rows])
        build = losses.results(recipe_class=recipe_class, rule=source)
        note = "" if source in MEASURED_RULES else "not a bar of these pairs: too few families of the class"
        estimates += [
            build.interval("resolution.coverage", share, units="share", note=note),
            build.number("resolution.coverage.pairs", float(rows.sum()), units="pairs", unit="pair"),
        ]
    return estimates


def left_out_estimates(losses: Losses, names: Sequence[PairNames], nested: NestedCoverage) -> list[Estimate]:
    """Each known base's loss as if it were unknown: offset and bar from the other families alone.

    Only where the bar is measured on those. The bar is that for the base's loss on this text. Also: of the
    pairs of descendants of different bases, how many are told apart, and how many of those are in the right
    order. Two are told apart where their gap exceeds both offsets' bars and the paired document half width,
    in quadrature: documents are shared, so their noise mostly cancels.
    """
    rows = [row for row in range(len(names)) if nested.source_N[row] in MEASURED_RULES]
    if not rows:
        return []
    bases = [names[row][0] for row in rows]
    descendants = [names[row][1] for row in rows]
    truth_M = np.array([losses.rebased_loss(base) for base in bases])
    value_M = truth_M + nested.error_N[rows]
    bar_M = nested.bar_N[rows]
    recovered_NM = np.stack([losses.arms[name].rebased for name in descendants], axis=1)
    method = "recovered less left-out offset"
    estimates = [
        losses.results(descendant, base=base, descendant=descendant).interval(
            "left_out", with_bar(float(value), float(bar), method=method, n=nested.bar_N.size)
        )
        for base, descendant, value, bar in zip(bases, descendants, value_M, bar_M, strict=True)
    ]
    first, second = np.triu_indices(len(rows), k=1)
    different = np.array(bases)[first] != np.array(bases)[second]
    first, second = first[different], second[different]
    gap_P, true_gap_P = value_M[second] - value_M[first], truth_M[second] - truth_M[first]
    paired_P = half_widths(losses, recovered_NM[:, second] - recovered_NM[:, first])
    apart_P = np.abs(gap_P) > np.sqrt(bar_M[first] ** 2 + bar_M[second] ** 2 + paired_P**2)
    right_P = apart_P & (gap_P * true_gap_P > 0)
    counts = {"total": first.size, "apart": int(apart_P.sum()), "right": int(right_P.sum())}
    build = losses.results()
    return estimates + [
        build.number(f"left_out.{name}", float(count), n=len(rows), unit="descendant", units="pairs")
        for name, count in counts.items()
    ]


def half_widths(losses: Losses, nll_NP: FloatArray) -> FloatArray:
    """Half of the jackknife-t interval of each column's rate at the bar's level, nats/byte, [P]."""
    if not nll_NP.shape[1]:
        return np.zeros(0)
    rates = loss_rates(
        nll_NP,
        losses.scores.num_bytes_N,
        rng=np.random.default_rng(0),
        groups=losses.scores.group_N,
        method="jackknife-t",
        level=LEVEL,
    )
    return np.array([(rate.hi - rate.lo) / 2 for rate in rates])


def size_estimates(
    arms: Arms, losses: Losses, pairs: Mapping[PairNames, PairDifferences], tables: Tables
) -> list[Estimate]:
    """Residual against log parameters, within each pipeline that was declared for three or more pairs."""
    by_pipeline: dict[str, list[PairNames]] = {}
    for names in pairs:
        pipeline = arms.pinned.stemma.lineage(names[1]).pipeline
        if pipeline is not None and tables.has(arms.arm(names[1])):
            by_pipeline.setdefault(pipeline, []).append(names)
    estimates = []
    for pipeline, models in by_pipeline.items():
        sizes = [tables.read(arms.arm(name), "arms").to_pylist()[0]["num_parameters"] for _, name in models]
        if len(models) >= 3 and len(set(sizes)) > 1:
            residuals = np.array([pairs[names].documents.value for names in models])
            slope = size_slope(residuals, np.array(sizes, dtype=np.float64))
            build = losses.results(pipeline=pipeline)
            estimates.append(build.interval("size", slope, units="nats/byte per tenfold size"))
    return estimates
