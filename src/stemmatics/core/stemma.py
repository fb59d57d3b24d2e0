"""The stemma: checkpoints, stages, corpora and measures, declared and validated."""

from __future__ import annotations

import difflib
import unicodedata
from typing import Any, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from stemmatics.core.corpora import Corpus
from stemmatics.core.numerics import Numerics
from stemmatics.core.scoring import Scoring
from stemmatics.core.stages import ContinuedPretraining, Lineage, Pretrain, Stage, Strict, corpus_of, parents

SCHEMA_VERSION = 1


def field_error(at: tuple[str, ...], why: str, fix: str) -> PydanticCustomError:
    """An error of the whole stemma that concerns one field; ``core.load`` reports the field's line."""
    return PydanticCustomError("field_error", "{why}", {"why": why, "at": at, "fix": fix})


def _known(name: str, declared: list[str], at: tuple[str, ...], where: str) -> None:
    if name not in declared:
        close = difflib.get_close_matches(name, declared, n=1)
        fix = f"Did you mean {close[0]!r}" if close else f"Declared are {', '.join(declared) or 'none'}"
        raise field_error(at, f"{where} {name!r}, which is not declared", fix)


def _check_text(text: str, at: tuple[str, ...], what: str) -> None:
    """Raise for what can't be shown as a name: nothing, or characters that are not for display."""
    if not text.strip():
        raise field_error(at, f"{what} is blank", "Give it at least one letter")
    hidden = next((sign for sign in text if unicodedata.category(sign) in {"Cc", "Cs", "Zl", "Zp"}), None)
    if hidden is not None:
        why = f"{what} {text!r} holds the character U+{ord(hidden):04X}, which can't be printed"
        raise field_error(at, why, "Use a name of one line, without control characters")


class Source(Lineage):
    """A checkpoint that exists: ``org/name``, a folder, ``file.gguf`` or ``BASE+ADAPTER``."""

    source: str
    revision: str | None = None
    weights: str | None = Field(default=None, description="the file to read, where a folder has two sets")
    trust_remote_code: bool = False
    allow_pickle: bool = False
    num_parameters: int | None = Field(default=None, ge=1, description="for planning, if not available")

    @property
    def spec(self) -> str:
        """The checkpoint in one line: ``SOURCE``, ``SOURCE@REVISION``, and ``#FILE`` for its weights."""
        named = self.source if self.revision is None else f"{self.source}@{self.revision}"
        return named if self.weights is None else f"{named}#{self.weights}"


class Stemma(Strict):
    """A study. Checkpoints and stages share one namespace."""

    stemma: int = Field(default=SCHEMA_VERSION, ge=1, le=SCHEMA_VERSION)
    name: str = Field(default="study", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    seed: int = Field(default=0, ge=0)
    checkpoints: dict[str, Source] = Field(default_factory=dict)
    stages: dict[str, Stage] = Field(default_factory=dict)
    corpora: dict[str, Corpus] = Field(default_factory=dict)
    scoring: Scoring = Scoring()
    numerics: Numerics = Numerics()
    measures: dict[str, dict[str, Any]] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check_texts(self) -> Self:
        for part, named in (
            ("checkpoints", self.checkpoints),
            ("stages", self.stages),
            ("corpora", self.corpora),
        ):
            for name in named:
                _check_text(name, (part, name), "the name")
        for name in self.names:
            part = "stages" if name in self.stages else "checkpoints"
            for field in ("family", "generation", "lab", "pipeline", "trained_last"):
                value = getattr(self.lineage(name), field)
                if value is not None:
                    _check_text(value, (part, name, field), f"the {field}")
        for name, corpus in self.corpora.items():
            if corpus.register_name is not None:
                _check_text(corpus.register_name, ("corpora", name, "register"), "the register")
        return self

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        both = sorted(set(self.checkpoints) & set(self.stages))
        if both:
            why = f"{both[0]!r} is both a checkpoint and a stage"
            raise field_error(("stages", both[0]), why, "Rename one of them")
        for name, stage in self.stages.items():
            for parent in parents(stage):
                where = ("stages", name, "resumes" if isinstance(stage, Pretrain) else "init")
                _known(parent, self.names, where, f"stage {name!r} starts from")
            corpus = corpus_of(stage)
            if corpus is not None:
                where = ("stages", name, "corpus")
                _known(corpus, list(self.corpora), where, f"stage {name!r} reads corpus")
        for name in self.names:
            base = self.lineage(name).base
            if base is not None:
                _known(base, self.names, self._parent_field(name), f"{name!r} has the base")
        self._no_cycles()
        return self

    def _no_cycles(self) -> None:
        for start in self.names:
            path = [start]
            while (up := self.parent(path[-1])) is not None:
                if up in path:
                    circle = " -> ".join([*path[path.index(up) :], up])
                    why = f"the stemma has a cycle: {circle}; a checkpoint can't descend from itself"
                    raise field_error(self._parent_field(up), why, f"Give {up!r} another parent, or none")
                path.append(up)

    def _parent_field(self, name: str) -> tuple[str, ...]:
        """The field that declares a checkpoint's parent."""
        part = "stages" if name in self.stages else "checkpoints"
        if self.lineage(name).base is not None:
            return (part, name, "base")
        return (part, name, "resumes" if isinstance(self.stages[name], Pretrain) else "init")

    @property
    def names(self) -> list[str]:
        """All checkpoints: given ones, then stages."""
        return [*self.checkpoints, *self.stages]

    def lineage(self, name: str) -> Lineage:
        """The declared lineage of a checkpoint or stage."""
        return self.stages[name] if name in self.stages else self.checkpoints[name]

    def parent(self, name: str) -> str | None:
        """The checkpoint above in the tree: its ``base``, else what its stage starts from."""
        declared = self.lineage(name).base
        if declared is not None:
            return declared
        if name in self.stages:
            above = parents(self.stages[name])
            return above[0] if above else None
        return None

    def family(self, name: str) -> str:
        """The declared family, else that of the parent, else the root's own name."""
        declared = self.lineage(name).family
        if declared is not None:
            return declared
        above = self.parent(name)
        return name if above is None else self.family(above)

    def trained_last(self, name: str) -> str | None:
        """The data of the last pretraining: declared, or the corpus of the last stage on plain text.

        Post-training does not change it. None where it is not known of the root.
        """
        declared = self.lineage(name).trained_last
        if declared is not None:
            return declared
        stage = self.stages.get(name)
        if isinstance(stage, Pretrain | ContinuedPretraining):
            return stage.corpus
        above = parents(stage)[:1] if stage is not None else [self.lineage(name).base]
        return self.trained_last(above[0]) if above and above[0] is not None else None

    def pairs(self) -> list[tuple[str, str]]:
        """Base and descendant, for every checkpoint with a ``base`` (declared order)."""
        return [(base, name) for name in self.names if (base := self.lineage(name).base) is not None]

    def trajectories(self) -> list[list[str]]:
        """Runs of pretraining checkpoints, first to last."""
        nexts = {
            stage.resumes: name
            for name, stage in self.stages.items()
            if isinstance(stage, Pretrain) and stage.resumes is not None
        }
        starts = [name for name in nexts if name not in nexts.values()]
        runs = []
        for start in starts:
            run = [start]
            while run[-1] in nexts:
                run.append(nexts[run[-1]])
            runs.append(run)
        return runs
