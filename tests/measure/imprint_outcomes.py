"""Made outcomes of every node of a tree, and contrasts of them."""

import numpy as np
from tests.measure.imprint_tables import declared, fill_refusals, results_of

from stemmatics.core.facts import Fact
from stemmatics.core.results import Results
from stemmatics.measure.imprint.contrasts import Contrasts
from stemmatics.measure.imprint.needs import NodeId, tree_nodes
from stemmatics.measure.imprint.nodes import Node, Outcomes
from stemmatics.measure.imprint.settings import ImprintSettings

ENDS = ("dpo", "grpo")
SAFETY = {"branch": "safety", "against": "generic", "metric": "refusal", "tree": "first"}


def branch_run(name):
    return {"window": name, "sft": f"{name}-sft", "ends": {end: f"{name}-{end}" for end in ENDS}}


def settings_of(branches=("generic", "safety"), runs=3, settings=None, **tree):
    runs_of = {name: [branch_run(f"{name}-{run}") for run in range(runs)] for name in branches}
    return ImprintSettings.model_validate(
        {
            "trees": {"first": {"fork": "fork", "control": "generic", "branches": runs_of, **tree}},
            "refusal": "requests",
            "margin": 0.05,
            "min_cells": 2,
            "min_runs": 2,
            **(settings or {}),
        }
    )


def node_of(node_id, values, metric="refusal", wordings=None, things=None, copied_from=None):
    fact = Fact("replies", 1, (copied_from or node_id).subject)
    items = np.array([f"item-{position:05d}" for position in range(len(values))])
    return Node({metric: Outcomes(np.asarray(values, float), items, wordings, things)}, None, {metric: fact})


def contrasts(settings, outcomes, **labels):
    """All contrasts of made outcomes; ``outcomes(node)`` gives those of a node [Q]."""
    made = {node: outcomes(node) for node, _ in tree_nodes(settings)}
    nodes = {node: node_of(node, values, **labels) for node, values in made.items() if values is not None}
    return Results(Contrasts("first", settings.trees["first"], settings, nodes).results())


def random_outcomes(seed, num=40):
    rng, drawn = np.random.default_rng(seed), {}
    return lambda node: drawn.setdefault(node, (rng.random(num) < rng.random()).astype(float))


def changes_by_hand(outcomes, branch, end):
    """Change of a branch in every run, mean over prompts."""
    changes = []
    for run in (1, 2, 3):
        before, after = (outcomes(NodeId("first", branch, run, stage)) for stage in ("sft", end))
        changes.append(sum(after) / len(after) - sum(before) / len(before))
    return np.array(changes)


def first_refused(num, total=10):
    return [1] * num + [0] * (total - num)


# of ten requests the first so many are refused, by branch, run and stage
REFUSED = {
    ("generic", 1): {"sft": 9, "dpo": 7, "grpo": 9},
    ("generic", 2): {"sft": 8, "dpo": 4, "grpo": 10},
    ("safety", 1): {"sft": 10, "dpo": 9, "grpo": 6},
    ("safety", 2): {"sft": 5, "dpo": 5, "grpo": 4},
}


def stored_refusals(margin=0.05):
    pinned, settings = declared(margin=margin)
    return results_of(
        pinned,
        settings,
        fill_refusals(
            pinned,
            settings,
            lambda node: first_refused(REFUSED.get((node.branch, node.run), {}).get(node.stage, 0)),
        ),
    )


def noisy(node, shift=0.0, num=1500, stage="dpo", spread=0.01):
    """Nine of ten are refused; safety loses ``shift`` more at a stage; runs and prompts vary."""
    rng = np.random.default_rng([*f"{node.branch} {node.run} {node.stage}".encode()])
    level = 0.9 - (shift if (node.branch, node.stage) == ("safety", stage) else 0.0)
    return (rng.random(num) < level + spread * rng.normal()).astype(float)
