"""The ladder of a finished run, from its sums alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stemmatics.commands.tables import Found
from stemmatics.core.errors import UserError
from stemmatics.core.results import Estimate, none_if_nan
from stemmatics.study.read import load_report_content, open_run

MEASURE = "recovery"
_LOSSES = ("native", "rebased", "placed", "borrowed")
_TABLES = ("ladder", "reversals", "agreement")


@dataclass(frozen=True)
class LadderFound:
    """One corpus: the tables to print, sentences about them, and the estimates behind them."""

    corpus: str
    tables: list[Found]
    lines: list[str]
    estimates: Mapping[str, Estimate]

    def to_json(self) -> dict[str, Any]:
        """Models in their order with all numbers; unknown ones are null."""
        mine = [one for one in self.estimates.values() if one.subject.get("corpus") == self.corpus]

        def numbers(quantity: str, name: str) -> dict[str, Any] | None:
            named = (one for one in mine if one.subject.get("checkpoint") == name)
            return next((_numbers(one) for one in named if _is(one, quantity)), None)

        ranks = sorted((one for one in mine if _is(one, "rank")), key=lambda one: one.value)
        models = [
            {
                "place": int(rank.value),
                "checkpoint": (name := rank.subject["checkpoint"]),
                **{quantity: numbers(quantity, name) for quantity in _LOSSES},
                "tied_with": sorted(_tied_with(mine, name)),
            }
            for rank in ranks
        ]
        return {
            "corpus": self.corpus,
            "models": models,
            "reversals": [{**one.subject, **_numbers(one)} for one in mine if _is(one, "reversal")],
            "agreement": {
                name: _numbers(one)
                for name in ("spearman", "kendall")
                for one in mine
                if _is(one, f"order.{name}")
            },
            "agreement_by_registers": [
                {"registers": int(one.subject["registers"]), **_numbers(one)}
                for one in mine
                if _is(one, "order.registers")
            ],
        }


def ladders(root: Path, corpus: str | None) -> list[LadderFound]:
    """One a corpus. Raises UserError where the run did not ask for recovery."""
    run = open_run(root)
    content = load_report_content(run)
    section = next((one for one in content.sections if one.name == MEASURE), None)
    if section is None:
        raise UserError(
            f"{root} has no ladder",
            "its stemma did not ask for the measure recovery",
            "Add `recovery: {pool: NAME}` under `measures:` and run it again",
            code=2,
        )
    corpora = list(
        dict.fromkeys(one.subject["corpus"] for one in content.results.values() if _is(one, "rank"))
    )
    if corpus is not None and corpus not in corpora:
        raise UserError(
            f"there is no ladder on {corpus!r}",
            "the run was not asked for it, or none of its arms were made",
            f"Choose one of {', '.join(corpora) or 'none'}",
            code=2,
        )
    found = []
    for one in corpora if corpus is None else [corpus]:
        tables = [
            Found(table, content.results)
            for name in _TABLES
            for table in section.tables
            if table.name == f"{name}-{one}"
        ]
        found.append(LadderFound(one, tables, _lines(one, content.results), content.results))
    return found


def _is(one: Estimate, quantity: str) -> bool:
    return one.quantity == f"{MEASURE}.{quantity}"


def _numbers(one: Estimate) -> dict[str, Any]:
    found: dict[str, Any] = {name: none_if_nan(getattr(one, name)) for name in ("value", "lo", "hi")}
    found |= {"level": one.level, "method": one.method, "n": one.n, "units": one.units}
    rule = {"rule": one.subject["rule"]} if "rule" in one.subject else {}
    return {**found, **rule, **({"note": one.note} if one.note else {})}


def _tied_with(mine: Sequence[Estimate], name: str) -> set[str]:
    ties = [one for one in mine if _is(one, "tie")]
    groups = {one.subject["group"] for one in ties if one.subject["checkpoint"] == name}
    return {one.subject["checkpoint"] for one in ties if one.subject["group"] in groups} - {name}


def _lines(corpus: str, estimates: Mapping[str, Estimate]) -> list[str]:
    """How unknown bases were placed, and the agreement of the two orders, in words."""
    said = []
    for one in estimates.values():
        if one.subject.get("corpus") == corpus and _is(one, "placed"):
            said.append(
                f"{corpus}: the base of {one.subject['checkpoint']} is estimated at {one.value:.4f} "
                f"nats/byte {_limits(one, 4)}, by the rule: {one.subject['rule']}"
            )
        if one.subject.get("corpus") == corpus and one.quantity in {
            f"{MEASURE}.order.spearman",
            f"{MEASURE}.order.kendall",
        }:
            name = one.quantity.rpartition(".")[2].capitalize()
            said.append(
                f"{corpus}: {name} of native and re-based order {one.value:.2f} "
                f"{_limits(one, 2)}, n = {one.n} by {one.unit}"
            )
    return said


def _limits(one: Estimate, digits: int) -> str:
    if math.isnan(one.lo) or math.isnan(one.hi):
        return "[n/a, n/a]"
    return f"[{one.lo:.{digits}f}, {one.hi:.{digits}f}] ({one.level:.0%}, {one.method})"
