"""A callback of transformers' ``Trainer`` (so of TRL's trainers) that watches the loss on ordinary text.

Axes: D documents.
"""

from __future__ import annotations

import heapq
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from stemmatics.commands.score import sources_of
from stemmatics.core.corpora import Corpus
from stemmatics.core.errors import UserError
from stemmatics.core.keys import seed_from
from stemmatics.core.numerics import Numerics
from stemmatics.core.scoring import Scoring
from stemmatics.core.stemma import Source, Stemma
from stemmatics.lm.checkpoints.loading import Loaded, in_memory, load
from stemmatics.lm.scoring.compared import Comparison, Side, shared_mask
from stemmatics.lm.scoring.encoded import EncodedCorpus
from stemmatics.lm.scoring.passes import Reader
from stemmatics.lm.scoring.stored_pass import PassRequest, StoredPass
from stemmatics.lm.text.corpus import Document, read
from stemmatics.math.rates import paired_difference
from stemmatics.presets.files import to_yaml
from stemmatics.train.watching import Watcher

Floats = NDArray[np.float64]
# bytes of text that are read for each token that is scored: no tokenizer yields fewer tokens for long
_BYTES_PER_TOKEN = 16
_SEED = 0


@dataclass(frozen=True, eq=False)
class Sums:
    """Losses of one model on the sample, by document: nats, bytes and tokens."""

    nll_D: Floats
    num_bytes_D: Floats
    num_tokens_D: Floats


@dataclass(frozen=True)
class Watched:
    """One evaluation. ``values`` are what trackers get; NaN where a value is unknown."""

    step: int
    epoch: float | None
    seconds: float
    values: Mapping[str, float]


@dataclass(eq=False)
class _Reference:
    """The sample, and the base on it: its sums, and its head with the inputs unless it is no linear one."""

    documents: list[Document]
    sums: Sums
    token_ids_sha256: str
    reader: Reader
    side: Side | None


