"""Score texts with one checkpoint, without a run folder."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stemmatics.core.corpora import Corpus
from stemmatics.core.errors import UserError
from stemmatics.core.extras import require
from stemmatics.core.numerics import Numerics
from stemmatics.core.scoring import Scoring


@dataclass(frozen=True)
class Scored:
    """Sums by document and their ratios, with the settings of the scoring. An unknown rate is NaN."""

    checkpoint: str
    documents: list[dict[str, Any]]
    scoring: Mapping[str, Any]
    flags: Mapping[str, str] = field(default_factory=dict)

    def total(self, name: str) -> float:
        """The sum of a column; NaN if a document's loss is not finite."""
        return math.fsum(row[name] for row in self.documents)

    @property
    def nats_per_byte(self) -> float:
        """Sum of nats over sum of bytes."""
        return _ratio(self.total("nll_sum"), self.total("num_bytes"))

    @property
    def nats_per_token(self) -> float:
        """Sum of nats over sum of scored tokens."""
        return _ratio(self.total("nll_sum"), self.total("num_tokens"))

    @property
    def not_finite(self) -> list[int]:
        """Indices of documents whose loss is not finite."""
        return [row["index"] for row in self.documents if not math.isfinite(row["nll_sum"])]

    def to_json(self) -> dict[str, Any]:
        """The object that ``stemma score --json`` prints."""
        return {
            "checkpoint": self.checkpoint,
            "nats_per_byte": self.nats_per_byte,
            "nats_per_token": self.nats_per_token,
            "num_tokens": int(self.total("num_tokens")),
            "num_bytes": int(self.total("num_bytes")),
            "num_documents": len(self.documents),
            "scoring": dict(self.scoring),
            "flags": dict(self.flags),
            "documents": self.documents,
        }


def _ratio(numerator: float, denominator: float) -> float:
    return numerator / denominator if denominator else math.nan


def sources_of(texts: Sequence[str | Path], settings: Mapping[str, Any]) -> list[Corpus]:
    """Each text as a corpus. Raises UserError if there is none."""
    from stemmatics.lm.text.corpus import text_source

    if not texts:
        raise UserError(
            "no text is given", "there is nothing to score", "Name a file, a folder or a dataset", code=2
        )
    return [text_source(str(text), **settings) for text in texts]


def score(
    checkpoint: str,
    *texts: str | Path,
    scoring: Scoring | None = None,
    numerics: Numerics | None = None,
    source: Mapping[str, Any] | None = None,
    tokens: Path | None = None,
    errors: str = "refuse",
    trust_remote_code: bool = False,
    allow_pickle: bool = False,
    on_event: Callable[[Mapping[str, Any]], None] = lambda _event: None,
) -> Scored:
    """Sums by document of one checkpoint on texts: in input order, duplicates and empty documents kept.

    Args:
        checkpoint: ``org/name[@revision]``, a folder, ``file.gguf`` or ``BASE+ADAPTER``.
        texts: files, folders or Hub datasets.
        scoring: windows, prefix, support, length limit; the defaults score everything with full support.
        numerics: device, precision, batches.
        source: settings of the corpora, such as ``field`` and ``register``.
        tokens: a Parquet file for the per-token table. It contains the text: keep it private.
        errors: what to do with invalid UTF-8: ``replace`` it and flag the document, or ``refuse`` the text.
        trust_remote_code: run code that comes with the checkpoint.
        allow_pickle: read pickled weights.
        on_event: listens to progress.

    Raises:
        UserError: a text or checkpoint can't be read, or settings contradict one another.
    """
    require("lm", "scoring")
    from stemmatics.lm.checkpoints.loading import load
    from stemmatics.lm.scoring.deviation import deviation, first_sums, float32_sums
    from stemmatics.lm.scoring.passes import Reader
    from stemmatics.probe.worker import prepare_torch

    scoring, numerics = scoring or Scoring(), numerics or Numerics()
    corpora = sources_of(texts, source or {})
    prepare_torch(numerics)

    def reader_of(numerics: Numerics) -> Reader:
        loaded = load(checkpoint, numerics, trust_remote_code=trust_remote_code, allow_pickle=allow_pickle)
        return Reader.of(loaded, scoring, numerics)

    def documents(reader: Reader) -> Iterator[Any]:
        return _chained(corpora, errors, reader.loaded.tokenizer)

    def forward(event: Mapping[str, Any]) -> None:
        on_event({"key": checkpoint, "probe": "score", "label": checkpoint, "unit": "tokens", **event})

    exact = float32_sums(reader_of, documents, numerics, on_event=forward)
    reader = reader_of(numerics)
    corpus = reader.encode(documents(reader))
    counted = corpus.counted(reader.loaded.num_ids)
    settings = _settings(reader, counted)
    if exact is not None:
        settings["dtype_deviation"] = deviation(first_sums(reader, documents(reader)), exact)
    rows = _rows(reader, corpus, counted, tokens, forward)
    return Scored(checkpoint, rows, settings, reader.loaded.flags)


def _rows(
    reader: Any, corpus: Any, counted: Any, tokens: Path | None, on_event: Callable[[Any], None]
) -> list[dict[str, Any]]:
    from stemmatics.lm.scoring.token_table import TokenTable

    with TokenTable.maybe(tokens) as table:
        sums = reader.score_tokens(
            corpus.documents(reader.prefix_id),
            frequencies_V=counted.frequencies_V,
            want=("nll",) if tokens is None else ("nll", "entropy", "top_1"),
            token_sink=table,
            on_event=lambda event: on_event({**event, "total": counted.num_tokens}),
        )
        return [_row(document) for document in sums]


def _settings(reader: Any, counted: Any) -> dict[str, Any]:
    """What the numbers were computed with; ``dtype_deviation`` is None for float32 and if unknown."""
    cutter, model = reader.cutter(), reader.loaded.model
    return {
        "prefix_id": reader.prefix_id,
        "prefix": reader.prefix,
        "window_size": cutter.size,
        "window_stride": cutter.stride,
        "window_rule": cutter.rule,
        "support": reader.scoring.support,
        "max_doc_tokens": reader.scoring.max_doc_tokens,
        "dtype": str(model.dtype).removeprefix("torch."),
        "dtype_deviation": None,
        "device": str(model.device),
        "token_ids_sha256": counted.token_ids_sha256,
    }


def _chained(corpora: Sequence[Corpus], errors: str, tokenizer: Any) -> Iterator[Any]:
    """The documents of all sources, numbered in one sequence."""
    from dataclasses import replace

    from stemmatics.lm.text.corpus import read

    def own_template(messages: Sequence[dict[str, Any]], add_generation_prompt: bool) -> str:
        # the tokenizer's own method supplies the special tokens (BOS, end of turn) that templates refer to
        return str(
            tokenizer.apply_chat_template(
                list(messages), tokenize=False, add_generation_prompt=add_generation_prompt
            )
        )

    special = {name: token for name, token in tokenizer.special_tokens_map.items() if isinstance(token, str)}
    template = own_template if getattr(tokenizer, "chat_template", None) else None
    index = 0
    for corpus in corpora:
        documents = read(
            corpus,
            errors="replace" if errors == "replace" else "refuse",
            own_template=template,
            special_tokens=special,
        )
        for document in documents:
            yield replace(document, index=index)
            index += 1


def _row(sums: Any) -> dict[str, Any]:
    return {
        "index": sums.index,
        "doc_id": sums.doc_id,
        "nll_sum": sums.nll_sum,
        "num_tokens": sums.num_tokens,
        "num_bytes": sums.num_bytes,
        "flags": sorted(sums.flags),
    }
