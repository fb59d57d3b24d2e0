"""Facts about the loss of a corpus under a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from stemmatics.core.facts import Fact
from stemmatics.core.numerics import Numerics
from stemmatics.core.scoring import Scoring
from stemmatics.facts.score import SCORE
from stemmatics.lm.checkpoints.loading import Loaded
from stemmatics.lm.scoring.deviation import deviation, first_sums, float32_sums
from stemmatics.lm.scoring.encoded import Counted
from stemmatics.lm.scoring.passes import Reader
from stemmatics.lm.scoring.stored_pass import PassRequest
from stemmatics.lm.scoring.sums import DocumentSums
from stemmatics.lm.tokens.tokenizer import shared_support
from stemmatics.probe.base import Context, Cost, FactOutput, Failed, each
from stemmatics.probe.costs import forward_cost, num_tokens
from stemmatics.probe.passes import Reading, pass_over
from stemmatics.probe.sources import (
    documents_of,
    encoded,
    load_alone,
    load_checkpoint,
    text_tokenizer_of,
)

# rows of sums kept in Python before they become Arrow columns
_CHUNK = 4096


class Score:
    """Per-document sums; checkpoints are loaded once for all their corpora."""

    def group(self, fact: Fact) -> str:
        """One load a checkpoint."""
        return fact.needs["checkpoint"].key

    def cost(self, fact: Fact) -> Cost:
        """The corpus through the checkpoint once; about 2 kB of sums a document."""
        corpus = fact.needs["corpus"]
        disk = 2000 * int(corpus.params["num_documents"])
        return forward_cost(fact.needs["checkpoint"], num_tokens(corpus), disk)

    def reading(self, fact: Fact) -> Reading:
        """Losses of all documents; on a shared support also the share outside it."""
        return Reading(
            fact.needs["checkpoint"],
            fact.needs["corpus"],
            Scoring.model_validate(fact.params["scoring"]),
            lambda reader, context: PassRequest(support_V=_support(fact, reader, context)),
        )

    def run(self, facts: Sequence[Fact], context: Context) -> Iterator[FactOutput | Failed]:
        """Sums of every document, split by token class, position and frequency."""
        exact = _float32_sums(facts, context)
        yield from each(facts, lambda fact: self._score(fact, context, exact))

    def _score(
        self, fact: Fact, context: Context, exact: Mapping[str, list[DocumentSums]]
    ) -> FactOutput | Failed:
        reading = self.reading(fact)
        reader = reading.reader(context)
        if reader.scoring.support == "shared":
            partner = text_tokenizer_of(fact.needs["partner"], context).prefix(reader.scoring.prefix)[0]
            if partner != reader.prefix_id:
                return Failed(
                    fact,
                    f"its prefix id {reader.prefix_id} differs from its partner's {partner}: "
                    "they can't be compared by token",
                )
        counted = encoded(fact.needs["corpus"], reader.tokenizer, context).counted(reader.loaded.num_ids)
        passed = pass_over(reading, context, on_event=progress(fact, context, counted))
        rows = _Rows()
        support_V = _support(fact, reader, context)
        for sums in passed.sums(frequencies_V=counted.frequencies_V, support_V=support_V):
            rows.add(sums)
        if rows.not_finite:
            return Failed(
                fact,
                f"the loss of {len(rows.not_finite)} documents is not finite (first: index "
                f"{rows.not_finite[0]}); float32 may help: `numerics: {{dtype: float32}}`",
            )
        moved = None
        if fact.key in exact:
            moved = deviation(first_sums(reader, documents_of(fact.needs["corpus"])()), exact[fact.key])
        tables = {**rows.tables(), "scoring": _scoring_row(reader, counted, moved)}
        return FactOutput(fact, tables, {"flags": reader.loaded.flags})


def _float32_sums(facts: Sequence[Fact], context: Context) -> dict[str, list[DocumentSums]]:
    """The first documents' sums in float32, by fact, from one load that is released before the other."""

    @cache
    def loaded(numerics: Numerics) -> Loaded:
        return load_alone(facts[0].needs["checkpoint"], replace(context, numerics=numerics))

    def reader_of(fact: Fact, numerics: Numerics) -> Reader:
        return Reader.of(loaded(numerics), Scoring.model_validate(fact.params["scoring"]), numerics)

    sums_by_key = {
        fact.key: float32_sums(
            lambda numerics, fact=fact: reader_of(fact, numerics),
            lambda _reader, fact=fact: documents_of(fact.needs["corpus"])(),
            context.numerics,
            on_event=lambda event, fact=fact: _forward(fact, context, event),
        )
        for fact in facts
    }
    return {key: sums for key, sums in sums_by_key.items() if sums is not None}


