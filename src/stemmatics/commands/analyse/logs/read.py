"""Which reader a log needs: the harness's, Inspect's, or a table of items."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from stemmatics.commands.analyse.logs.harness import is_harness, read_harness
from stemmatics.commands.analyse.logs.inspect import is_inspect, read_inspect
from stemmatics.commands.analyse.logs.items import Item, ItemLog, Metric
from stemmatics.commands.analyse.table import kind_of, read_table
from stemmatics.core.errors import UserError


def read_logs(paths: Sequence[Path]) -> list[ItemLog]:
    """The logs in order; a table with a column ``model`` holds several.

    Raises UserError for what is no log, and for two logs of one name.
    """
    logs: list[ItemLog] = []
    for path, name in zip(paths, _names(paths), strict=True):
        if not path.exists():
            raise UserError(f"{path} does not exist", "a log is a file or a folder", "Check the path", code=2)
        if is_harness(path):
            logs.append(read_harness(path, name))
        elif is_inspect(path):
            logs.append(read_inspect(path, name))
        elif path.is_file() and kind_of(path):
            logs += _from_table(path, name)
        else:
            raise UserError(
                f"{path} is no evaluation log that can be read",
                "logs are samples of lm-evaluation-harness, .eval files of Inspect, and tables of items",
                "docs/axes.md describes them",
                code=2,
            )
    names = [log.name for log in logs]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UserError(
            f"two logs are of {twice}", "each is compared with the first", "Give each model once", code=2
        )
    if len(logs) < 2:
        raise UserError(
            "one log is given",
            "a change is between two",
            "Name a second log, or a table with a column model",
            code=2,
        )
    return logs


def _names(paths: Sequence[Path]) -> list[str]:
    """Names of files or folders; with their folders where two are the same."""
    stems = [path.resolve().stem if path.is_file() else path.resolve().name for path in paths]
    if len(set(stems)) == len(stems):
        return stems
    return ["/".join(path.resolve().parts[-2:]) for path in paths]


def _from_table(path: Path, name: str) -> list[ItemLog]:
    """Columns ``item`` and ``value``; optional ``model``, ``task``, ``metric``, ``filter``, ``cluster``."""
    table = read_table(path)
    table.require(["item", "value"], fix="A log of items has one row an item; docs/axes.md describes it")
    values = table.numbers("value")
    columns = {
        column: table.labels(column, required=False)
        for column in ("model", "task", "metric", "filter", "cluster", "prompt")
    }
    items = table.labels("item")
    logs: dict[str, ItemLog] = {}
    for row, item in enumerate(items.tolist()):
        labels = {column: str(names[row]) for column, names in columns.items()}
        log = logs.setdefault(labels["model"], ItemLog(labels["model"] or name))
        metric = Metric(labels["task"] or "all", labels["metric"] or "value", labels["filter"])
        log.add(metric, Item(item, labels["prompt"], item, float(values[row]), cluster=labels["cluster"]))
    return list(logs.values())
