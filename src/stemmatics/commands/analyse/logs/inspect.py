"""Logs of Inspect (``.eval``), read by Inspect itself."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stemmatics.commands.analyse.logs.items import Item, ItemLog, Metric
from stemmatics.core.errors import UserError

# Inspect's letters: correct, incorrect, partial, no answer
_LETTERS: Mapping[str, float] = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0}


def is_inspect(path: Path) -> bool:
    """Whether a file, or a folder of such, is Inspect's."""
    return path.suffix == ".eval" or (path.is_dir() and any(path.glob("*.eval")))


def read_inspect(path: Path, name: str) -> ItemLog:
    """All tasks of one model; epochs of a sample are averaged, as Inspect does.

    Raises UserError where Inspect is not installed, and where a log did not finish.
    """
    if importlib.util.find_spec("inspect_ai") is None:
        raise UserError(
            "inspect_ai is not installed",
            f"{path.name} is read by Inspect's own reader",
            "Type: pip install 'stemmatics[inspect]'",
        )
    read = importlib.import_module("inspect_ai.log").read_eval_log
    log = ItemLog(name)
    for file in sorted(path.glob("*.eval")) if path.is_dir() else [path]:
        content = read(str(file))
        if content.status != "success" or not content.samples:
            raise UserError(
                f"{file.name} has status {content.status}",
                "items that were not scored would count as if they were left out on purpose",
                "Finish the evaluation with `inspect eval-retry`, or leave the file out",
            )
        task = str(content.eval.task)
        log.versions[task] = str(content.eval.task_version)
        _add(log, task, content.samples)
    return log


def _add(log: ItemLog, task: str, samples: Any) -> None:
    values: dict[tuple[Metric, str], list[float]] = {}
    known: dict[str, Any] = {}
    for sample in samples:
        prompt = (
            sample.input
            if isinstance(sample.input, str)
            else json.dumps([message.model_dump(include={"role", "content"}) for message in sample.input])
        )
        key = _hash(f"{sample.id}/{sample.target}")
        known[key] = (_hash(prompt), str(sample.id), len(sample.output.completion or ""))
        for scorer, score in (sample.scores or {}).items():
            for label, value in _numbers(scorer, score.value):
                values.setdefault((Metric(task, label), key), []).append(value)
    for (metric, key), numbers in values.items():
        prompt, label, length = known[key]
        log.add(metric, Item(key, prompt, label, sum(numbers) / len(numbers), num_chars=length))


def _numbers(scorer: str, value: Any) -> list[tuple[str, float]]:
    if isinstance(value, Mapping):
        return [pair for name, part in value.items() for pair in _numbers(f"{scorer}/{name}", part)]
    if isinstance(value, str):
        return [(scorer, _LETTERS[value])] if value in _LETTERS else []
    return [(scorer, float(value))] if isinstance(value, bool | int | float) else []


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
