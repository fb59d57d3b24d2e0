"""Families marked blind: what was predicted of their bases, against what was found afterwards."""

from __future__ import annotations

from stemmatics.core.results import Estimate
from stemmatics.math.placing import LEVEL
from stemmatics.measure.base import Tables
from stemmatics.measure.recovery.losses import Losses
from stemmatics.measure.recovery.needs import NAME, Arms

UNITS = "nats/byte"


def blind_estimates(arms: Arms, losses: Losses, tables: Tables) -> list[Estimate]:
    """The prediction with its bar, the error, and whether the bar held it."""
    found: list[Estimate] = []
    for base, name in arms.blind_pairs:
        fact = arms.prediction(name, losses.corpus)
        if not tables.has(fact) or base not in losses.arms:
            continue
        row = tables.read(fact, "prediction").to_pylist()[0]
        value, bar = float(row["value"]), float(row["bar"])
        error = losses.loss(losses.arms[base].rebased) - value
        subject = {
            "base": base,
            "descendant": name,
            "corpus": losses.corpus,
            "sha256": str(row["sha256"])[:16],
            "rule": str(row["rule"]),
        }
        keys = (fact.key, *(one.key for one in losses.arms[base].facts))
        numbers = {"blind.error": (error, UNITS), "blind.held": (float(abs(error) <= bar), "")}
        found.append(
            Estimate(
                measure=NAME,
                quantity="recovery.blind",
                subject=subject,
                value=value,
                lo=value - bar,
                hi=value + bar,
                level=LEVEL,
                method="recovered less offset",
                n=int(row["num_pairs"]),
                unit="pair",
                units=UNITS,
                facts=keys,
            )
        )
        found += [
            Estimate(
                measure=NAME,
                quantity=f"recovery.{quantity}",
                subject=subject,
                value=number,
                n=1,
                unit="prediction",
                units=units,
                facts=keys,
            )
            for quantity, (number, units) in numbers.items()
        ]
    return found
