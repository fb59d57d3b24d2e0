"""Stages: checkpoints that the tool itself is to make, declared like any other."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Regime = Literal["base", "sft", "dpo", "rlvr", "cpt", "distill", "anneal", "merge", "recovery", "altered"]


class Strict(BaseModel):
    """Unknown keys are errors; instances don't change."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Lineage(Strict):
    """What a checkpoint is in the family tree; all of it may be left out."""

    base: str | None = Field(default=None, description="the checkpoint that it was made from")
    regime: Regime | None = None
    family: str | None = None
    generation: str | None = None
    lab: str | None = None
    pipeline: str | None = None
    trained_last: str | None = Field(default=None, description="what the last window of training was")
    blind: bool = Field(default=False, description="predict before the base is read")


class Lora(Strict):
    """Low-rank adapters on the named linear layers; merged into the weights when the stage ends."""

    rank: int = Field(default=16, ge=1)
    alpha: float | None = Field(default=None, gt=0, description="None: twice the rank")
    targets: str | list[str] = "all-linear"


class Recipe(Strict):
    """How a stage is trained. Tokens a step: ``batch_size`` rows of up to ``max_length``."""

    steps: int = Field(default=100, ge=1)
    stop_at: int | None = Field(default=None, ge=1, description="end early, the schedule kept")
    batch_size: int = Field(default=16, ge=1)
    max_length: int = Field(default=256, ge=8)
    learning_rate: float = Field(default=1e-3, gt=0)
    schedule: Literal["constant", "linear", "cosine"] = "cosine"
    warmup: float = Field(default=0.05, ge=0, lt=1)
    weight_decay: float = Field(default=0.0, ge=0)
    lora: Lora | None = None


class Architecture(Strict):
    """A small model made from nothing. ``kind`` is a transformers model type."""

    kind: Literal["llama", "phi"] = "llama"
    hidden_size: int = Field(default=128, ge=8)
    num_layers: int = Field(default=4, ge=1)
    num_heads: int = Field(default=4, ge=1)
    vocab_size: int = Field(default=1536, ge=260)
    context: int = Field(default=512, ge=16)


class _Stage(Lineage):
    init: str = Field(description="the checkpoint to start from")


class Pretrain(Lineage):
    """Tokenizer and model from nothing; or, with ``resumes``, the rest of a pretraining stopped early."""

    kind: Literal["pretrain"]
    corpus: str
    architecture: Architecture = Architecture()
    resumes: str | None = None
    recipe: Recipe = Recipe()


class ContinuedPretraining(_Stage):
    """Next-token training on documents: a cpt window, or with ``lora`` a recovery fine-tune."""

    kind: Literal["cpt"]
    corpus: str
    recipe: Recipe = Recipe()


class Sft(_Stage):
    """Supervised fine-tuning on ``messages``; only the replies are supervised."""

    kind: Literal["sft"]
    corpus: str
    recipe: Recipe = Recipe()


class Dpo(_Stage):
    """Direct preference optimisation on ``prompt``, ``chosen``, ``rejected``; the reference is ``init``."""

    kind: Literal["dpo"]
    corpus: str
    beta: float = Field(default=0.1, gt=0)
    recipe: Recipe = Recipe()


class Alter(_Stage):
    """Arithmetic on the weights, with a known answer.

    ``bias`` adds ``scale`` times a standard normal draw to the head's bias; ``temperature``
    multiplies the logits by ``scale``; ``noise`` adds ``scale`` times each matrix's own
    standard deviation in Gaussian noise to every matrix.
    """

    kind: Literal["alter"]
    change: Literal["bias", "temperature", "noise"]
    scale: float = Field(gt=0)


Stage = Annotated[Pretrain | ContinuedPretraining | Sft | Dpo | Alter, Field(discriminator="kind")]


def parents(stage: Stage) -> list[str]:
    """Names of the checkpoints that a stage starts from."""
    if isinstance(stage, Pretrain):
        return [stage.resumes] if stage.resumes else []
    return [stage.init]


def corpus_of(stage: Stage) -> str | None:
    """Name of the corpus that a stage is trained on; weight arithmetic needs none."""
    return None if isinstance(stage, Alter) else stage.corpus
