"""Probe ``prior_floor``: the same fits on a base with random damage that costs what the descendant lost.

Axes: V vocabulary, S supported ids, D width or documents, N positions, B rows of a block, K columns,
A smoothings of the closed form.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stemmatics.core.facts import Fact
from stemmatics.facts.prior import UNCORRECTED
from stemmatics.facts.prior_floor import CENTRED, NOISE_KINDS, PRIOR_FLOOR, RAW, NoiseKind
from stemmatics.lm.checkpoints.loading import Loaded
from stemmatics.lm.scoring.head import LinearHead
from stemmatics.lm.scoring.head_damage import DamagedHeads, centred, damaged, head_noise
from stemmatics.lm.scoring.head_pass import Columns
from stemmatics.math.prior import Correction, Damage, Statistics, closed_form_bias
from stemmatics.probe.base import Context, Cost, FactOutput, Failed, each
from stemmatics.probe.costs import forward_cost, num_tokens
from stemmatics.probe.passes import Reading, Refused
from stemmatics.probe.prior import rows_of, scratch_folder, settings_of, tables_of
from stemmatics.probe.prior.arms import FitSettings, ModelStatistics, fit_model
from stemmatics.probe.prior.states import HeadPass, head_pass, states_reading
from stemmatics.probe.sources import load_checkpoint

Rows = list[dict[str, Any]]
# the number of a noise, and whether it is centred
Which = tuple[int, bool]
# noise that is in memory at once, and columns that are on disk at once; one seed is always
NOISE_BYTES, COLUMN_BYTES = 1 << 32, 1 << 33


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

    def run(self, facts: Sequence[Fact], context: Context) -> Iterator[FactOutput | Failed]:
        """Sums and fits of every damaged head, and the matched noise."""
        loaded = load_checkpoint(facts[0].needs["checkpoint"], context)
        yield from each(facts, lambda fact: _make(fact, loaded, context))


def _make(fact: Fact, loaded: Loaded, context: Context) -> FactOutput:
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
    return FactOutput(fact, tables)


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
    num_seeds = int(fact.params["seeds"])
    size = _seeds_at_once(states, settings)
    for first in range(0, num_seeds, size):
        seeds = list(range(first, min(first + size, num_seeds)))
        noises = [on_support(whole_noise(loaded, states, RAW, seed), states) for seed in seeds]
        heads = DamagedHeads(states.head, noises, states.positions["FIT"].mean_state()[0])
        which = [(number, kind == CENTRED) for number in range(len(seeds)) for kind in NOISE_KINDS]
        matched = heads.match(states.positions["EVAL"], which, target)
        sigmas = {head: damage.sigma for head, damage in matched.items() if not damage.failure}
        models = DamagedModels(heads, sigmas, states, settings, scratch)
        for number, is_centred in which:
            seed, kind = seeds[number], CENTRED if is_centred else RAW
            variant = f"{kind}.{seed}"
            damage.append(
                {"variant": variant, "kind": kind, "seed": seed, **_row(matched[number, is_centred])}
            )
            if (number, is_centred) in sigmas:
                fitted, _ = fit_model(models.take((number, is_centred)), settings)
                more_sums, more_fits = rows_of(fitted, states, variant)
                sums += more_sums
                fits += more_fits
    return sums, fits, damage


def _row(damage: Damage) -> dict[str, Any]:
    return {
        "sigma": None if math.isnan(damage.sigma) else damage.sigma,
        "num_evaluations": damage.num_evaluations,
        "failure": damage.failure,
    }


def _seeds_at_once(states: HeadPass, settings: FitSettings) -> int:
    """Seeds whose noise fits in memory and whose columns, two kinds of noise each, fit on disk."""
    weight = states.head.weight
    num_positions = sum(positions.num_positions for positions in states.positions.values())
    noise = weight.numel() * (4 + weight.element_size())
    columns = 2 * num_positions * min(settings.num_columns, len(states.ids_S)) * 4
    return max(1, min(NOISE_BYTES // noise, COLUMN_BYTES // columns))


class DamagedModels:
    """Statistics of damaged heads: all columns and closed forms from one pass of FIT and one of EVAL."""

    def __init__(
        self,
        heads: DamagedHeads,
        sigmas: Mapping[Which, float],
        states: HeadPass,
        settings: FitSettings,
        scratch: Path,
    ) -> None:
        self._heads, self._sigmas = heads, dict(sorted(sigmas.items()))
        self.states, self.settings, self.scratch = states, settings, scratch
        self._ids_K = ModelStatistics(states, settings, scratch).ids_K
        self._fit, expected = self._pass("FIT", {})
        counts_S = np.bincount(states.positions["FIT"].target_N, minlength=states.head.num_ids)
        self._forms: dict[Which, list[Correction]] = {
            which: [
                Correction(1.0, closed_form_bias(counts_S.astype(np.float64), expected_S, smoothing))
                for smoothing in settings.smoothings
            ]
            for which, expected_S in expected.items()
        }
        self._eval, self._nll = self._pass("EVAL", self._forms)

    def take(self, which: Which) -> ModelStatistics:
        """The statistics of one damaged head, which are let go here."""
        nll_AN = self._nll.pop(which)
        document_N = self.states.positions["EVAL"].document_N
        nll_AD = [np.bincount(document_N, nll_N).astype(np.float64) for nll_N in nll_AN]
        forms = list(zip(self.settings.smoothings, self._forms.pop(which), nll_AD, strict=True))
        return _DamagedModel(self, which, (self._fit.pop(which), self._eval.pop(which)), forms)

    @torch.inference_mode()
    def _pass(
        self, split: str, forms: Mapping[Which, list[Correction]]
    ) -> tuple[dict[Which, Statistics], dict[Which, NDArray[np.float64]]]:
        """Columns of a split; and the expected counts of all ids (S,), or nats under closed forms (A, N)."""
        positions, num_ids = self.states.positions[split], self.states.head.num_ids
        columns, values = {}, {}
        shape = (len(self.settings.smoothings), positions.num_positions) if forms else (num_ids,)
        for which in self._sigmas:
            path = self.scratch / f"{split}.{which[0]}.{which[1]}.columns"
            columns[which] = Columns(positions, self._ids_K, num_ids, path)
            values[which] = np.zeros(shape)
        for block in self._heads.blocks(positions) if self._sigmas else ():
            for which, sigma in self._sigmas.items():
                logits_BS = block.logits(which, sigma)
                if self.settings.smoothings and forms:
                    target_B = positions.target_N[block.part]
                    values[which][:, block.part] = _corrected(logits_BS, forms[which], target_B)
                elif self.settings.smoothings:
                    values[which] += logits_BS.softmax(1).sum(0).cpu().double().numpy()
                columns[which].add(block.part, logits_BS)
        statistics_by_half = {}
        for which, written in columns.items():
            statistics_by_half[which] = written.statistics()
            # the mapping keeps the file alive; its disk is free again once the statistics are dropped
            (self.scratch / f"{split}.{which[0]}.{which[1]}.columns").unlink()
        return statistics_by_half, values

    def head(self, which: Which) -> LinearHead:
        """A damaged head as weights: for the published searches, which read it again and again."""
        number, is_centred = which
        noise_SD = self._heads.noises[number].weight.float()
        if is_centred:
            noise_SD = centred(noise_SD.clone(), self._heads.mean_D.double().cpu().numpy())
        return damaged(self.states.head, noise_SD, self._sigmas[which])


def _corrected(
    logits_BS: Tensor, forms: list[Correction], target_B: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Nats of the targets under biases, (A, B), from one exponential a logit."""
    bias_AS = np.stack([form.bias_K for form in forms])
    top_B1 = logits_BS.amax(1, keepdim=True)
    rows = torch.from_numpy(target_B).to(logits_BS.device)[:, None]
    target_logit_B = (logits_BS.gather(1, rows) - top_B1)[:, 0].cpu().double().numpy()
    factor_SA = torch.from_numpy(np.exp(bias_AS.T)).to(logits_BS.device, torch.float32)
    total_BA = ((logits_BS - top_B1).exp_() @ factor_SA).cpu().double().numpy()
    nll_AB: NDArray[np.float64] = np.log(total_BA).T - target_logit_B - bias_AS[:, target_B]
    return nll_AB


class _DamagedModel(ModelStatistics):
    """One damaged head over FIT and EVAL, from passes that it shared."""

    def __init__(
        self,
        models: DamagedModels,
        which: Which,
        columns: tuple[Statistics, Statistics],
        forms: list[tuple[float, Correction, NDArray[np.float64]]],
    ) -> None:
        super().__init__(models.states, models.settings, models.scratch)
        self._models, self._which, self._columns, self._forms = models, which, columns, forms

    @property
    def fit_columns(self) -> Statistics:
        """FIT, its most frequent targets as columns."""
        return self._columns[0]

    @property
    def eval_columns(self) -> Statistics:
        """EVAL, the same columns."""
        return self._columns[1]

    def closed_forms(self) -> list[tuple[float, Correction, NDArray[np.float64]]]:
        """Smoothing, correction of every id, and nats by document of EVAL under it."""
        return self._forms

    def _whole_head(self) -> LinearHead:
        return self._models.head(self._which)


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
