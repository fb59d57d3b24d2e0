"""The table of `stemma analyse elicitation`: answers by item, recipe, checkpoint and seed; or accuracies.

Axes: I items (or tasks), R recipes, C checkpoints, S seeds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from stemmatics.commands.analyse.table import Table, kind_of, parse_json, read_table, read_text
from stemmatics.core.errors import UserError

ARMS = ("untrained", "trained")
OTHER_NAMES = {"recipe": "prompt", "checkpoint": "model"}
STANDARD_ERRORS = "_stderr"
MOST_LISTED = 20
TRUE_OR_FALSE = {"true": 1.0, "false": 0.0}
NO_SEED = "1"

Key = tuple[str, str, str, str]  # item, recipe, checkpoint, seed


@dataclass(frozen=True, eq=False)
class Answers:
    """A complete table. ``pairs`` are the checkpoints to compare: indices of untrained and trained.

    ``unit`` is ``item``, or ``task`` where the table has accuracies only. ``left_out`` says of items or tasks
    why they are not used.
    """

    scores_IRCS: npt.NDArray[np.float64]
    items: list[str]
    recipes: list[str]
    checkpoints: list[str]
    seeds: list[str]
    pairs: list[tuple[int, int]]
    groups_I: npt.NDArray[np.str_] | None = None
    unit: str = "item"
    left_out: dict[str, str] = field(default_factory=dict)

    @property
    def shape(self) -> str:
        """The levels of each factor, for messages."""
        sizes = (len(self.items), len(self.recipes), len(self.checkpoints), len(self.seeds))
        return " x ".join(str(size) for size in sizes)


def read_answers(path: Path) -> Answers:
    """Rows with an item (or, without items, a task) for each score, or {setting: {task: {model: score}}}.

    Raises UserError for missing columns, scores outside [0, 1], duplicates, and tables without a complete
    item.
    """
    if kind_of(path) == ".json" and path.is_file():
        value = parse_json(path, read_text(path))
        if isinstance(value, dict) and all(isinstance(tasks, dict) for tasks in value.values()):
            return _nested(path, value)
    return _from_rows(read_table(path))


def _from_rows(table: Table) -> Answers:
    recipe, checkpoint = (_column(table, name) for name in ("recipe", "checkpoint"))
    by_item = table.has("item")
    unit = "item" if by_item else "task"
    value = "correct" if by_item else "accuracy"
    table.require([unit, recipe, checkpoint, value], fix=_advice(by_item))
    scores_N = _scores(table, value)
    columns = {name: table.labels(name).tolist() for name in (unit, recipe, checkpoint)}
    items = columns[unit]
    if by_item and table.has("task"):
        items = [f"{task}/{item}" for task, item in zip(table.labels("task"), items, strict=True)]
    seeds = table.labels("seed").tolist() if table.has("seed") else [NO_SEED] * table.num_rows
    names, arms = columns[checkpoint], _arms(table)
    if arms is not None:
        names = [f"{name} ({arm})" for name, arm in zip(names, arms, strict=True)]
    extra = [name for name in ("task", "seed", "arm") if table.has(name) and name != unit]
    table.refuse_duplicates([unit, recipe, checkpoint, *extra])
    keys = list(zip(items, columns[recipe], names, seeds, strict=True))
    cells = dict(zip(keys, scores_N.tolist(), strict=True))
    checkpoints = list(dict.fromkeys(names))
    pairs = [(0, other) for other in range(1, len(checkpoints))]
    if arms is not None:
        bare = dict.fromkeys(columns[checkpoint])
        both = [tuple(f"{name} ({arm})" for arm in ARMS) for name in bare]
        known = [pair for pair in both if set(pair) <= set(checkpoints)]
        pairs = [(checkpoints.index(first), checkpoints.index(second)) for first, second in known]
    groups = _groups(table, items) if table.has("group") else None
    return _complete(table.name, cells, unit=unit, pairs=pairs, groups=groups)


def _column(table: Table, name: str) -> str:
    return name if table.has(name) or not table.has(OTHER_NAMES[name]) else OTHER_NAMES[name]


def _advice(by_item: bool) -> str:
    if by_item:
        return "A row is an answer: item, recipe (or prompt), checkpoint (or model), correct (0 or 1)"
    return "Add item and correct; without items a row needs task, recipe, checkpoint and accuracy"


def _scores(table: Table, name: str) -> npt.NDArray[np.float64]:
    """Scores in [0, 1]; true and false are 1 and 0."""
    cells = [TRUE_OR_FALSE.get(str(cell).strip().lower(), cell) for cell in table.columns[name]]
    least = 0.0 if name == "correct" else -1.0
    scores = Table(table.name, {name: cells}, table.row_numbers).numbers(name, least=least)
    high = np.flatnonzero(scores > 1)
    if high.size:
        raise UserError(
            f"{table.name}: row {int(high[0]) + 1}, column {name!r} is {scores[high[0]]:g}",
            "a score lies between 0 and 1",
            "Divide percentages by 100",
        )
    return scores


def _arms(table: Table) -> list[str] | None:
    if not table.has("arm"):
        return None
    arms: list[str] = table.labels("arm").tolist()
    wrong = next((row for row, arm in enumerate(arms, start=1) if arm not in ARMS), None)
    if wrong is not None:
        raise UserError(
            f"{table.name}: row {wrong}, column 'arm' is {arms[wrong - 1]!r}",
            f"an arm is {' or '.join(ARMS)}",
            "Correct the cell, or remove the column: others are then compared with the first checkpoint",
        )
    return arms


def _groups(table: Table, items: Sequence[str]) -> dict[str, str]:
    group_of: dict[str, str] = {}
    for row, (item, group) in enumerate(zip(items, table.labels("group").tolist(), strict=True), start=1):
        if group_of.setdefault(item, group) != group:
            raise UserError(
                f"{table.name}: row {row} has another group of {item} than an earlier row",
                "an item is in one group",
                "Correct the column",
            )
    return group_of


def _complete(
    name: str,
    cells: Mapping[Key, float],
    *,
    unit: str,
    pairs: list[tuple[int, int]],
    groups: Mapping[str, str] | None = None,
    left_out: Mapping[str, str] | None = None,
) -> Answers:
    """The items that have every recipe, checkpoint and seed; of the others, what they lack first."""
    items, recipes, checkpoints, seeds = (
        list(dict.fromkeys(key[axis] for key in cells)) for axis in range(4)
    )
    reasons = dict(left_out or {})
    complete = []
    for item in items:
        missing = [key for key in product(recipes, checkpoints, seeds) if (item, *key) not in cells]
        if missing:
            recipe, checkpoint, seed = missing[0]
            reasons[item] = f"no {recipe}, {checkpoint}" + (f", seed {seed}" if len(seeds) > 1 else "")
        else:
            complete.append(item)
    if len(complete) < 2:
        first = next(iter(reasons.items()), ("", "the table has fewer than two"))
        raise UserError(
            f"{name} has {len(complete)} {unit}s under every recipe, checkpoint and seed",
            f"{first[0]}: {first[1]}".lstrip(": "),
            "Add the missing rows, or remove recipes, checkpoints or seeds that lack most of them",
        )
    if len(recipes) < 2:
        raise UserError(
            f"{name} has one recipe",
            "recipes are compared with each other",
            "Add answers under a second recipe (prompt); `stemma analyse axes` compares models under one",
        )
    scores = np.array(
        [[cells[item, *key] for key in product(recipes, checkpoints, seeds)] for item in complete]
    )
    return Answers(
        scores.reshape(len(complete), len(recipes), len(checkpoints), len(seeds)),
        complete, recipes, checkpoints, seeds, pairs,
        None if groups is None else np.array([groups[item] for item in complete]), unit, reasons,
    )  # fmt: skip


def _nested(path: Path, settings: Mapping[str, Any]) -> Answers:
    """Published accuracies by setting, task and model: a setting is a recipe, a task stands for an item."""
    cells: dict[Key, float] = {}
    outside: dict[str, str] = {}
    for setting, tasks in settings.items():
        if setting.endswith(STANDARD_ERRORS):
            continue
        for task, models in tasks.items():
            if not isinstance(models, dict):
                raise UserError(
                    f"{path.name}: {setting}, {task} is not an object",
                    "it must map models to accuracies",
                    "Correct the file",
                )
            for model, score in models.items():
                where = f"{setting}, {task}, {model}"
                number = float(Table(path.name, {where: [score]}).numbers(where)[0])
                if not -1 <= number <= 1 or math.isnan(number):
                    outside[task] = f"{number:g} is no accuracy"
                cells[task, setting, model, NO_SEED] = number
    cells = {key: value for key, value in cells.items() if key[0] not in outside}
    return _complete(path.name, cells, unit="task", pairs=[], left_out=outside)
