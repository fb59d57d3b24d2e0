"""A base and a descendant: paired differences, where they lie, and the documents that moved most."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from stemmatics.core.facts import Fact
from stemmatics.core.results import Estimate
from stemmatics.measure.base import Tables
from stemmatics.measure.inputs import (
    ALL,
    Batch,
    Scores,
    comparable_by_byte,
    comparable_by_token,
    parts_of,
    spread,
)

NAME = "loss"


def verdict(delta: Estimate) -> str:
    """What a paired difference says; ``undecided`` where its interval is unknown or holds 0."""
    if math.isnan(delta.value):
        return "refused"
    if delta.lo > 0:
        return "lost"
    return "improved" if delta.hi < 0 else "undecided"


class Pair:
    """A base and a descendant on one corpus."""

    def __init__(
        self, pair: tuple[str, str], corpus: str, facts: tuple[Fact, Fact], scores: tuple[Scores, Scores]
    ) -> None:
        self._facts = facts
        self._base, self._descendant = scores
        self._subject = {"base": pair[0], "descendant": pair[1], "corpus": corpus}
        self._by_byte = comparable_by_byte(*scores)
        self._by_token = self._by_byte or comparable_by_token(*scores)

    def add_differences(self, batch: Batch) -> None:
        """Paired differences by register; nats/token only where every token is the same."""
        base, descendant = self._base, self._descendant
        kinds = [("byte", base.num_bytes_N, self._by_byte), ("token", base.num_tokens_N, self._by_token)]
        for register in base.registers():
            for kind, denominator, reason in kinds:
                if not reason:
                    batch.add(
                        base,
                        base.rows(register),
                        descendant.nll_N - base.nll_N,
                        denominator,
                        quantity=f"loss.delta.{kind}",
                        units=f"nats/{kind}",
                        **self._what({"register": register}),
                    )

    def add_where(self, batch: Batch, tables: Tables) -> None:
        """What each bin adds to the difference (they add up to it), for pairs with the same tokens."""
        if self._by_token:
            return
        base = self._base
        old, new = (parts_of(fact, tables) for fact in self._facts)
        nothing: dict[str, Any] = {name: np.zeros(0) for name in ("index", "nll_sum")}
        for axis, bin_ in sorted({*old, *new}):
            before, after = (
                spread(side.get((axis, bin_), nothing), "nll_sum", base.index_N) for side in (old, new)
            )
            batch.add(
                base,
                base.rows(ALL),
                after - before,
                base.num_bytes_N,
                quantity="loss.where",
                units="nats/byte",
                **self._what({"axis": axis, "bin": bin_}),
            )

    def refusals(self) -> list[Estimate]:
        """The unknown difference of a pair that can't be compared, with the reason in its note."""
        if not self._by_byte:
            return []
        note = f"refused: {self._by_byte}; `scoring: {{prefix: always}}` asks every model for the first byte"
        return [
            Estimate(
                value=math.nan,
                quantity="loss.delta.byte",
                units="nats/byte",
                note=note,
                measure=NAME,
                subject={**self._subject, "register": ALL},
                facts=tuple(fact.key for fact in self._facts),
            )
        ]

    def _what(self, more: dict[str, str]) -> dict[str, Any]:
        return {"measure": NAME, "subject": {**self._subject, **more}, "facts": self._facts}

    def movers(self, num_movers: int) -> list[Estimate]:
        """Documents whose loss moved most, in nats/byte of the document, worst and best."""
        if self._by_byte:
            return []
        base, descendant = self._base, self._descendant
        moved_N = (descendant.nll_N - base.nll_N) / base.num_bytes_N
        order = np.argsort(moved_N, kind="stable")
        picked = [("improved", place) for place in order[:num_movers]]
        picked += [("worsened", place) for place in order[::-1][:num_movers]]
        ranks: dict[str, int] = {}
        found = []
        for direction, place in picked:
            ranks[direction] = ranks.get(direction, 0) + 1
            subject = {
                **self._subject,
                "direction": direction,
                "rank": f"{ranks[direction]:02d}",
                "document": str(base.index_N[place]),
                "doc_id": str(base.doc_id_N[place])[:12],
                "register": str(base.register_N[place]),
            }
            found.append(
                Estimate(
                    measure=NAME,
                    quantity="loss.mover",
                    subject=subject,
                    value=float(moved_N[place]),
                    n=1,
                    units="nats/byte",
                    facts=tuple(fact.key for fact in self._facts),
                )
            )
        return found
