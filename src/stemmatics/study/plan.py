"""What is missing, in which order, and what it will take."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from stemmatics.core import plugins
from stemmatics.core.facts import Fact, closure
from stemmatics.probe.base import NoModel
from stemmatics.store.cache import Cache
from stemmatics.store.ledger import Ledger

# Under which names facts need the checkpoints that are loaded for them.
MODEL_ROLES = ("checkpoint", "base", "descendant")


@dataclass(frozen=True)
class Plan:
    """The requested facts, those that are missing, and those that failed before."""

    facts: dict[str, Fact]
    missing: dict[str, Fact]
    failed: dict[str, str]


def make_plan(facts: Iterable[Fact], ledger: Ledger, cache: Cache) -> Plan:
    """Missing facts in dependency order.

    A fact that left an artifact is made again only if the artifact is gone and a missing fact reads it.
    """
    everything = closure(facts)
    failures = {key: failure["reason"] for key, failure in ledger.failures().items() if key in everything}
    missing = {key for key in everything if not ledger.has(key)}
    for key in reversed(list(everything)):
        if key in missing:
            missing |= {need.key for need in _read_by(everything[key]) if _is_lost(need, ledger, cache)}
    ordered = {key: fact for key, fact in everything.items() if key in missing}
    return Plan(everything, ordered, failures)


def _is_lost(fact: Fact, ledger: Ledger, cache: Cache) -> bool:
    """Whether a fact's artifact is gone."""
    artifact = plugins.find("facts", fact.probe).artifact
    if artifact == "cache":
        return cache.find(fact.key) is None
    return artifact == "private" and not ledger.private_files(fact.key)


def _read_by(fact: Fact) -> Iterator[Fact]:
    """What making a fact reads: its needs, and of an adapter also the checkpoint under it."""
    for need in fact.needs.values():
        yield need
        below = need
        while below.params.get("kind") == "recovery":
            below = below.needs["init"]
            yield below


def grouped(facts: Sequence[Fact]) -> list[list[Fact]]:
    """Facts that one load serves, whatever their probes, in the order in which they appear."""
    groups: dict[str, list[Fact]] = {}
    for fact in facts:
        key = plugins.find("probes", fact.probe)().group(fact)
        groups.setdefault(key, []).append(fact)
    return list(groups.values())


def is_light(fact: Fact) -> bool:
    """Whether a fact puts nothing through a model: others wait for it, and it keeps none of them long."""
    return isinstance(plugins.find("probes", fact.probe)(), NoModel)


def models_of(facts: Iterable[Fact]) -> list[str]:
    """Keys of the checkpoints that facts load."""
    needs = (fact.needs[role] for fact in facts for role in MODEL_ROLES if role in fact.needs)
    return list(dict.fromkeys(need.key for need in needs))


def costs(plan: Plan) -> list[dict[str, Any]]:
    """One row a missing fact, for ``--plan``."""
    rows = []
    for fact in plan.missing.values():
        cost = plugins.find("probes", fact.probe)().cost(fact)
        rows.append(
            {
                "key": fact.key,
                "probe": fact.probe,
                "label": fact.label,
                "num_tokens": cost.num_tokens,
                "flops": cost.flops,
                "memory_bytes": cost.memory_bytes,
                "memory_parts": dict(cost.memory_parts),
                "disk_bytes": cost.disk_bytes,
                "download_bytes": cost.download_bytes,
            }
        )
    return rows


def totals(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Sums over facts (memory: the largest), and seconds at this machine's measured speed."""
    total = {
        name: float(sum(row[name] for row in rows))
        for name in ("num_tokens", "flops", "disk_bytes", "download_bytes")
    }
    total["memory_bytes"] = float(max((row["memory_bytes"] for row in rows), default=0))
    total["seconds"] = total["flops"] / measured_flops() if total["flops"] else 0.0
    return total


def measured_flops(size: int = 512, repeats: int = 8) -> float:
    """Multiplications and additions a second of this machine's matrix product in float32."""
    left = np.ones((size, size), dtype=np.float32)
    started = time.perf_counter()
    for _ in range(repeats):
        left @ left
    return 2.0 * size**3 * repeats / (time.perf_counter() - started)
