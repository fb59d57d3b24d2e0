"""From facts to what they stand for: checkpoints in memory, documents, training records."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from stemmatics.core.corpora import Corpus
from stemmatics.core.errors import UserError
from stemmatics.core.facts import Fact
from stemmatics.core.stemma import Source
from stemmatics.facts.train import is_recovery
from stemmatics.lm.checkpoints.loading import Loaded, device_of, load, load_tokenizer
from stemmatics.lm.checkpoints.memory import available_bytes
from stemmatics.lm.checkpoints.pin import CheckpointSpec, Pin, parse, pin
from stemmatics.lm.scoring.encoded import EncodedCorpus
from stemmatics.lm.text.corpus import Document, read, records
from stemmatics.lm.tokens.tokenizer import TextTokenizer
from stemmatics.probe.base import Context
from stemmatics.probe.workspace import TEXT_BYTES, Resident

# what names a checkpoint, of all that is said about one
_NAMING = ("source", "revision", "weights")


def put_on(base: Pin, folder: Path) -> Pin:
    """The pin of the adapter in ``folder`` on ``base``; of a whole checkpoint, the folder's own."""
    if not (folder / "adapter_config.json").is_file():
        return pin(str(folder))
    spec = CheckpointSpec(
        kind="adapter", name=str(folder), base=parse(base.source), adapter=parse(str(folder))
    )
    return pin(spec)


def pin_of(fact: Fact, context: Context) -> Pin:
    """Where a checkpoint lies now, with its content checked against the fact.

    Raises UserError where the files are not those that were pinned.
    """
    if fact.probe != "weights":
        folder = context.artifact_path(fact)
        pinned = (
            put_on(pin_of(fact.needs["init"], context), folder) if is_recovery(fact) else pin(str(folder))
        )
        expected = (context.cache.record(fact.key) or {}).get("pin")
        if pinned.key() != expected:
            raise UserError(
                f"the checkpoint {fact.label!r} in the cache is not the one that was made",
                f"the files in {folder} have changed",
                "Clear it with `stemma cache --clear` and run the study again",
            )
        return pinned
    pinned = pin(spec_of(fact))
    if pinned.key() != dict(fact.params):
        raise UserError(
            f"{spec_of(fact)} has changed since it was pinned",
            "its files have other hashes",
            "Start the study again: the new weights are another checkpoint",
        )
    return pinned


def spec_of(fact: Fact) -> str:
    """How a given checkpoint is called."""
    return Source.model_validate({name: fact.where[name] for name in _NAMING if name in fact.where}).spec


def load_checkpoint(fact: Fact, context: Context) -> Loaded:
    """A checkpoint in memory, kept there for facts to come. It must not be changed."""
    # an arm's adapters are added to the weights: the same sums in less time
    return _resident(fact, context, merge=is_recovery(fact))


def load_merged(fact: Fact, context: Context) -> Loaded:
    """A checkpoint with an adapter's weights merged into its layers, kept too. It must not be changed."""
    return _resident(fact, context, merge=True)


def load_alone(fact: Fact, context: Context) -> Loaded:
    """A checkpoint that is not kept: the caller is its only holder."""
    return _load(fact, context, merge=is_recovery(fact))


def _resident(fact: Fact, context: Context, *, merge: bool) -> Loaded:
    return resident(
        model_key(fact, context, merge=merge),
        context,
        lambda: _load(fact, context, merge=merge),
        expected_bytes=lambda: _expected_bytes(fact),
    )


def resident(
    key: Hashable, context: Context, make: Callable[[], Loaded], *, expected_bytes: Callable[[], int]
) -> Loaded:
    """The checkpoint that is kept under a key; made, and kept, where there is none."""
    models = context.workspace.models
    resident = models.find(key)
    if resident is None:
        if len(models):
            models.make_room(expected_bytes())
        loaded = make()
        resident = models.put(key, Resident(loaded, loaded.num_bytes))
    loaded_model: Loaded = resident.loaded
    return loaded_model


