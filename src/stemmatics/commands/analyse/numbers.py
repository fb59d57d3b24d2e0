"""Estimates as plain data, for the JSON of `stemma analyse`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from stemmatics.math.intervals import Interval


def as_data(interval: Interval, *, units: str = "", **more: Any) -> dict[str, Any]:
    """``value, lo, hi, n, level, method, unit, ...``; ``units`` are those of the value."""
    fields = asdict(interval)
    return (
        {"value": fields.pop("value"), "lo": fields.pop("lo"), "hi": fields.pop("hi"), "units": units}
        | fields
        | more
    )


def count(value: int, n: int, *, of: str, note: str = "") -> dict[str, Any]:
    """A count in the table: exact, so without an interval."""
    return {
        "value": value,
        "lo": None,
        "hi": None,
        "units": "",
        "level": None,
        "method": "exact",
        "n": n,
        "unit": of,
        "note": note,
    }
