"""Stages: checkpoints that the tool trains itself, declared like any other."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from stemmatics.core.keys import key_of
from stemmatics.core.recipes import RECIPES

Regime = Literal["base", "sft", "dpo", "rlvr", "cpt", "distill", "anneal", "merge", "recovery", "altered"]


class Strict(BaseModel):
    """Unknown keys are errors; instances don't change."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Lineage(Strict):
    """A checkpoint's position in the family tree; every field is optional."""

    base: str | None = Field(default=None, description="the checkpoint that it was made from")
    regime: Regime | None = None
    family: str | None = None
    generation: str | None = None
    lab: str | None = None
    pipeline: str | None = None
    trained_last: str | None = Field(default=None, description="what it was trained on last")
    blind: bool = Field(default=False, description="predict before the base is read")


class Lora(Strict):
    """Low-rank adapters on the named linear layers; merged into the weights at the end of the stage."""

    rank: int = Field(default=16, ge=1)
    alpha: float | None = Field(default=None, gt=0, description="None: twice the rank")
    targets: str | list[str] = "all-linear"


class Recipe(Strict):
    """Training settings of a stage. A step has ``batch_size`` rows of up to ``max_length`` tokens."""

    steps: int = Field(default=100, ge=1)
    stop_at: int | None = Field(default=None, ge=1, description="stop early, on the schedule of all steps")
    batch_size: int = Field(default=16, ge=1)
    max_length: int = Field(default=256, ge=8)
    learning_rate: float = Field(default=1e-3, gt=0)
    schedule: Literal["constant", "linear", "cosine"] = "cosine"
    warmup: float = Field(default=0.05, ge=0, lt=1)
    weight_decay: float = Field(default=0.0, ge=0)
    lora: Lora | None = None


class RecoveryRecipe(Strict):
    """The fine-tune that all arms of a recovery share; a string names one of ``RECIPES``.

    ``updates`` updates of ``update_tokens`` text tokens each, from the pool's documents in their
    order, in rows of up to ``max_length`` positions of one document each.
    """

    updates: int = Field(ge=1)
    update_tokens: int = Field(ge=8)
    max_length: int = Field(ge=8)
    learning_rate: float = Field(gt=0)
    schedule: Literal["constant", "linear", "cosine"] = "cosine"
    warmup: float = Field(default=0.05, ge=0, lt=1)
    weight_decay: float = Field(default=0.0, ge=0)
    lora: Lora = Lora()

    @model_validator(mode="before")
    @classmethod
    def _named(cls, value: Any) -> Any:
        if isinstance(value, str):
            if value not in RECIPES:
                message = f"unknown recipe {value!r}; known are {', '.join(RECIPES)}"
                raise ValueError(message)
            return dict(RECIPES[value])
        return value

    def hash(self, pool_sha256: str) -> str:
        """64 hex digits: the settings and the pool's documents in their order.

        Only arms with equal hashes are comparable. Seeds and precision are not part of it: their effect is
        the run noise, which is measured.
        """
        return key_of({"recipe": self.model_dump(mode="json"), "pool": pool_sha256})


def recipe_name(recipe: RecoveryRecipe) -> str:
    """The name under which a recipe is known, else ``own``."""
    plain = recipe.model_dump()
    known = {
        name: RecoveryRecipe.model_validate(dict(recipe)).model_dump() for name, recipe in RECIPES.items()
    }
    return next((name for name, other in known.items() if other == plain), "own")


class Architecture(Strict):
    """A small model with random initial weights. ``kind`` is a transformers model type."""

    kind: Literal["llama", "phi"] = "llama"
    hidden_size: int = Field(default=128, ge=8)
    num_layers: int = Field(default=4, ge=1)
    num_heads: int = Field(default=4, ge=1)
    vocab_size: int = Field(default=1536, ge=260)
    context: int = Field(default=512, ge=16)


class _Stage(Lineage):
    init: str = Field(description="the checkpoint to start from")


