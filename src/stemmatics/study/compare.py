"""One pair without a config file."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stemmatics.core.corpora import Corpus
from stemmatics.core.numerics import Numerics
from stemmatics.core.scoring import Scoring
from stemmatics.core.stemma import Source, Stemma
from stemmatics.study.score import sources_of


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
) -> Stemma:
    """A stemma of two checkpoints on one corpus, asking for what can be said of any pair."""
    corpora: dict[str, Corpus] = {}
    for place, corpus in enumerate(sources_of(texts, source or {})):
        corpora["text" if place == 0 else f"text-{place + 1}"] = corpus
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
        measures={"loss": {}},
    )
