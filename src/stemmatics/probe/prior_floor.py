"""What the same fits report on a base that was only damaged, by as much as its descendant lost.

Axes: V vocabulary, S supported ids, D width.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from stemmatics.core.facts import Fact
from stemmatics.facts.prior_floor import NOISE_KINDS, PRIOR_FLOOR, NoiseKind
from stemmatics.lm.checkpoints.loading import Loaded
from stemmatics.lm.scoring.head_damage import centred, damaged, head_noise, match
from stemmatics.probe.base import Context, Cost, Failed, Made, each
from stemmatics.probe.costs import forward_cost, num_tokens
from stemmatics.probe.prior import choice_of, rows_of, scratch_folder, tables_of
from stemmatics.probe.prior.arms import Choice, ModelStatistics, fit_model
from stemmatics.probe.prior.states import HeadPass, Refused, head_pass
from stemmatics.probe.sources import load_checkpoint

Rows = list[dict[str, Any]]


class PriorFloor:
    """Damaged heads of a base, one a seed and kind; the model below them runs once."""

    def group(self, fact: Fact) -> str:
        """One load a base."""
        return fact.needs["checkpoint"].key

    def cost(self, fact: Fact) -> Cost:
        """The corpus through the base once; what follows is its head alone."""
        return forward_cost(fact.needs["checkpoint"], num_tokens(fact.needs["corpus"]))

    def run(self, facts: Sequence[Fact], context: Context) -> Iterator[Made | Failed]:
        """Sums and fits of every damaged head, and the noise that it took."""
        loaded = load_checkpoint(facts[0].needs["checkpoint"], context)
        yield from each(facts, lambda fact: _one(fact, loaded, context))


def _one(fact: Fact, loaded: Loaded, context: Context) -> Made:
    target, refusal = _target(fact, context)
    sums: Rows = []
    fits: Rows = []
    damage: Rows = []
    if not refusal:
        with scratch_folder(context) as scratch:
            try:
                found = head_pass(fact, loaded, context, Path(scratch))
            except Refused as refused:
                refusal = str(refused)
            else:
                sums, fits, damage = _variants(fact, loaded, found, target, Path(scratch))
    tables = tables_of(sums, fits, [], {"refusal": refusal})
    tables["prior_damage"] = PRIOR_FLOOR.table("prior_damage", damage)
    return Made(fact, tables)


def _target(fact: Fact, context: Context) -> tuple[float, str]:
    """The pair's own loss increase on EVAL in nats a token, or why there is none to match."""
    totals = []
    for role in ("old", "new"):
        key = fact.needs[role].key
        said = context.ledger.read(key, "prior_model").to_pylist()[0]
        if said["refusal"]:
            return math.nan, said["refusal"]
        rows = [row for row in context.ledger.read(key, "prior_sums").to_pylist() if row["arm"] == "none"]
        totals.append((sum(row["nll_sum"] for row in rows), sum(row["num_tokens"] for row in rows)))
    (old, tokens), (new, _) = totals
    delta = (new - old) / tokens
    return delta, "" if delta > 0 else "the descendant did not lose: there is no damage to match"


def _variants(
    fact: Fact, loaded: Loaded, found: HeadPass, target: float, scratch: Path
) -> tuple[Rows, Rows, Rows]:
    sums: Rows = []
    fits: Rows = []
    damage: Rows = []
    choice = replace(choice_of(fact), ceilings=False)
    guess: dict[NoiseKind, float] = {}
    for seed in range(int(fact.params["seeds"])):
        for kind in NOISE_KINDS:
            variant = f"{kind}.{seed}"
            matched, rows = _damage(loaded, found, (kind, seed), target, guess.get(kind))
            damage.append({"variant": variant, "kind": kind, "seed": seed, **rows})
            if matched is None:
                continue
            guess[kind] = rows["sigma"]
            more_sums, more_fits = _fit(matched, found, choice, variant, scratch)
            sums += more_sums
            fits += more_fits
    return sums, fits, damage


def noise_of(loaded: Loaded, found: HeadPass, kind: NoiseKind, seed: int) -> Any:
    """The noise of one seed on the supported rows, (S, D)."""
    weight_VD = loaded.model.get_output_embeddings().weight
    noise_VD = head_noise(tuple(weight_VD.shape), seed)
    if kind == "centred":
        noise_VD = centred(noise_VD, found.positions["FIT"].mean_state()[0])
    return noise_VD if len(found.ids_S) == len(noise_VD) else noise_VD[found.ids_S]


def _damage(
    loaded: Loaded, found: HeadPass, which: tuple[NoiseKind, int], target: float, guess: float | None
) -> tuple[HeadPass | None, dict[str, Any]]:
    noise_SD = noise_of(loaded, found, *which)
    result = match(found.head, found.positions["EVAL"], noise_SD, target, guess=guess)
    row = {
        "sigma": None if math.isnan(result.sigma) else result.sigma,
        "num_evaluations": result.num_evaluations,
        "failure": result.failure,
    }
    if result.failure:
        return None, row
    return replace(found, head=damaged(found.head, noise_SD, result.sigma)), row


def _fit(
    matched: HeadPass, found: HeadPass, choice: Choice, variant: str, scratch: Path
) -> tuple[Rows, Rows]:
    model = ModelStatistics(matched.head, found.positions["FIT"], found.positions["EVAL"], choice, scratch)
    fitted, _, _ = fit_model(model, choice)
    return rows_of(fitted, found, variant)
