"""Runs one job: facts that share loads; called by name, in this process or another."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from stemmatics.core import plugins
from stemmatics.core.facts import Fact, from_json
from stemmatics.core.numerics import Numerics
from stemmatics.probe.base import Context, Event, Failed, reason_of
from stemmatics.probe.workspace import Workspace
from stemmatics.store.cache import Cache
from stemmatics.store.ledger import Ledger

# What this process keeps between jobs, by the run, cache and numerics that it belongs to.
_WORKSPACES: dict[tuple[str, ...], Workspace] = {}


def run_group(job: Mapping[str, Any], on_event: Callable[[Event], None]) -> dict[str, str]:
    """Make the facts of ``job`` and store each as it is done.

    ``job`` is plain data: ``facts`` (closure of the group), ``keys`` (the group), ``run``,
    ``cache``, ``numerics``, ``seed``. Returns the reason of each fact that failed, by key.
    """
    facts = from_json(job["facts"])
    group = [facts[key] for key in job["keys"]]
    context = Context(
        ledger=Ledger(Path(job["run"])),
        cache=Cache(Path(job["cache"])),
        numerics=Numerics.model_validate(job["numerics"]),
        seed=job["seed"],
        on_event=on_event,
        workspace=_workspace(job),
    )
    prepare_torch(context.numerics)
    context.workspace.job = tuple(group)
    failed: dict[str, str] = {}
    try:
        for probe in dict.fromkeys(fact.probe for fact in group):
            failed |= _run_probe(probe, [fact for fact in group if fact.probe == probe], context)
    finally:
        context.workspace.job = ()
    return failed


def release() -> None:
    """Let go of all that is kept between jobs."""
    _WORKSPACES.clear()


def _workspace(job: Mapping[str, Any]) -> Workspace:
    """What is kept for this run; what was kept for another is let go."""
    owner = (job["run"], job["cache"], repr(sorted(job["numerics"].items())))
    if owner not in _WORKSPACES:
        release()
        _WORKSPACES[owner] = Workspace()
    return _WORKSPACES[owner]


def _run_probe(probe: str, facts: list[Fact], context: Context) -> dict[str, str]:
    """The facts of one probe; whatever it throws fails those that it has not made, and no others."""
    remaining = dict.fromkeys(facts)
    failed: dict[str, str] = {}
    started = time.monotonic()
    try:
        for output in plugins.find("probes", probe)().run(facts, context):
            if isinstance(output, Failed):
                failed[output.fact.key] = output.reason
                context.ledger.fail(output.fact, output.reason)
            else:
                context.ledger.record(output.fact, output.tables, **output.extra)
            del remaining[output.fact]
            # the first fact of a job carries the load that all of it shares
            context.on_event({**_name(output.fact), "seconds": time.monotonic() - started})
            started = time.monotonic()
    except Exception as error:  # noqa: BLE001 - whatever a model throws must not end the sweep
        failed |= _fail_all(context, remaining, reason_of(error))
    else:
        failed |= _fail_all(context, remaining, "its probe ended without making it")
    return failed


def _name(fact: Fact) -> dict[str, str]:
    return {"key": fact.key, "probe": fact.probe, "label": fact.label}


def _fail_all(context: Context, facts: Iterable[Fact], reason: str) -> dict[str, str]:
    failed = {}
    for fact in facts:
        context.ledger.fail(fact, reason)
        failed[fact.key] = reason
    return failed


def prepare_torch(numerics: Numerics) -> None:
    """One torch thread per worker where several share the cores, else the number in the numerics.

    Two busy two-thread processes on two cores spin against each other and lose a factor of ten.
    """
    import torch
    from tqdm import tqdm
    from transformers import modeling_gguf_pytorch_utils as gguf_loader
    from transformers.utils import logging

    # their bars would run through ours; the GGUF loader calls tqdm directly
    logging.disable_progress_bar()
    gguf_loader.tqdm = partial(tqdm, disable=True)
    threads = numerics.threads or (1 if numerics.workers > 1 else 0)
    if threads:
        torch.set_num_threads(threads)
