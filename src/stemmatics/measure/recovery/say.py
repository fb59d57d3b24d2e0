"""Estimates of this measure on one corpus, with the facts of the checkpoints that they speak of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stemmatics.core.results import Estimate
from stemmatics.math.intervals import Interval
from stemmatics.measure.present import estimate_from
from stemmatics.measure.recovery.losses import Losses
from stemmatics.measure.recovery.needs import NAME

UNITS = "nats/byte"


class Say:
    """Makes estimates; ``names`` are the checkpoints behind one, all of them where none is named."""

    def __init__(self, losses: Losses) -> None:
        self._losses = losses

    def interval(
        self,
        interval: Interval,
        quantity: str,
        subject: Mapping[str, str],
        *names: str,
        units: str = UNITS,
        **more: Any,
    ) -> Estimate:
        """A value with its interval."""
        return estimate_from(
            interval,
            measure=NAME,
            quantity=f"{NAME}.{quantity}",
            subject={**subject, "corpus": self._losses.corpus},
            units=units,
            facts=self._facts(names),
            **more,
        )

    def number(
        self,
        value: float,
        quantity: str,
        subject: Mapping[str, str],
        *names: str,
        n: int | None = None,
        unit: str = "document",
        units: str = UNITS,
        **more: Any,
    ) -> Estimate:
        """A plain number; ``n`` counts the documents where nothing else is said."""
        return Estimate(
            measure=NAME,
            quantity=f"{NAME}.{quantity}",
            subject={**subject, "corpus": self._losses.corpus},
            value=value,
            n=len(self._losses.scores.nll_N) if n is None else n,
            unit=unit,
            units=units,
            facts=tuple(fact.key for fact in self._facts(names)),
            **more,
        )

    def _facts(self, names: tuple[str, ...]) -> list[Any]:
        arms = self._losses.arms
        return [fact for name in names or arms for fact in arms[name].facts]