class StemmaCallback(Watcher):
    """Log how far the model in training is from a base on ordinary text, and keep the sums.

    Values, at each evaluation: ``stemma/loss_delta``, the paired difference of losses in nats/byte with its
    95% interval over documents (``stemma/loss_delta_lo``, ``stemma/loss_delta_hi``), and where both models
    see the same tokens ``stemma/kl`` (KL(base || model), nats/token) and ``stemma/same_top1``. They go to the
    trainer's trackers (TensorBoard, MLflow, Trackio, W&B), to ``state.log_history``, and to the folder
    ``out``: ``history.jsonl``, the sums of each evaluation as Parquet, and ``stemma.yaml``, which names the
    saved checkpoints: ``stemma run OUT/stemma.yaml`` makes the full report of them.

    Args:
        base: what the model is compared with, as ``stemma compare`` takes a checkpoint; None for the weights
            that training starts from.
        texts: files, folders or Hub datasets; a sample of their documents is scored.
        every: evaluate after so many updates. None: whenever all evaluations so far and the next ones take
            at most ``max_share`` of the time since training began. The last update is evaluated.
        max_share: share of the training time that evaluations may take where ``every`` is None.
        sample_tokens: about how many tokens are scored; documents are drawn by their content.
        max_doc_tokens: longer documents are cut.
        out: the folder; by default ``stemma`` in the trainer's output folder.

    Raises:
        UserError: the base or a text can't be read; parameters are spread over processes (ZeRO-3, FSDP).
    """

    def __init__(
        self,
        base: str | None,
        texts: str | Path | Sequence[str | Path],
        *,
        every: int | None = None,
        max_share: float = 0.02,
        sample_tokens: int = 8192,
        max_doc_tokens: int = 1024,
        out: str | Path | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        if every is not None and every < 1:
            raise UserError(f"every={every}", "it counts updates", "Give 1 or more, or None", code=2)
        if not 0 < max_share < 1:
            raise UserError(
                f"max_share={max_share}", "it is a share of the training time", "Give 0.02, say", code=2
            )
        self.base = base
        self.texts = [texts] if isinstance(texts, str | Path) else list(texts)
        self.corpora = sources_of(self.texts, {})
        self.every, self.max_share = every, max_share
        self.sample_tokens = sample_tokens
        self.scoring = Scoring(max_doc_tokens=max_doc_tokens)
        self.out = None if out is None else Path(out)
        self.history: list[Watched] = []
        self._clock = clock
        self._reference: _Reference | None = None
        self._started = self._seconds = 0.0

    @property
    def seconds(self) -> float:
        """What evaluations took, the base's included."""
        return self._seconds

    def begin(self, model: Any, tokenizer: Any, folder: Path) -> None:
        """Score the base on the sample."""
        self.out = self.out or folder / "stemma"
        self._started = self._clock()
        self._reference = self._score_base(in_memory(model, tokenizer))
        self._seconds = self._clock() - self._started

    def is_due(self, step: int) -> bool:
        """Whether ``every`` divides the step, or the time for evaluations allows one."""
        if self.every is not None:
            return step % self.every == 0
        # an evaluation costs about what the base's did; the last one has its share too
        expected = self.history[-1].seconds if self.history else self._seconds
        elapsed = self._clock() - self._started
        return self._seconds + 2 * expected <= self.max_share * elapsed

    def evaluate(self, model: Any, tokenizer: Any, step: int, epoch: float | None) -> Mapping[str, float]:
        """Score the model in training, compare, and write the sums."""
        if self._reference is None:
            raise UserError("The callback has no base", "training did not begin", "Give it to a trainer")
        started = self._clock()
        reader = self._reader(in_memory(model, tokenizer))
        corpus = EncodedCorpus(reader.tokenizer, self._reference.documents)
        stored = self._pass(reader, corpus)
        sums = _sums(stored, corpus, reader)
        divergence = self._divergence(reader, stored, corpus, self._reference)
        rng = np.random.default_rng(seed_from(_SEED, "callback"))
        values = _values(self._reference.sums, sums, divergence, rng)
        watched = Watched(step, epoch, self._clock() - started, values)
        self._seconds += watched.seconds
        self.history.append(watched)
        self._write(watched, self._reference, sums, divergence)
        return values

    def end(self, model: Any) -> None:
        """Write a study of the saved checkpoints."""
        self._write_stemma(model)

    def _score_base(self, in_training: Loaded) -> _Reference:
        if self.base is None:
            loaded = in_training
        else:
            loaded = load(self.base, Numerics(device=str(in_training.model.device)))
        reader = self._reader(loaded)
        documents = _sample(self.corpora, reader, self.sample_tokens, self.scoring.max_doc_tokens)
        corpus = EncodedCorpus(reader.tokenizer, documents)
        stored = self._pass(reader, corpus)
        mask_V = shared_mask(reader, self._reader(in_training))
        side = Side.of(reader, stored, lambda only: stored.documents(corpus, reader.prefix_id, only), mask_V)
        # neither the base's other weights stay in memory, nor the head that is in training
        without_model = replace(reader, loaded=replace(loaded, model=None))
        if side is not None:
            head = replace(side.head, weight=side.head.weight.detach().clone())
            side = replace(side, head=head, reader=without_model)
        sums = _sums(stored, corpus, reader)
        ids = corpus.counted(0).token_ids_sha256
        return _Reference(documents, sums, ids, without_model, side)

    def _reader(self, loaded: Loaded) -> Reader:
        return Reader.of(loaded, self.scoring, Numerics())

    def _pass(self, reader: Reader, corpus: EncodedCorpus) -> StoredPass:
        folder = (self.out or Path()) / "scratch"
        folder.mkdir(parents=True, exist_ok=True)
        return StoredPass.run(reader, corpus, [PassRequest(states=True)], folder)

    def _divergence(
        self, reader: Reader, stored: StoredPass, corpus: EncodedCorpus, reference: _Reference
    ) -> dict[str, Floats]:
        """Sums by document of KL(base || model) and of tokens with the same most likely id."""
        same_prefix = reader.prefix_id == reference.reader.prefix_id
        if reference.side is None or not same_prefix:
            return {}
        if corpus.counted(0).token_ids_sha256 != reference.token_ids_sha256:
            return {}
        mask_V = shared_mask(reference.reader, reader)
        side = Side.of(reader, stored, lambda only: stored.documents(corpus, reader.prefix_id, only), mask_V)
        if side is None:
            return {}
        columns = {name: np.zeros(len(reference.sums.nll_D)) for name in ("kl", "same_top1", "num_kl_tokens")}
        row_of = {document.index: row for row, document in enumerate(corpus.documents())}
        for document, values in Comparison(mask_V)(reference.side, side):
            row = row_of[document.tokens.index]
            columns["kl"][row] = values.kl.sum()
            columns["same_top1"][row] = values.same_top1.sum()
            columns["num_kl_tokens"][row] = len(values.kl)
        return columns

    def _write(
        self,
        watched: Watched,
        reference: _Reference,
        sums: Sums,
        divergence: Mapping[str, Floats],
    ) -> None:
        base, folder = reference.sums, self.out or Path()
        line = {"step": watched.step, "epoch": watched.epoch, "seconds": watched.seconds} | {
            name: value if math.isfinite(value) else None for name, value in watched.values.items()
        }
        (folder / "sums").mkdir(parents=True, exist_ok=True)
        table = {
            "doc_id": [document.doc_id for document in reference.documents],
            "base_nll_sum": base.nll_D,
            "nll_sum": sums.nll_D,
            "num_bytes": base.num_bytes_D.astype(np.int64),
            "num_tokens": sums.num_tokens_D.astype(np.int64),
            **divergence,
        }
        pq.write_table(pa.table(table), folder / "sums" / f"step-{watched.step}.parquet")
        with (folder / "history.jsonl").open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(line) + "\n")

    def _write_stemma(self, model: Any) -> None:
        """A study of the saved checkpoints; without a base on disk, or a saved checkpoint, there is none."""
        start = self.base or str(getattr(model.config, "_name_or_path", "") or "")
        if not start or not self.saved:
            return
        sources = {"base": Source(source=start, regime="base")} | {
            name: Source(
                source=f"{start}+{folder}" if (Path(folder) / "adapter_config.json").exists() else folder,
                base="base",
                regime="sft",
            )
            for name, folder in self.saved.items()
        }
        corpora = {f"text-{number}": corpus for number, corpus in enumerate(self.corpora, 1)}
        study = Stemma(
            name="training", checkpoints=sources, corpora=corpora, measures={"loss": {}, "divergence": {}}
        )
        ((self.out or Path()) / "stemma.yaml").write_text(to_yaml(study), encoding="utf-8")


