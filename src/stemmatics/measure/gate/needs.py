"""Facts that the measure `gate` needs: replies, losses of the base, an n-gram, and losses computed twice."""

from __future__ import annotations

from stemmatics.core.errors import UserError
from stemmatics.core.facts import Fact
from stemmatics.core.stages import Alter
from stemmatics.facts.ngram import ngram_fact
from stemmatics.facts.pinned import Pinned
from stemmatics.facts.reference import reference_fact
from stemmatics.facts.replies import replies_fact
from stemmatics.facts.score import score_fact
from stemmatics.measure.gate.settings import GateSettings


def needs(pinned: Pinned, settings: GateSettings) -> list[Fact]:
    """Replies to questions and requests, an n-gram, and independent losses of the altered checkpoints."""
    facts = [recall_fact(pinned, settings, name) for name in recall_checkpoints(settings)]
    facts += [refusal_fact(pinned, settings, name) for name in refusal_checkpoints(settings)]
    facts += [heldout_fact(pinned, settings, settings.base), base_ngram_fact(pinned, settings)]
    for name in settings.planted:
        facts += [heldout_fact(pinned, settings, name), independent_fact(pinned, settings, name)]
    return facts


def recall_checkpoints(settings: GateSettings) -> list[str]:
    """The checkpoints that answer the questions."""
    return [settings.base, settings.matched, settings.recovered, settings.lost]


def refusal_checkpoints(settings: GateSettings) -> list[str]:
    """The checkpoints that get requests to refuse."""
    return [settings.base, settings.heavy, settings.before_dpo, settings.dpo]


def recall_fact(pinned: Pinned, settings: GateSettings, checkpoint: str) -> Fact:
    """Replies of a checkpoint to the questions."""
    return replies_fact(pinned, checkpoint, settings.recall, max_new_tokens=settings.max_new_tokens)


def refusal_fact(pinned: Pinned, settings: GateSettings, checkpoint: str) -> Fact:
    """Replies of a checkpoint to the requests."""
    return replies_fact(pinned, checkpoint, settings.refusal, max_new_tokens=settings.max_new_tokens)


def heldout_fact(pinned: Pinned, settings: GateSettings, checkpoint: str) -> Fact:
    """The loss of a checkpoint on the held-out text."""
    return score_fact(pinned, checkpoint, settings.heldout, pinned.stemma.scoring)


def base_ngram_fact(pinned: Pinned, settings: GateSettings) -> Fact:
    """The n-gram over the base's tokens, trained on the base's text."""
    return ngram_fact(pinned, settings.base, settings.training, settings.heldout, order=settings.ngram_order)


def independent_fact(pinned: Pinned, settings: GateSettings, checkpoint: str) -> Fact:
    """The loss of an altered checkpoint, computed without our scoring.

    A bias and a temperature are applied to the base's logits; noise is in the weights, so that the
    altered checkpoint itself is scored by a plain loop.

    Raises:
        UserError: the checkpoint is not made by a stage of kind alter.
    """
    stage = pinned.stemma.stages.get(checkpoint)
    if not isinstance(stage, Alter):
        raise UserError(
            f"the gate cannot check the loss of {checkpoint!r}",
            "`planted` takes checkpoints that a stage of kind alter makes",
            f"Remove {checkpoint!r} from `gate: {{planted: [...]}}`",
            code=2,
        )
    scoring = pinned.stemma.scoring
    if stage.change == "noise":
        return reference_fact(pinned, checkpoint, settings.heldout, scoring, num_documents=settings.checks)
    seed = pinned.checkpoint(checkpoint).seed(pinned.stemma.seed)
    planted = {"change": stage.change, "scale": stage.scale, "seed": seed}
    return reference_fact(
        pinned, stage.init, settings.heldout, scoring, num_documents=settings.checks, planted=planted
    )
