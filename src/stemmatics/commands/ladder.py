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
from stemmatics.core.results import Category, Estimate, Results, none_if_nan
from stemmatics.math.recovery import MEASURED_RULES
from stemmatics.store.ledger import Ledger
from stemmatics.study.read import load_evaluations, open_run

MEASURE = "recovery"
_LOSSES = ("native", "rebased", "estimated_base", "borrowed")
# the rule by which an offset was chosen, beside the loss that it gave
_RULES = {"estimated_base": "rule", "borrowed": "borrowed.rule"}
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
        on_corpus = self.results.about(corpus=self.corpus)
        ranks = sorted(on_corpus.all(f"{MEASURE}.rank"), key=lambda rank: rank.value)
        models = [
            {
                "rank": int(rank.value),
                "checkpoint": (name := rank.subject["checkpoint"]),
                **{quantity: _loss(on_corpus, quantity, name) for quantity in _LOSSES},
                "estimated_base_elsewhere": _loss(on_corpus, "estimated_base.elsewhere", name),
                "distilled_flag": _word(on_corpus, "distilled.flag", name),
                "tied_with": sorted(_tied_with(on_corpus, name)),
            }
            for rank in ranks
        ]
        return {
            "corpus": self.corpus,
            "models": models,
            "reversals": [{**gap.subject, **_numbers(gap)} for gap in on_corpus.all(f"{MEASURE}.reversal")],
            "agreement": {
                name: _numbers(rho)
                for name in ("spearman", "kendall")
                for rho in on_corpus.all(f"{MEASURE}.order.{name}")
            },
            "agreement_by_registers": [
                {"registers": int(rho.subject["registers"]), **_numbers(rho)}
                for rho in on_corpus.all(f"{MEASURE}.order.registers")
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
    table_names = [f"{MEASURE}/{name}/{corpus}" for name in _TABLES]
    by_name = {table.name: table for table in tables}
    return [ShownTable(by_name[name], results) for name in table_names if name in by_name]


def _loss(results: Results, quantity: str, name: str) -> dict[str, Any] | None:
    """A model's loss with its interval, and the rule of its offset where there is one; None if unknown."""
    loss = results.find(f"{MEASURE}.{quantity}", checkpoint=name)
    if loss is None:
        return None
    rule = _rule(results, quantity, name)
    return _numbers(loss) | ({} if rule is None else {"rule": _rule_text(rule)})


def _word(results: Results, quantity: str, name: str) -> str | None:
    category = results.category(f"{MEASURE}.{quantity}", checkpoint=name)
    return None if category is None else category.value


def _rule(results: Results, quantity: str, name: str) -> Category | None:
    rule = _RULES.get(quantity)
    return None if rule is None else results.category(f"{MEASURE}.{rule}", checkpoint=name)


def _rule_text(rule: Category) -> str:
    return f"{rule.value} ({rule.reason})" if rule.reason else rule.value


def _numbers(estimate: Estimate) -> dict[str, Any]:
    numbers: dict[str, Any] = {name: none_if_nan(getattr(estimate, name)) for name in ("value", "lo", "hi")}
    numbers |= {name: getattr(estimate, name) for name in ("level", "method", "n", "units")}
    return numbers | ({"note": estimate.note} if estimate.note else {})


def _tied_with(results: Results, name: str) -> set[str]:
    """Checkpoints that share a group, that is a letter, with this one."""
    letters = {
        tie.subject["checkpoint"]: set(tie.value.split()) for tie in results.categories(f"{MEASURE}.tie")
    }
    on_corpus = letters.pop(name, set())
    return {other for other, groups in letters.items() if groups & on_corpus}


def _lines(corpus: str, results: Results) -> list[str]:
    """How unknown bases were estimated, and the agreement of the two orders, in words."""
    on_corpus = results.about(corpus=corpus)
    lines = []
    for estimate in on_corpus.all(f"{MEASURE}.estimated_base"):
        checkpoint = estimate.subject["checkpoint"]
        rule = _rule(on_corpus, "estimated_base", checkpoint)
        lines.append(
            f"{corpus}: the base of {checkpoint} is estimated at {estimate.value:.4f} "
            f"nats/byte on this text {_bar(estimate, rule)}"
            + ("" if rule is None else f", offset from: {_rule_text(rule)}")
        )
    for name in ("spearman", "kendall"):
        lines += [
            f"{corpus}: {name.capitalize()} of native and re-based order {rho.value:.2f} "
            f"{_limits(rho, 2)}, n = {rho.n} by {rho.unit}"
            for rho in on_corpus.all(f"{MEASURE}.order.{name}")
        ]
    return lines


def _bar(estimate: Estimate, rule: Category | None) -> str:
    """The bar with its level, or without one where it was not measured on calibrated pairs."""
    if rule is None or rule.value in MEASURED_RULES:
        return _limits(estimate, 4)
    return f"[{estimate.lo:.4f}, {estimate.hi:.4f}] (a range, not of a known level)"


def _limits(estimate: Estimate, digits: int) -> str:
    if math.isnan(estimate.lo) or math.isnan(estimate.hi):
        return "[n/a, n/a]"
    return f"[{estimate.lo:.{digits}f}, {estimate.hi:.{digits}f}] ({estimate.level:.0%}, {estimate.method})"