def model_key(fact: Fact, context: Context, *, merge: bool) -> tuple[Any, ...]:
    """Equal for loads that give the same model: without an adapter there is nothing to merge."""
    merged = merge or not _is_adapted(fact, context)
    return (fact.key, merged, *context.numerics.key().values())


def _is_adapted(fact: Fact, context: Context) -> bool:
    """Whether a given checkpoint is an adapter on a base."""
    known = context.workspace.adapted
    if fact.key not in known:
        known[fact.key] = fact.probe == "weights" and bool(pin_of(fact, context).parts)
    return known[fact.key]


def _expected_bytes(fact: Fact) -> int:
    """What a checkpoint will take, in float32; 0 where its shape is not known before it is loaded."""
    from stemmatics.probe.costs import num_parameters

    try:
        return num_parameters(fact) * torch.float32.itemsize
    except Exception:  # noqa: BLE001 - what is wrong with a checkpoint shows when it is loaded
        return 0


def _load(fact: Fact, context: Context, *, merge: bool) -> Loaded:
    allowed = {name: bool(fact.where.get(name)) for name in ("trust_remote_code", "allow_pickle")}
    device = device_of(context.numerics)
    context.workspace.bound_models(lambda: available_bytes(device), context.numerics.workers)
    started = time.monotonic()
    loaded = load(pin_of(fact, context), context.numerics, merge_adapter=merge, **allowed)
    context.on_event({"kind": "load", "label": fact.label, "spent": time.monotonic() - started})
    return loaded


def text_tokenizer_of(fact: Fact, context: Context) -> TextTokenizer:
    """A checkpoint's tokenizer alone, as it is used on text."""
    known = context.workspace.tokenizers
    if fact.key not in known:
        resident = context.workspace.models.find(model_key(fact, context, merge=is_recovery(fact)))
        known[fact.key] = (
            resident.loaded.text_tokenizer if resident is not None else _tokenizer(fact, context)
        )
    tokenizer: TextTokenizer = known[fact.key]
    return tokenizer


def _tokenizer(fact: Fact, context: Context) -> TextTokenizer:
    trust = bool(fact.where.get("trust_remote_code"))
    return TextTokenizer(load_tokenizer(pin_of(fact, context), trust_remote_code=trust)[0])


def encoded(corpus: Fact, tokenizer: TextTokenizer, context: Context) -> EncodedCorpus:
    """A corpus in the tokens of a tokenizer: read and tokenised once a worker."""
    texts = context.workspace.texts
    key = (corpus.key, *tokenizer.identity)
    text = texts.find(key)
    if text is None:
        started = time.monotonic()
        folder = context.scratch()
        text = EncodedCorpus(tokenizer, read(corpus_of(corpus)), folder=folder)
        spent = time.monotonic() - started
        context.on_event(
            {"kind": "tokenize", "label": corpus.label, "num_tokens": text.num_tokens, "spent": spent}
        )
        context.workspace.bound_disk(folder)
        texts.put(key, text)
        _spill(texts.values())
    return text


def _spill(texts: Iterable[EncodedCorpus]) -> None:
    """Leave in memory what was used last."""
    remaining = TEXT_BYTES
    for text in reversed(list(texts)):
        remaining -= text.memory_bytes
        if remaining < 0 and text.memory_bytes:
            text.spill()


def corpus_of(fact: Fact) -> Corpus:
    """The declaration behind a ``corpus`` fact."""
    return Corpus.model_validate(dict(fact.where))


def documents_of(fact: Fact) -> Callable[[], Iterator[Document]]:
    """A corpus that can be read again and again."""
    corpus = corpus_of(fact)
    return lambda: read(corpus)


def records_of(fact: Fact) -> Callable[[], Iterator[Mapping[str, Any]]]:
    """Raw records that can be read again and again: training material and items."""
    corpus = corpus_of(fact)
    return lambda: (record.values for record in records(corpus))
