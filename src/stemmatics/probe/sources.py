"""From facts to what they stand for: checkpoints in memory, documents, training records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from stemmatics.core.corpora import Corpus
from stemmatics.core.errors import UserError
from stemmatics.core.facts import Fact
from stemmatics.facts.train import is_recovery
from stemmatics.lm.checkpoints.loading import Loaded, load, load_tokenizer
from stemmatics.lm.checkpoints.pin import CheckpointSpec, Pin, parse, pin
from stemmatics.lm.text.corpus import Document, read, records
from stemmatics.probe.base import Context


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
        folder = context.made(fact)
        found = put_on(pin_of(fact.needs["init"], context), folder) if is_recovery(fact) else pin(str(folder))
        expected = (context.cache.record(fact.key) or {}).get("pin")
        if found.key() != expected:
            raise UserError(
                f"the checkpoint {fact.label!r} in the cache is not the one that was made",
                f"the files in {folder} have changed",
                "Clear it with `stemma cache --clear` and run the study again",
            )
        return found
    found = pin(spec_of(fact))
    if found.key() != dict(fact.params):
        raise UserError(
            f"{spec_of(fact)} has changed since it was pinned",
            "its files have other hashes",
            "Start the study again: the new weights are another checkpoint",
        )
    return found


def spec_of(fact: Fact) -> str:
    """How a given checkpoint is called."""
    source, revision = fact.where["source"], fact.where.get("revision")
    return str(source) if revision is None else f"{source}@{revision}"


def load_checkpoint(fact: Fact, context: Context) -> Loaded:
    """A checkpoint in memory."""
    allowed = {name: bool(fact.where.get(name)) for name in ("trust_remote_code", "allow_pickle")}
    # an arm's adapters are added to the weights: the same sums in less time
    return load(pin_of(fact, context), context.numerics, merge_adapter=is_recovery(fact), **allowed)


def tokenizer_of(fact: Fact, context: Context) -> Any:
    """A checkpoint's tokenizer alone."""
    tokenizer, _ = load_tokenizer(
        pin_of(fact, context), trust_remote_code=bool(fact.where.get("trust_remote_code"))
    )
    return tokenizer


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
