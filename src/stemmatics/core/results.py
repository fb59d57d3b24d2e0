"""Results, claims and sentences: what measures hand to reports and what `verify` recomputes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from stemmatics.core.facts import Tag

NOT_AVAILABLE = "n/a"


def result_id(quantity: str, subject: Mapping[str, str]) -> str:
    """Unique within a run: quantity and subject. A slash in a value is written ``~1`` and a tilde ``~0``.

    That is RFC 6901's way (JSON Pointer): without it, names with slashes could give two subjects one id.
    """
    values = ((name, value.replace("~", "~0").replace("/", "~1")) for name, value in sorted(subject.items()))
    return "/".join([quantity, *(f"{name}={value}" for name, value in values)])


@dataclass(frozen=True)
class Estimate:
    """A number with its interval and the facts that it came from.

    ``quantity`` names what it is (``loss.native``), ``subject`` what it is about (pair, corpus,
    register …; strings only). ``unit`` is what was resampled, ``units`` the unit of the value.
    Unknown numbers are NaN. ``note`` is for readers; nothing parses it.
    """

    measure: str
    quantity: str
    subject: Mapping[str, str]
    value: float
    lo: float = math.nan
    hi: float = math.nan
    level: float = 0.95
    method: str = "exact"
    n: int = 0
    unit: str = "document"
    units: str = ""
    smallest_effect: float = math.nan
    tag: Tag = "main"
    facts: tuple[str, ...] = ()
    note: str = ""

    @property
    def id(self) -> str:
        """Unique within a run."""
        return result_id(self.quantity, self.subject)

    @property
    def is_known(self) -> bool:
        """Whether there is a value."""
        return not math.isnan(self.value)

    def row(self) -> dict[str, Any]:
        """Plain data for a table or JSON; NaN becomes None."""
        return _row(self)


@dataclass(frozen=True)
class Category:
    """A word from a fixed set: a verdict, a label, a tie. ``reason`` says what decided it."""

    measure: str
    quantity: str
    subject: Mapping[str, str]
    value: str
    reason: str = ""
    n: int = 0
    unit: str = ""
    tag: Tag = "main"
    facts: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """Unique within a run."""
        return result_id(self.quantity, self.subject)

    def row(self) -> dict[str, Any]:
        """Plain data for a table or JSON."""
        return _row(self)


@dataclass(frozen=True)
class Refusal:
    """A number that is withheld, why, and what would help."""

    measure: str
    quantity: str
    subject: Mapping[str, str]
    reason: str
    fix: str = ""
    tag: Tag = "main"
    facts: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """Unique within a run."""
        return result_id(self.quantity, self.subject)

    @property
    def text(self) -> str:
        """Reason and fix as one line."""
        return f"{self.reason}; {self.fix}" if self.fix else self.reason

    def row(self) -> dict[str, Any]:
        """Plain data for a table or JSON."""
        return _row(self)


Result = Estimate | Category | Refusal


def _row(result: Result) -> dict[str, Any]:
    row = {"id": result.id, **asdict(result)}
    row["subject"] = dict(result.subject)
    row["facts"] = list(result.facts)
    return {name: none_if_nan(value) for name, value in row.items()}


class Results(Mapping[str, Result]):
    """Results by id, in the order in which they were made, with look-ups by quantity and subject.

    A look-up takes results whose subject has at least the given values: ``find("loss.delta.byte",
    base="a", register="all")``.
    """

    def __init__(self, results: Iterable[Result] = ()) -> None:
        self._by_id: dict[str, Result] = {}
        self._by_quantity: dict[str, list[Result]] = {}
        for result in results:
            if result.id in self._by_id:
                message = f"two results have the id {result.id}"
                raise AssertionError(message)
            self._by_id[result.id] = result
            self._by_quantity.setdefault(result.quantity, []).append(result)

    def __getitem__(self, name: str) -> Result:
        return self._by_id[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_id)

    def __len__(self) -> int:
        return len(self._by_id)

    def about(self, **subject: str) -> Results:
        """Those whose subject has these values."""
        return Results(_matching(self._by_id.values(), subject))

    def all(self, quantity: str, /, **subject: str) -> list[Estimate]:
        """Estimates of a quantity."""
        return [result for result in self._named(quantity, subject) if isinstance(result, Estimate)]

    def find(self, quantity: str, /, **subject: str) -> Estimate | None:
        """The first estimate of a quantity; None if there is none."""
        return next(
            (result for result in self._named(quantity, subject) if isinstance(result, Estimate)), None
        )

    def only(self, quantity: str, /, **subject: str) -> Estimate:
        """The only estimate of a quantity. Raises ValueError if there is none or several."""
        (estimate,) = self.all(quantity, **subject)
        return estimate

    def categories(self, quantity: str, /, **subject: str) -> list[Category]:
        """Categories of a quantity."""
        return [result for result in self._named(quantity, subject) if isinstance(result, Category)]

    def category(self, quantity: str, /, **subject: str) -> Category | None:
        """The first category of a quantity; None if there is none."""
        return next(iter(self.categories(quantity, **subject)), None)

    def refusals(self, quantity: str | None = None, /, **subject: str) -> list[Refusal]:
        """Refusals of a quantity, or all."""
        among = self._by_id.values() if quantity is None else self._by_quantity.get(quantity, [])
        return [result for result in _matching(among, subject) if isinstance(result, Refusal)]

    def refusal(self, quantity: str, /, **subject: str) -> Refusal | None:
        """The first refusal of a quantity; None if there is none."""
        return next(iter(self.refusals(quantity, **subject)), None)

    def estimates(self) -> list[Estimate]:
        """All estimates."""
        return [result for result in self._by_id.values() if isinstance(result, Estimate)]

    def _named(self, quantity: str, subject: Mapping[str, str]) -> Iterator[Result]:
        return _matching(self._by_quantity.get(quantity, []), subject)


def _matching(results: Iterable[Result], subject: Mapping[str, str]) -> Iterator[Result]:
    conditions = subject.items()
    return (
        result for result in results if all(result.subject.get(name) == value for name, value in conditions)
    )


@dataclass(frozen=True)
class Claim:
    """One printed number or word: which field of which result, and how it is written."""

    result: str
    field: str = "value"
    form: str = "{:.4f}"
    scale: float = 1.0

    @property
    def id(self) -> str:
        """Unique by what it prints."""
        return f"{self.result}#{self.field}#{self.form}#{self.scale:g}"

    def text(self, results: Mapping[str, Result]) -> str:
        """The number or word as printed; ``n/a`` where it is unknown or refused."""
        result = results[self.result]
        if isinstance(result, Refusal):
            return NOT_AVAILABLE
        value = getattr(result, self.field)
        if value is None or (isinstance(value, float) and math.isnan(value)):
            return NOT_AVAILABLE
        return self.form.format(value * self.scale if isinstance(value, float) else value)


@dataclass(frozen=True)
class Sentence:
    """Prose with claims in it: ``"{pair} lost {delta} nats/byte"``.

    A value is a Claim (checked by ``verify``) or a string (a name).
    ``topic`` groups sentences in a page: ``summary`` or a measure's own section.
    """

    text: str
    values: Mapping[str, Claim | str] = field(default_factory=dict)
    topic: str = "summary"

    def claims(self) -> list[Claim]:
        """The claims in this sentence, in their order."""
        return [value for value in self.values.values() if isinstance(value, Claim)]

    def plain(self, results: Mapping[str, Result]) -> str:
        """The sentence as text, for a terminal."""
        filled = {
            name: value.text(results) if isinstance(value, Claim) else value
            for name, value in self.values.items()
        }
        return self.text.format(**filled)


def none_if_nan(value: Any) -> Any:
    """JSON has no NaN: an unknown number is null."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
