"""Probe ``prior_floor``: the same fits on a base with random damage that costs what the descendant lost.

Axes: V vocabulary, S supported ids, D width.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from stemmatics.core.facts import Fact
from stemmatics.facts.prior import UNCORRECTED
from stemmatics.facts.prior_floor import CENTRED, NOISE_KINDS, PRIOR_FLOOR, NoiseKind
from stemmatics.lm.checkpoints.loading import Loaded
from stemmatics.lm.scoring.head_damage import centred, damaged, head_noise, match
from stemmatics.probe.base import Context, Cost, Failed, Made, each
from stemmatics.probe.costs import forward_cost, num_tokens
from stemmatics.probe.passes import Reading, Refused
from stemmatics.probe.prior import rows_of, scratch_folder, settings_of, tables_of
from stemmatics.probe.prior.arms import FitSettings, ModelStatistics, fit_model
from stemmatics.probe.prior.states import HeadPass, head_pass, states_reading
from stemmatics.probe.sources import load_checkpoint

Rows = list[dict[str, Any]]


class PriorFloor:
    """Damaged heads of a base, one for each seed and kind of noise; the model below them runs once."""

    def group(self, fact: Fact) -> str:
        """Batching key: facts about one base share its load."""
        return fact.needs["checkpoint"].key

    def cost(self, fact: Fact) -> Cost:
        """The corpus through the base once; everything after that is the head alone."""
        return forward_cost(fact.needs["checkpoint"], num_tokens(fact.needs["corpus"]))

    def reading(self, fact: Fact) -> Reading:
        """States of the base, which all its descendants share."""
        return states_reading(fact)

    def run(self, facts: Sequence[Fact], context: Context) -> Iterator[Made | Failed]:
        """Sums and fits of every damaged head, and the matched noise."""
        loaded = load_checkpoint(facts[0].needs["checkpoint"], context)
        yield from each(facts, lambda fact: _make(fact, loaded, context))


def _make(fact: Fact, loaded: Loaded, context: Context) -> Made:
    target, refusal = _target(fact, context)
    sums: Rows = []
    fits: Rows = []
    damage: Rows = []
    if not refusal:
        with scratch_folder(context) as scratch:
            try:
                states = head_pass(fact, context)
            except Refused as refused:
                refusal = str(refused)
            else:
                sums, fits, damage = _variants(fact, loaded, states, target, Path(scratch))
    tables = tables_of(sums, fits, [], {"refusal": refusal})
    tables["prior_damage"] = PRIOR_FLOOR.table("prior_damage", damage)
    return Made(fact, tables)


def _target(fact: Fact, context: Context) -> tuple[float, str]:
    """The pair's own loss increase on EVAL in nats per token, or why there is none to match."""
    totals = []
    for role in ("old", "new"):
        key = fact.needs[role].key
        refusal = context.ledger.read(key, "prior_model").to_pylist()[0]["refusal"]
        if refusal:
            return math.nan, refusal
        sums = context.ledger.read(key, "prior_sums").to_pylist()
        rows = [row for row in sums if row["arm"] == UNCORRECTED]
        totals.append((sum(row["nll_sum"] for row in rows), sum(row["num_tokens"] for row in rows)))
    (old, tokens), (new, _) = totals
    delta = (new - old) / tokens
    return delta, "" if delta > 0 else "the descendant did not lose: there is no damage to match"


def _variants(
    fact: Fact, loaded: Loaded, states: HeadPass, target: float, scratch: Path
) -> tuple[Rows, Rows, Rows]:
    sums: Rows = []
    fits: Rows = []
    damage: Rows = []
    settings = replace(settings_of(fact), alone=True)
    guess: dict[NoiseKind, float] = {}
    for seed in range(int(fact.params["seeds"])):
        for kind in NOISE_KINDS:
            variant = f"{kind}.{seed}"
            matched, row = _damage(loaded, states, (kind, seed), target, guess.get(kind))
            damage.append({"variant": variant, "kind": kind, "seed": seed, **row})
            if matched is None:
                continue
            guess[kind] = row["sigma"]
            more_sums, more_fits = _fit(matched, states, settings, variant, scratch)
            sums += more_sums
            fits += more_fits
    return sums, fits, damage


def whole_noise(loaded: Loaded, states: HeadPass, kind: NoiseKind, seed: int) -> Tensor:
    """The noise of one seed on all rows of the head, (V, D)."""
    weight_VD = loaded.model.get_output_embeddings().weight
    noise_VD = head_noise(tuple(weight_VD.shape), seed)
    if kind == CENTRED:
        noise_VD = centred(noise_VD, states.positions["FIT"].mean_state()[0])
    return noise_VD


def on_support(noise_VD: Tensor, states: HeadPass) -> Tensor:
    """The supported rows of a noise, (S, D)."""
    return noise_VD if len(states.ids_S) == len(noise_VD) else noise_VD[states.ids_S]


def _damage(
    loaded: Loaded, states: HeadPass, which: tuple[NoiseKind, int], target: float, guess: float | None
) -> tuple[HeadPass | None, dict[str, Any]]:
    noise_SD = on_support(whole_noise(loaded, states, *which), states)
    result = match(states.head, states.positions["EVAL"], noise_SD, target, guess=guess)
    row = {
        "sigma": None if math.isnan(result.sigma) else result.sigma,
        "num_evaluations": result.num_evaluations,
        "failure": result.failure,
    }
    if result.failure:
        return None, row
    return replace(states, head=damaged(states.head, noise_SD, result.sigma)), row


def _fit(
    damaged_head: HeadPass, states: HeadPass, settings: FitSettings, variant: str, scratch: Path
) -> tuple[Rows, Rows]:
    fitted, _ = fit_model(ModelStatistics(damaged_head, settings, scratch), settings)
    return rows_of(fitted, states, variant)
