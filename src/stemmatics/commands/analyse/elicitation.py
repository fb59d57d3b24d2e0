"""`stemma analyse elicitation`: did training raise what the best recipe reaches, or did a recipe fit it?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from stemmatics.commands.analyse.elicitation_table import MOST_LISTED, Answers, read_answers
from stemmatics.commands.analyse.numbers import as_data
from stemmatics.core.errors import UserError
from stemmatics.math.elicitation.ceiling import (
    NUM_SPLITS,
    Ceilings,
    ceiling_interval,
    estimate_ceilings,
    judge_gain,
)
from stemmatics.math.elicitation.components import noises, variance_components
from stemmatics.math.elicitation.order import Flips, RecipeOrder, clear_flips, count_flips, order_recipes

UNITS = "share of answers"


def analyse_elicitation(path: Path, *, rng: np.random.Generator, recipe: str | None = None) -> dict[str, Any]:
    """Top recipes, flips of their order, variance components, ceilings, and a verdict for each gain.

    Args:
        path: a table of answers, or of accuracies; docs/elicitation.md describes it.
        rng: for splits, resamples, sign flips and draws.
        recipe: the recipe of the claimed gain; without it each has its row.

    Raises UserError for a table that lacks something, or an unknown recipe.
    """
    answers = read_answers(path)
    if recipe is not None and recipe not in answers.recipes:
        raise UserError(
            f"there is no recipe {recipe!r}",
            f"the table has {', '.join(answers.recipes)}",
            "Name one of them",
            code=2,
        )
    by_item = answers.unit == "item"
    head = {
        "recipes": answers.recipes,
        "checkpoints": answers.checkpoints,
        "num_items": len(answers.items) if by_item else None,
        "num_tasks": None if by_item else len(answers.items),
        "num_seeds": len(answers.seeds),
        "num_left_out": len(answers.left_out),
        "left_out": dict(list(answers.left_out.items())[:MOST_LISTED]),
        "components": _components(answers, rng),
    }
    if not by_item:
        return head | _without_items(answers)
    means_IRC = answers.scores_IRCS.mean(axis=3)
    orders = [
        order_recipes(means_IRC[:, :, c], rng=rng, groups_I=answers.groups_I)
        for c in range(len(answers.checkpoints))
    ]
    ceilings = estimate_ceilings(means_IRC, rng=rng, groups_I=answers.groups_I)
    return head | {
        "num_groups": ceilings.num_groups,
        "num_splits": NUM_SPLITS,
        "noise": _noise(answers, rng),
        "flips": _flips(answers, orders),
        "results": [_checkpoint(answers, c, orders[c], ceilings) for c in range(len(answers.checkpoints))],
        "claims": _claims(answers, ceilings, recipe),
        "naive": False,
    }


def _components(answers: Answers, rng: np.random.Generator) -> dict[str, Any]:
    names = [answers.unit, "recipe", "checkpoint", "seed"]
    components = variance_components(answers.scores_IRCS, names, rng=rng)
    return {
        " x ".join(component.factors): as_data(
            component.interval, units=f"({UNITS})^2", share=component.share
        )
        for component in components
    }


def _noise(answers: Answers, rng: np.random.Generator) -> list[dict[str, Any]]:
    """Prediction and data noise of every recipe at every checkpoint, then of every compared difference."""
    if len(answers.seeds) < 2:
        return []
    scores = answers.scores_IRCS
    problems = [
        ({"recipe": recipe, "checkpoint": checkpoint}, scores[:, r, c])
        for c, checkpoint in enumerate(answers.checkpoints)
        for r, recipe in enumerate(answers.recipes)
    ]
    problems += [
        (
            {
                "recipe": recipe,
                "checkpoint": f"{answers.checkpoints[second]} less {answers.checkpoints[first]}",
            },
            scores[:, r, second] - scores[:, r, first],
        )
        for first, second in answers.pairs
        for r, recipe in enumerate(answers.recipes)
    ]
    estimates = noises(np.stack([values for _, values in problems], axis=2), rng=rng)
    return [
        subject
        | {
            "prediction": as_data(noise.prediction, units=f"({UNITS})^2"),
            "data": as_data(noise.data, units=f"({UNITS})^2"),
        }
        for (subject, _), noise in zip(problems, estimates, strict=True)
    ]


def _flip_data(flips: Flips, of: str) -> dict[str, Any]:
    return {
        "share": flips.share,
        "num_flipped": flips.num_flipped,
        "num_compared": flips.num_compared,
        "num_not_compared": flips.num_tied,
        "of": of,
    }


def _flips(answers: Answers, orders: list[RecipeOrder]) -> dict[str, Any]:
    means_RCS = answers.scores_IRCS.mean(axis=0)
    means_RC = means_RCS.mean(axis=2)
    across_seeds = sum((count_flips(means_RCS[:, c]) for c in range(means_RC.shape[1])), Flips(0, 0, 0))
    return {
        "across_checkpoints": _flip_data(
            count_flips(means_RC), "pairs of recipes x pairs of checkpoints without a tie"
        ),
        "clear_across_checkpoints": _flip_data(
            clear_flips(orders), "the same among those where the recipes differ at both (Holm)"
        ),
        "across_seeds": _flip_data(
            across_seeds, "pairs of recipes x pairs of seeds of a checkpoint without a tie"
        ),
        "of_checkpoints_across_recipes": _flip_data(
            count_flips(means_RC.T), "pairs of checkpoints x pairs of recipes without a tie"
        ),
    }


def _checkpoint(answers: Answers, c: int, order: RecipeOrder, ceilings: Ceilings) -> dict[str, Any]:
    recipes = answers.recipes
    return {
        "checkpoint": answers.checkpoints[c],
        "best": recipes[order.best],
        "top_group": [recipes[r] for r in order.top_group],
        "recipes": {
            recipe: {"mean": float(ceilings.means_RC[r, c]), "chosen": float(ceilings.chosen_RC[r, c])}
            for r, recipe in enumerate(recipes)
        },
        "ceiling": as_data(ceiling_interval(ceilings, c), units=UNITS),
        "naive_maximum": float(ceilings.naive_C[c]),
        "mean_of_recipes": float(ceilings.mean_C[c]),
        "pairs": [
            {
                "first": recipes[pair.first],
                "second": recipes[pair.second],
                "difference": pair.difference,
                "p": pair.p_value,
                "p_holm": pair.p_holm,
                "test": pair.test,
            }
            for pair in order.pairs
        ],
    }


def _claims(answers: Answers, ceilings: Ceilings, recipe: str | None) -> list[dict[str, Any]]:
    rows = []
    for first, second in answers.pairs:
        for r, name in enumerate(answers.recipes):
            if recipe is not None and name != recipe:
                continue
            claim = judge_gain(ceilings, r, first, second)
            rows.append(
                {
                    "from": answers.checkpoints[first],
                    "to": answers.checkpoints[second],
                    "recipe": name,
                    "verdict": claim.verdict,
                    "gain": as_data(claim.gain, units=UNITS),
                    "ceiling_change": as_data(claim.ceiling, units=UNITS),
                    "ceiling_change_less_half_the_gain": as_data(claim.unexplained, units=UNITS),
                }
            )
    return rows


def _without_items(answers: Answers) -> dict[str, Any]:
    """Accuracies only: largest and mean of the recipes, with no interval and no verdict."""
    means_TRC = answers.scores_IRCS.mean(axis=3)
    zero = Flips(0, 0, 0)
    return {
        "naive": True,
        "noise": [],
        "flips": {
            "across_checkpoints": _flip_data(
                sum((count_flips(means_RC) for means_RC in means_TRC), zero),
                "pairs of recipes x pairs of checkpoints, within each task, without a tie",
            ),
            "of_checkpoints_across_recipes": _flip_data(
                sum((count_flips(means_RC.T) for means_RC in means_TRC), zero),
                "pairs of checkpoints x pairs of recipes, within each task, without a tie",
            ),
        },
        "results": [
            {
                "checkpoint": checkpoint,
                "naive_maximum": float(means_TRC[:, :, c].max(axis=1).mean()),
                "mean_of_recipes": float(means_TRC[:, :, c].mean()),
            }
            for c, checkpoint in enumerate(answers.checkpoints)
        ],
        "claims": [],
    }
