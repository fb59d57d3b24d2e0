"""From names in a stemma to content hashes: the only step that looks at sources."""

from __future__ import annotations

from collections.abc import Callable

from stemmatics.core.errors import UserError
from stemmatics.core.extras import require
from stemmatics.core.pinned import Pins
from stemmatics.core.stemma import Stemma


def pin_sources(stemma: Stemma, on_event: Callable[[str], None] = lambda _what: None) -> Pins:
    """Hash every source once (local files are remembered, Hub hashes come from metadata)."""
    require("lm", "reading checkpoints and texts")
    return Pins(
        checkpoints={name: _checkpoint(stemma, name, on_event) for name in stemma.checkpoints},
        corpora={name: _corpus(stemma, name, on_event) for name in stemma.corpora},
    )


def _checkpoint(stemma: Stemma, name: str, on_event: Callable[[str], None]) -> dict[str, object]:
    from stemmatics.lm.pin import pin

    source = stemma.checkpoints[name]
    on_event(f"pinning {name}")
    return dict(pin(source.spec).key())


def _corpus(stemma: Stemma, name: str, on_event: Callable[[str], None]) -> dict[str, object]:
    from stemmatics.lm.contents import contents

    on_event(f"reading {name}")
    corpus = stemma.corpora[name]
    if corpus.render is not None and corpus.render.template == "own":
        raise UserError(
            f"corpus {name!r} is rendered with each checkpoint's own template",
            "the checkpoints would read different texts, and their losses would not compare",
            "Write one template's text under render.template",
            code=2,
        )
    found = contents(corpus)
    if not found.num_documents:
        raise UserError(f"corpus {name!r} is empty", "it has no documents", "Give at least one text")
    return {
        "content_sha256": found.sha256,
        "num_documents": found.num_documents,
        "num_bytes": found.num_bytes,
    }
