"""What a study computes: the pinned stemma and its measures with their settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from stemmatics.core import plugins
from stemmatics.core.errors import UserError
from stemmatics.core.facts import Fact, closure
from stemmatics.core.keys import seed_from
from stemmatics.core.load import validate
from stemmatics.core.stemma import Stemma
from stemmatics.facts.pinned import Pinned, Pins
from stemmatics.measure.base import Measure
from stemmatics.store.ledger import Ledger


@dataclass(frozen=True)
class MeasureRequest:
    """One measure with its settings and the facts that it needs."""

    name: str
    measure: Measure
    settings: Any
    facts: tuple[Fact, ...]

    def estimate_fact(self, pinned: Pinned, done: Iterable[Fact]) -> Fact:
        """The fact of its results, made from the facts that are done."""
        needs = {f"{position:05d}": fact for position, fact in enumerate(done)}
        params = {
            "measure": self.name,
            "settings": self.settings.model_dump(mode="json"),
            "seed": pinned.stemma.seed,
        }
        return Fact("estimate", self.measure.version, params, needs, label=self.name)

    def generator(self, seed: int) -> np.random.Generator:
        """The measure's own generator, seeded from the stemma's seed."""
        return np.random.default_rng(seed_from(seed, "estimate", self.name))


def resolve_requests(
    stemma: Stemma,
    pins: Pins,
    *,
    only: Iterable[str] | None = None,
    tree: Any = None,
    name: str = "stemma.yaml",
) -> tuple[Pinned, list[MeasureRequest]]:
    """Measures in declared order; ``only`` picks some. Raises UserError for unknown ones."""
    pinned = Pinned(stemma, pins)
    names = list(only) if only is not None else list(stemma.measures)
    missing = [measure for measure in names if measure not in stemma.measures]
    if missing:
        plugins.find("measures", missing[0])
        raise UserError(
            f"measure {missing[0]!r} is not configured",
            f"the stemma configures {', '.join(stemma.measures) or 'no measure'}",
            f"Add `{missing[0]}: {{}}` under `measures:`",
            code=2,
        )
    requests = []
    for measure_name in names:
        measure: Measure = plugins.find("measures", measure_name)()
        declared = stemma.measures[measure_name]
        settings = validate(measure.Settings, declared, ("measures", measure_name), name, tree)
        facts = tuple(dict.fromkeys(measure.needs(pinned, settings)))
        requests.append(MeasureRequest(measure_name, measure, settings, facts))
    if not requests:
        raise UserError(
            "no measures configured",
            "the stemma has nothing under `measures:`",
            f"Add one of {', '.join(plugins.names('measures'))}",
            code=2,
        )
    return pinned, requests


def all_facts(requests: Iterable[MeasureRequest]) -> dict[str, Fact]:
    """All facts that the measures need, by key, needs before their users."""
    return closure(fact for request in requests for fact in request.facts)


class StoredTables:
    """The sums of a run, as measures read them."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def has(self, fact: Fact) -> bool:
        """Whether the fact is done."""
        return self._ledger.has(fact.key)

    def read(self, fact: Fact, table: str) -> Any:
        """A fact's rows."""
        return self._ledger.read(fact.key, table)


def manifest_of(
    pinned: Pinned, requests: Iterable[MeasureRequest], extra: Mapping[str, Any]
) -> dict[str, Any]:
    """The part of a manifest that describes the study; the rest comes with ``extra``."""
    return {
        "stemma": pinned.stemma.model_dump(mode="json", by_alias=True, exclude_defaults=True),
        "pins": pinned.pins.to_json(),
        "measures": [request.name for request in requests],
        **extra,
    }
