"""Facts that are checkpoints made here: trained, or altered by arithmetic on the weights."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from stemmatics.core.facts import Fact
from stemmatics.core.stages import Stage
from stemmatics.facts.train import TRAIN, is_recovery
from stemmatics.lm.checkpoints.loading import load, save
from stemmatics.lm.checkpoints.model_card import write_card
from stemmatics.lm.checkpoints.pin import Pin, parse, pin
from stemmatics.probe.adapters import arm_row, training_records, training_seed
from stemmatics.probe.base import Context, Cost, FactOutput
from stemmatics.probe.costs import training_cost
from stemmatics.probe.sources import pin_of, put_on
from stemmatics.probe.weights import checkpoint_row
from stemmatics.train.stages import train_stage

_DECLARED = {"init": "declared", "corpus": "declared"}


class Train:
    """Makes a stage's checkpoint in the cache, or takes it from there."""

    def group(self, fact: Fact) -> str:
        """Each alone."""
        return fact.key

    def cost(self, fact: Fact) -> Cost:
        """Tokens of the recipe, forward and backward; an alteration takes no tokens."""
        return training_cost(fact)

    def run(self, facts: Sequence[Fact], context: Context) -> Iterator[FactOutput]:
        """One checkpoint folder a fact, with its training log."""
        for fact in facts:
            record = context.cache.record(fact.key) if context.cache.find(fact.key) else None
            if record is None:
                record = _make(fact, context)
            pinned = pin_of(fact, context).model_copy(update={"source": fact.label, "parts": ()})
            rows = TRAIN.table("training", record["training"])
            row = checkpoint_row(pinned, num_parameters=record["num_parameters"])
            tables = {"checkpoints": row, "training": rows}
            if is_recovery(fact):
                tables["arms"] = arm_row(fact, record)
            yield FactOutput(fact, tables, {"checkpoint": pinned.files})


def _make(fact: Fact, context: Context) -> dict[str, Any]:
    stage: Any = TypeAdapter(Stage).validate_python(_declaration(fact))
    with context.cache.scratch(fact.key) as scratch:
        done = context.cache.find(fact.key)
        if done is not None:
            # another process made it while this one waited for the lock
            return context.cache.record(fact.key) or {}
        out = scratch / "checkpoint"
        init = fact.needs.get("init")
        resumes = fact.needs.get("resumes")
        start = None if init is None else _plain_folder(init, context, scratch)
        log = train_stage(
            stage,
            init=start,
            records=training_records(fact),
            out=out,
            seed=training_seed(fact, context.seed),
            numerics=context.numerics,
            resume_from=None if resumes is None else context.artifact_path(resumes),
            on_event=_progress(fact, context),
            state=context.cache.root / "resuming" / fact.key,
            merge=init is not None and pin_of(init, context).kind == "adapter",
        )
        if not is_recovery(fact):
            write_card(
                out,
                fact.label,
                made_from=next((need.label for role, need in fact.needs.items() if role != "corpus"), None),
                how=str(fact.params["kind"]),
                trained_last=fact.where.get("trained_last"),
                recipe=fact.params,
            )
        record = {
            "label": fact.label,
            "num_parameters": _num_parameters(start if start is not None and is_recovery(fact) else out),
            "num_bytes": log.num_bytes,
            "num_documents": log.num_documents,
            "training": [
                {"step": row.step, "loss": row.loss, "num_tokens": row.num_tokens} for row in log.rows
            ],
            "pin": dict((pin(str(out)) if init is None else put_on(pin_of(init, context), out)).key()),
        }
        return context.cache.finish(fact.key, out, record)


def _declaration(fact: Fact) -> dict[str, Any]:
    """The stage as it was declared, as far as it decides the result."""
    settings = {name: value for name, value in fact.params.items() if name not in {"seed", "numerics"}}
    if settings["kind"] == "pretrain":
        resumes = {"resumes": "declared"} if "resumes" in fact.needs else {}
        return {**settings, "corpus": "declared", **resumes}
    return {**settings, **{name: _DECLARED[name] for name in _DECLARED if name in fact.needs}}


def _plain_folder(fact: Fact, context: Context, scratch: Path) -> Path:
    """The checkpoint to start from, as a folder that plain transformers loads."""
    pinned: Pin = pin_of(fact, context)
    if pinned.kind == "folder" and parse(pinned.source).weights is None:
        return Path(pinned.source)
    loaded = load(pinned, context.numerics, merge_adapter=True)
    folder = scratch / "init"
    shutil.rmtree(folder, ignore_errors=True)
    save(loaded.model, loaded.tokenizer, folder)
    return folder


def _progress(fact: Fact, context: Context) -> Callable[[Mapping[str, Any]], None]:
    def forward(event: Mapping[str, Any]) -> None:
        context.report(fact, int(event["step"]), int(event["steps"]), "steps")

    return forward


def _num_parameters(folder: Path) -> int:
    from safetensors import safe_open

    total = 0
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, framework="np") as tensors:
            for name in tensors.keys():  # noqa: SIM118 - not a mapping
                size = 1
                for length in tensors.get_slice(name).get_shape():
                    size *= length
                total += size
    return total
