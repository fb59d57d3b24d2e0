"""`stemma analyse agreement`: how far benchmarks agree on the order of models, before and after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from stemmatics.commands.analyse.numbers import as_data
from stemmatics.commands.analyse.table import Table, kind_of, parse_json, read_table, read_text
from stemmatics.core.errors import UserError
from stemmatics.math.agreement import agreement

SETTINGS = (("before", "after"), ("direct_eval", "train_before_test"))
STANDARD_ERRORS = "_stderr"
LOWEST, HIGHEST = -1.0, 1.0
"""Accuracies are in [0, 1]; Matthews correlations, such as CoLA's, in [-1, 1]."""

_OUT_OF_RANGE = "scores from"
_REASONS_SHOWN = 3

Scores = dict[str, dict[str, float]]  # of one setting: task, model


@dataclass
class Chosen:
    """The tasks that are used, and for each of the others why it is not."""

    tasks: list[str] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)


def analyse_agreement(
    path: Path,
    *,
    rng: np.random.Generator,
    tasks: Sequence[str] = (),
    lower_is_better: Sequence[str] = (),
    before: str | None = None,
    after: str | None = None,
) -> dict[str, Any]:
    """Mean Kendall tau-b over pairs of tasks in each setting, and the paired difference."""
    names, sides, family_of = _read(path, before, after)
    everyone = sorted({model for side in sides for task in side.values() for model in task})
    chosen = _choose(sides, everyone, tasks, lower_is_better)
    # a model can lack a task only if the tasks were named
    models = [m for m in everyone if all(m in side[task] for side in sides for task in chosen.tasks)]
    if len(chosen.tasks) < 2 or len(models) < 2:
        raise UserError(
            f"{path.name} leaves {_count(len(chosen.tasks), 'task')} and {_count(len(models), 'model')}",
            "agreement needs two tasks or more, with scores of the same two models or more"
            + "".join(f"; {task}: {why}" for task, why in list(chosen.left_out.items())[:_REASONS_SHOWN]),
            _advice(chosen, models),
        )
    sign = {task: -1.0 if task in lower_is_better else 1.0 for task in chosen.tasks}
    arrays = [
        np.array([[sign[task] * side[task][model] for task in chosen.tasks] for model in models])
        for side in sides
    ]
    families = None if family_of is None else [family_of[model] for model in models]
    taus = agreement(arrays[0], arrays[1], rng=rng, families_M=families)
    return {
        "settings": {names[0]: _mean_tau(taus.before), names[1]: _mean_tau(taus.after)},
        "difference": _mean_tau(taus.difference),
        "of": f"{names[1]} less {names[0]}",
        "num_models": len(models),
        "num_task_pairs": taus.num_task_pairs,
        "tasks": chosen.tasks,
        "lower_is_better": [task for task in chosen.tasks if sign[task] < 0],
        "left_out": chosen.left_out,
        "models_left_out": [model for model in everyone if model not in models],
    }


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _advice(chosen: Chosen, models: Sequence[str]) -> str:
    """What gives more tasks or models: it depends on why others were left out."""
    unbounded = [task for task, why in chosen.left_out.items() if why.startswith(_OUT_OF_RANGE)]
    if len(chosen.tasks) + len(unbounded) >= 2 and unbounded:
        names = ",".join([*chosen.tasks, *unbounded])
        return f"Divide percentages by 100, or use the scores as they are with --tasks {names}"
    if len(models) < 2:
        return "Add scores of more models for the same tasks"
    return "Add tasks with scores of all models in both settings"


def _mean_tau(interval: Any) -> dict[str, Any]:
    return as_data(interval, units="mean tau-b")


def _settings(present: list[str], before: str | None, after: str | None) -> tuple[str, str]:
    """First and second setting: as named, or by their usual names; never by their order in the file."""
    known = next((pair for pair in SETTINGS if set(pair) <= set(present)), (None, None))
    chosen = (before or known[0], after or known[1])
    if chosen[0] in present and chosen[1] in present and chosen[0] != chosen[1]:
        return str(chosen[0]), str(chosen[1])
    raise UserError(
        "the table does not say which two settings to compare",
        f"it has {', '.join(present) or 'none'}",
        "Name them with --before and --after",
        code=2,
    )


