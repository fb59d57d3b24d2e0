"""What the recovery measure is asked, and the facts of its arms."""

from __future__ import annotations

from functools import cached_property
from typing import Self

from pydantic import Field, model_validator

from stemmatics.core.errors import UserError
from stemmatics.core.facts import Fact, Tag
from stemmatics.core.scoring import Scoring, Windows
from stemmatics.core.stages import Pretrain, Recovery, RecoveryRecipe
from stemmatics.facts.overlap import overlap_fact
from stemmatics.facts.pinned import Pinned
from stemmatics.facts.prediction import OriginParams, PredictionParams, prediction_fact
from stemmatics.facts.registry import registry_fact
from stemmatics.facts.replies import replies_fact
from stemmatics.facts.score import score_fact
from stemmatics.math.placing import Origin
from stemmatics.measure.base import Settings

NAME = "recovery"
NANO = RecoveryRecipe.model_validate("nano")


class RecoverySettings(Settings):
    """What the recovery measure is asked.

    ``pool``: the corpus that every arm is fine-tuned on; ``second_pool``: one of another register.
    ``recipe``: S1, small, nano, or settings of one's own. ``checkpoints``: who goes through it (all
    but declared recovery stages if left out); ``again``: which pairs' descendants also go through
    ``second_pool``. ``runs`` repeats every arm with other seeds, ``base_runs`` those of the bases.
    ``items``: a corpus of questions asked of all four arms, ``categories`` those of its items that
    are recall, ``margin`` the change that counts as none. ``trajectories``: checkpoints of one run
    in their order. ``registry``: a corpus of calibrated pairs that ``stemma export --registry`` wrote.
    """

    pool: str
    second_pool: str | None = None
    recipe: RecoveryRecipe = NANO
    corpora: list[str] | None = None
    scoring: Scoring = Scoring(windows=Windows(rule="bytes"), prefix="always")
    checkpoints: list[str] | None = None
    again: list[str] | None = None
    runs: int = Field(default=1, ge=1)
    base_runs: int = Field(default=2, ge=1)
    items: str | None = None
    categories: list[str] | None = None
    margin: float = Field(default=0.05, gt=0, lt=1)
    max_new_tokens: int = Field(default=16, ge=1)
    trajectories: dict[str, list[str]] = Field(default_factory=dict)
    registry: str | None = None

    @model_validator(mode="after")
    def _comparable(self) -> Self:
        if self.scoring.prefix != "always" or self.scoring.support != "full":
            message = "arms compare by byte: scoring needs prefix: always and support: full"
            raise ValueError(message)
        return self


def origin_of(pinned: Pinned, name: str) -> Origin:
    """What the stemma says of a checkpoint; a generation that is not declared is the base's."""
    lineage = pinned.stemma.lineage(name)
    base = lineage.base
    generation = lineage.generation or (pinned.stemma.lineage(base).generation if base is not None else None)
    declared = {
        "lab": lineage.lab,
        "generation": generation,
        "pipeline": lineage.pipeline,
        "regime": lineage.regime,
    }
    return Origin.of(name, pinned.stemma.family(name), declared)


