"""From names in a stemma to content hashes: the only step that reads the sources."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from stemmatics.core.errors import UserError
from stemmatics.core.extras import require
from stemmatics.core.keys import key_of
from stemmatics.core.stemma import Stemma
from stemmatics.facts.pinned import Pins

Step = Callable[[str], None]
Pinning = Callable[[Stemma, str, Step], Mapping[str, object]]


def pin_sources(stemma: Stemma, on_event: Step = lambda _step: None, *, planning: bool = False) -> Pins:
    """Hash every source once (hashes of local files are cached, those of the Hub come from metadata).

    ``planning``: a source that is not available is planned with its declared size. Such pins serve for
    cost estimates only.
    """
    require("lm", "reading checkpoints and texts")
    checkpoint: Pinning = _or_planned(_checkpoint, _planned_checkpoint) if planning else _checkpoint
    corpus: Pinning = _or_planned(_corpus, _planned_corpus) if planning else _corpus
    # texts first: one that can't be read is refused before gigabytes of weights are hashed
    corpora = {name: corpus(stemma, name, on_event) for name in stemma.corpora}
    checkpoints = {name: checkpoint(stemma, name, on_event) for name in stemma.checkpoints}
    return Pins(checkpoints=checkpoints, corpora=corpora)


def _or_planned(pin: Pinning, planned: Callable[[Stemma, str], dict[str, object] | None]) -> Pinning:
    def pin_or_plan(stemma: Stemma, name: str, on_event: Step) -> Mapping[str, object]:
        try:
            return pin(stemma, name, on_event)
        except UserError:
            stand_in = planned(stemma, name)
            if stand_in is None:
                raise
            on_event(f"{name} is not available: planned with its declared size")
            return stand_in

    return pin_or_plan


def _planned_checkpoint(stemma: Stemma, name: str) -> dict[str, object] | None:
    source = stemma.checkpoints[name]
    return None if source.num_parameters is None else {"planned": source.spec}


def _planned_corpus(stemma: Stemma, name: str) -> dict[str, object] | None:
    corpus = stemma.corpora[name]
    if corpus.expected is None:
        return None
    return {
        "content_sha256": key_of({"planned": corpus.model_dump(mode="json", by_alias=True)}),
        "num_documents": corpus.expected.documents,
        "num_bytes": corpus.expected.bytes,
    }


def _checkpoint(stemma: Stemma, name: str, on_event: Callable[[str], None]) -> dict[str, object]:
    from stemmatics.lm.checkpoints.pin import pin

    source = stemma.checkpoints[name]
    on_event(f"pinning {name}")
    return dict(pin(source.spec).key())


def _corpus(stemma: Stemma, name: str, on_event: Callable[[str], None]) -> dict[str, object]:
    from stemmatics.lm.text.contents import contents

    on_event(f"reading {name}")
    corpus = stemma.corpora[name]
    if corpus.render is not None and corpus.render.template == "own":
        raise UserError(
            f"corpus {name!r} is rendered with each checkpoint's own template",
            "the checkpoints would read different texts, and their losses would not compare",
            "Give the text of one template under render.template",
            code=2,
        )
    read = contents(corpus)
    if not read.num_documents:
        raise UserError(f"corpus {name!r} is empty", "it has no documents", "Give at least one document")
    return {
        "content_sha256": read.sha256,
        "num_documents": read.num_documents,
        "num_bytes": read.num_bytes,
    }
