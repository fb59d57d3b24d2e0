"""Makes what is missing; a failed fact stops only what needs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from stemmatics.core.facts import Fact, to_json
from stemmatics.core.numerics import Numerics
from stemmatics.scale.local import Pool
from stemmatics.store.cache import Cache
from stemmatics.store.ledger import Ledger
from stemmatics.study.plan import Plan, grouped

WORKER = "stemmatics.probe.worker:run_group"
Event = Mapping[str, Any]


def execute(
    plan: Plan,
    ledger: Ledger,
    cache: Cache,
    *,
    numerics: Numerics,
    seed: int,
    on_event: Callable[[Event], None],
) -> dict[str, str]:
    """Run every missing fact that can be run. Returns the reasons of those that failed, by key."""
    failed = dict(plan.failed)
    todo = {key: fact for key, fact in plan.missing.items() if key not in failed}
    done = set(plan.facts) - set(plan.missing)
    pool = Pool(WORKER, numerics.workers, on_event)

    def submit_ready() -> None:
        ready = []
        for key, fact in list(todo.items()):
            broken = [need for need in fact.needs.values() if need.key in failed]
            if broken:
                failed[key] = f"it needs {broken[0].label!r} ({broken[0].probe}), which failed"
                del todo[key]
            elif all(need.key in done for need in fact.needs.values()):
                ready.append(fact)
                del todo[key]
        for group in grouped(ready):
            pool.submit(_job(group, ledger, cache, numerics, seed))

    try:
        submit_ready()
        for job, found in pool.results():
            reasons = _kept(found, plan, ledger)
            failed |= reasons
            done |= set(job["keys"]) - set(reasons)
            submit_ready()
    finally:
        pool.close()
    return failed


def _kept(reasons: Mapping[str, str], plan: Plan, ledger: Ledger) -> dict[str, str]:
    """Failures, remembered. A killed worker could not write its own, and may have made some facts before."""
    made = {key for key in reasons if key in plan.missing and ledger.has(key)}
    left = {key: reason for key, reason in reasons.items() if key not in made}
    for key, reason in left.items():
        ledger.fail(plan.facts[key], reason)
    return left


def _job(group: list[Fact], ledger: Ledger, cache: Cache, numerics: Numerics, seed: int) -> dict[str, Any]:
    return {
        "facts": to_json(group),
        "keys": [fact.key for fact in group],
        "run": str(ledger.root),
        "cache": str(cache.root),
        "numerics": numerics.model_dump(mode="json"),
        "seed": seed,
    }
