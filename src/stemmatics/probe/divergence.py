"""Facts about how far apart two models' predictions are: both heads over the same positions, with floors.

Axes: T tokens of one document, N positions, V vocabulary.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from stemmatics.core.facts import Fact
from stemmatics.core.keys import key_of
from stemmatics.core.scoring import Scoring
from stemmatics.facts.divergence import (
    ATTENTION,
    DIVERGENCE,
    DIVERGENCE_MODEL,
    HALF_PRECISION,
    ITSELF,
    ON_FLOOR,
    PAIR,
    damage_name,
)
from stemmatics.lm.scoring.compared import Comparison, Side, shared_mask
from stemmatics.lm.scoring.head_damage import damaged, head_noise, match
from stemmatics.lm.scoring.head_pass import Positions
from stemmatics.lm.scoring.passes import Reader
from stemmatics.lm.scoring.stored_pass import PassRequest, StoredPass
from stemmatics.probe.base import Context, Cost, FactOutput, Failed, each
from stemmatics.probe.costs import forward_cost, num_tokens
from stemmatics.probe.divergence_rows import Rows
from stemmatics.probe.pairs import copy_of, pair_key
from stemmatics.probe.passes import CorpusPass, Reading, Refused, pass_over, refuse_non_finite, report_pass
from stemmatics.probe.score import progress
from stemmatics.probe.sources import encoded

_OTHER_ATTENTION = {"sdpa": "eager", "eager": "sdpa"}


class Divergence:
    """Compares the predictions of two models at every scored token, on the ids that both have."""

    def group(self, fact: Fact) -> str:
        """Batching key: one load per pair."""
        return pair_key(fact)

    def cost(self, fact: Fact) -> Cost:
        """Both models over the corpus once, the controls, and the states of the base in a scratch file."""
        tokens = num_tokens(fact.needs["corpus"])
        controls = 3 * int(fact.params["control_tokens"])
        base = forward_cost(fact.needs["base"], tokens + controls)
        descendant = forward_cost(fact.needs["descendant"], tokens)
        memory = base.memory_bytes + descendant.memory_bytes
        return Cost(base.num_tokens + descendant.num_tokens, base.flops + descendant.flops, memory)

    def run(self, facts: Sequence[Fact], context: Context) -> Iterator[FactOutput | Failed]:
        """Sums and counts by document; a pair that can't be compared by token has a reason instead."""
        yield from each(facts, lambda fact: _output_or_refusal(fact, context))


def _output_or_refusal(fact: Fact, context: Context) -> FactOutput:
    try:
        return _measured(fact, context)
    except Refused as refusal:
        return _output(fact, Rows(), {"refusal": str(refusal)})


def _output(fact: Fact, rows: Rows, model: dict[str, Any]) -> FactOutput:
    tables = {name: DIVERGENCE.table(name, part) for name, part in rows.tables().items()}
    row = {name: model.get(name) for name in DIVERGENCE_MODEL.names}
    return FactOutput(fact, {**tables, "divergence_model": DIVERGENCE.table("divergence_model", [row])})


def _measured(fact: Fact, context: Context) -> FactOutput:
    reading_of = {role: _reading(fact, role) for role in ("base", "descendant")}
    readers = {role: reading.reader(context) for role, reading in reading_of.items()}
    _refuse_other_tokens(fact, readers, context)
    mask_V = shared_mask(*readers.values())
    counted = encoded(fact.needs["corpus"], readers["base"].tokenizer, context).counted(0)
    on_event = progress(fact, context, counted)
    sides = {
        role: _side(readers[role], pass_over(reading, context, on_event=on_event), mask_V)
        for role, reading in reading_of.items()
    }
    for side in sides.values():
        refuse_non_finite(_not_finite(side))
    base, descendant = sides["base"], sides["descendant"]
    compare = Comparison(mask_V)
    rows = Rows()
    for document, values in compare(base, descendant):
        rows.add(PAIR, document, values)
    scales, failure = _damage(fact, base, descendant, compare, rows)
    _controls(fact, base, compare, rows, context)
    return _output(
        fact,
        rows,
        {
            "refusal": "",
            "token_ids_sha256": counted.token_ids_sha256,
            "prefix_id": base.reader.prefix_id,
            "num_ids": base.reader.loaded.num_ids,
            "num_support": int(mask_V.sum()),
            "dtype": str(base.reader.loaded.model.dtype).removeprefix("torch."),
            "scratch_bytes": base.stored.num_bytes + descendant.stored.num_bytes,
            "noise_scales": scales,
            "noise_failure": failure,
        },
    )


def _reading(fact: Fact, role: str) -> Reading:
    """The head's inputs of all scored tokens."""
    scoring = Scoring.model_validate(fact.params["scoring"]).model_copy(update={"support": "full"})
    return Reading(
        fact.needs[role], fact.needs["corpus"], scoring, lambda _reader, _context: PassRequest(states=True)
    )


def _refuse_other_tokens(fact: Fact, readers: dict[str, Reader], context: Context) -> None:
    hashes = {
        encoded(fact.needs["corpus"], reader.tokenizer, context).counted(0).token_ids_sha256
        for reader in readers.values()
    }
    if len(hashes) > 1:
        message = "the tokenizers differ: the two models do not see the same tokens of this corpus"
        raise Refused(message)
    prefixes = [reader.prefix_id for reader in readers.values()]
    if len(set(prefixes)) > 1:
        message = f"the prefix ids differ ({prefixes[0]} and {prefixes[1]}): set `scoring: prefix`"
        raise Refused(message)
    cutters = [reader.cutter() for reader in readers.values()]
    if cutters[0] != cutters[1]:
        message = "the windows differ, since the context lengths do: set `scoring: windows: size`"
        raise Refused(message)


