"""From names in a stemma to content hashes: the only step that looks at sources."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from stemmatics.core.errors import UserError
from stemmatics.core.extras import require
from stemmatics.core.keys import key_of
from stemmatics.core.stemma import Stemma
from stemmatics.facts.pinned import Pins

Step = Callable[[str], None]
Pinning = Callable[[Stemma, str, Step], Mapping[str, object]]


def pin_sources(stemma: Stemma, on_event: Step = lambda _what: None, *, planning: bool = False) -> Pins:
    """Hash every source once (local files are remembered, Hub hashes come from metadata).

    ``planning``: a source that can't be reached stands in a plan with the size that is declared of
    it. Such pins are for reckoning; nothing is made from them.
    """
    require("lm", "reading checkpoints and texts")
    checkpoint: Pinning = _reckoned(_checkpoint, _planned_checkpoint) if planning else _checkpoint
    corpus: Pinning = _reckoned(_corpus, _planned_corpus) if planning else _corpus
    return Pins(
        checkpoints={name: checkpoint(stemma, name, on_event) for name in stemma.checkpoints},
        corpora={name: corpus(stemma, name, on_event) for name in stemma.corpora},
    )


def _reckoned(pin: Pinning, planned: Callable[[Stemma, str], dict[str, object] | None]) -> Pinning:
    def contents_(stemma: Stemma, name: str, on_event: Step) -> Mapping[str, object]:
        try:
            return pin(stemma, name, on_event)
        except UserError:
            stand_in = planned(stemma, name)
            if stand_in is None:
                raise
            on_event(f"{name} is not at hand: planned by its declared size")
            return stand_in

    return contents_


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
            "Write one template's text under render.template",
            code=2,
        )
    contents_ = contents(corpus)
    if not contents_.num_documents:
        raise UserError(f"corpus {name!r} is empty", "it has no documents", "Give at least one text")
    return {
        "content_sha256": contents_.sha256,
        "num_documents": contents_.num_documents,
        "num_bytes": contents_.num_bytes,
    }
