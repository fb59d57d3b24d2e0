"""Picking this measure's estimates, and claims on them."""

from __future__ import annotations

from collections.abc import Mapping

from stemmatics.core.results import Claim, Estimate
from stemmatics.measure.recovery.needs import NAME

Estimates = Mapping[str, Estimate]
SIGNED = "{:+.4f}"
PLAIN = "{:.4f}"


def of(estimates: Estimates, quantity: str, **subject: str) -> list[Estimate]:
    """All estimates of a quantity, in their order."""
    return [
        one
        for one in estimates.values()
        if one.quantity == f"{NAME}.{quantity}"
        and all(one.subject.get(key) == value for key, value in subject.items())
    ]


def one_of(estimates: Estimates, quantity: str, **subject: str) -> Estimate:
    """The only estimate of a quantity for a subject."""
    (found,) = of(estimates, quantity, **subject)
    return found


def claim(one: Estimate, form: str, field: str = "value") -> Claim:
    """A printed number."""
    return Claim(one.id, field, form)


def claim_if(
    estimates: Estimates, quantity: str, form: str = SIGNED, field: str = "value", **subject: str
) -> Claim | None:
    """A claim where there is such an estimate."""
    found = of(estimates, quantity, **subject)
    return claim(found[0], form, field) if found else None


def letters(number: int) -> str:
    """a, b, ... z, aa, ab, ...: a name without digits."""
    name = ""
    number += 1
    while number:
        number, left = divmod(number - 1, 26)
        name = chr(ord("a") + left) + name
    return name