def progress(fact: Fact, context: Context, counted: Counted) -> Callable[[Mapping[str, Any]], None]:
    """Hands on what happens in a pass, with the fact that it is made for."""

    def forward(event: Mapping[str, Any]) -> None:
        if event.get("kind") == "progress":
            context.report(fact, int(event["done"]), counted.num_tokens, "tokens")
        else:
            _forward(fact, context, event)

    return forward


def _forward(fact: Fact, context: Context, event: Mapping[str, Any]) -> None:
    context.on_event({"key": fact.key, "probe": fact.probe, "label": fact.label, **event})


def _support(fact: Fact, reader: Reader, context: Context) -> NDArray[np.bool_] | None:
    """The support shared with the partner; None for all ids."""
    if reader.scoring.support == "full":
        return None
    other = load_checkpoint(fact.needs["partner"], context)
    tokenizer = text_tokenizer_of(fact.needs["partner"], context)
    shared = shared_support(reader.tokenizer, tokenizer, reader.loaded.num_ids, other.num_ids)
    return shared.mask[: reader.loaded.num_ids]


def _scoring_row(reader: Reader, counted: Counted, moved: float | None) -> pa.Table:
    cutter = reader.cutter()
    config = reader.loaded.model.config
    row = {
        "token_ids_sha256": counted.token_ids_sha256,
        "tokenizer": reader.tokenizer.fingerprint,
        "prefix_id": reader.prefix_id,
        "prefix": reader.prefix,
        "window_size": cutter.size,
        "window_stride": cutter.stride,
        "dtype": str(reader.loaded.model.dtype).removeprefix("torch."),
        "device": str(reader.loaded.model.device),
        "attention": str(getattr(config, "_attn_implementation", "")),
        "num_ids": reader.loaded.num_ids,
        "dtype_deviation": moved,
    }
    return SCORE.table("scoring", [row])


class _Rows:
    """Sums on their way into Arrow: a bounded number of Python rows at a time."""

    def __init__(self) -> None:
        self.not_finite: list[int] = []
        self._pending: dict[str, list[dict[str, Any]]] = {"scores": [], "score_parts": []}
        self._done: dict[str, list[pa.Table]] = {"scores": [], "score_parts": []}

    def add(self, sums: DocumentSums) -> None:
        if "non_finite" in sums.flags:
            self.not_finite.append(sums.index)
        self._pending["scores"].append(score_row(sums))
        self._pending["score_parts"] += [{"index": sums.index, **part._asdict()} for part in sums.parts]
        if len(self._pending["scores"]) >= _CHUNK:
            self._flush()

    def _flush(self) -> None:
        for name, rows in self._pending.items():
            self._done[name].append(SCORE.table(name, rows))
            rows.clear()

    def tables(self) -> dict[str, pa.Table]:
        self._flush()
        return {name: pa.concat_tables(parts) for name, parts in self._done.items()}


def score_row(sums: DocumentSums) -> dict[str, Any]:
    """A document's row of ``scores``."""
    return {
        "index": sums.index,
        "doc_id": sums.doc_id,
        "nll_sum": sums.nll_sum,
        "num_tokens": sums.num_tokens,
        "num_bytes": sums.num_bytes,
        "excluded_nll_sum": sums.excluded_nll_sum,
        "num_outside_support": sums.num_outside_support,
        "flags": sorted(sums.flags),
    }
