"""`stemma analyse axes`: what changed on each task, from logs of evaluations, paired item by item.

Axes: N items.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stemmatics.commands.analyse.logs import Item, ItemLog, Metric, read_logs
from stemmatics.commands.analyse.logs.items import other_prompts, paired
from stemmatics.core.errors import UserError
from stemmatics.math.equivalence import holm
from stemmatics.math.intervals import Interval
from stemmatics.math.paired import PairedChange, paired_change
from stemmatics.math.rates import loss_rate, paired_difference
from stemmatics.math.seeds import sign_flip_monte_carlo

# labels of items that are listed
MOST_LISTED = 20


def analyse_axes(
    paths: Sequence[Path], *, rng: np.random.Generator, cluster: str | None = None
) -> dict[str, Any]:
    """Every log against the first, by task, metric and filter.

    Args:
        paths: logs of lm-evaluation-harness or Inspect, folders of them, or tables of items.
        rng: for bootstrap and sign flips.
        cluster: ``cluster`` to resample and flip items of one cluster together, by the tables' column.

    Raises UserError for logs that have no task in common, other versions of a task, or other prompts.
    """
    logs = read_logs(paths)
    first = logs[0]
    rows = [row for other in logs[1:] for row in _compared(first, other, rng, clustered=cluster is not None)]
    if not rows:
        raise UserError(
            "the logs have no item in common",
            f"{first.name} has {_tasks(first)}; {logs[1].name} has {_tasks(logs[1])}",
            "Give logs of the same tasks",
        )
    for row, adjusted in zip(rows, holm([row["p"] for row in rows]), strict=True):
        row["p_holm"] = float(adjusted)
    only = {log.name: _missing(first, log) for log in logs[1:] if _missing(first, log)}
    return {"models": [log.name for log in logs], "axes": rows, "not_in_both": only}


def _compared(
    first: ItemLog, other: ItemLog, rng: np.random.Generator, *, clustered: bool
) -> Iterator[dict[str, Any]]:
    _refuse_versions(first, other)
    for metric, items in first.items.items():
        if metric not in other.items:
            continue
        pairs, only_first, only_second = paired(items, other.items[metric])
        differing = other_prompts(pairs)
        if differing:
            raise UserError(
                f"{first.name} and {other.name} were given other prompts on {metric.task}",
                f"{len(differing)} of {len(pairs)} items differ, the first is {differing[0]}",
                "Compare runs with the same prompts: number of examples, template and instructions",
            )
        if not pairs:
            continue
        lower = metric in first.lower_is_better
        yield {
            "task": metric.task,
            "metric": metric.metric,
            "filter": metric.filter,
            "from": first.name,
            "to": other.name,
            **_row(pairs, rng, lower_is_better=lower, clustered=clustered),
            "num_unmatched": len(only_first) + len(only_second),
            "unmatched": [*only_first, *only_second][:MOST_LISTED],
            **_lengths(pairs, rng),
        }


def _row(
    pairs: Sequence[tuple[Item, Item]], rng: np.random.Generator, *, lower_is_better: bool, clustered: bool
) -> dict[str, Any]:
    first_N, second_N = (np.array([pair[side].value for pair in pairs]) for side in (0, 1))
    weight_N = np.array([pair[0].weight for pair in pairs])
    clusters = np.array([pair[0].cluster or pair[0].key for pair in pairs]) if clustered else None
    if (weight_N != 1.0).any():
        change = _of_rates(first_N, second_N, weight_N, rng, clusters)
    else:
        change = paired_change(first_N, second_N, rng=rng, clusters=clusters)
    better, worse = (change.lost_N, change.gained_N) if lower_is_better else (change.gained_N, change.lost_N)
    interval = change.difference
    return {
        "from_value": change.first,
        "to_value": change.second,
        "difference": interval.value,
        "lo": interval.lo,
        "hi": interval.hi,
        "level": interval.level,
        "method": interval.method,
        "n": len(pairs),
        "unit": interval.unit,
        "num_units": interval.n,
        "smallest_effect": interval.smallest_effect,
        "lower_is_better": lower_is_better,
        "p": change.p_value,
        "test": change.test,
        "gained": int(better.sum()),
        "lost": int(worse.sum()),
        "gained_items": _labels(pairs, better),
        "lost_items": _labels(pairs, worse),
    }


def _of_rates(
    first_N: NDArray[np.float64],
    second_N: NDArray[np.float64],
    weight_N: NDArray[np.float64],
    rng: np.random.Generator,
    clusters: NDArray[np.str_] | None,
) -> PairedChange:
    """Sums over what they are divided by: nats a word, say."""
    unit = "item" if clusters is None else "cluster"
    settings: dict[str, Any] = {"rng": rng, "groups": clusters, "unit": "item"}
    difference = paired_difference(first_N, second_N, weight_N, **settings)
    before, after = (loss_rate(values_N, weight_N, **settings).value for values_N in (first_N, second_N))
    flips = sign_flip_monte_carlo(second_N - first_N, rng=rng, groups=clusters)
    test = f"sign flip by {unit}"
    return PairedChange(
        before, after, difference, flips.p_value, test, second_N > first_N, second_N < first_N
    )


def _lengths(pairs: Sequence[tuple[Item, Item]], rng: np.random.Generator) -> dict[str, Any]:
    """Characters of generated replies and their change; nothing where the logs have none."""
    lengths = [(first.num_chars, second.num_chars) for first, second in pairs]
    known = [(before, after) for before, after in lengths if before is not None and after is not None]
    if len(known) < len(pairs):
        return {}
    before_N, after_N = (np.array([pair[side] for pair in known], dtype=np.float64) for side in (0, 1))
    change: Interval = paired_difference(before_N, after_N, np.ones(len(known)), rng=rng, unit="item")
    return {
        "from_chars": float(before_N.mean()),
        "to_chars": float(after_N.mean()),
        "chars_difference": change.value,
        "chars_lo": change.lo,
        "chars_hi": change.hi,
    }


def _labels(pairs: Sequence[tuple[Item, Item]], chosen: NDArray[np.bool_]) -> list[str]:
    return [pairs[index][0].label for index in np.flatnonzero(chosen)[:MOST_LISTED]]


def _refuse_versions(first: ItemLog, other: ItemLog) -> None:
    for task, version in first.versions.items():
        if task in other.versions and other.versions[task] != version:
            raise UserError(
                f"{task} has version {version} in {first.name} and {other.versions[task]} in {other.name}",
                "versions of a task differ in prompts, items or scoring",
                "Run both with one version of the task",
            )


def _missing(first: ItemLog, other: ItemLog) -> list[str]:
    """Tasks and metrics that only one of two logs has."""
    metrics: list[Metric] = [*(set(first.items) ^ set(other.items))]
    return sorted(metric.text() for metric in metrics)


def _tasks(log: ItemLog) -> str:
    return ", ".join(sorted({metric.task for metric in log.items})) or "none"
