"""How a checkpoint's losses depend on batch size, padding, precision and attention back end.

The same documents are scored under each setting and compared with a reference: float32, eager
attention, one document at a time. Documents are truncated so that a pass takes a few seconds.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import torch

from stemmatics.core.corpora import Corpus
from stemmatics.core.errors import UserError
from stemmatics.core.numerics import Numerics
from stemmatics.core.scoring import Scoring
from stemmatics.lm.checkpoints.loading import load
from stemmatics.lm.checkpoints.pin import Pin, pin
from stemmatics.lm.scoring.encoded import tokenized
from stemmatics.lm.scoring.engine import Engine
from stemmatics.lm.scoring.forward import score
from stemmatics.lm.scoring.passes import Reader
from stemmatics.lm.scoring.spread_rows import Sample, Setting, Spread, advice, row_of
from stemmatics.lm.scoring.sums import DocumentSums, TokenizedDocument, add_up
from stemmatics.lm.text.corpus import Document, read, text_source

NUM_DOCUMENTS = 40
MIN_DOCUMENTS = 4
MIN_TOKENS, MAX_TOKENS = 16, 512
# The reference's share of the time; there are nine passes.
SECONDS_A_PASS = 4.0
# A setting slower than this many reference passes gets fewer documents.
SLOWEST = 3.0
BUDGETS = (1024, 8192)
PADS = (0, 1, 3)

Event = Callable[[Mapping[str, Any]], None]


def measure_spread(
    checkpoint: str,
    texts: Sequence[str] = (),
    *,
    device: str = "auto",
    trust_remote_code: bool = False,
    allow_pickle: bool = False,
    on_event: Event = lambda _event: None,
) -> Spread:
    """Score the first documents of ``texts`` under each setting, loading the model for each precision.

    Args:
        checkpoint: as ``stemma score`` takes it.
        texts: files, folders or Hub datasets; by default parts of Python's language reference.
        device: where to measure.
        trust_remote_code: run code that comes with the checkpoint.
        allow_pickle: read pickled weights.
        on_event: called for each finished setting.

    Raises:
        UserError: loading or reading fails, the texts have no token, or the reference's loss is NaN.
    """
    pinned = pin(checkpoint)
    allow = {"trust_remote_code": trust_remote_code, "allow_pickle": allow_pickle}
    reader = _reference(pinned, device, allow)
    reference = Setting("float32", _attention(reader), 1)
    sample = _sample(reader, texts)
    groups = _settings(reader, reference.attention)
    settings = [reference, *(setting for group in groups for setting in group)]
    rows: list[dict[str, Any]] = []

    def add(row: dict[str, Any]) -> None:
        rows.append(row)
        event = {"key": checkpoint, "probe": "spread", "label": row["setting"], "unit": "settings"}
        on_event({**event, "done": len(rows), "total": len(settings)})

    add(row_of(reference, sample, sample.sums, sample.tokens_per_second))
    for i, group in enumerate(groups):
        if i and not _switched(reader, group[0]):
            # The previous model is freed first: two may not fit.
            del reader
            reader = _reader(pinned, group[0], device, allow)
        for setting in group:
            add(_measured(reader, setting, sample))
    num_tokens = sum(row.num_tokens for row in sample.sums)
    size = f"{len(sample.documents)} documents, {num_tokens:,} tokens"
    description = f"{reference.name}; {size}, on {reader.loaded.model.device}"
    return Spread(rows, advice(settings, rows), description)


def _reference(pinned: Pin, device: str, allow: Mapping[str, bool]) -> Reader:
    """Eager attention, or the architecture's default if it has no eager one."""
    try:
        return _reader(pinned, Setting("float32", "eager", 1), device, allow)
    except UserError:
        return _reader(pinned, Setting("float32", "auto", 1), device, allow)


def _reader(pinned: Pin, setting: Setting, device: str, allow: Mapping[str, bool]) -> Reader:
    numerics = Numerics.model_validate(
        {"device": device, "dtype": setting.dtype, "attention": setting.attention}
    )
    return Reader.of(load(pinned, numerics, **allow), Scoring(), numerics)


def _switched(reader: Reader, setting: Setting) -> bool:
    """Whether the loaded model can be switched to a setting: another attention needs no new load."""
    if setting.dtype != "float32":
        return False
    reader.loaded.model.set_attn_implementation(setting.attention)
    return _attention(reader) == setting.attention


def _attention(reader: Reader) -> str:
    return str(getattr(reader.loaded.model.config, "_attn_implementation", None) or "auto")


def _settings(reader: Reader, attention: str) -> list[list[Setting]]:
    """The settings by load; the first list is for the loaded model."""
    first = [Setting("float32", attention, budget) for budget in BUDGETS]
    first += [Setting("float32", attention, 1, num_pads) for num_pads in PADS]
    groups = [first]
    best = attention
    if attention == "eager" and getattr(reader.loaded.model, "_supports_sdpa", False):
        best = "sdpa"
        groups.append([Setting("float32", best, BUDGETS[-1])])
    groups += [
        [Setting(name, best, BUDGETS[-1])]
        for name in ("bfloat16", "float16")
        if _runs(getattr(torch, name), reader.loaded.model.device)
    ]
    return groups


