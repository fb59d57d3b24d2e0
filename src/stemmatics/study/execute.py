"""Makes what is missing; a failed fact stops only what needs it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from stemmatics.core.facts import Fact, to_json
from stemmatics.core.numerics import Numerics
from stemmatics.scale.local import KILLED, Pool
from stemmatics.store.cache import Cache
from stemmatics.store.ledger import Ledger
from stemmatics.study.plan import Plan, grouped, is_light, models_of

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
    queue = Queue(plan)
    pool = Pool(WORKER, numerics.workers, on_event)

    shared = {
        "run": str(ledger.root),
        "cache": str(cache.root),
        "numerics": numerics.model_dump(mode="json"),
        "seed": seed,
    }

    def submit(groups: Iterable[Sequence[Fact]]) -> None:
        for group in groups:
            pool.submit({**_job(group), "level": queue.level(group), **shared})

    try:
        submit(queue.ready_groups())
        for job, reasons in pool.results():
            finished = [key for key in job["keys"] if key not in reasons or _is_made(key, plan, ledger)]
            failed = {key: reason for key, reason in reasons.items() if key not in finished}
            if KILLED in failed.values():
                failed, untried = _by_its_worker(failed, ledger)
                submit(grouped([plan.facts[key] for key in untried]))
            for key, reason in failed.items():
                ledger.fail(plan.facts[key], reason)
            queue.finish(finished, failed)
            submit(queue.ready_groups())
    finally:
        pool.close()
    return queue.failed


def _is_made(key: str, plan: Plan, ledger: Ledger) -> bool:
    """Whether a killed worker made a fact before it died."""
    return key in plan.missing and ledger.has(key)


def _by_its_worker(killed: Mapping[str, str], ledger: Ledger) -> tuple[dict[str, str], list[str]]:
    """Facts of a job whose worker was killed: what failed, and what was not tried yet.

    Facts are made in order: the first without a record is the one that killed the worker.
    """
    known = ledger.failures()
    failed = {key: str(known[key]["reason"]) for key in killed if key in known}
    unrecorded = [key for key in killed if key not in failed]
    return failed | {key: killed[key] for key in unrecorded[:1]}, unrecorded[1:]


class Queue:
    """Missing facts, which of them can be run, and why others can't.

    ``failed``: reasons by key, those of facts that need a failed one included.
    """

    def __init__(self, plan: Plan) -> None:
        self.failed = dict(plan.failed)
        self._facts = {key: fact for key, fact in plan.missing.items() if key not in self.failed}
        self._num_needs: dict[str, int] = {}
        self._users: dict[str, list[str]] = {}
        self._levels: dict[str, int] = {}
        self._ready: list[Fact] = []
        # facts that put nothing through a model, given out and not yet done, for which others wait
        self._light: set[str] = set()
        for key, fact in self._facts.items():
            needs = {need.key for need in fact.needs.values() if need.key in plan.missing}
            self._num_needs[key] = len(needs)
            # a plan lists needs before what needs them
            self._levels[key] = 1 + max((self._levels.get(need, 0) for need in needs), default=0)
            for need in needs:
                self._users.setdefault(need, []).append(key)
        for key, fact in list(self._facts.items()):
            if any(need.key in plan.failed for need in fact.needs.values()):
                self._stop(key)
        self._ready = [fact for key, fact in self._facts.items() if not self._num_needs[key]]

    def level(self, group: Iterable[Fact]) -> int:
        """Length of the longest chain of missing facts that ends in this group."""
        return max(self._levels[fact.key] for fact in group)

    def ready_groups(self) -> list[list[Fact]]:
        """What can be run now, facts that one load serves together.

        Facts that use models wait for the texts and pins that are still being read, so that all that one
        load serves is known.
        """
        light = [fact for fact in self._ready if self._is_awaited(fact)]
        self._light |= {fact.key for fact in light}
        facts = light if self._light else self._ready
        self._ready = [fact for fact in self._ready if self._light and fact.key not in self._light]
        return [_in_order(group) for group in grouped(facts)]

    def finish(self, made: Iterable[str], failed: Mapping[str, str]) -> None:
        """Facts are done, or failed for a reason."""
        for key in made:
            self._light.discard(key)
            for user in self._users.get(key, ()):
                self._num_needs[user] -= 1
                if not self._num_needs[user] and user not in self.failed:
                    self._ready.append(self._facts[user])
        for key, reason in failed.items():
            self._light.discard(key)
            self.failed[key] = reason
            for user in self._users.get(key, ()):
                self._stop(user)

    def _is_awaited(self, fact: Fact) -> bool:
        return bool(self._users.get(fact.key)) and is_light(fact)

    def _stop(self, key: str) -> None:
        """A fact that needs a failed one fails too, with all that need it."""
        stopped = [key]
        while stopped:
            key = stopped.pop()
            if key in self.failed:
                continue
            broken = next(need for need in self._facts[key].needs.values() if need.key in self.failed)
            self.failed[key] = f"it needs {broken.label!r} ({broken.probe}), which failed"
            stopped += self._users.get(key, ())


def _in_order(group: Sequence[Fact]) -> list[Fact]:
    """Facts in the order in which a worker makes them: probe by probe."""
    return [
        fact for probe in dict.fromkeys(fact.probe for fact in group) for fact in group if fact.probe == probe
    ]


def _job(group: Sequence[Fact]) -> dict[str, Any]:
    return {
        "facts": to_json(group),
        "keys": [fact.key for fact in group],
        "models": models_of(group),
    }
