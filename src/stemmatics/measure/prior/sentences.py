"""What the measure ``prior`` says: sentences, and which tables and figures go with them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from stemmatics.core.content import Chart, Table
from stemmatics.core.results import Claim, Estimate, Sentence
from stemmatics.measure.base import Findings
from stemmatics.measure.prior.needs import NAME
from stemmatics.measure.prior.tables import (
    SHARE,
    arms_table,
    chart,
    checks_table,
    first,
    fits_table,
    of,
    parts_table,
    said_of,
    summary_table,
    support_table,
)

Estimates = Mapping[str, Estimate]
LIMITS = (
    "S_sym can cancel: what a correction takes back from base and descendant alike counts as nothing.",
    "A shift of format or of position counts as depending on context here.",
    "The text that is scored may be training data of either model.",
    "That a correction takes a loss back does not say what caused it: random damage to the head does too.",
)


def findings(
    pairs: Sequence[tuple[str, str]], corpora: Sequence[str], columns: int, estimates: Estimates
) -> Findings:
    """One set of sentences, tables and charts a corpus."""
    sentences: list[Sentence] = []
    tables: list[Table] = []
    charts: list[Chart] = []
    failures: list[str] = []
    for corpus in corpora:
        subjects = [{"base": base, "descendant": name, "corpus": corpus} for base, name in pairs]
        there = [pair for pair in subjects if first(estimates, "prior.delta", **pair) is not None]
        fitted = [pair for pair in there if of(estimates, "prior.sym", **pair)]
        sentences += _summary(estimates, fitted)
        for pair in there:
            sentences += _pair(estimates, pair)
            delta = first(estimates, "prior.delta", **pair)
            if delta is not None and delta.note.startswith("refused"):
                failures.append(f"{pair['base']} → {pair['descendant']} on {corpus}: {delta.note}")
        if there:
            tables.append(summary_table(corpus, estimates, there))
        tables += [parts_table(corpus, estimates, fitted), support_table(corpus, estimates, fitted)]
        for pair in fitted:
            tables.append(arms_table(corpus, estimates, pair, columns))
            drawn = chart(corpus, estimates, pair, columns)
            charts += [] if drawn is None else [drawn]
        tables += [fits_table(corpus, estimates, pair, columns) for pair in fitted]
        tables.append(checks_table(corpus, estimates, fitted))
    if sentences:
        sentences += [Sentence(text, topic=NAME) for text in LIMITS]
    return Findings(sentences, [table for table in tables if table.rows], charts, failures)


def _interval(one: Estimate, form: str = SHARE) -> dict[str, Claim]:
    return {field: Claim(one.id, field, form) for field in ("value", "lo", "hi")}


def _joint(estimates: Estimates, pair: Mapping[str, str]) -> Estimate | None:
    name = {**pair, "arm": "joint", "reading": "selected"}
    return first(estimates, "prior.sym_redrawn", **name) or first(estimates, "prior.sym", **name)


def _summary(estimates: Estimates, pairs: Sequence[Mapping[str, str]]) -> list[Sentence]:
    known = [
        (one, pair)
        for pair in pairs
        if (one := _joint(estimates, pair)) is not None and not math.isnan(one.value)
    ]
    if not known:
        return []
    most, pair = max(known, key=lambda found: found[0].value)
    text = (
        "On {corpus}, a bias and a temperature without context take back the largest part from {descendant}: "
        "{value} [{lo}, {hi}] of its loss increase"
    )
    return [
        _with_floor(
            estimates,
            pair,
            text,
            {**_interval(most), "corpus": pair["corpus"], "descendant": pair["descendant"]},
            topic="summary",
        )
    ]


def _with_floor(
    estimates: Estimates, pair: Mapping[str, str], text: str, places: Mapping[str, Claim | str], topic: str
) -> Sentence:
    """A share is never said without its damage floor."""
    name = {**pair, "arm": "joint", "reading": "selected"}
    floor = first(estimates, "prior.floor.sym", **name, kind="centred")
    if floor is None or math.isnan(floor.lo):
        return Sentence(text + "; its damage floor is not known.", places, topic)
    ends = {"floor_lo": Claim(floor.id, "lo", SHARE), "floor_hi": Claim(floor.id, "hi", SHARE)}
    verdict = said_of(first(estimates, "prior.above_floor", **name))
    return Sentence(
        text + "; random damage of the same size gives {floor_lo} to {floor_hi} ({verdict}).",
        {**places, **ends, "verdict": verdict},
        topic,
    )


def _pair(estimates: Estimates, pair: Mapping[str, str]) -> list[Sentence]:
    delta = first(estimates, "prior.delta", **pair)
    assert delta is not None, "only pairs with a loss increase, known or not, are said"
    places: dict[str, Claim | str] = {**pair, **_interval(delta, "{:+.4f}")}
    if math.isnan(delta.value):
        text = "{descendant} could not be compared with {base} on {corpus}: the loss increase is {value}."
        return [Sentence(text, {**places, "value": places["value"]}, NAME)]
    joint = _joint(estimates, pair)
    told = "{descendant} changed by {value} nats/token [{lo}, {hi}] against {base} on {corpus}"
    if joint is None or math.isnan(joint.value):
        places["why"] = "no share" if joint is None else joint.note.removeprefix("n/a: ")
        return [Sentence(told + "; no share is given ({why}).", places, NAME)]
    share = {f"share_{field}": found for field, found in _interval(joint).items()}
    said = [
        _with_floor(
            estimates,
            pair,
            told + "; a bias and a temperature take back {share_value} [{share_lo}, {share_hi}] of it",
            {**places, **share},
            NAME,
        )
    ]
    return said + _parts(estimates, pair)


def _parts(estimates: Estimates, pair: Mapping[str, str]) -> list[Sentence]:
    places: dict[str, Claim | str] = {"descendant": pair["descendant"]}
    for part in ("temperature", "bias", "rest"):
        one = first(estimates, "prior.part", **pair, part=part)
        if one is None:
            return []
        places |= {f"{part}_{field}": found for field, found in _interval(one).items()}
    text = (
        "Of the loss increase of {descendant}, {temperature_value} [{temperature_lo}, {temperature_hi}] "
        "goes to a temperature, {bias_value} [{bias_lo}, {bias_hi}] to a bias, and "
        "{rest_value} [{rest_lo}, {rest_hi}] is left to what depends on context."
    )
    return [Sentence(text, places, NAME)]
