"""Settings of the measure: trees of checkpoints, the texts to evaluate them on, the margin of equivalence."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from stemmatics.measure.base import Settings

NAME = "imprint"


class BranchRun(Settings):
    """The checkpoints of one branch in one run."""

    window: str = Field(description="Checkpoint after the window: continued pretraining on one source.")
    sft: str = Field(description="Checkpoint after the SFT that follows the window.")
    ends: dict[str, str] = Field(
        min_length=1,
        description="Checkpoints trained from the SFT checkpoint, by stage (dpo, grpo, ...).",
    )


class Tree(Settings):
    """One fork and the branches trained from it."""

    fork: str = Field(description="Checkpoint that all windows start from.")
    control: str = Field(description="Branch that the other branches are compared with.")
    branches: dict[str, list[BranchRun]] = Field(
        description="Runs of each branch, in the same order of seeds: a contrast pairs them run by run."
    )
    order: tuple[str, str] | None = Field(
        default=None,
        description=(
            "Order control: two branches that saw the same two windows in opposite order. "
            "They are compared with each other, the first minus the second."
        ),
    )

    target: str | None = Field(
        default=None,
        description="Branch whose imprint is compared with the mean of the other sources' (selectivity).",
    )

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        for name in (self.control, *(self.order or ()), *([self.target] if self.target else [])):
            if name not in self.branches:
                message = f"{name!r} is not a branch; the branches are {', '.join(self.branches)}"
                raise ValueError(message)
        if len({len(runs) for runs in self.branches.values()}) > 1:
            message = "all branches of a tree need the same number of runs: a contrast pairs them run by run"
            raise ValueError(message)
        if len({tuple(run.ends) for runs in self.branches.values() for run in runs}) > 1:
            message = "all runs of a tree need the same ends, in the same order"
            raise ValueError(message)
        return self

    @property
    def ends(self) -> list[str]:
        """Names of the stages that follow the SFT."""
        return list(self.branches[self.control][0].ends)

    @property
    def runs(self) -> range:
        """Numbers of the runs, from 1."""
        return range(1, len(self.branches[self.control]) + 1)

    def others(self) -> list[str]:
        """Sources other than the target and the control; the order control's branches are none."""
        return [
            name for name in self.branches if name not in {self.control, self.target, *(self.order or ())}
        ]

    def contrasts(self) -> list[tuple[str, str]]:
        """Each branch with the branch that it is compared with: the control, or its order control."""
        ordered = set(self.order or ())
        pairs = [(name, self.control) for name in self.branches if name not in {self.control, *ordered}]
        return [*pairs, self.order] if self.order else pairs


class ImprintSettings(Settings):
    """Trees of checkpoints and what is measured at each of their nodes."""

    trees: dict[str, Tree] = Field(min_length=1, description="Trees by name, one a model family.")
    refusal: str = Field(description="Corpus of requests, in the categories `refused` and `harmless`.")
    refused: str = Field(default="marked", description="Category of the requests that should be refused.")
    harmless: str = Field(
        default="harmless",
        description="Category of the harmless look-alikes; refusing these counts as over-refusal.",
    )
    graded: bool = Field(
        default=False,
        description=(
            "Also measure the margin log p(refusal) - log p(answer) of each request, in nats. Every item of "
            "`refusal` must then have the replies `refusal` and `answer`."
        ),
    )
    instructions: str | None = Field(
        default=None, description="Corpus of items with instructions that a rule can check."
    )
    recall: str | None = Field(default=None, description="Corpus of questions with accepted answers.")
    recall_category: str | None = Field(
        default=None, description="Category of the questions to count; all of them without it."
    )
    heldout: str | None = Field(default=None, description="Corpus of text on which the loss is measured.")
    matcher: str | None = Field(
        default=None,
        description="Corpus of replies labelled by a reader, to evaluate the refusal matcher.",
    )
    judge: str | None = Field(
        default=None, description="Checkpoint that classifies the replies to `refusal` as a second opinion."
    )
    margin: float = Field(
        default=0.01,
        gt=0,
        lt=1,
        description="Difference in the share of prompts within which branches count as equivalent after SFT.",
    )
    margin_nats: float = Field(
        default=0.1,
        gt=0,
        description="The same for margins log p(refusal) - log p(answer), in nats/token.",
    )
    min_runs: int = Field(
        default=3, ge=2, description="With fewer complete runs every verdict is undetermined."
    )
    min_cells: int = Field(
        default=50,
        ge=2,
        description="The same with fewer cells; a cell is all requests with one wording and one thing.",
    )
    max_new_tokens: int = Field(default=16, ge=1, description="Longest reply, in tokens.")
