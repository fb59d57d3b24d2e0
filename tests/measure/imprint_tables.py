"""An imprint study whose stored tables are written by hand, so that every number of it is known."""

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from stemmatics.core.results import Results
from stemmatics.core.stemma import Stemma
from stemmatics.facts.corpus import CORPUS
from stemmatics.facts.matched import matched_fact
from stemmatics.facts.pinned import Pinned, Pins
from stemmatics.facts.replies import ITEMS
from stemmatics.facts.score import SCORE
from stemmatics.facts.train import TRAIN
from stemmatics.measure.imprint import Imprint
from stemmatics.measure.imprint.needs import node_facts, tree_nodes
from stemmatics.measure.imprint.settings import ImprintSettings

ENDS = ("dpo", "grpo")
DATA = ("chats", "pairs", "tasks", "requests", "forms", "questions", "labelled")
RECIPE = {"steps": 2, "batch_size": 4, "max_length": 48}
SHAPE = {"hidden_size": 32, "num_layers": 2, "num_heads": 2, "vocab_size": 300, "context": 256}


def declared(branches=("generic", "safety"), runs=2, changes=None, trained_fork=True, **settings):
    """A stemma with one tree; ``changes`` alters stages by the name of their checkpoint."""
    order, target = settings.pop("order", None), settings.pop("target", None)
    fork = {"kind": "pretrain", "corpus": "web", "architecture": SHAPE, "recipe": RECIPE}
    stages = {"fork": fork} if trained_fork else {}
    tree = {"fork": "fork", "control": "generic", "branches": {}, "order": order, "target": target}
    for branch in branches:
        for run in range(1, runs + 1):
            name, sft = f"{branch}-{run}", f"{branch}-{run}-sft"
            common = {"run": run, "recipe": RECIPE}
            window = {"kind": "cpt", "init": "fork", "corpus": f"window-{branch}"}
            stages[name] = {**window, "trained_last": f"{branch} text", **common}
            stages[sft] = {"kind": "sft", "init": name, "corpus": "chats", **common}
            stages[f"{name}-dpo"] = {"kind": "dpo", "init": sft, "corpus": "pairs", **common}
            rewards = {"loss_type": "dapo", "scale_rewards": "group"}
            stages[f"{name}-grpo"] = {"kind": "grpo", "init": sft, "corpus": "tasks", **rewards, **common}
            ends = {end: f"{name}-{end}" for end in ENDS}
            tree["branches"].setdefault(branch, []).append({"window": name, "sft": sft, "ends": ends})
    for name, change in (changes or {}).items():
        stages[name] = {**stages[name], **change}
    corpora = {name: {"path": f"{name}.jsonl", "role": "data"} for name in DATA}
    texts = ("web", "heldout", *(f"window-{branch}" for branch in branches))
    corpora |= {name: {"path": f"{name}.jsonl"} for name in texts}
    checkpoints = {} if trained_fork else {"fork": {"source": "org/base"}}
    stemma = Stemma.model_validate(
        {"name": "imprint", "checkpoints": checkpoints, "stages": stages, "corpora": corpora}
    )
    pins = Pins(
        checkpoints={name: {"weights": "w", "tokenizer": "t", "config": "c"} for name in checkpoints},
        corpora={name: {"content_sha256": name, "num_documents": 9, "num_bytes": 900} for name in corpora},
    )
    values = {"trees": {"first": tree}, "refusal": "requests", **settings}
    return Pinned(stemma, pins), ImprintSettings.model_validate(values)


@dataclass
class StoredTables:
    """Tables by fact; a fact without any has failed."""

    rows: dict = field(default_factory=dict)

    def has(self, fact):
        return any(key == fact.key for key, _ in self.rows)

    def read(self, fact, table):
        return self.rows[fact.key, table]

    def write(self, fact, table, rows, schema):
        self.rows[fact.key, table] = pa.Table.from_pylist(list(rows), schema=schema)

    def items(self, fact, category, outcomes):
        """Adds items of one category: (outcome, correct) each."""
        old = self.rows[fact.key, "items"].to_pylist() if (fact.key, "items") in self.rows else []
        new = [
            {
                "index": len(old) + position,
                "item_id": f"{category}-{position}",
                "category": category,
                "outcome": outcome,
                "correct": correct,
                "num_accepted": 1,
                "num_tokens": 3,
            }
            for position, (outcome, correct) in enumerate(outcomes)
        ]
        self.write(fact, "items", [*old, *new], ITEMS)

    def refusals(self, fact, category, refused):
        """Adds requests; ``refused`` has 1 for each that was refused. ``correct`` says the opposite."""
        self.items(fact, category, [("refusal" if value else "answer", int(not value)) for value in refused])

    def losses(self, fact, nll_sums, num_bytes, groups=None):
        """The sums of a loss on documents, each its own group unless ``groups`` says otherwise."""
        documents = [
            {"index": index, "doc_id": f"d{index}", "register": "news", "group": group, "flags": []}
            for index, group in enumerate(groups or [f"g{index}" for index in range(len(nll_sums))])
        ]
        self.write(fact.needs["corpus"], "documents", documents, CORPUS.tables["documents"])
        scores = [
            {"index": index, "doc_id": f"d{index}", "nll_sum": nll, "num_tokens": 10, "num_bytes": size}
            for index, (nll, size) in enumerate(zip(nll_sums, num_bytes, strict=True))
        ]
        self.write(fact, "scores", scores, SCORE.tables["scores"])
        scoring = {"window_size": 99, "window_stride": 99, "token_ids_sha256": "t", "dtype": "float32"}
        self.write(fact, "scoring", [scoring], SCORE.tables["scoring"])

    def training(self, fact, num_tokens):
        """A training log; the last row is not the largest where a run was resumed."""
        rows = [{"step": step, "loss": 1.0, "num_tokens": tokens} for step, tokens in enumerate(num_tokens)]
        self.write(fact, "training", rows, TRAIN.tables["training"])


def fill_refusals(pinned, settings, shares, harmless=(0, 0)):
    """Tables with the refusals of every node; ``shares(node)`` has 1 for each request that is refused."""
    tables = StoredTables()
    for node, checkpoint in tree_nodes(settings):
        fact = node_facts(pinned, settings, checkpoint).refusal
        refused = shares(node)
        if refused is not None:
            tables.refusals(fact, settings.refused, refused)
            tables.refusals(fact, settings.harmless, harmless)
    return tables


def label_replies(pinned, settings, tables, counts):
    """The matcher's table: ``counts`` has the number of replies by (reader's label, matcher's outcome)."""
    fact = matched_fact(pinned, settings.matcher)
    for (label, outcome), count in counts.items():
        tables.items(fact, label, [(outcome, int(label == outcome))] * count)


def results_of(pinned, settings, tables):
    return Results(Imprint().estimate(pinned, settings, tables, np.random.default_rng(0)))


def findings_of(pinned, settings, results):
    return Imprint().findings(pinned, settings, results)
