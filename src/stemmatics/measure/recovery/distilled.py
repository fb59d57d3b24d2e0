"""A drop so large that it is that of a distilled release: the threshold, and what it says of each model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stemmatics.core.results import Result
from stemmatics.facts.pinned import Pinned
from stemmatics.math.intervals import Interval
from stemmatics.math.rates import loss_rates
from stemmatics.math.recovery import DISTILLED, UNKNOWN, DistillationFlag, distillation_flag
from stemmatics.math.run_noise import run_component, with_runs
from stemmatics.measure.recovery.losses import Losses
from stemmatics.measure.recovery.needs import Arms, PairNames, origin_of
from stemmatics.measure.recovery.settings import UNITS

_NOT_TRIED = "no family with a distilled release and none with another could be left out in turn"
_INSIDE = "the interval of its drop holds the threshold"


def distilled_results(
    arms: Arms, losses: Losses, names: Sequence[PairNames], noise: Interval, rng: np.random.Generator
) -> list[Result]:
    """The threshold on the drop, learned on pairs of known class, and what it says of models of unknown base.

    Nothing where only one kind of release is among the known pairs.
    """
    flag = _learned(arms.pinned, losses, names)
    if flag is None:
        return []
    build = losses.results()
    num_pairs = flag.num_distilled + flag.num_other
    numbers = {
        "threshold": (flag.threshold, UNITS, num_pairs),
        "sensitivity": (flag.sensitivity, "share", flag.num_distilled),
        "specificity": (flag.specificity, "share", flag.num_other),
    }
    results: list[Result] = [
        build.number(f"distilled.{name}", value, units=units, n=count, unit="pair")
        for name, (value, units, count) in numbers.items()
    ]
    unknown = [name for name in arms.base_unknown if name in losses.arms]
    for name, drop in zip(unknown, _drops(losses, unknown, noise, rng), strict=True):
        about = losses.results(name, checkpoint=name)
        word = flag.says(drop.lo, drop.hi)
        reason = "" if word != "undetermined" else _INSIDE if flag.is_tried else _NOT_TRIED
        results += [
            about.interval("distilled.drop", drop),
            about.category("distilled.flag", word, reason, n=num_pairs, unit="pair"),
        ]
    return results


def _learned(pinned: Pinned, losses: Losses, names: Sequence[PairNames]) -> DistillationFlag | None:
    """The threshold, from pairs whose regime is declared."""
    classes = {pair: origin_of(pinned, pair[1]).recipe_class for pair in names}
    known = [pair for pair in names if classes[pair] != UNKNOWN]
    distilled = [classes[pair] == DISTILLED for pair in known]
    if not known or all(distilled) or not any(distilled):
        return None
    drops = [losses.native_loss(name) - losses.rebased_loss(name) for _, name in known]
    families = [pinned.stemma.family(name) for _, name in known]
    return distillation_flag(np.array(drops), distilled, np.array(families, dtype=np.str_))


def _drops(losses: Losses, names: Sequence[str], noise: Interval, rng: np.random.Generator) -> list[Interval]:
    """How much the fine-tune lowered each loss; with run noise where it is known."""
    if not names:
        return []
    columns = [losses.arms[name].native_N - losses.arms[name].rebased for name in names]
    scores = losses.scores
    drops = loss_rates(np.stack(columns, axis=1), scores.num_bytes_N, rng=rng, groups=scores.group_N)
    with_noise = [
        with_runs(drop, run_component(noise, [losses.arms[name].num_runs]))
        for name, drop in zip(names, drops, strict=True)
    ]
    return [both if np.isfinite(both.lo) else drop for drop, both in zip(drops, with_noise, strict=True)]
