"""Facts about other people's calibrated pairs: the rows of a registry, checked."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from stemmatics.core.errors import UserError
from stemmatics.core.facts import Fact
from stemmatics.facts.registry import PAIRS, REGISTRY
from stemmatics.probe.base import Context, FactOutput, NoModel
from stemmatics.probe.sources import records_of


class Registry(NoModel):
    """Reads a registry as ``stemma export RUN --registry FILE`` writes it."""

    def run(self, facts: Sequence[Fact], context: Context) -> Iterator[FactOutput]:
        """One row a pair."""
        del context
        for fact in facts:
            rows = [_row(record, index) for index, record in enumerate(records_of(fact.needs["registry"])())]
            yield FactOutput(fact, {"registry": REGISTRY.table("registry", rows)})


def _row(record: Mapping[str, Any], index: int) -> dict[str, Any]:
    missing = [name for name in PAIRS.names if name not in record]
    if missing:
        raise UserError(
            f"row {index} of the registry has no {missing[0]!r}",
            "a calibrated pair without it can't be matched",
            "Give a file that `stemma export RUN --registry FILE` wrote",
        )
    residual = record["residual"]
    if not isinstance(residual, int | float) or not math.isfinite(residual):
        raise UserError(
            f"the residual in row {index} of the registry is {residual!r}",
            "an offset is a mean of residuals",
            "Leave that row out",
        )
    return {name: record[name] for name in PAIRS.names}