class Arms:
    """The checkpoints that go through the fine-tune, and the facts of their arms."""

    def __init__(self, pinned: Pinned, settings: RecoverySettings) -> None:
        self.pinned = pinned
        self.settings = settings

    @cached_property
    def names(self) -> list[str]:
        """Checkpoints that go through the fine-tune, in declared order."""
        stemma, asked = self.pinned.stemma, self.settings.checkpoints
        if asked is not None:
            for name in asked:
                self.pinned.checkpoint(name)
            return list(asked)
        return [name for name in stemma.names if not isinstance(stemma.stages.get(name), Recovery)]

    @cached_property
    def pairs(self) -> list[tuple[str, str]]:
        """Base and descendant where both go through it."""
        known = set(self.names)
        return [pair for pair in self.pinned.stemma.pairs() if known.issuperset(pair)]

    @property
    def corpora(self) -> list[str]:
        """The corpora that are scored."""
        declared = self.pinned.stemma.corpora
        texts = [name for name, corpus in declared.items() if corpus.role == "text"]
        return texts if self.settings.corpora is None else self.settings.corpora

    def is_base(self, name: str) -> bool:
        """Whether a checkpoint is taken for a base: pretrained here, or nothing is said to be above it."""
        stemma = self.pinned.stemma
        lineage = stemma.lineage(name)
        pretrained = isinstance(stemma.stages.get(name), Pretrain)
        return pretrained or (stemma.parent(name) is None and lineage.regime in {None, "base"})

    @cached_property
    def unknown(self) -> list[str]:
        """Descendants whose base is not among the checkpoints."""
        paired = {name for _, name in self.pairs}
        return [name for name in self.names if name not in paired and not self.is_base(name)]

    def runs(self, name: str) -> int:
        """How often the fine-tune of a checkpoint is made."""
        bases = {base for base, _ in self.pairs}
        settings = self.settings
        return max(settings.runs, settings.base_runs) if name in bases else settings.runs

    def pools(self, name: str) -> list[str]:
        """The pools that a checkpoint goes through."""
        second = self.settings.second_pool
        if second is None or name not in {one for pair in self.again for one in pair}:
            return [self.settings.pool]
        return [self.settings.pool, second]

    @cached_property
    def again(self) -> list[tuple[str, str]]:
        """Pairs that go through the second pool too."""
        if self.settings.second_pool is None:
            return []
        wanted = self.settings.again
        return [pair for pair in self.pairs if wanted is None or pair[1] in wanted]

    @cached_property
    def blind_pairs(self) -> list[tuple[str, str]]:
        """Pairs of families in which a checkpoint is marked blind."""
        stemma = self.pinned.stemma
        families = {stemma.family(name) for name in stemma.names if stemma.lineage(name).blind}
        return [pair for pair in self.pairs if stemma.family(pair[1]) in families]

    def prediction(self, name: str, corpus: str) -> Fact:
        """Where the base of a blind family's descendant will stand, from the other families alone."""
        seen = [pair for pair in self.pairs if pair not in self.blind_pairs]
        params = PredictionParams(
            checkpoint=name,
            origin=OriginParams(**vars(origin_of(self.pinned, name))),
            pairs=[OriginParams(**vars(origin_of(self.pinned, descendant))) for _, descendant in seen],
        )
        pairs = [(self.rebased(base, corpus), self.rebased(descendant, corpus)) for base, descendant in seen]
        return prediction_fact(params, self.rebased(name, corpus), pairs, corpus)

    def arm(self, name: str, *, run: int = 0, pool: str | None = None) -> Fact:
        """The checkpoint after the fine-tune; a blind base waits for the predictions made of it."""
        tag: Tag = "seed" if run else "control" if pool == self.settings.second_pool else "main"
        first = [
            self.prediction(descendant, corpus)
            for base, descendant in self.blind_pairs
            if base == name
            for corpus in self.corpora
        ]
        return self.pinned.recovered(
            name, self.settings.recipe, pool or self.settings.pool, run=run, tag=tag, after=first
        )

    def native(self, name: str, corpus: str) -> Fact:
        """The sums of a checkpoint as released."""
        return score_fact(self.pinned, name, corpus, self.settings.scoring)

    def rebased(self, name: str, corpus: str, *, run: int = 0, pool: str | None = None) -> Fact:
        """The sums of a checkpoint after the fine-tune."""
        arm = self.arm(name, run=run, pool=pool)
        return score_fact(self.pinned, arm, corpus, self.settings.scoring, tag=arm.tag)

    def asked(self, name: str, items: str, *, run: int | None) -> Fact:
        """Replies of a checkpoint to the recall items; of an arm where ``run`` is given."""
        checkpoint = name if run is None else self.arm(name, run=run)
        return replies_fact(self.pinned, checkpoint, items, max_new_tokens=self.settings.max_new_tokens)

    def check(self) -> None:
        """Refuse settings that name checkpoints which do not go through the fine-tune.

        Raises:
            UserError: names the setting and what it could hold.
        """
        descendants = [name for _, name in self.pairs]
        asked = {
            f"trajectories.{name}": (one, self.names) for name, one in self.settings.trajectories.items()
        }
        asked["again"] = (self.settings.again or [], descendants)
        for setting, (wanted, there) in asked.items():
            for name in wanted:
                if name not in there:
                    raise UserError(
                        f"recovery.{setting} names {name!r}",
                        "it does not go through the fine-tune, or has no base that does",
                        f"Choose of {', '.join(there) or 'none'}, or add it to recovery.checkpoints",
                        code=2,
                    )

    def facts(self) -> list[Fact]:
        """Everything that is needed."""
        self.check()
        found: list[Fact] = []
        for corpus in self.corpora:
            for name in self.names:
                found.append(self.native(name, corpus))
                found += [self.rebased(name, corpus, run=run) for run in range(self.runs(name))]
                found += [self.rebased(name, corpus, pool=pool) for pool in self.pools(name)[1:]]
            pools = [self.settings.pool, *([self.settings.second_pool] if self.again else [])]
            found += [overlap_fact(self.pinned, pool, corpus) for pool in pools if pool is not None]
        found += [self.arm(name) for name in self.names]
        if self.settings.items is not None:
            found += self._recall_facts(self.settings.items)
        if self.settings.registry is not None:
            found.append(registry_fact(self.pinned, self.settings.registry))
        return found

    def _recall_facts(self, items: str) -> list[Fact]:
        found = []
        for name in dict.fromkeys(one for pair in self.pairs for one in pair):
            found += [self.asked(name, items, run=run) for run in (None, *range(min(2, self.runs(name))))]
        return found
