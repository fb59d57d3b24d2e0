"""Bases that are unknown, predicted or from elsewhere: a recovered loss less an offset, with its bars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any

from stemmatics.core.results import Result
from stemmatics.facts.pinned import Pinned
from stemmatics.facts.registry import registry_fact
from stemmatics.math.intervals import Interval
from stemmatics.math.recovery import BaseEstimate, Calibration, calibration, estimate_base
from stemmatics.math.recovery.offsets import LEVEL
from stemmatics.math.recovery.unknown_base import not_used
from stemmatics.measure.base import Tables
from stemmatics.measure.present import ResultBuilder
from stemmatics.measure.recovery.losses import Losses
from stemmatics.measure.recovery.needs import Arms, PairNames, origin_of
from stemmatics.measure.recovery.pairs import PairDifferences

Row = Mapping[str, Any]


@dataclass(frozen=True)
class UnknownBase:
    """The estimated loss of an unknown base; ``not_used``: why the lab's own pairs gave no offset, if so."""

    estimate: BaseEstimate
    not_used: str


def with_bar(value: float, bar: float, *, method: str, n: int, note: str = "") -> Interval:
    """A value plus and minus its 90% bar, from ``n`` pairs."""
    unknown = float("nan")
    return Interval(value, value - bar, value + bar, LEVEL, method, n, "pair", unknown, unknown, note)


def registry_rows(arms: Arms, corpus: str, tables: Tables) -> tuple[list[Row], list[Row]]:
    """Imported pairs that are comparable (same recipe hash and text), and those that are not."""
    name = arms.settings.registry
    if name is None:
        return [], []
    fact = registry_fact(arms.pinned, name)
    if not tables.has(fact):
        return [], []
    pins = arms.pinned.pins.corpora
    recipe = arms.settings.recipe.hash(str(pins[arms.settings.pool]["content_sha256"]))
    text = pins[corpus]["content_sha256"]
    rows = tables.read(fact, "registry").to_pylist()
    same = [(row["recipe_hash"], row["corpus_sha256"]) == (recipe, text) for row in rows]
    return list(compress(rows, same)), list(compress(rows, (not each for each in same)))


def known_pairs(
    pinned: Pinned, pairs: Mapping[PairNames, PairDifferences], imported: Sequence[Row]
) -> Calibration:
    """Residuals of this run's pairs and of imported ones."""
    residuals = [pair.documents.value for pair in pairs.values()]
    origins: list[Any] = [origin_of(pinned, descendant) for _, descendant in pairs]
    return calibration([*residuals, *(float(row["residual"]) for row in imported)], [*origins, *imported])


def unknown_bases(arms: Arms, losses: Losses, known: Calibration) -> dict[str, UnknownBase]:
    """The estimated loss of the base behind every model whose base is unknown."""
    estimates = {}
    for name in arms.base_unknown:
        if name in losses.arms:
            origin = origin_of(arms.pinned, name)
            scores = losses.scores
            estimate = estimate_base(
                losses.arms[name].rebased, scores.num_bytes_N, scores.group_N, known, origin
            )
            estimates[name] = UnknownBase(estimate, not_used(known, origin, estimate.offset))
    return estimates


def unknown_base_results(build: ResultBuilder, unknown: UnknownBase) -> list[Result]:
    """The estimated loss of one model's base with both bars, the offset, and the rule that gave it.

    ``estimated_base`` has the bar for the base's loss on this text, ``estimated_base.elsewhere`` the one for
    its loss on text like this.
    """
    estimate, offset = unknown.estimate, unknown.estimate.offset

    def loss(bar: float) -> Interval:
        return with_bar(
            estimate.value, bar, method="recovered less offset", n=offset.num_pairs, note=offset.note
        )

    return [
        build.interval("estimated_base", loss(estimate.half_width)),
        build.interval("estimated_base.elsewhere", loss(estimate.half_width_elsewhere)),
        build.number("offset", offset.value, n=offset.num_pairs, unit="pair", note=offset.note),
        build.category("rule", offset.source, unknown.not_used, n=offset.num_pairs, unit="pair"),
    ]


def borrowed_results(arms: Arms, losses: Losses, others: Sequence[Row]) -> list[Result]:
    """Bases estimated with the offset of another recipe or text: apart from the rest, and flagged."""
    if not others:
        return []
    known = calibration([float(row["residual"]) for row in others], list(others))
    results: list[Result] = []
    for name, unknown in unknown_bases(arms, losses, known).items():
        estimate, offset = unknown.estimate, unknown.estimate.offset
        loss = with_bar(
            estimate.value,
            estimate.half_width,
            method="recovered less borrowed offset",
            n=offset.num_pairs,
            note=offset.note,
        )
        build = losses.results(name, checkpoint=name)
        results += [
            build.interval("borrowed", loss, note="borrowed: the offset is of another recipe or text"),
            build.category("borrowed.rule", offset.source, unknown.not_used, n=offset.num_pairs, unit="pair"),
        ]
    return results


def blind_results(arms: Arms, losses: Losses, tables: Tables) -> list[Result]:
    """The predicted loss of each blind base with its bar, the error, and whether the bar covered it."""
    results: list[Result] = []
    for base, descendant in arms.blind_pairs:
        fact = arms.prediction(descendant, losses.corpus)
        if not tables.has(fact) or base not in losses.arms:
            continue
        row = tables.read(fact, "prediction").to_pylist()[0]
        value, bar, num_pairs = float(row["value"]), float(row["bar"]), int(row["num_pairs"])
        error = losses.rebased_loss(base) - value
        build = losses.results(base, base=base, descendant=descendant)
        build = build.with_facts(fact, *build.facts)
        hashed = build.about(sha256=str(row["sha256"])[:16])
        loss = with_bar(value, bar, method="recovered less offset", n=num_pairs)
        covered = float(abs(error) <= bar)
        results += [
            hashed.interval("blind", loss),
            hashed.number("blind.error", error, n=1, unit="prediction"),
            hashed.number("blind.covered", covered, n=1, unit="prediction", units=""),
            build.category("blind.rule", str(row["rule"]), n=num_pairs, unit="pair"),
        ]
    return results
