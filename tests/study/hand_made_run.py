"""A finished run folder from sums written by hand: every part of a run but the models, in half a second."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
from tests.measure.made_sums import METADATA, SCHEMAS, documents, scores

from stemmatics.core.stemma import Stemma
from stemmatics.facts.pinned import Pins
from stemmatics.facts.weights import CHECKPOINTS
from stemmatics.store.ledger import Ledger
from stemmatics.study.plan import Plan
from stemmatics.study.request import all_facts, resolve_requests
from stemmatics.study.run import finish

NUM_DOCUMENTS = 6
SHAPES = {**SCHEMAS, "checkpoints": CHECKPOINTS}


def table(name, rows):
    complete = [{**dict.fromkeys(SHAPES[name].names), **row} for row in rows]
    return pa.Table.from_pylist(complete, schema=SHAPES[name])


def make_run(root: Path, declared, registers) -> list:
    """A run of ``declared`` (a stemma with the measure loss), scored with made-up sums; its evaluations."""
    stemma = Stemma.model_validate(declared)
    pins = Pins(
        checkpoints={
            name: {"weights": f"weights {number}", "tokenizer": "t", "config": "c"}
            for number, name in enumerate(stemma.checkpoints)
        },
        corpora={
            name: {"content_sha256": f"text {number}", "num_documents": NUM_DOCUMENTS, "num_bytes": 600}
            for number, name in enumerate(stemma.corpora)
        },
    )
    pinned, requests = resolve_requests(stemma, pins)
    ledger, draw = Ledger(root), np.random.default_rng(0)
    facts = all_facts(requests)
    for fact in facts.values():
        if fact.probe == "corpus":
            rows = documents(registers)
            ledger.record(fact, {"documents": table("documents", rows)})
        elif fact.probe == "weights":
            ledger.record(fact, {"checkpoints": table("checkpoints", [{"source": fact.label}])})
        else:
            nll = draw.uniform(10, 60, NUM_DOCUMENTS)
            rows = scores(nll, np.full(NUM_DOCUMENTS, 20.0), np.full(NUM_DOCUMENTS, 100.0))
            ledger.record(
                fact,
                {
                    "scores": table("scores", rows),
                    "score_parts": table("score_parts", []),
                    "scoring": table("scoring", [METADATA]),
                },
            )
    return finish(ledger, pinned, requests, Plan(facts, {}, {})).evaluations
