"""Estimates as plain data: what the JSON of `stemma analyse` holds."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from stemmatics.math.intervals import Interval


def as_data(interval: Interval, *, units: str = "", **more: Any) -> dict[str, Any]:
    """``value, lo, hi, n, level, method, unit, ...``; ``units`` is what the value is counted in."""
    found = asdict(interval)
    return (
        {"value": found.pop("value"), "lo": found.pop("lo"), "hi": found.pop("hi"), "units": units}
        | found
        | more
    )


def count(value: int, n: int, *, of: str, note: str = "") -> dict[str, Any]:
    """A count of things in the table: exact, so without an interval."""
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
