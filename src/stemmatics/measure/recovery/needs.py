"""The checkpoints that go through the recovery fine-tune, and the facts of their arms."""

from __future__ import annotations

from functools import cached_property

from stemmatics.core.errors import UserError
from stemmatics.core.facts import Fact, Tag
from stemmatics.core.stages import Pretrain, Recovery
from stemmatics.facts.judged import judged_fact
from stemmatics.facts.overlap import overlap_fact
from stemmatics.facts.pinned import Pinned
from stemmatics.facts.prediction import OriginParams, PredictionParams, prediction_fact
from stemmatics.facts.registry import registry_fact
from stemmatics.facts.replies import replies_fact
from stemmatics.facts.score import score_fact
from stemmatics.math.recovery import Origin
from stemmatics.measure.recovery.settings import RecoverySettings

# base and descendant
PairNames = tuple[str, str]


def origin_of(pinned: Pinned, name: str) -> Origin:
    """The declared origin of a checkpoint; a generation that is not declared is its base's."""
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
        stemma, chosen = self.pinned.stemma, self.settings.checkpoints
        if chosen is not None:
            for name in chosen:
                self.pinned.checkpoint(name)
            return list(chosen)
        return [name for name in stemma.names if not isinstance(stemma.stages.get(name), Recovery)]

    @cached_property
    def pairs(self) -> list[PairNames]:
        """Base and descendant where both go through the fine-tune."""
        names = set(self.names)
        return [pair for pair in self.pinned.stemma.pairs() if names.issuperset(pair)]

    @property
    def corpora(self) -> list[str]:
        """The corpora that are scored."""
        declared = self.pinned.stemma.corpora
        texts = [name for name, corpus in declared.items() if corpus.role == "text"]
        return texts if self.settings.corpora is None else self.settings.corpora

    def is_base(self, name: str) -> bool:
        """Whether a checkpoint counts as a base: pretrained here, or declared with nothing above it."""
        stemma = self.pinned.stemma
        lineage = stemma.lineage(name)
        pretrained = isinstance(stemma.stages.get(name), Pretrain)
        return pretrained or (stemma.parent(name) is None and lineage.regime in {None, "base"})

    @cached_property
    def base_unknown(self) -> list[str]:
        """Descendants whose base is not among the checkpoints."""
        paired = {descendant for _, descendant in self.pairs}
        return [name for name in self.names if name not in paired and not self.is_base(name)]

    def num_runs(self, name: str) -> int:
        """How many times a checkpoint is fine-tuned on the first pool."""
        bases = {base for base, _ in self.pairs}
        settings = self.settings
        return max(settings.runs, settings.base_runs) if name in bases else settings.runs

    def pools(self, name: str) -> list[str]:
        """The pools on which a checkpoint is fine-tuned."""
        second = self.settings.second_pool
        if second is None or name not in {side for pair in self.second_pool_pairs for side in pair}:
            return [self.settings.pool]
        return [self.settings.pool, second]

    @cached_property
    def second_pool_pairs(self) -> list[PairNames]:
        """Pairs that are fine-tuned on the second pool too."""
        if self.settings.second_pool is None:
            return []
        chosen = self.settings.again
        return [pair for pair in self.pairs if chosen is None or pair[1] in chosen]

    @property
    def all_pools(self) -> list[str]:
        """The pool, and the second one if any pair is fine-tuned on it."""
        second = self.settings.second_pool
        return [self.settings.pool, *([second] if second and self.second_pool_pairs else [])]

    @cached_property
    def blind_pairs(self) -> list[PairNames]:
        """Pairs of families in which a checkpoint is marked blind."""
        stemma = self.pinned.stemma
        families = {stemma.family(name) for name in stemma.names if stemma.lineage(name).blind}
        return [pair for pair in self.pairs if stemma.family(pair[1]) in families]

    def prediction(self, name: str, corpus: str) -> Fact:
        """The predicted loss of the base of a blind family's descendant, from the other families alone."""
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
        predictions = [
            self.prediction(descendant, corpus)
            for base, descendant in self.blind_pairs
            if base == name
            for corpus in self.corpora
        ]
        return self.pinned.recovered(
            name, self.settings.recipe, pool or self.settings.pool, run=run, tag=tag, after=predictions
        )

    def native(self, name: str, corpus: str) -> Fact:
        """The sums of a checkpoint as released."""
        return score_fact(self.pinned, name, corpus, self.settings.scoring)

    def rebased(self, name: str, corpus: str, *, run: int = 0, pool: str | None = None) -> Fact:
        """The sums of a checkpoint after the fine-tune."""
        arm = self.arm(name, run=run, pool=pool)
        return score_fact(self.pinned, arm, corpus, self.settings.scoring, tag=arm.tag)

    def replies(self, name: str, items: str, *, run: int | None) -> Fact:
        """Replies of a checkpoint to the recall items; of an arm where ``run`` is given."""
        checkpoint = name if run is None else self.arm(name, run=run)
        length, shots, judge = self.settings.max_new_tokens, self.settings.shots, self.settings.judge
        if judge is None:
            return replies_fact(self.pinned, checkpoint, items, max_new_tokens=length, num_shots=shots)
        return judged_fact(
            *(self.pinned, checkpoint, items, judge),
            max_new_tokens=length,
            num_shots=shots,
            question="recall",
        )

    def check(self) -> None:
        """Refuse settings that name checkpoints which do not go through the fine-tune.

        Raises:
            UserError: names the setting and what it could hold.
        """
        descendants = [name for _, name in self.pairs]
        trajectories = self.settings.trajectories
        checked = {f"trajectories.{name}": (run, self.names) for name, run in trajectories.items()}
        checked["again"] = (self.settings.again or [], descendants)
        for setting, (named, allowed) in checked.items():
            for name in named:
                if name not in allowed:
                    raise UserError(
                        f"recovery.{setting} names {name!r}",
                        "it does not go through the fine-tune, or has no base that does",
                        f"Choose from {', '.join(allowed) or 'none'}, or add it to recovery.checkpoints",
                        code=2,
                    )

    def facts(self) -> list[Fact]:
        """Everything that the measure needs."""
        self.check()
        facts: list[Fact] = []
        for corpus in self.corpora:
            for name in self.names:
                facts.append(self.native(name, corpus))
                facts += [self.rebased(name, corpus, run=run) for run in range(self.num_runs(name))]
                facts += [self.rebased(name, corpus, pool=pool) for pool in self.pools(name)[1:]]
            facts += [overlap_fact(self.pinned, pool, corpus) for pool in self.all_pools]
        facts += [self.arm(name) for name in self.names]
        if self.settings.items is not None:
            facts += self._recall_facts(self.settings.items)
        if self.settings.registry is not None:
            facts.append(registry_fact(self.pinned, self.settings.registry))
        return facts

    def _recall_facts(self, items: str) -> list[Fact]:
        facts = []
        for name in dict.fromkeys(side for pair in self.pairs for side in pair):
            runs = (None, *range(self.num_runs(name)))
            facts += [self.replies(name, items, run=run) for run in runs]
        return facts