def _runs(dtype: torch.dtype, device: torch.device) -> bool:
    try:
        matrix_22 = torch.ones(2, 2, dtype=dtype, device=device)
        (matrix_22 @ matrix_22).softmax(-1)
    except (RuntimeError, TypeError):
        return False
    return True


def _documents(texts: Sequence[str]) -> Iterator[Document]:
    params = {"part": "training", "documents": NUM_DOCUMENTS}
    default = [Corpus.model_validate({"generator": "python", "params": params})]
    for corpus in [text_source(text) for text in texts] or default:
        yield from read(corpus)


def _sample(reader: Reader, texts: Sequence[str]) -> Sample:
    """The first documents, truncated so that the reference takes about ``SECONDS_A_PASS``."""
    stream = islice(tokenized(reader.tokenizer, _documents(texts), reader.prefix_id), NUM_DOCUMENTS)
    # Leave room for the padding of a neighbour.
    room = min(MAX_TOKENS, reader.context_length - max(PADS))
    # Without a prefix a single token has no loss.
    documents = [
        document.first_tokens(room) for document in stream if len(document.ids) > (reader.prefix_id is None)
    ]
    if not documents:
        raise UserError(
            "the texts have no token to score",
            "all documents are empty or have one token",
            "give other texts with --text",
            code=2,
        )
    longest = max(documents, key=lambda document: len(document.ids))
    _pass(reader, [longest], 1)  # the first pass pays for memory and caches
    _, rate = _pass(reader, [longest], 1)
    affordable = int(rate * SECONDS_A_PASS)
    documents = documents[: max(MIN_DOCUMENTS, affordable // (2 * MIN_TOKENS))]
    limit = max(MIN_TOKENS, affordable // len(documents))
    documents = [document.first_tokens(limit) for document in documents]
    sums, rate = _pass(reader, documents, 1)
    if any("non_finite" in row.flags for row in sums):
        raise UserError(
            "the loss is NaN even in float32 and one document at a time",
            "there is no reference for the other settings",
            "check the weights: `stemma check` and `stemma score` name what is unusual",
        )
    return Sample(documents, sums, rate)


def _pass(
    reader: Reader, documents: Sequence[TokenizedDocument], token_budget: int
) -> tuple[list[DocumentSums], float]:
    """Sums and scored tokens per second, without the engine's preparation."""
    started = time.perf_counter()

    def stream() -> Iterator[TokenizedDocument]:
        nonlocal started
        started = time.perf_counter()
        yield from documents

    numerics = reader.numerics.model_copy(update={"token_budget": token_budget})
    sums = list(
        score(
            reader.loaded.model,
            stream(),
            reader.scoring,
            numerics,
            prefix_id=reader.prefix_id,
            context_length=reader.context_length,
        )
    )
    return sums, _rate(sums, started)


def _rate(sums: Sequence[DocumentSums], started: float) -> float:
    return sum(row.num_tokens for row in sums) / max(time.perf_counter() - started, 1e-9)


def _padded_pass(
    reader: Reader, documents: Sequence[TokenizedDocument], num_pads: int
) -> tuple[list[DocumentSums], float]:
    """Each document beside a copy that is ``num_pads`` tokens longer, so that it is padded by as many."""
    engine = Engine(
        reader.loaded.model,
        reader.cutter(),
        scoring=reader.scoring,
        token_budget=reader.numerics.token_budget,
        prefix_id=reader.prefix_id,
        support_V=None,
        want=frozenset({"nll"}),
        on_event=lambda _event: None,
    )
    sums = []
    started = time.perf_counter()
    for document in documents:
        engine.score([list(engine.rows([_longer(document, num_pads), document]))])
        engine.pending.popleft()
        sums.append(add_up(engine.pending.popleft().scores()))
    return sums, 2 * _rate(sums, started)


def _longer(document: TokenizedDocument, num_tokens: int) -> TokenizedDocument:
    """The document with its first token repeated at the end."""
    names = ("ids", "starts", "ends", "classes")
    columns = {name: getattr(document, name) for name in names}
    more = {
        name: np.concatenate([column, np.repeat(column[:1], num_tokens)]) for name, column in columns.items()
    }
    return replace(document, **more)


def _measured(reader: Reader, setting: Setting, sample: Sample) -> dict[str, Any]:
    documents = sample.documents
    try:
        if setting.num_pads is not None:
            sums, rate = _padded_pass(reader, documents, setting.num_pads)
        else:
            _pass(reader, documents[:1], 1)  # pays for memory and caches
            _, rate = _pass(reader, documents[:1], 1)
            share = SLOWEST * rate / sample.tokens_per_second
            documents = documents[: max(MIN_DOCUMENTS, int(share * len(documents)))]
            sums, rate = _pass(reader, documents, setting.token_budget)
    except RuntimeError as error:
        if "not implemented" not in str(error):
            raise
        sums, rate = [], math.nan
    return row_of(setting, sample, sums, rate)
