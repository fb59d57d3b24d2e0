"""A stemma with its sources pinned: from names to facts.

Pins hold content hashes only, so that the same facts follow from a run folder alone, on a
machine that has neither the weights nor the texts.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from stemmatics.core.corpora import Corpus
from stemmatics.core.errors import UserError
from stemmatics.core.facts import Fact, Tag
from stemmatics.core.scoring import Scoring
from stemmatics.core.stages import Alter, Lineage, Pretrain, Recovery, RecoveryRecipe, corpus_of
from stemmatics.core.stemma import Stemma


def _unknown(what: str, name: str, declared: list[str]) -> UserError:
    close = difflib.get_close_matches(name, declared, n=1)
    hint = f"Did you mean {close[0]!r}" if close else f"Declared are {', '.join(declared) or 'none'}"
    return UserError(f"a measure asks for the {what} {name!r}", "it is not declared", hint, code=2)


_NOT_TRAINING = {*Lineage.model_fields, "kind", "init", "corpus", "resumes"}


@dataclass(frozen=True)
class Pins:
    """Content hashes of the sources, by name; plain data, kept in the manifest."""

    checkpoints: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    corpora: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "checkpoints": {name: dict(pin) for name, pin in self.checkpoints.items()},
            "corpora": {name: dict(pin) for name, pin in self.corpora.items()},
        }


@dataclass(frozen=True)
class Pinned:
    """The facts that a stemma's names stand for."""

    stemma: Stemma
    pins: Pins

    @cached_property
    def _checkpoints(self) -> dict[str, Fact]:
        return {}

    def checkpoint(self, name: str | Fact) -> Fact:
        """The checkpoint called ``name``: pinned (``weights``) or made (``train``, ``alter``).

        A fact stands for itself: an arm that a measure asks for has no name.
        """
        if isinstance(name, Fact):
            return name
        if name not in self._checkpoints:
            self._checkpoints[name] = self._make(name)
        return self._checkpoints[name]

    def _make(self, name: str) -> Fact:
        if name not in self.stemma.names:
            raise _unknown("checkpoint", name, self.stemma.names)
        if name in self.stemma.checkpoints:
            where = self.stemma.checkpoints[name].model_dump(
                include={"source", "revision", "trust_remote_code", "allow_pickle", "num_parameters"}
            )
            return Fact("weights", 1, self.pins.checkpoints[name], label=name, where=where)
        stage = self.stemma.stages[name]
        if isinstance(stage, Recovery):
            return replace(self.recovered(stage.init, stage.recipe, stage.corpus, run=stage.run), label=name)
        params: dict[str, Any] = {
            "kind": stage.kind,
            "seed": self.stemma.seed,
            **stage.model_dump(mode="json", exclude=_NOT_TRAINING),
        }
        for optional in ("run", "chat_template"):
            # what is left out is no part of a stage
            if optional in params and params[optional] is None:
                del params[optional]
        needs: dict[str, Fact] = {}
        above = stage.resumes if isinstance(stage, Pretrain) else stage.init
        if above is not None:
            needs["resumes" if isinstance(stage, Pretrain) else "init"] = self.checkpoint(above)
        corpus = corpus_of(stage)
        if corpus is not None:
            needs["corpus"] = self.corpus(corpus)
            params["numerics"] = self.stemma.numerics.key()
        probe = "alter" if isinstance(stage, Alter) else "train"
        where = {"trained_last": self.stemma.trained_last(name)}
        return Fact(probe, 1, params, needs, label=name, where=where)

    def recovered(
        self,
        name: str,
        recipe: RecoveryRecipe,
        pool: str,
        *,
        run: int = 0,
        tag: Tag = "main",
        after: Sequence[Fact] = (),
    ) -> Fact:
        """The checkpoint ``name`` after the recovery fine-tune: adapters on it, by probe ``train``.

        A stage that declares the same arm has the same key, so that no arm is trained twice. ``after``
        are facts that must be stored before this one is made, though it reads nothing of them.
        """
        params = {
            "kind": "recovery",
            "seed": self.stemma.seed,
            "recipe": recipe.model_dump(mode="json"),
            "run": run,
            "numerics": self.stemma.numerics.key(),
        }
        needs = {"init": self.checkpoint(name), "corpus": self.corpus(pool)}
        needs |= {f"after {place}": fact for place, fact in enumerate(after)}
        label = f"{name} recovered on {pool}" + (f", run {run}" if run else "")
        return Fact("train", 1, params, needs, label=label, tag=tag)

    def corpus(self, name: str) -> Fact:
        """The documents of a corpus: ids, registers, groups, splits."""
        if name not in self.stemma.corpora:
            raise _unknown("corpus", name, list(self.stemma.corpora))
        corpus: Corpus = self.stemma.corpora[name]
        params = {
            **self.pins.corpora[name],
            "role": corpus.role,
            "register": corpus.register_name,
            "register_field": corpus.register_field,
            "eval_share": corpus.eval_share,
            "seed": self.stemma.seed,
            "private": corpus.private,
        }
        where = corpus.model_dump(mode="json", by_alias=True)
        return Fact("corpus", 1, params, label=name, where=where)

    def score(
        self,
        checkpoint: str | Fact,
        corpus: str,
        scoring: Scoring,
        *,
        partner: str | None = None,
        tag: Tag = "main",
    ) -> Fact:
        """Per-document sums of a checkpoint on a corpus.

        ``partner`` is the checkpoint whose tokenizer the support is shared with.
        """
        needs = {"checkpoint": self.checkpoint(checkpoint), "corpus": self.corpus(corpus)}
        if partner is not None:
            needs["partner"] = self.checkpoint(partner)
        params = {"scoring": scoring.key(), "numerics": self.stemma.numerics.key()}
        return Fact("score", 1, params, needs, label=f"{needs['checkpoint'].label} on {corpus}", tag=tag)

    def reference(
        self,
        checkpoint: str,
        corpus: str,
        scoring: Scoring,
        *,
        num_documents: int,
        planted: Mapping[str, Any] | None = None,
    ) -> Fact:
        """Sums of the first documents by a plain loop over the model's own logits: a control.

        ``planted`` (``change``, ``scale``, ``seed``) is applied to the logits, so that an altered
        checkpoint's loss is computed from its base without the checkpoint.
        """
        needs = {"checkpoint": self.checkpoint(checkpoint), "corpus": self.corpus(corpus)}
        params = {
            "scoring": scoring.key(),
            "num_documents": num_documents,
            "planted": None if planted is None else dict(planted),
            "numerics": self.stemma.numerics.key(),
        }
        return Fact("reference", 1, params, needs, label=f"{checkpoint} on {corpus}", tag="control")

    def replies(self, checkpoint: str | Fact, corpus: str, *, max_new_tokens: int) -> Fact:
        """Greedy replies of a checkpoint to a corpus of items, judged right, wrong or refused."""
        needs = {"checkpoint": self.checkpoint(checkpoint), "corpus": self.corpus(corpus)}
        params = {"max_new_tokens": max_new_tokens, "numerics": self.stemma.numerics.key()}
        return Fact("replies", 1, params, needs, label=f"{needs['checkpoint'].label} asked {corpus}")

    def judged(self, checkpoint: str | Fact, corpus: str, judge: str, *, max_new_tokens: int) -> Fact:
        """The replies of :meth:`replies`, each held to be a refusal or not by the checkpoint ``judge``."""
        needs = {
            "checkpoint": self.checkpoint(checkpoint),
            "corpus": self.corpus(corpus),
            "judge": self.checkpoint(judge),
        }
        params = {"max_new_tokens": max_new_tokens, "numerics": self.stemma.numerics.key()}
        label = f"{needs['checkpoint'].label} asked {corpus}, judged by {judge}"
        return Fact("judged", 1, params, needs, label=label, tag="control")

    def matched(self, corpus: str) -> Fact:
        """What the refusal matcher says of replies that a reader has labelled."""
        return Fact("matched", 1, {}, {"corpus": self.corpus(corpus)}, label=corpus, tag="control")

    def overlap(self, pool: str, corpus: str, *, order: int = 13) -> Fact:
        """What a pool shares with a scored corpus: documents, and runs of ``order`` words."""
        needs = {"pool": self.corpus(pool), "corpus": self.corpus(corpus)}
        return Fact("overlap", 1, {"order": order}, needs, label=f"{pool} and {corpus}", tag="control")

    def registry(self, name: str) -> Fact:
        """The calibrated pairs of a registry, declared as a corpus of ``role: data``."""
        return Fact("registry", 1, {}, {"registry": self.corpus(name)}, label=name)

    def ngram(self, tokenizer_of: str, trained_on: str, corpus: str, *, order: int) -> Fact:
        """Sums of a Kneser-Ney n-gram in a checkpoint's tokens: the score to beat."""
        needs = {
            "checkpoint": self.checkpoint(tokenizer_of),
            "training": self.corpus(trained_on),
            "corpus": self.corpus(corpus),
        }
        label = f"{order}-gram on {corpus}"
        return Fact("ngram", 1, {"order": order}, needs, label=label, tag="control")