def _choose(
    sides: list[Scores],
    models: list[str],
    named: Sequence[str],
    lower_is_better: Sequence[str],
) -> Chosen:
    """The named tasks; else those that have valid scores of every model in both settings."""
    present = list(dict.fromkeys(task for side in sides for task in side))
    unknown = next((task for task in [*named, *lower_is_better] if task not in present), None)
    if unknown is not None:
        raise UserError(
            f"there is no task {unknown!r}",
            "the table has other tasks",
            f"Choose from {', '.join(present)}",
            code=2,
        )
    chosen = Chosen()
    for task in present:
        reason = _reason_to_omit(task, sides, models, named)
        if reason:
            chosen.left_out[task] = reason
        else:
            chosen.tasks.append(task)
    if named:
        lost = next((task for task in named if task not in chosen.tasks), None)
        if lost is not None:
            raise UserError(
                f"task {lost!r} can't be used", chosen.left_out[lost], "Remove it from --tasks", code=2
            )
    return chosen


def _reason_to_omit(task: str, sides: list[Scores], models: list[str], named: Sequence[str]) -> str:
    """Why a task is left out; empty if it is used."""
    if named and task not in named:
        return "not asked for"
    if not all(task in side for side in sides):
        return "in one setting only"
    values = [value for side in sides for value in side[task].values()]
    if not named:
        missing = [model for model in models if not all(model in side[task] for side in sides)]
        if missing:
            return f"{len(missing)} of {len(models)} models lack it"
        if not LOWEST <= min(values) <= max(values) <= HIGHEST:
            return f"{_OUT_OF_RANGE} {min(values):g} to {max(values):g} are not in [{LOWEST:g}, {HIGHEST:g}]"
    if any(len(set(side[task].values())) < 2 for side in sides):
        return "all models have one score"
    return ""


def _read(
    path: Path, before: str | None, after: str | None
) -> tuple[tuple[str, str], list[Scores], dict[str, str] | None]:
    """Names and scores of the settings, and the family of each model if the table has it.

    Nested JSON {setting: {task: {model: score}}}, or rows of task, model and two settings.
    """
    if kind_of(path) == ".json" and path.is_file():
        value = parse_json(path, read_text(path))
        if isinstance(value, dict) and all(isinstance(tasks, dict) for tasks in value.values()):
            names = _settings([name for name in value if not name.endswith(STANDARD_ERRORS)], before, after)
            return names, [_nested(path, name, value[name]) for name in names], None
    table = read_table(path)
    table.require(["task", "model"])
    table.refuse_duplicates(["task", "model"])
    names = _settings(
        [name for name in table.columns if name not in {"task", "model", "family"}], before, after
    )
    families = _families(table) if table.has("family") else None
    return names, [_column(table, name) for name in names], families


def _nested(path: Path, setting: str, tasks: Mapping[str, Any]) -> Scores:
    scores: Scores = {}
    for task, models in tasks.items():
        if not isinstance(models, dict):
            raise UserError(
                f"{path.name}: {setting}, {task} is not an object",
                "it must map models to scores",
                "Correct the file",
            )
        scores[task] = {
            model: _score(path, f"{setting}, {task}, {model}", score) for model, score in models.items()
        }
    return scores


def _score(path: Path, location: str, value: Any) -> float:
    column = Table(path.name, {location: [value]})
    return float(column.numbers(location)[0])


def _column(table: Table, setting: str) -> Scores:
    scores: Scores = {}
    labels = zip(table.labels("task").tolist(), table.labels("model").tolist(), strict=True)
    for (task, model), score in zip(labels, table.numbers(setting).tolist(), strict=True):
        scores.setdefault(task, {})[model] = score
    return scores


def _families(table: Table) -> dict[str, str]:
    family_of: dict[str, str] = {}
    labels = zip(table.labels("model").tolist(), table.labels("family").tolist(), strict=True)
    for row, (model, family) in enumerate(labels, start=1):
        if family_of.setdefault(model, family) != family:
            raise UserError(
                f"{table.name}: row {row} has another family of {model} than an earlier row ({family!r})",
                "a model has one family",
                "Correct the column",
            )
    return family_of
