"""The ladder of a finished run, from its sums alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stemmatics.commands.tables import Found
from stemmatics.core.errors import UserError
from stemmatics.core.results import Category, Estimate, Results, none_if_nan
from stemmatics.study.read import load_report_content, open_run

MEASURE = "recovery"
_LOSSES = ("native", "rebased", "placed", "borrowed")
# the rule by which an offset was chosen, beside the loss that it gave
_RULES = {"placed": "rule", "borrowed": "borrowed.rule"}
_TABLES = ("ladder", "reversals", "agreement")


@dataclass(frozen=True)
class LadderFound:
    """One corpus: the tables to print, sentences about them, and the results behind them."""

    corpus: str
    tables: list[Found]
    lines: list[str]
    results: Results

    def to_json(self) -> dict[str, Any]:
        """Models in their order with all numbers; unknown ones are null."""
        here = self.results.about(corpus=self.corpus)
        ranks = sorted(here.all(f"{MEASURE}.rank"), key=lambda rank: rank.value)
        models = [
            {
                "place": int(rank.value),
                "checkpoint": (name := rank.subject["checkpoint"]),
                **{quantity: _loss(here, quantity, name) for quantity in _LOSSES},
                "tied_with": sorted(_tied_with(here, name)),
            }
            for rank in ranks
        ]
        return {
            "corpus": self.corpus,
            "models": models,
            "reversals": [{**gap.subject, **_numbers(gap)} for gap in here.all(f"{MEASURE}.reversal")],
            "agreement": {
                name: _numbers(rho)
                for name in ("spearman", "kendall")
                for rho in here.all(f"{MEASURE}.order.{name}")
            },
            "agreement_by_registers": [
                {"registers": int(rho.subject["registers"]), **_numbers(rho)}
                for rho in here.all(f"{MEASURE}.order.registers")
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
    ranks = content.results.all(f"{MEASURE}.rank")
    corpora = list(dict.fromkeys(rank.subject["corpus"] for rank in ranks))
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
            if table.name == f"{MEASURE}/{name}/{one}"
        ]
        found.append(LadderFound(one, tables, _lines(one, content.results), content.results))
    return found


def _loss(results: Results, quantity: str, name: str) -> dict[str, Any] | None:
    """A model's loss with its interval, and the rule of its offset where there is one; None if unknown."""
    loss = results.find(f"{MEASURE}.{quantity}", checkpoint=name)
    if loss is None:
        return None
    rule = _rule(results, quantity, name)
    return _numbers(loss) | ({} if rule is None else {"rule": _rule_text(rule)})


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
    own = letters.pop(name, set())
    return {other for other, groups in letters.items() if groups & own}


def _lines(corpus: str, results: Results) -> list[str]:
    """How unknown bases were estimated, and the agreement of the two orders, in words."""
    here = results.about(corpus=corpus)
    lines = []
    for placed in here.all(f"{MEASURE}.placed"):
        checkpoint = placed.subject["checkpoint"]
        rule = _rule(here, "placed", checkpoint)
        lines.append(
            f"{corpus}: the base of {checkpoint} is estimated at {placed.value:.4f} "
            f"nats/byte {_limits(placed, 4)}" + ("" if rule is None else f", offset from: {_rule_text(rule)}")
        )
    for name in ("spearman", "kendall"):
        lines += [
            f"{corpus}: {name.capitalize()} of native and re-based order {rho.value:.2f} "
            f"{_limits(rho, 2)}, n = {rho.n} by {rho.unit}"
            for rho in here.all(f"{MEASURE}.order.{name}")
        ]
    return lines


def _limits(one: Estimate, digits: int) -> str:
    if math.isnan(one.lo) or math.isnan(one.hi):
        return "[n/a, n/a]"
    return f"[{one.lo:.{digits}f}, {one.hi:.{digits}f}] ({one.level:.0%}, {one.method})"
