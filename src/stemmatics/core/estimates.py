"""Estimates, claims and sentences: what measures hand to reports and what `verify` recomputes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from stemmatics.core.facts import Tag

NOT_AVAILABLE = "n/a"


@dataclass(frozen=True)
class Estimate:
    """A value with its interval and where it came from.

    ``quantity`` names what it is (``loss.native``), ``subject`` says of what (pair, corpus,
    register …; strings only). ``unit`` is what was resampled, ``units`` what the value is
    counted in. Unknown numbers are NaN.
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
        """Unique within a run: quantity and subject."""
        return "/".join([self.quantity, *(f"{name}={value}" for name, value in sorted(self.subject.items()))])

    def row(self) -> dict[str, Any]:
        """Plain data for a table or JSON; NaN becomes None."""
        row = asdict(self)
        row["id"] = self.id
        row["subject"] = dict(self.subject)
        row["facts"] = list(self.facts)
        return {name: none_if_nan(value) for name, value in row.items()}


@dataclass(frozen=True)
class Claim:
    """One printed number: which field of which estimate, and how it is written."""

    estimate: str
    field: str = "value"
    form: str = "{:.4f}"
    scale: float = 1.0

    @property
    def id(self) -> str:
        """Unique by what it prints."""
        return f"{self.estimate}#{self.field}#{self.form}#{self.scale:g}"

    def text(self, estimates: Mapping[str, Estimate]) -> str:
        """The number as printed; ``n/a`` where it is unknown."""
        value = getattr(estimates[self.estimate], self.field)
        if value is None or (isinstance(value, float) and math.isnan(value)):
            return NOT_AVAILABLE
        return self.form.format(value * self.scale if isinstance(value, float) else value)


@dataclass(frozen=True)
class Sentence:
    """Prose with claims in its places: ``"{pair} lost {delta} nats/byte"``.

    A place is a Claim (a number, checked by ``verify``) or a string (a name).
    ``topic`` groups sentences in a page: ``summary`` or a measure's own section.
    """

    text: str
    places: Mapping[str, Claim | str] = field(default_factory=dict)
    topic: str = "summary"

    def claims(self) -> list[Claim]:
        """The numbers in this sentence, in the order of its places."""
        return [place for place in self.places.values() if isinstance(place, Claim)]

    def plain(self, estimates: Mapping[str, Estimate]) -> str:
        """The sentence as text, for a terminal."""
        filled = {
            name: place.text(estimates) if isinstance(place, Claim) else place
            for name, place in self.places.items()
        }
        return self.text.format(**filled)


def none_if_nan(value: Any) -> Any:
    """JSON has no NaN: an unknown number is null."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
