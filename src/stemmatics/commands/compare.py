"""One pair without a config file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from stemmatics.commands.score import sources_of
from stemmatics.core.corpora import Corpus
from stemmatics.core.errors import UserError
from stemmatics.core.numerics import Numerics
from stemmatics.core.scoring import Scoring, Windows
from stemmatics.core.stemma import Source, Stemma

# Depth: openings of so many tokens of so many documents, continued by both; its floor is matched on a few.
OPENING_TOKENS, OPENINGS, CONTINUED_TOKENS, FLOOR_DOCUMENTS = 24, 40, 40, 8
# A damage floor is fitted six times over; at a large vocabulary this much text takes minutes.
PRIOR_BYTES = 64_000


def pair_stemma(
    base: str,
    descendant: str,
    texts: Sequence[str | Path],
    *,
    name: str = "compare",
    source: Mapping[str, Any] | None = None,
    scoring: Scoring | None = None,
    numerics: Numerics | None = None,
    allow: Mapping[str, bool] | None = None,
    recover: str | None = None,
    pool: Sequence[str | Path] = (),
) -> Stemma:
    """A stemma of two checkpoints on one corpus, asking for what can be said of any pair.

    ``recover`` names the recipe of the recovery fine-tune, none for none; ``pool`` is what it reads
    (the Python language reference where nothing is given, since it is on every machine).
    """
    corpora: dict[str, Corpus] = {}
    for place, corpus in enumerate(sources_of(texts, source or {})):
        # a correction is fitted on one half of the documents and scored on the other
        halves = corpus.model_copy(update={"eval_share": 0.5})
        corpora["text" if place == 0 else f"text-{place + 1}"] = halves
    measures: dict[str, dict[str, Any]] = {"loss": {}, "prior": _prior(corpora.values()), "depth": _depth()}
    if recover is not None:
        corpora["pool"] = _pool(pool, source or {})
        measures["recovery"] = {"pool": "pool", "recipe": recover, "scoring": _by_byte(scoring or Scoring())}
    allowed = dict(allow or {})
    return Stemma(
        # a folder may be called anything
        name=re.sub(r"[^A-Za-z0-9._-]+", "-", name).lstrip("._-") or "compare",
        checkpoints={
            "base": Source(source=base, **allowed),
            "descendant": Source(source=descendant, base="base", **allowed),
        },
        corpora=corpora,
        scoring=scoring or Scoring(),
        numerics=numerics or Numerics(),
        measures=measures,
    )


def _prior(corpora: Iterable[Corpus]) -> dict[str, Any]:
    """Fits on some ``PRIOR_BYTES`` of the text where its size can be told, without the published searches."""
    files = [
        file
        for corpus in corpora
        for path in map(Path, corpus.path or [])
        for file in (path.rglob("*") if path.is_dir() else [path])
        if file.is_file()
    ]
    size = sum(file.stat().st_size for file in files)
    sample = 1.0 if size <= PRIOR_BYTES else max(1e-4, round(PRIOR_BYTES / size, 4))
    return {"sample": sample, "references": [], "draws": 100, "refits": 5}


def _depth() -> dict[str, Any]:
    """Where the two part when they go on from the first words of the first text's documents."""
    return {
        "prompts": "text",
        "opening_tokens": OPENING_TOKENS,
        "max_prompts": OPENINGS,
        "max_new_tokens": CONTINUED_TOKENS,
        "floor": "text",
        "floor_documents": FLOOR_DOCUMENTS,
    }


def _pool(texts: Sequence[str | Path], source: Mapping[str, Any]) -> Corpus:
    """What the arms are fine-tuned on; one source, since a pool has one order."""
    if not texts:
        return Corpus(generator="python", params={"part": "training"}, role="data")
    given = list(sources_of(texts, {"field": source.get("field", "text")}))
    if len(given) > 1 and any(corpus.path is None for corpus in given):
        raise UserError(
            f"{len(given)} pools were given, a Hub dataset among them",
            "a pool is read in one order",
            "Give one data set, or files",
            code=2,
        )
    paths = [path for corpus in given for path in corpus.path or []]
    return given[0].model_copy(update={"role": "data", "path": paths or None})


def _by_byte(scoring: Scoring) -> dict[str, Any]:
    """The scoring that arms compare under: cut points in bytes, the first byte asked for."""
    windows = scoring.windows if scoring.windows.rule == "bytes" else Windows(rule="bytes")
    return scoring.model_copy(update={"windows": windows, "prefix": "always"}).model_dump(mode="json")
