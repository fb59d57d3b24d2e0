"""Nodes of the trees, the facts needed for each, and whether the branches went through the same stages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from stemmatics.core.facts import Fact
from stemmatics.core.keys import key_of
from stemmatics.facts.judged import judged_fact
from stemmatics.facts.margins import margins_fact
from stemmatics.facts.matched import matched_fact
from stemmatics.facts.pinned import Pinned
from stemmatics.facts.replies import replies_fact
from stemmatics.facts.score import score_fact
from stemmatics.measure.imprint.settings import ImprintSettings

FORK, WINDOW, SFT = "fork", "window", "sft"
HASH_DIGITS = 12


@dataclass(frozen=True)
class NodeId:
    """A node of a tree. ``run`` counts from 1; the fork is branch ``fork``, run 1, stage ``fork``."""

    tree: str
    branch: str
    run: int
    stage: str

    @property
    def subject(self) -> dict[str, str]:
        """As the subject of a result."""
        return {"tree": self.tree, "branch": self.branch, "run": str(self.run), "stage": self.stage}


def tree_nodes(settings: ImprintSettings) -> Iterator[tuple[NodeId, str]]:
    """Every node of every tree with the name of its checkpoint."""
    for name, tree in settings.trees.items():
        yield NodeId(name, FORK, 1, FORK), tree.fork
        for branch, runs in tree.branches.items():
            for number, run in enumerate(runs, start=1):
                yield NodeId(name, branch, number, WINDOW), run.window
                yield NodeId(name, branch, number, SFT), run.sft
                for end, checkpoint in run.ends.items():
                    yield NodeId(name, branch, number, end), checkpoint


@dataclass(frozen=True)
class NodeFacts:
    """The facts measured on one checkpoint; None for what the settings leave out."""

    refusal: Fact
    margins: Fact | None
    judged: Fact | None
    instructions: Fact | None
    recall: Fact | None
    loss: Fact | None

    def all(self) -> list[Fact]:
        """Those that the settings include."""
        facts = (self.refusal, self.margins, self.judged, self.instructions, self.recall, self.loss)
        return [fact for fact in facts if fact is not None]


def node_facts(pinned: Pinned, settings: ImprintSettings, checkpoint: str) -> NodeFacts:
    """What is measured on a checkpoint; all replies have the same limit on their length."""
    limit = settings.max_new_tokens

    def replies(corpus: str) -> Fact:
        return replies_fact(pinned, checkpoint, corpus, max_new_tokens=limit)

    margins = judged = instructions = recall = loss = None
    if settings.graded:
        margins = margins_fact(pinned, checkpoint, settings.refusal)
    if settings.judge is not None:
        judged = judged_fact(pinned, checkpoint, settings.refusal, settings.judge, max_new_tokens=limit)
    if settings.instructions is not None:
        instructions = replies(settings.instructions)
    if settings.recall is not None:
        recall = replies(settings.recall)
    if settings.heldout is not None:
        loss = score_fact(pinned, checkpoint, settings.heldout, pinned.stemma.scoring)
    return NodeFacts(replies(settings.refusal), margins, judged, instructions, recall, loss)


def imprint_facts(pinned: Pinned, settings: ImprintSettings) -> list[Fact]:
    """Replies and losses of every node, the checkpoints with their training logs, the labelled replies."""
    checkpoints = dict.fromkeys(checkpoint for _, checkpoint in tree_nodes(settings))
    facts = [fact for name in checkpoints for fact in node_facts(pinned, settings, name).all()]
    facts += [pinned.checkpoint(name) for name in checkpoints]
    return facts if settings.matcher is None else [*facts, matched_fact(pinned, settings.matcher)]


def stage_hash(pinned: Pinned, checkpoint: str, *, corpus: bool) -> str:
    """Identifies a stage apart from what it starts from: recipe, seed and, with ``corpus``, its corpus."""
    fact = pinned.checkpoint(checkpoint)
    corpus_key = fact.needs["corpus"].key if corpus and "corpus" in fact.needs else None
    return key_of({"params": dict(fact.params), "corpus": corpus_key})[:HASH_DIGITS]


def stage_hashes(
    pinned: Pinned, settings: ImprintSettings
) -> dict[tuple[str, int, str], dict[str, list[str]]]:
    """For each tree, run and stage: the branches by the hash of their stage. One hash: the same stage.

    Windows differ in their corpus, so only recipe and seed are in their hash. A branch of the order
    control has two windows; the second is compared.
    """
    hashes: dict[tuple[str, int, str], dict[str, list[str]]] = {}
    for node, checkpoint in tree_nodes(settings):
        if node.stage != FORK:
            recipe_hash = stage_hash(pinned, checkpoint, corpus=node.stage != WINDOW)
            branches_by_hash = hashes.setdefault((node.tree, node.run, node.stage), {})
            branches_by_hash.setdefault(recipe_hash, []).append(node.branch)
    return hashes
