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

from stemmatics.core.errors import UserError
from stemmatics.core.facts import Fact, Tag
from stemmatics.core.stages import Pretrain, Recovery, RecoveryRecipe, corpus_of
from stemmatics.core.stemma import Stemma
from stemmatics.facts.corpus import corpus_fact
from stemmatics.facts.train import recovery_fact, stage_fact
from stemmatics.facts.weights import weights_fact


def _unknown(what: str, name: str, declared: list[str]) -> UserError:
    close = difflib.get_close_matches(name, declared, n=1)
    hint = f"Did you mean {close[0]!r}" if close else f"Declared are {', '.join(declared) or 'none'}"
    return UserError(f"a measure asks for the {what} {name!r}", "it is not declared", hint, code=2)


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

    @cached_property
    def _corpora(self) -> dict[str, Fact]:
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
            return weights_fact(name, self.stemma.checkpoints[name], self.pins.checkpoints[name])
        stage = self.stemma.stages[name]
        if isinstance(stage, Recovery):
            return replace(self.recovered(stage.init, stage.recipe, stage.corpus, run=stage.run), label=name)
        above = stage.resumes if isinstance(stage, Pretrain) else stage.init
        corpus = corpus_of(stage)
        return stage_fact(
            name,
            stage,
            seed=self.stemma.seed,
            numerics=self.stemma.numerics,
            above=None if above is None else self.checkpoint(above),
            corpus=None if corpus is None else self.corpus(corpus),
            trained_last=self.stemma.trained_last(name),
        )

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
        """The checkpoint ``name`` after the recovery fine-tune: see ``facts.train.recovery_fact``."""
        return recovery_fact(
            self.checkpoint(name),
            recipe,
            self.corpus(pool),
            seed=self.stemma.seed,
            numerics=self.stemma.numerics,
            run=run,
            tag=tag,
            after=after,
        )

    def corpus(self, name: str) -> Fact:
        """The documents of a corpus: ids, registers, groups, splits."""
        if name not in self.stemma.corpora:
            raise _unknown("corpus", name, list(self.stemma.corpora))
        if name not in self._corpora:
            self._corpora[name] = corpus_fact(
                name, self.stemma.corpora[name], self.pins.corpora[name], self.stemma.seed
            )
        return self._corpora[name]
