"""Conditions on a comparison, for continuous integration: ``loss.delta > 0.02``."""

from __future__ import annotations

import difflib
import math
import operator
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stemmatics.core.errors import UserError

if TYPE_CHECKING:
    # the help of `stemma compare` reads this file and stays quick
    from stemmatics.core.results import Estimate, Results

ALL = "all"


@dataclass(frozen=True)
class Quantity:
    """A total of one descendant on one corpus: the results' name for it, its units and its meaning."""

    quantity: str
    units: str
    meaning: str
    by_register: bool = True

    @property
    def measure(self) -> str:
        """What estimates it."""
        return self.quantity.partition(".")[0]


# by the name that an expression gives it
QUANTITIES: Mapping[str, Quantity] = {
    "loss.delta": Quantity("loss.delta.byte", "nats/byte", "the descendant's loss less the base's"),
    "loss.delta.token": Quantity("loss.delta.token", "nats/token", "the same a token"),
    "divergence.kl": Quantity("divergence.kl", "nats/token", "KL(base || descendant), mean"),
    "divergence.kl_reverse": Quantity("divergence.kl_reverse", "nats/token", "KL(descendant || base), mean"),
    "divergence.js": Quantity("divergence.js", "nats/token", "Jensen-Shannon divergence, mean"),
    "divergence.kl_p50": Quantity("divergence.kl_p50", "nats/token", "median of KL over tokens"),
    "divergence.kl_p90": Quantity("divergence.kl_p90", "nats/token", "its 90th percentile"),
    "divergence.kl_p99": Quantity("divergence.kl_p99", "nats/token", "its 99th percentile"),
    "divergence.kl_p999": Quantity("divergence.kl_p999", "nats/token", "its 99.9th percentile"),
    "divergence.kl_max": Quantity("divergence.kl_max", "nats/token", "its maximum on this text"),
    "divergence.same_top1": Quantity("divergence.same_top1", "share", "tokens with the same most likely id"),
    "divergence.top1_in_top5": Quantity(
        "divergence.top1_in_top5", "share", "tokens whose most likely id is in the descendant's top five"
    ),
    "divergence.rms_delta_p": Quantity(
        "divergence.rms_delta_p", "probability", "root mean square of the change of the token's probability"
    ),
    "divergence.delta_entropy": Quantity(
        "divergence.delta_entropy", "nats/token", "the descendant's entropy less the base's"
    ),
    "prior.delta": Quantity(
        "prior.delta", "nats/token", "the descendant's loss less the base's, held-out half", by_register=False
    ),
    "recovery.residual": Quantity(
        "recovery.residual", "nats/byte", "what remains after the same fine-tune of both", by_register=False
    ),
    "recovery.drop": Quantity(
        "recovery.drop", "nats/byte", "what the fine-tune took off the descendant's loss", by_register=False
    ),
}
COMPARISONS = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}
_EXPRESSION = re.compile(
    r"\s*(?P<name>[\w.]+)\s*(\[\s*register\s*=\s*(?P<register>[^\]]+?)\s*\])?"
    r"\s*(?P<comparison>[<>]=?)\s*(?P<number>[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?)\s*"
)
HOLDS, DOES_NOT_HOLD, UNCLEAR, NOT_MEASURED = "holds", "does not hold", "unclear", "not measured"


@dataclass(frozen=True)
class Condition:
    """A quantity, a comparison and a number; ``register`` narrows the quantity to one register."""

    text: str
    name: str
    comparison: str
    number: float
    register: str = ALL

    @property
    def quantity(self) -> Quantity:
        """What it is about."""
        return QUANTITIES[self.name]

    def outcome(self, estimate: Estimate) -> str:
        """Whether it holds of the whole interval, of none of it, or neither.

        A number that is counted exactly on this text is its own interval.
        """
        lo, hi = estimate.lo, estimate.hi
        if estimate.method == "exact" and math.isnan(lo) and math.isnan(hi):
            lo = hi = estimate.value
        if any(math.isnan(limit) for limit in (estimate.value, lo, hi)):
            return UNCLEAR
        answers = {COMPARISONS[self.comparison](limit, self.number) for limit in (lo, hi)}
        if len(answers) > 1:
            return UNCLEAR
        return HOLDS if answers.pop() else DOES_NOT_HOLD


