"""Runs one group of facts; called by name, in this process or another."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from stemmatics.core import plugins
from stemmatics.core.facts import Fact, from_json
from stemmatics.core.numerics import Numerics
from stemmatics.probe.base import Context, Event, Failed, reason_of
from stemmatics.store.cache import Cache
from stemmatics.store.ledger import Ledger


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
    )
    prepare_torch(context.numerics)
    left = dict.fromkeys(group)
    failed: dict[str, str] = {}
    started = time.monotonic()
    try:
        for made in plugins.find("probes", group[0].probe)().run(group, context):
            if isinstance(made, Failed):
                failed[made.fact.key] = made.reason
                context.ledger.fail(made.fact, made.reason)
            else:
                context.ledger.record(made.fact, made.tables, **made.extra)
            del left[made.fact]
            # the first of a group carries the load that all of it shares
            on_event({**_name(made.fact), "seconds": time.monotonic() - started})
            started = time.monotonic()
    except Exception as error:  # noqa: BLE001 - whatever a model throws must not end the sweep
        failed |= _fail_all(context, left, reason_of(error))
    else:
        failed |= _fail_all(context, left, "its probe ended without making it")
    return failed


def _name(fact: Fact) -> dict[str, str]:
    return {"key": fact.key, "probe": fact.probe, "label": fact.label}


def _fail_all(context: Context, facts: Sequence[Fact] | dict[Fact, None], reason: str) -> dict[str, str]:
    for fact in facts:
        context.ledger.fail(fact, reason)
    return {fact.key: reason for fact in facts}


def prepare_torch(numerics: Numerics) -> None:
    """One torch thread a worker where several share the cores, else as many as asked for.

    Two busy two-thread processes on two cores spin against each other and lose a factor of ten.
    """
    import torch
    from tqdm import tqdm
    from transformers import modeling_gguf_pytorch_utils as gguf_loader
    from transformers.utils import logging

    # their bars would run through ours; the GGUF loader asks tqdm itself
    logging.disable_progress_bar()
    gguf_loader.tqdm = partial(tqdm, disable=True)
    threads = numerics.threads or (1 if numerics.workers > 1 else 0)
    if threads:
        torch.set_num_threads(threads)
