"""Facts made outside a run, by the same engine: in a temporary folder, artifacts in the cache."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from stemmatics.core.errors import UserError
from stemmatics.core.facts import Fact
from stemmatics.facts.pinned import Pinned
from stemmatics.store.cache import Cache
from stemmatics.store.ledger import Ledger
from stemmatics.study.execute import execute
from stemmatics.study.plan import costs, make_plan

_ANNOUNCED = ("key", "probe", "label", "num_tokens", "flops")


@contextmanager
def made_in_scratch(
    facts: Sequence[Fact],
    pinned: Pinned,
    *,
    what: str,
    on_event: Callable[[Mapping[str, Any]], None] = lambda _event: None,
) -> Iterator[Ledger]:
    """Make facts and what they need; the rows are in the ledger that is given until the block ends.

    ``what`` names the result in the UserError that is raised where a fact fails: it says which, and why.
    """
    stemma = pinned.stemma
    with tempfile.TemporaryDirectory(prefix="stemma-") as folder:
        ledger, cache = Ledger(Path(folder)), Cache()
        plan = make_plan(facts, ledger, cache)
        # a source that is missing fails its fact below, which says more
        with suppress(UserError):
            on_event({"plan": [{name: row[name] for name in _ANNOUNCED} for row in costs(plan)]})
        failed = execute(plan, ledger, cache, numerics=stemma.numerics, seed=stemma.seed, on_event=on_event)
        if failed:
            # needs come before what needs them: the first failure is the cause of the others
            first = next(fact for key, fact in plan.facts.items() if key in failed)
            raise UserError(
                f"{what} can't be made",
                f"the fact {first.probe} {first.label!r} failed: {failed[first.key]}",
                "Solve that and run the command again",
            )
        yield ledger
