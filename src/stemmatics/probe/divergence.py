"""Facts about how far apart two models' predictions are: both heads over the same positions, with floors.

Axes: T tokens of one document, N positions, V vocabulary.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from stemmatics.core.facts import Fact
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
from stemmatics.lm.scoring.divergence import TokenDivergence, divergence_of, rows_of_block
from stemmatics.lm.scoring.head import LinearHead
from stemmatics.lm.scoring.head_damage import damaged, head_noise, match
from stemmatics.lm.scoring.head_pass import Positions, restricted
from stemmatics.lm.scoring.head_states import States
from stemmatics.lm.scoring.passes import Reader
from stemmatics.lm.scoring.stored_pass import PassRequest, StoredDocument, StoredPass
from stemmatics.lm.scoring.structure import structure_of
from stemmatics.lm.tokens.tokenizer import shared_support
from stemmatics.probe.base import Context, Cost, FactOutput, Failed, each
from stemmatics.probe.costs import forward_cost, num_tokens
from stemmatics.probe.divergence_rows import Document, Rows
from stemmatics.probe.pairs import copy_of, pair_key
from stemmatics.probe.passes import CorpusPass, Reading, Refused, pass_over, report_pass
from stemmatics.probe.score import progress
from stemmatics.probe.sources import encoded

# tokens whose values are held at once
_BATCH_TOKENS = 1 << 15
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


@dataclass(frozen=True, eq=False)
class _Side:
    """A model's head on the shared support, and the inputs of it that a pass has kept."""

    reader: Reader
    head: LinearHead
    stored: StoredPass
    documents: Callable[[frozenset[int] | None], Iterator[StoredDocument]]

    @property
    def states(self) -> States:
        """Head inputs of all scored tokens."""
        return self.stored.states()


def _measured(fact: Fact, context: Context) -> FactOutput:
    reading_of = {role: _reading(fact, role) for role in ("base", "descendant")}
    readers = {role: reading.reader(context) for role, reading in reading_of.items()}
    _refuse_other_tokens(fact, readers, context)
    mask_V = _shared_mask(*readers.values())
    ids_S = np.flatnonzero(mask_V).astype(np.int64)
    counted = encoded(fact.needs["corpus"], readers["base"].tokenizer, context).counted(0)
    on_event = progress(fact, context, counted)
    sides = {
        role: _side(readers[role], pass_over(reading, context, on_event=on_event), ids_S)
        for role, reading in reading_of.items()
    }
    base, descendant = sides["base"], sides["descendant"]
    compare = _Comparison(mask_V)
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
            "num_support": len(ids_S),
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


def _shared_mask(base: Reader, descendant: Reader) -> NDArray[np.bool_]:
    sizes = base.loaded.num_ids, descendant.loaded.num_ids
    return shared_support(base.tokenizer, descendant.tokenizer, *sizes).mask


def _head_of(reader: Reader) -> LinearHead:
    cutter = reader.cutter()
    head = structure_of(reader.loaded.model, cutter.context_length, cutter.size).head
    if head is None:
        message = "a model's logits are not a linear head of its states with a scale and a soft cap"
        raise Refused(message)
    return head


def _side(reader: Reader, passed: CorpusPass, ids_S: NDArray[np.int64]) -> _Side:
    return _Side(reader, restricted(_head_of(reader), ids_S), passed.stored, passed.documents)


class _Comparison:
    """Two sides' values by document, in batches of documents: memory does not grow with the corpus."""

    def __init__(self, mask_V: NDArray[np.bool_]) -> None:
        self.mask_V = mask_V
        self.compact_V = np.cumsum(mask_V) - 1

    def __call__(
        self, base: _Side, descendant: _Side, only: frozenset[int] | None = None
    ) -> Iterator[tuple[Document, TokenDivergence]]:
        """Documents in order, without those that have no scored token on the support."""
        batch: list[tuple[Document, NDArray[np.int64], NDArray[np.int64]]] = []
        size = 0
        for first, second in zip(base.documents(only), descendant.documents(only), strict=True):
            document = self.document(first)
            inside = np.flatnonzero(document.inside_T[document.scored_T])
            batch.append((document, first.first_state + inside, second.first_state + inside))
            size += len(inside)
            if size >= _BATCH_TOKENS:
                yield from self._values(batch, base, descendant)
                batch, size = [], 0
        yield from self._values(batch, base, descendant)

    def document(self, stored: StoredDocument) -> Document:
        """A document with the tokens that count."""
        scores = stored.scores
        inside_T = scores.scored & self.mask_V[scores.document.ids]
        return Document(scores.document, scores.scored, inside_T)

    def _values(
        self, batch: Sequence[tuple[Document, Any, Any]], base: _Side, descendant: _Side
    ) -> Iterator[tuple[Document, TokenDivergence]]:
        if not any(len(rows) for _, rows, _ in batch):
            return
        target_N = np.concatenate([self.targets(document) for document, _, _ in batch])
        base_rows, descendant_rows = (np.concatenate([rows[side] for _, *rows in batch]) for side in (0, 1))
        values = divergence_of(
            _logits(base.head, base.states.take(base_rows)),
            _logits(descendant.head, descendant.states.take(descendant_rows)),
            torch.from_numpy(target_N),
            block=rows_of_block(base.head.num_ids, base.head.weight.device),
        )
        start = 0
        for document, rows, _ in batch:
            part = slice(start, start + len(rows))
            start = part.stop
            if len(rows):
                yield document, values.at(part)

    def targets(self, document: Document) -> NDArray[np.int64]:
        """Columns of the scored tokens on the support."""
        columns: NDArray[np.int64] = self.compact_V[document.tokens.ids[document.inside_T]].astype(np.int64)
        return columns


def _logits(head: LinearHead, states: States) -> Callable[[int, int], torch.Tensor]:
    return lambda start, stop: head.logits(states.rows(start, stop)).float()


def _spread(side: _Side, at_most: int) -> frozenset[int]:
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
    fact: Fact, base: _Side, descendant: _Side, compare: _Comparison, rows: Rows
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


def _positions(compare: _Comparison, base: _Side, selected: frozenset[int]) -> Positions:
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


def _controls(fact: Fact, base: _Side, compare: _Comparison, rows: Rows, context: Context) -> None:
    """The base with itself: read again, in half precision, under the other implementation of attention."""
    at_most = int(fact.params["control_tokens"])
    selected = _spread(base, at_most) if at_most else frozenset()
    if not selected:
        return
    corpus = encoded(fact.needs["corpus"], base.reader.tokenizer, context)
    for name, reader in _other_readers(base.reader):
        started = time.monotonic()
        stored = StoredPass.run(reader, corpus, [PassRequest(selected, states=True)], context.scratch())
        label = f"{fact.needs['base'].label}, {name}"
        report_pass(context, label, fact.needs["corpus"], stored.num_scored, started)
        ids_S = np.flatnonzero(compare.mask_V).astype(np.int64)
        other = _side(reader, CorpusPass(reader, corpus, stored), ids_S)
        for document, values in compare(base, other, selected):
            rows.add(name, document, values)


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
