"""What all logs of evaluations are read into: values of items by task, metric and filter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Metric:
    """One column of values: a task, a metric of it and the filter of replies that it was computed on."""

    task: str
    metric: str
    filter: str = ""

    def text(self) -> str:
        """For messages."""
        return " ".join(filter(None, [self.task, self.metric, f"({self.filter})" if self.filter else ""]))


@dataclass(frozen=True)
class Item:
    """One item's value.

    ``key`` identifies the question and its expected answer, ``prompt`` what the model was given (empty where
    the log has none). ``value`` is a sum and ``weight`` what it is divided by, such as words.
    """

    key: str
    prompt: str
    label: str
    value: float
    weight: float = 1.0
    cluster: str = ""
    num_chars: int | None = None


@dataclass(eq=False)
class ItemLog:
    """One model's log. ``versions`` are those of tasks; ``lower_is_better`` names metrics such as losses."""

    name: str
    items: dict[Metric, list[Item]] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    lower_is_better: set[Metric] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)

    def add(self, metric: Metric, item: Item) -> None:
        """One more item."""
        self.items.setdefault(metric, []).append(item)


def paired(
    first: Sequence[Item], second: Sequence[Item]
) -> tuple[list[tuple[Item, Item]], list[str], list[str]]:
    """Items that both logs have, in the order of the first; labels of those that only one has.

    A key that stands in a log more than once (the same question twice) is paired in the order of the logs.
    """
    waiting: dict[str, list[Item]] = {}
    for item in second:
        waiting.setdefault(item.key, []).append(item)
    pairs, only_first = [], []
    for item in first:
        partners = waiting.get(item.key)
        if partners:
            pairs.append((item, partners.pop(0)))
        else:
            only_first.append(item.label)
    only_second = [item.label for partners in waiting.values() for item in partners]
    return pairs, only_first, only_second


def other_prompts(pairs: Sequence[tuple[Item, Item]]) -> list[str]:
    """Labels of pairs whose prompts differ, where both logs say what they were."""
    return [
        first.label
        for first, second in pairs
        if first.prompt and second.prompt and first.prompt != second.prompt
    ]


Versions = Mapping[str, str]
