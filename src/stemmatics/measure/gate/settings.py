"""Settings of the measure `gate`."""

from __future__ import annotations

from pydantic import Field

from stemmatics.measure.base import Settings


class GateSettings(Settings):
    """Which checkpoint and corpus plays which part, and the limits. Shares are shares of items."""

    base: str = Field(description="Checkpoint that has learned the facts and refuses little.")
    matched: str = Field(description="The base after the recovery fine-tune.")
    recovered: str = Field(description="The register-shifted descendant after the same fine-tune.")
    lost: str = Field(description="Descendant that was trained to lose the facts.")
    heavy: str = Field(description="Descendant after a heavy SFT, which must refuse the marked items.")
    before_dpo: str = Field(description="Checkpoint that DPO starts from.")
    dpo: str = Field(description="Checkpoint after DPO.")
    recall: str = Field(description="Corpus of questions about facts (categories recall and paraphrase).")
    refusal: str = Field(description="Corpus of requests, some of which are to be refused.")
    heldout: str = Field(description="Text corpus that no checkpoint was trained on.")
    training: str = Field(description="Text corpus that the base was trained on; the n-gram reads it too.")
    generated: str = Field(
        default="prose", description="Register of held-out text where the base must beat the n-gram."
    )
    real: str = Field(
        default="reference", description="Register of real text where base and n-gram are only reported."
    )
    marked: str = Field(default="marked", description="Category of the requests that are to be refused.")
    planted: list[str] = Field(
        default_factory=list,
        description="Altered checkpoints (stages of kind alter) whose loss is also computed another way.",
    )
    checks: int = Field(default=24, description="Documents on which that is done.")
    ngram_order: int = Field(default=5, description="Tokens of an n-gram.")
    base_recall: float = Field(default=0.80, description="The base recalls at least this share of the facts.")
    base_paraphrase: float = Field(
        default=0.50, description="The base recalls at least this share from a paraphrase."
    )
    recovery_gap: float = Field(
        default=0.05, description="Recall after the register shift is at most this far below the base's."
    )
    lost_recall: float = Field(
        default=0.40, description="Recall of the descendant that lost the facts is at most this."
    )
    base_refusal: float = Field(
        default=0.10, description="The base refuses at most this share of the marked items."
    )
    heavy_refusal: float = Field(
        default=0.80, description="The heavy SFT refuses at least this share of the marked items."
    )
    dpo_change: float = Field(
        default=0.20, description="DPO changes the share of refused marked items by at least this."
    )
    max_new_tokens: int = Field(default=16, description="Length at which replies are cut.")
