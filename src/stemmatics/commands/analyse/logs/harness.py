"""Logs of lm-evaluation-harness: ``samples_TASK_DATE.jsonl`` beside ``results_DATE.json``, and older shapes.

Since 0.4.3 a sample has hashes of document, prompt and target, and a row for each filter. Before, a task's
samples were a JSON list in ``MODEL_TASK.jsonl``, without hashes or filter.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from stemmatics.commands.analyse.logs.items import Item, ItemLog, Metric
from stemmatics.commands.analyse.table import parse_json, read_text
from stemmatics.core.errors import UserError

_SAMPLES = re.compile(r"samples_(?P<task>.+)_(?P<date>\d{4}-\d{2}-\d{2}T[\d.-]+)\.jsonl")
_FIELDS = frozenset(
    {
        "doc_id", "doc", "target", "arguments", "resps", "filtered_resps", "filter", "metrics", "doc_hash",
        "prompt_hash", "target_hash",
    }
)  # fmt: skip
# metrics whose samples hold a log-likelihood, whatever their names say; with what it is divided by
_LIKELIHOODS = {
    "word_perplexity": "nats/word",
    "byte_perplexity": "nats/byte",
    "bits_per_byte": "nats/byte",
    "perplexity": "nats",
}


def is_harness(path: Path) -> bool:
    """Whether a file or folder looks like the harness's."""
    if path.is_dir():
        return any(_SAMPLES.fullmatch(file.name) for file in path.rglob("samples_*.jsonl"))
    return path.suffix == ".jsonl" and _is_sample(next(_rows(path), None))


def _is_sample(row: Any) -> bool:
    return isinstance(row, Mapping) and {"doc_id", "doc", "resps"} <= row.keys()


def read_harness(path: Path, name: str) -> ItemLog:
    """All tasks of one model. Of several runs of a task in a folder, the latest.

    Raises UserError where there is no sample, and for a sample without a metric.
    """
    log = ItemLog(name)
    for task, file in _files(path).items():
        results = _results_of(file)
        version = results.get("versions", {}).get(task)
        if version is not None:
            log.versions[task] = str(version)
        for row in _rows(file):
            _add(log, task, row, results.get("higher_is_better", {}).get(task, {}))
    if not log.items:
        raise UserError(
            f"{path} holds no sample with a metric",
            "the harness writes samples only with its option log_samples",
            "Run the harness again with log_samples, and give the folder that it wrote to",
        )
    return log


def _files(path: Path) -> dict[str, Path]:
    if not path.is_dir():
        match = _SAMPLES.fullmatch(path.name)
        return {match["task"] if match else path.stem: path}
    latest: dict[str, tuple[str, Path]] = {}
    for file in sorted(path.rglob("samples_*.jsonl")):
        match = _SAMPLES.fullmatch(file.name)
        if match and match["date"] >= latest.get(match["task"], ("", file))[0]:
            latest[match["task"]] = (match["date"], file)
    return {task: file for task, (_, file) in sorted(latest.items())}


def _results_of(file: Path) -> dict[str, Any]:
    """The results file of the same run, which has versions and directions; empty where there is none."""
    match = _SAMPLES.fullmatch(file.name)
    results = file.with_name(f"results_{match['date']}.json") if match else None
    if results is None or not results.is_file():
        return {}
    content = parse_json(results, read_text(results))
    return content if isinstance(content, dict) else {}


def _rows(file: Path) -> Iterator[Any]:
    """Samples of a file: a JSON list, or a line each."""
    text = read_text(file)
    if text.lstrip().startswith("["):
        yield from parse_json(file, text)
        return
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip():
            try:
                yield json.loads(line)
            except json.JSONDecodeError as error:
                raise UserError(
                    f"{file.name}: line {number} is no JSON", str(error), "Write the log again"
                ) from None


def _add(log: ItemLog, task: str, row: Any, higher: Mapping[str, Any]) -> None:
    if not _is_sample(row):
        raise UserError(
            f"a sample of {task} has no doc_id, doc and resps",
            "it is not one of lm-evaluation-harness",
            "Give the samples that the harness writes with log_samples",
        )
    names = row.get("metrics") or [name for name in row if name not in _FIELDS]
    for name in names:
        value = row.get(name)
        amount = _amount(value)
        if amount is None:
            continue
        metric = Metric(task, name, str(row.get("filter") or ""))
        if name in _LIKELIHOODS:
            metric = Metric(task, f"{name}, {_LIKELIHOODS[name]}", metric.filter)
            # what is stored is a log-likelihood
            amount = (-amount[0], amount[1])
            log.lower_is_better.add(metric)
        elif higher.get(name) is False:
            log.lower_is_better.add(metric)
        log.add(metric, _item(row, *amount))


def _amount(value: Any) -> tuple[float, float] | None:
    """A number, or a sum and what it is divided by; None for what has no mean, as lists of references."""
    if isinstance(value, bool | int | float):
        return float(value), 1.0
    if isinstance(value, list) and len(value) == 2 and all(isinstance(part, int | float) for part in value):
        return float(value[0]), float(value[1])
    return None


def _item(row: Mapping[str, Any], value: float, weight: float) -> Item:
    target = row.get("target_hash") or _hash(str(row.get("target")))
    document = row.get("doc_hash") or _hash(json.dumps(row["doc"], sort_keys=True, ensure_ascii=False))
    prompt = row.get("prompt_hash") or _hash(_first_argument(row.get("arguments")))
    replies = row["resps"]
    text = replies[0] if isinstance(replies, list) and replies else ""
    text = text[0] if isinstance(text, list) and text else text
    return Item(
        key=f"{document}/{target}",
        prompt=str(prompt),
        label=str(row["doc_id"]),
        value=value,
        weight=weight,
        num_chars=len(text) if isinstance(text, str) and text else None,
    )


def _first_argument(arguments: Any) -> str:
    """The prompt in either shape: a list of lists, or objects named gen_args_0 and arg_0."""
    if isinstance(arguments, Mapping):
        arguments = list(arguments.values())
    first = arguments[0] if isinstance(arguments, list) and arguments else ""
    if isinstance(first, Mapping):
        first = list(first.values())
    return str(first[0] if isinstance(first, list) and first else first)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
