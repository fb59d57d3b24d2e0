"""A base and a descendant: paired differences, where they lie, and the documents that moved most."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from stemmatics.core.estimates import Estimate
from stemmatics.core.facts import Fact
from stemmatics.math.rates import paired_differences
from stemmatics.measure.base import Tables, estimate_from
from stemmatics.measure.scores import (
    ALL,
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

    def __init__(self, pair: tuple[str, str], corpus: str, facts: tuple[Fact, Fact]) -> None:
        self._pair, self._facts = pair, facts
        self._subject = {"base": pair[0], "descendant": pair[1], "corpus": corpus}

    def differences(self, base: Scores, descendant: Scores, rng: np.random.Generator) -> list[Estimate]:
        """Paired differences by register; nats/token only where every token is the same.

        A pair that can't be compared has an unknown difference, with the reason in its note.
        """
        reason = comparable_by_byte(base, descendant)
        if reason:
            return [self._refused(reason)]
        by_token = not comparable_by_token(base, descendant)
        found = []
        for register in base.registers():
            rows = base.rows(register)
            for quantity, units, denominator in (
                ("loss.delta.byte", "nats/byte", base.num_bytes_N),
                ("loss.delta.token", "nats/token", base.num_tokens_N),
            ):
                if units == "nats/token" and not by_token:
                    continue
                (delta,) = paired_differences(
                    base.nll_N[rows],
                    descendant.nll_N[rows],
                    denominator[rows],
                    rng=rng,
                    groups=base.group_N[rows],
                )
                found.append(self._estimate(delta, quantity, {"register": register}, units))
        return found

    def where(
        self, base: Scores, descendant: Scores, tables: Tables, rng: np.random.Generator
    ) -> list[Estimate]:
        """What each bin adds to the difference (they add up to it), for pairs with the same tokens."""
        if comparable_by_token(base, descendant) or comparable_by_byte(base, descendant):
            return []
        old, new = (parts_of(fact, tables) for fact in self._facts)
        bins = sorted({*old, *new})
        axes = sorted({axis for axis, _ in bins})
        found = []
        for axis in axes:
            names = [bin_ for other, bin_ in bins if other == axis]
            empty: dict[str, Any] = {name: np.zeros(0) for name in ("index", "nll_sum")}
            old_NP, new_NP = (
                np.stack(
                    [spread(side.get((axis, bin_), empty), "nll_sum", base.index_N) for bin_ in names], axis=1
                )
                for side in (old, new)
            )
            shares = paired_differences(old_NP, new_NP, base.num_bytes_N, rng=rng, groups=base.group_N)
            found += [
                self._estimate(share, "loss.where", {"axis": axis, "bin": bin_}, "nats/byte")
                for bin_, share in zip(names, shares, strict=True)
            ]
        return found

    def movers(self, base: Scores, descendant: Scores, num_movers: int) -> list[Estimate]:
        """Documents whose loss moved most, in nats/byte of the document, worst and best."""
        if comparable_by_byte(base, descendant):
            return []
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

    def _refused(self, reason: str) -> Estimate:
        note = f"refused: {reason}; `scoring: {{prefix: always}}` asks every model for the first byte"
        return Estimate(
            measure=NAME,
            quantity="loss.delta.byte",
            subject={**self._subject, "register": ALL},
            value=math.nan,
            units="nats/byte",
            facts=tuple(fact.key for fact in self._facts),
            note=note,
        )

    def _estimate(self, interval: Any, quantity: str, more: dict[str, str], units: str) -> Estimate:
        return estimate_from(
            interval,
            measure=NAME,
            quantity=quantity,
            subject={**self._subject, **more},
            units=units,
            facts=self._facts,
        )
