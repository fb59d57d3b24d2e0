"""A checkpoint that a stage makes: trained (``train``) or by arithmetic on weights (``alter``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import pyarrow as pa
from pydantic import ConfigDict

from stemmatics.core.facts import Fact, FactKind, FactParams, Tag
from stemmatics.core.numerics import Numerics
from stemmatics.core.stages import Alter, Lineage, Pretrain, RecoveryRecipe, Stage
from stemmatics.facts.weights import CHECKPOINTS

# one row a logged update
TRAINING = pa.schema([("step", pa.int64()), ("loss", pa.float64()), ("num_tokens", pa.int64())])
# one row an arm of a recovery: what its fine-tune read, and the parameters it was put on
ARMS = pa.schema(
    [
        ("recipe_hash", pa.string()),
        ("pool_sha256", pa.string()),
        ("run", pa.int64()),
        ("num_updates", pa.int64()),
        ("num_tokens", pa.int64()),
        ("num_bytes", pa.int64()),
        ("num_documents", pa.int64()),
        ("num_parameters", pa.int64()),
    ]
)
_NOT_IN_KEY = {*Lineage.model_fields, "kind", "init", "corpus", "resumes"}


class StageParams(FactParams):
    """A stage as it was declared, less its names; the fields are those of its class in ``core.stages``."""

    model_config = ConfigDict(extra="allow", frozen=True)
    left_out_if_none: ClassVar[frozenset[str]] = frozenset({"run", "chat_template", "numerics"})

    kind: str
    seed: int
    numerics: dict[str, Any] | None = None


class RecoveryParams(FactParams):
    """An arm of a recovery: the recipe of its fine-tune, and which repeat of it this is."""

    kind: Literal["recovery"] = "recovery"
    seed: int
    recipe: RecoveryRecipe
    run: int
    numerics: dict[str, Any]


TRAIN = FactKind(
    "train",
    1,
    StageParams,
    {"checkpoints": CHECKPOINTS, "training": TRAINING, "arms": ARMS},
    artifact="cache",
)
ALTER = FactKind(
    "alter", 1, StageParams, {"checkpoints": CHECKPOINTS, "training": TRAINING}, artifact="cache"
)


def stage_fact(
    name: str,
    stage: Stage,
    *,
    seed: int,
    numerics: Numerics,
    above: Fact | None,
    corpus: Fact | None,
    trained_last: str | None,
) -> Fact:
    """The checkpoint of the stage ``name``, made from ``above`` and trained on ``corpus``."""
    values = stage.model_dump(mode="json", exclude=_NOT_IN_KEY)
    needs: dict[str, Fact] = {}
    if above is not None:
        needs["resumes" if isinstance(stage, Pretrain) else "init"] = above
    if corpus is not None:
        needs["corpus"] = corpus
        values["numerics"] = numerics.key()
    kind = ALTER if isinstance(stage, Alter) else TRAIN
    params = StageParams(kind=stage.kind, seed=seed, **values)
    return kind.make(params, needs, label=name, where={"trained_last": trained_last})


def recovery_fact(
    init: Fact,
    recipe: RecoveryRecipe,
    pool: Fact,
    *,
    seed: int,
    numerics: Numerics,
    run: int = 0,
    tag: Tag = "main",
    after: Sequence[Fact] = (),
) -> Fact:
    """The checkpoint ``init`` after the recovery fine-tune: adapters on it.

    A stage that declares the same arm has the same key, so that no arm is trained twice. ``after`` are
    facts that must be stored before this one is made, though it reads nothing of them.
    """
    checked = RecoveryParams(seed=seed, recipe=recipe, run=run, numerics=numerics.key())
    needs: Mapping[str, Fact] = {
        "init": init,
        "corpus": pool,
        **{f"after {position}": fact for position, fact in enumerate(after)},
    }
    label = f"{init.label} recovered on {pool.label}" + (f", run {run}" if run else "")
    return TRAIN.make(StageParams.model_validate(checked.plain()), needs, label=label, tag=tag)


def is_recovery(fact: Fact) -> bool:
    """Whether a checkpoint is a recovery fine-tune of another."""
    return fact.probe == TRAIN.name and fact.params["kind"] == "recovery"
