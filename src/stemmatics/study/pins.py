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
    spec = source.source if source.revision is None else f"{source.source}@{source.revision}"
    return dict(pin(spec).key())


def _corpus(stemma: Stemma, name: str, on_event: Callable[[str], None]) -> dict[str, object]:
    from stemmatics.lm.corpus import content_hash

    on_event(f"reading {name}")
    digest = content_hash(stemma.corpora[name])
    if digest is None:
        raise UserError(
            f"corpus {name!r} is empty", "it has no documents", "Give a file with at least one text"
        )
    return {"content_sha256": digest}