def _side(reader: Reader, passed: CorpusPass, mask_V: NDArray[np.bool_]) -> Side:
    side = Side.of(reader, passed.stored, passed.documents, mask_V)
    if side is None:
        message = "a model's logits are not a linear head of its states with a scale and a soft cap"
        raise Refused(message)
    return side


def _not_finite(side: Side) -> list[int]:
    """Indices of documents whose loss is not finite."""
    return [
        stored.scores.document.index
        for stored in side.documents(None)
        if not np.isfinite(stored.scores.nll[stored.scores.scored]).all()
    ]


def _spread(side: Side, at_most: int) -> frozenset[int]:
    """Documents evenly spaced over the corpus, which may be sorted by register: about so many tokens."""
    num_scored = {
        stored.scores.document.index: int(stored.scores.scored.sum()) for stored in side.documents(None)
    }
    indices = [index for index, count in num_scored.items() if count]
    total = sum(num_scored.values())
    number = len(indices) if total <= at_most else max(1, int(len(indices) * at_most / total))
    return (
        frozenset(indices[step * len(indices) // number] for step in range(number))
        if indices
        else frozenset()
    )


def _damage(
    fact: Fact, base: Side, descendant: Side, compare: Comparison, rows: Rows
) -> tuple[list[float], str]:
    """The base with noise on its head that costs what the descendant lost on the same documents."""
    selected = _spread(base, int(fact.params["floor_tokens"]))
    if not selected or not fact.params["floor_tokens"]:
        return [], "no floor was requested"
    pair = list(compare(base, descendant, selected))
    for document, values in pair:
        rows.add(ON_FLOOR, document, values)
    target = float(np.mean(np.concatenate([-values.delta_logp for _, values in pair])))
    if not target > 0:
        return [], "the descendant did not lose on these documents: there is no damage to match"
    positions = _positions(compare, base, selected)
    scales: list[float] = []
    for draw in range(1, int(fact.params["draws"]) + 1):
        noise_SD = head_noise((base.head.num_ids, base.head.weight.shape[1]), draw)
        guess = scales[-1] if scales else None
        result = match(base.head, positions, noise_SD, target, guess=guess)
        if result.failure:
            return scales, result.failure
        scales.append(result.sigma)
        copied = replace(base, head=damaged(base.head, noise_SD, result.sigma))
        for document, values in compare(base, copied, selected):
            rows.add(damage_name(draw), document, values)
    return scales, ""


def _positions(compare: Comparison, base: Side, selected: frozenset[int]) -> Positions:
    row_parts, targets, lengths, indices = [], [], [], []
    for stored in base.documents(selected):
        document = compare.document(stored)
        inside = np.flatnonzero(document.inside_T[document.scored_T])
        if len(inside):
            row_parts.append(stored.first_state + inside)
            targets.append(compare.targets(document))
            lengths.append(len(inside))
            indices.append(document.tokens.index)
    return Positions(
        base.states.take(np.concatenate(row_parts)),
        np.concatenate(targets),
        np.repeat(np.arange(len(lengths), dtype=np.int64), lengths),
        np.array(indices, dtype=np.int64),
    )


def _controls(fact: Fact, base: Side, compare: Comparison, rows: Rows, context: Context) -> None:
    """The base with itself: read again, in half precision, under the other implementation of attention."""
    at_most = int(fact.params["control_tokens"])
    selected = _spread(base, at_most) if at_most else frozenset()
    if not selected:
        return
    corpus = encoded(fact.needs["corpus"], base.reader.tokenizer, context)
    for name, reader in _other_readers(base.reader):
        stored = _control_pass(fact, name, reader, selected, context)
        other = _side(reader, CorpusPass(reader, corpus, stored), compare.mask_V)
        for document, values in compare(base, other, selected):
            rows.add(name, document, values)


def _control_pass(
    fact: Fact, name: str, reader: Reader, selected: frozenset[int], context: Context
) -> StoredPass:
    """A control's pass over some documents: one for all descendants of a base."""
    passes = context.workspace.passes
    read = _reading(fact, "base").key(context)
    key = key_of({"reading": read, "control": name, "documents": sorted(selected)})
    stored: StoredPass | None = passes.find(key)
    if stored is None:
        corpus, folder = encoded(fact.needs["corpus"], reader.tokenizer, context), context.scratch()
        started = time.monotonic()
        stored = StoredPass.run(reader, corpus, [PassRequest(selected, states=True)], folder)
        label = f"{fact.needs['base'].label}, {name}"
        report_pass(context, label, fact.needs["corpus"], stored.num_scored, started)
        context.workspace.bound_disk(folder)
        passes.put(key, stored)
    return stored


def _other_readers(reader: Reader) -> Iterable[tuple[str, Reader]]:
    yield ITSELF, reader
    model = reader.loaded.model
    if model.dtype == torch.float32:
        copied = copy_of(reader.loaded)
        copied.model.to(torch.bfloat16)
        yield HALF_PRECISION, replace(reader, loaded=copied)
        del copied
    other = _OTHER_ATTENTION.get(str(getattr(model.config, "_attn_implementation", "")))
    if other is not None:
        copied = copy_of(reader.loaded)
        try:
            copied.model.set_attn_implementation(other)
        except (ValueError, ImportError, NotImplementedError):
            return
        yield ATTENTION, replace(reader, loaded=copied)
