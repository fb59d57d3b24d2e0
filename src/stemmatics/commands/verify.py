"""Do the numbers of a report follow from the sums, and the sums from the models?"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from stemmatics.core.errors import UserError
from stemmatics.core.extras import require
from stemmatics.core.facts import Fact
from stemmatics.core.keys import seed_from
from stemmatics.core.scoring import Scoring
from stemmatics.study.read import OpenRun, open_run
from stemmatics.study.request import all_facts
from stemmatics.study.verify import SCOPE, Verdict, verify

if TYPE_CHECKING:
    from stemmatics.lm.text.corpus import Document

__all__ = ["SCOPE", "Verdict", "rescore", "verify"]

# float32 sums may differ by this much between machines, batches and attention implementations
ABSOLUTE, RELATIVE = 2e-3, 1e-5


def rescore(root: Path, num_documents: int, texts: Sequence[str]) -> list[dict[str, Any]]:
    """Score random documents of a run again, where its weights and texts are available.

    One row for each document and checkpoint; ``problem`` is empty where the sums agree.
    """
    require("lm", "scoring documents again")
    run = open_run(root)
    available = {document.doc_id: document for document in _documents(run, texts)}
    if not available:
        raise UserError(
            "no text of this run is available",
            "its corpora have moved, and no file given with --text holds one of its documents",
            "Give the scored texts with --text FILE",
        )
    rng = np.random.default_rng(seed_from(run.pinned.stemma.seed, "rescore", str(num_documents)))
    rows: list[dict[str, Any]] = []
    for fact in all_facts(run.requests).values():
        if fact.probe == "score" and run.ledger.has(fact.key):
            rows += _rescored(run, fact, available, num_documents, rng)
    return rows


def _documents(run: OpenRun, texts: Sequence[str]) -> Iterator[Document]:
    from stemmatics.lm.text.corpus import read, text_source

    for text in texts:
        yield from read(text_source(text))
    for corpus in run.pinned.stemma.corpora.values():
        paths = corpus.path or []
        if corpus.role == "text" and corpus.dataset is None and all(Path(path).exists() for path in paths):
            yield from read(corpus)


def _rescored(
    run: OpenRun, fact: Fact, available: dict[str, Document], num_documents: int, rng: np.random.Generator
) -> list[dict[str, Any]]:
    from stemmatics.lm.scoring.passes import Reader
    from stemmatics.probe.base import Context
    from stemmatics.probe.sources import load_checkpoint
    from stemmatics.store.cache import Cache

    stored = {
        row["doc_id"]: row
        for row in run.ledger.read(fact.key, "scores").to_pylist()
        if row["doc_id"] in available
    }
    if not stored:
        return []
    numerics, seed = run.pinned.stemma.numerics, run.pinned.stemma.seed
    context = Context(run.ledger, Cache(), numerics, seed)
    loaded = load_checkpoint(fact.needs["checkpoint"], context)
    scoring = Scoring.model_validate(fact.params["scoring"]).model_copy(update={"support": "full"})
    picked = rng.choice(sorted(stored), size=min(num_documents, len(stored)), replace=False)
    documents = [available[str(doc_id)] for doc_id in picked]
    rows = []
    for sums in Reader.of(loaded, scoring, numerics).score(documents):
        before = stored[sums.doc_id]["nll_sum"] + stored[sums.doc_id]["excluded_nll_sum"]
        agree = math.isclose(before, sums.nll_sum, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
        problem = (
            ""
            if agree
            else f"{fact.label}, document {sums.doc_id}: stored {before!r}, scored {sums.nll_sum!r}"
        )
        rows.append(
            {
                "fact": fact.key,
                "doc_id": sums.doc_id,
                "stored": before,
                "again": sums.nll_sum,
                "problem": problem,
            }
        )
    return rows
