"""Facts that are damaged bases: noise on the head, of the size that costs what a descendant lost.

Axes: V vocabulary, D width.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from stemmatics.core.facts import Fact
from stemmatics.facts.damaged_base import DAMAGED_BASE
from stemmatics.lm.checkpoints.loading import Loaded, save
from stemmatics.lm.checkpoints.model_card import write_card
from stemmatics.lm.checkpoints.pin import pin
from stemmatics.lm.scoring.head_damage import match
from stemmatics.lm.scoring.head_pass import nll_sum
from stemmatics.lm.scoring.patched_head import add_noise
from stemmatics.probe.base import Context, Cost, FactOutput, Failed, each
from stemmatics.probe.costs import forward_cost, num_parameters, num_tokens
from stemmatics.probe.pairs import copy_of
from stemmatics.probe.passes import Refused
from stemmatics.probe.prior.states import HeadPass, head_pass
from stemmatics.probe.prior_floor import on_support, whole_noise
from stemmatics.probe.sources import load_checkpoint, pin_of
from stemmatics.probe.weights import checkpoint_row

_FLOAT = 4


class DamagedBase:
    """Scores a pair on its head's inputs, matches the noise, and writes the damaged base to the cache."""

    def group(self, fact: Fact) -> str:
        """Each alone: two models are read one after the other."""
        return fact.key

    def cost(self, fact: Fact) -> Cost:
        """The corpus through both models once; what follows is the base's head alone."""
        tokens = num_tokens(fact.needs["corpus"])
        base, descendant = (forward_cost(fact.needs[role], tokens) for role in ("init", "descendant"))
        return Cost(
            2 * tokens,
            base.flops + descendant.flops,
            max(base.memory_bytes, descendant.memory_bytes),
            num_parameters(fact.needs["init"]) * _FLOAT,
        )

    def run(self, facts: Sequence[Fact], context: Context) -> Iterator[FactOutput | Failed]:
        """One checkpoint folder a fact, or the reason why there is none."""
        yield from each(facts, lambda fact: _damaged_base(fact, context))


def _damaged_base(fact: Fact, context: Context) -> FactOutput:
    record = context.cache.record(fact.key) if context.cache.find(fact.key) else None
    row = record["damage"] if record is not None else _make(fact, context)
    tables = {"damaged_bases": DAMAGED_BASE.table("damaged_bases", [row])}
    if row["refusal"] or row["failure"]:
        return FactOutput(fact, {**tables, "checkpoints": DAMAGED_BASE.table("checkpoints", [])})
    written = pin_of(fact, context).model_copy(update={"source": fact.label, "parts": ()})
    size = (context.cache.record(fact.key) or {})["num_parameters"]
    return FactOutput(
        fact,
        {**tables, "checkpoints": checkpoint_row(written, num_parameters=size)},
        {"checkpoint": written.files},
    )


def _make(fact: Fact, context: Context) -> dict[str, Any]:
    """Match the damage and write the checkpoint. Returns the row of ``damaged_bases``."""
    row: dict[str, Any] = {"kind": fact.params["kind"], "seed": fact.params["seed"]}
    row |= {"refusal": "", "failure": ""}
    try:
        nll_of_descendant = _scored(fact, "descendant", context)[0]
        nll_of_base, base, passed = _scored(fact, "init", context)
    except Refused as refusal:
        return {**row, "refusal": str(refusal)}
    target = (nll_of_descendant - nll_of_base) / passed.positions["EVAL"].num_positions
    if not target > 0:
        return {**row, "target": target, "failure": "the descendant did not lose on these texts"}
    noise_VD = whole_noise(base, passed, fact.params["kind"], int(fact.params["seed"]))
    damage = match(passed.head, passed.positions["EVAL"], on_support(noise_VD, passed), target)
    row |= {"target": target, "num_evaluations": damage.num_evaluations}
    if damage.failure:
        return {**row, "failure": damage.failure}
    row |= {"sigma": damage.sigma, "loss_increase": damage.delta}
    damaged = copy_of(base)
    add_noise(damaged.model, noise_VD, damage.sigma)
    _write(fact, damaged, row, context)
    return row


def _scored(fact: Fact, role: str, context: Context) -> tuple[float, Loaded, HeadPass]:
    """Nats of EVAL under one of the two models, the model, and its head's inputs."""
    partner = "descendant" if role == "init" else "init"
    needs = {
        "checkpoint": fact.needs[role],
        "partner": fact.needs[partner],
        "corpus": fact.needs["corpus"],
    }
    part = replace(fact, needs=needs, label=f"{fact.needs[role].label} on {fact.needs['corpus'].label}")

    def forward(event: Mapping[str, Any]) -> None:
        context.on_event({**event, "key": fact.key})

    passed = head_pass(part, replace(context, on_event=forward))
    loaded = load_checkpoint(fact.needs[role], context)
    return nll_sum(passed.head, passed.positions["EVAL"]), loaded, passed


def _write(fact: Fact, damaged: Loaded, row: Mapping[str, Any], context: Context) -> None:
    with context.cache.scratch(fact.key) as scratch:
        out = scratch / "checkpoint"
        save(damaged.model, damaged.tokenizer, out)
        name = fact.needs["init"].label
        write_card(out, f"{name}, damaged", made_from=name, how="noise", trained_last=None)
        record = {
            "label": fact.label,
            # a tied head has become weights of its own
            "num_parameters": sum(weight.numel() for weight in damaged.model.parameters()),
            "damage": dict(row),
            "pin": dict(pin(str(out)).key()),
        }
        context.cache.finish(fact.key, out, record)