class _Branch(_Stage):
    """A stage with a ``run``: stages of the same run share a seed, and so data order and random draws.

    Such branches differ only in their initial checkpoint and their data. Without ``run`` a stage has its
    own seed.
    """

    run: int | None = Field(default=None, ge=0)


class Pretrain(Lineage):
    """Tokenizer and model from scratch; with ``resumes``, the rest of a pretraining that stopped early."""

    kind: Literal["pretrain"]
    corpus: str
    architecture: Architecture = Architecture()
    resumes: str | None = None
    recipe: Recipe = Recipe()


class ContinuedPretraining(_Branch):
    """Next-token training on documents: a cpt window, or with ``lora`` a recovery fine-tune."""

    kind: Literal["cpt"]
    corpus: str
    recipe: Recipe = Recipe()


class Sft(_Branch):
    """Supervised fine-tuning on ``messages``; only the replies are supervised.

    ``chat_template`` is the checkpoint's new Jinja template; by default it keeps the one it has.
    """

    kind: Literal["sft"]
    corpus: str
    chat_template: str | None = None
    recipe: Recipe = Recipe()


class Dpo(_Branch):
    """Direct preference optimisation on ``prompt``, ``chosen``, ``rejected``; the reference is ``init``."""

    kind: Literal["dpo"]
    corpus: str
    beta: float = Field(default=0.1, gt=0)
    recipe: Recipe = Recipe()


class Grpo(_Branch):
    """Group relative policy optimisation on items whose replies a rule can check.

    A record has ``prompt`` or ``messages``, and ``accepted`` answers, ``instructions`` or both; a
    reply is rewarded with 1 where it meets all of them, else 0. ``recipe.batch_size`` counts replies
    a step, ``recipe.max_length`` prompt and reply together. How the loss is averaged over tokens
    (``loss_type``) and what a reward is divided by (``scale_rewards``) take TRL's values; they change the
    result and have no default. ``beta`` is the weight of the divergence from ``init``.
    """

    kind: Literal["grpo"]
    corpus: str
    loss_type: Literal["grpo", "bnpo", "dr_grpo", "dapo"]
    scale_rewards: Literal["group", "batch", "none"]
    num_generations: int = Field(default=4, ge=2, description="replies to each prompt")
    max_new_tokens: int = Field(default=32, ge=1)
    temperature: float = Field(default=1.0, gt=0)
    beta: float = Field(default=0.0, ge=0)
    recipe: Recipe = Recipe()

    @model_validator(mode="after")
    def _whole_groups(self) -> Grpo:
        if self.recipe.batch_size % self.num_generations:
            message = (
                f"batch_size {self.recipe.batch_size} is not a multiple of num_generations "
                f"{self.num_generations}; rewards are compared within the group of a prompt"
            )
            raise ValueError(message)
        return self


class Alter(_Stage):
    """A change of the weights with a known effect.

    ``bias`` adds ``scale`` times a standard normal draw to the head's bias; ``temperature``
    multiplies the logits by ``scale``; ``noise`` adds ``scale`` times each matrix's own
    standard deviation in Gaussian noise to every matrix.
    """

    kind: Literal["alter"]
    change: Literal["bias", "temperature", "noise"]
    scale: float = Field(gt=0)


class Recovery(_Stage):
    """An arm of the recovery measure as a checkpoint: low-rank adapters on ``init``.

    ``run`` counts repeats with other seeds. All arms of a run share its seed.
    """

    kind: Literal["recovery"]
    corpus: str
    recipe: RecoveryRecipe
    run: int = Field(default=0, ge=0)


Stage = Annotated[
    Pretrain | ContinuedPretraining | Sft | Dpo | Grpo | Alter | Recovery, Field(discriminator="kind")
]


def parents(stage: Stage) -> list[str]:
    """Names of the checkpoints that a stage starts from."""
    if isinstance(stage, Pretrain):
        return [stage.resumes] if stage.resumes else []
    return [stage.init]


def corpus_of(stage: Stage) -> str | None:
    """Name of the corpus that a stage is trained on; None for a change of the weights."""
    return None if isinstance(stage, Alter) else stage.corpus