def _values(
    base: Sums, sums: Sums, divergence: Mapping[str, Floats], rng: np.random.Generator
) -> dict[str, float]:
    """What trackers get; NaN where unknown."""
    delta = paired_difference(base.nll_D, sums.nll_D, base.num_bytes_D, rng=rng)
    values = {
        "stemma/loss_delta": delta.value,
        "stemma/loss_delta_lo": delta.lo,
        "stemma/loss_delta_hi": delta.hi,
    }
    num_tokens = float(divergence["num_kl_tokens"].sum()) if divergence else 0.0
    for name in ("kl", "same_top1"):
        values[f"stemma/{name}"] = float(divergence[name].sum()) / num_tokens if num_tokens else math.nan
    return values


def _sums(stored: StoredPass, corpus: EncodedCorpus, reader: Reader) -> Sums:
    rows = [(sums.nll_sum, sums.num_bytes, sums.num_tokens) for sums in stored.sums(corpus, reader.prefix_id)]
    nll_D, num_bytes_D, num_tokens_D = (
        np.array(column, dtype=np.float64) for column in zip(*rows, strict=True)
    )
    return Sums(nll_D, num_bytes_D, num_tokens_D)


def _sample(
    corpora: Sequence[Corpus], reader: Reader, num_tokens: int, max_doc_tokens: int | None
) -> list[Document]:
    """Documents in the order of their hashes, until they have so many tokens.

    The order follows from the texts alone, so every run on the same files draws the same.
    """
    sample: list[Document] = []
    total = 0
    for document in _by_hash(corpora, num_tokens * _BYTES_PER_TOKEN):
        if total >= num_tokens:
            break
        (encoded,) = EncodedCorpus(reader.tokenizer, [document]).documents()
        total += min(len(encoded.ids), max_doc_tokens or len(encoded.ids))
        sample.append(replace(document, index=len(sample)))
    return sample


def _by_hash(corpora: Sequence[Corpus], num_bytes: int) -> list[Document]:
    """The documents with the smallest hashes that have so many bytes; memory holds no more of them."""
    heap: list[tuple[int, int, Document]] = []
    total, number = 0, 0
    for corpus in corpora:
        for document in read(corpus):
            if not document.text:
                continue
            number += 1
            heapq.heappush(heap, (-seed_from(_SEED, document.doc_id), -number, document))
            total += len(document.text.encode())
            while len(heap) > 1 and total - len(heap[0][2].text.encode()) >= num_bytes:
                total -= len(heapq.heappop(heap)[2].text.encode())
    if not heap:
        raise UserError("the texts hold no document", "there is nothing to score", "Give a text with content")
    return [document for _, _, document in sorted(heap, key=lambda entry: entry[:2], reverse=True)]