@dataclass(frozen=True)
class Check:
    """A condition of one descendant on one corpus, with the estimate that decided it."""

    condition: Condition
    descendant: str
    corpus: str
    outcome: str
    estimate: Estimate | None = None
    reason: str = ""

    def row(self) -> dict[str, Any]:
        """Plain data for JSON."""
        from stemmatics.core.results import none_if_nan

        names = ("value", "lo", "hi", "level", "method", "n", "unit", "units")
        shown = {name: getattr(self.estimate, name, None) for name in names}
        return {
            "expression": self.condition.text,
            "descendant": self.descendant,
            "corpus": self.corpus,
            "register": self.condition.register,
            "outcome": self.outcome,
            "reason": self.reason,
            **{name: none_if_nan(value) for name, value in shown.items()},
        }

    def line(self) -> str:
        """One line for the terminal."""
        about = f"{self.condition.text}: {self.outcome} for {self.descendant} on {self.corpus}"
        if self.estimate is None:
            return f"{about} ({self.reason})"
        estimate = self.estimate
        value = "n/a" if math.isnan(estimate.value) else f"{estimate.value:.6g} {estimate.units}"
        interval = "" if math.isnan(estimate.lo) else f" [{estimate.lo:.6g}, {estimate.hi:.6g}]"
        return f"{about} ({value}{interval}{', ' + estimate.note if estimate.note else ''})"


def parse_conditions(expressions: Sequence[str]) -> list[Condition]:
    """Expressions as conditions. Raises UserError for one that can't be read or an unknown quantity."""
    return [_parse(text) for text in expressions]


def _parse(text: str) -> Condition:
    match = _EXPRESSION.fullmatch(text)
    if match is None:
        raise UserError(
            f"can't read the condition {text!r}",
            "it is a quantity, a comparison (>, >=, <, <=) and a number",
            'Write it like "loss.delta > 0.02" or "divergence.kl[register=code] > 0.1"',
            code=2,
        )
    # a result's own name serves too
    aliases = {quantity.quantity: name for name, quantity in QUANTITIES.items()}
    name = aliases.get(match["name"], match["name"])
    if name not in QUANTITIES:
        close = difflib.get_close_matches(name, QUANTITIES, n=1)
        raise UserError(
            f"unknown quantity {match['name']!r} in {text!r}",
            f"known are {', '.join(QUANTITIES)}",
            f"Did you mean {close[0]}?" if close else "Choose one of them",
            code=2,
        )
    register = match["register"] or ALL
    if register != ALL and not QUANTITIES[name].by_register:
        raise UserError(
            f"{name} is not estimated by register",
            f"{text!r} narrows it to {register!r}",
            "Leave out [register=…]",
            code=2,
        )
    return Condition(" ".join(text.split()), name, match["comparison"], float(match["number"]), register)


def refuse_unmeasured(conditions: Sequence[Condition], measures: Collection[str]) -> None:
    """Raise UserError for a condition on a measure that does not run."""
    for condition in conditions:
        measure = condition.quantity.measure
        if measure not in measures:
            fix = "Add --recover" if measure == "recovery" else f"Add {measure} to --only"
            raise UserError(
                f"{condition.text!r} can't be decided",
                f"{measure} is not measured; measured are {', '.join(measures)}",
                f"{fix}, or leave the condition out",
                code=2,
            )


def refuse_unknown_registers(conditions: Sequence[Condition], registers: Collection[str]) -> None:
    """Raise UserError for a condition on a register that no text has."""
    for condition in conditions:
        if condition.register not in {ALL, *registers}:
            raise UserError(
                f"no text has the register {condition.register!r}",
                f"registers: {', '.join(sorted(registers)) or 'none'}",
                "Name one of them; --register FIELD names the field that holds registers",
                code=2,
            )


def check_conditions(
    conditions: Sequence[Condition],
    results: Results,
    descendants: Sequence[str],
    corpora: Sequence[str],
    registers: Mapping[str, Collection[str]],
) -> list[Check]:
    """Every condition for every descendant on every corpus that has its register.

    ``registers`` are those of each corpus; of a corpus with a single register the total is its.
    """
    return [
        check
        for condition in conditions
        for descendant in descendants
        for corpus in corpora
        if condition.register == ALL or condition.register in registers[corpus]
        for check in _checked(condition, results, descendant, corpus, registers[corpus])
    ]


def _checked(
    condition: Condition, results: Results, descendant: str, corpus: str, registers: Collection[str]
) -> Iterator[Check]:
    name = condition.quantity.quantity
    register = ALL if len(registers) == 1 else condition.register
    subject = {"descendant": descendant, "corpus": corpus}
    if condition.quantity.by_register:
        subject["register"] = register
    estimates = [each for each in results.all(name, **subject) if _is_total(each, subject)]
    for estimate in estimates:
        yield Check(condition, descendant, corpus, condition.outcome(estimate), estimate)
    if not estimates:
        refusals = [
            refusal.reason
            for refusal in results.refusals()
            if refusal.measure == condition.quantity.measure
            and refusal.subject.get("descendant") == descendant
            and refusal.subject.get("corpus") in {corpus, None}
        ]
        reason = refusals[0] if refusals else "there is no estimate of it"
        yield Check(condition, descendant, corpus, NOT_MEASURED, None, reason)


def _is_total(estimate: Estimate, subject: Mapping[str, str]) -> bool:
    return set(estimate.subject) <= {"base", *subject}


def help_text() -> str:
    """The quantities that a condition may name, for ``--help``."""
    return ", ".join(f"{name} ({quantity.units})" for name, quantity in QUANTITIES.items())
