"""The ladder of a finished run, from its stored results."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stemmatics.commands.show import ShownTable
from stemmatics.core.content import Table
from stemmatics.core.errors import UserError
from stemmatics.core.results import Estimate, Results, none_if_nan
from stemmatics.store.ledger import Ledger
from stemmatics.study.read import load_evaluations, open_run

MEASURE = "recovery"
_LOSSES = ("native", "rebased", "placed", "borrowed")
_TABLES = ("ladder", "reversals", "agreement")


@dataclass(frozen=True)
class Ladder:
    """The ladder on one corpus: the tables to print, lines about them, and the results behind them."""

    corpus: str
    tables: list[ShownTable]
    lines: list[str]
    results: Results

    def to_json(self) -> dict[str, Any]:
        """Models in their order with all numbers; unknown ones are null."""
        own = self.results.about(corpus=self.corpus)
        ranks = sorted(own.all(f"{MEASURE}.rank"), key=lambda rank: rank.value)
        return {
            "corpus": self.corpus,
            "models": [_model(own, int(rank.value), rank.subject["checkpoint"]) for rank in ranks],
            "reversals": [
                {**reversal.subject, **_numbers(reversal)} for reversal in own.all(f"{MEASURE}.reversal")
            ],
            "agreement": {
                name: _numbers(estimate)
                for name in ("spearman", "kendall")
                for estimate in own.all(f"{MEASURE}.order.{name}")
            },
            "agreement_by_registers": [
                {"registers": int(estimate.subject["registers"]), **_numbers(estimate)}
                for estimate in own.all(f"{MEASURE}.order.registers")
            ],
        }


def ladders(root: Path, corpus: str | None) -> list[Ladder]:
    """The ladder on each corpus, or on one. Raises UserError where the run has none."""
    if MEASURE not in Ledger(root).manifest()["measures"]:
        raise UserError(
            f"{root} has no ladder",
            "its study does not configure the measure recovery",
            "Add `recovery: {pool: NAME}` under `measures:` and run it again",
            code=2,
        )
    (recovery,) = load_evaluations(open_run(root, MEASURE))
    results = recovery.results
    corpora = list(dict.fromkeys(rank.subject["corpus"] for rank in results.all(f"{MEASURE}.rank")))
    if corpus is not None and corpus not in corpora:
        raise UserError(
            f"there is no ladder on {corpus!r}",
            "the run does not score that corpus, or none of its fine-tunes succeeded",
            f"Choose one of {', '.join(corpora) or 'none'}",
            code=2,
        )
    return [
        Ladder(name, _tables(name, recovery.findings.tables, results), _lines(name, results), results)
        for name in (corpora if corpus is None else [corpus])
    ]


def _tables(corpus: str, tables: Sequence[Table], results: Results) -> list[ShownTable]:
    wanted = [f"{name}-{corpus}" for name in _TABLES]
    by_name = {table.name: table for table in tables}
    return [ShownTable(by_name[name], results) for name in wanted if name in by_name]


def _model(results: Results, place: int, name: str) -> dict[str, Any]:
    losses = {quantity: results.find(f"{MEASURE}.{quantity}", checkpoint=name) for quantity in _LOSSES}
    return {
        "place": place,
        "checkpoint": name,
        **{quantity: None if loss is None else _numbers(loss) for quantity, loss in losses.items()},
        "tied_with": sorted(_tied_with(results, name)),
    }


def _numbers(estimate: Estimate) -> dict[str, Any]:
    numbers: dict[str, Any] = {name: none_if_nan(getattr(estimate, name)) for name in ("value", "lo", "hi")}
    numbers |= {name: getattr(estimate, name) for name in ("level", "method", "n", "units")}
    rule = {"rule": estimate.subject["rule"]} if "rule" in estimate.subject else {}
    return {**numbers, **rule, **({"note": estimate.note} if estimate.note else {})}


def _tied_with(results: Results, name: str) -> set[str]:
    ties = results.all(f"{MEASURE}.tie")
    groups = {tie.subject["group"] for tie in ties if tie.subject["checkpoint"] == name}
    return {tie.subject["checkpoint"] for tie in ties if tie.subject["group"] in groups} - {name}


def _lines(corpus: str, results: Results) -> list[str]:
    """How unknown bases were estimated, and the agreement of the two orders, in words."""
    own = results.about(corpus=corpus)
    lines = [
        f"{corpus}: the base of {estimate.subject['checkpoint']} is estimated at {estimate.value:.4f} "
        f"nats/byte {_limits(estimate, 4)}, by the rule: {estimate.subject['rule']}"
        for estimate in own.all(f"{MEASURE}.placed")
    ]
    lines += [
        f"{corpus}: {name.capitalize()} of native and re-based order {estimate.value:.2f} "
        f"{_limits(estimate, 2)}, n = {estimate.n} by {estimate.unit}"
        for name in ("spearman", "kendall")
        for estimate in own.all(f"{MEASURE}.order.{name}")
    ]
    return lines


def _limits(estimate: Estimate, digits: int) -> str:
    if math.isnan(estimate.lo) or math.isnan(estimate.hi):
        return "[n/a, n/a]"
    interval = f"[{estimate.lo:.{digits}f}, {estimate.hi:.{digits}f}]"
    return f"{interval} ({estimate.level:.0%}, {estimate.method})"
