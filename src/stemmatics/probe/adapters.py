"""Arms of a recovery as facts: what they are trained on, under which seed, and what they read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from stemmatics.core.facts import Fact
from stemmatics.core.keys import seed_from
from stemmatics.core.stages import RecoveryRecipe
from stemmatics.facts.train import TRAIN, is_recovery
from stemmatics.probe.sources import corpus_of, records_of


def training_seed(fact: Fact, root: int) -> int:
    """A stage's own seed.

    Stages of one kind and run share theirs, so that they differ in nothing but where they start.
    """
    if "run" not in fact.params:
        return fact.seed(root)
    return seed_from(root, fact.params["kind"], str(fact.params["run"]))


def training_records(fact: Fact) -> Callable[[], Iterator[Mapping[str, Any]]] | None:
    """What a stage is trained on; a recovery reads the pool's text field, whatever it is called."""
    if "corpus" not in fact.needs:
        return None
    records = records_of(fact.needs["corpus"])
    if not is_recovery(fact):
        return records
    field = corpus_of(fact.needs["corpus"]).field
    return lambda: ({"text": record[field]} if field in record else record for record in records())


def arm_row(fact: Fact, record: Mapping[str, Any]) -> pa.Table:
    """The row of ``arms``: what the fine-tune read, and under which recipe."""
    pool = fact.needs["corpus"].params["content_sha256"]
    row = {
        "recipe_hash": RecoveryRecipe.model_validate(fact.params["recipe"]).hash(pool),
        "pool_sha256": pool,
        "run": fact.params["run"],
        "num_updates": len(record["training"]),
        "num_tokens": record["training"][-1]["num_tokens"],
        "num_bytes": record["num_bytes"],
        "num_documents": record["num_documents"],
        "num_parameters": record["num_parameters"],
    }
    return TRAIN.table("arms", [row])
