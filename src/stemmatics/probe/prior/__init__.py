"""Probe ``prior``: context-independent corrections, fitted on FIT, with their sums on EVAL by document.

Axes: D documents, S supported ids, K columns.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from stemmatics.core.facts import Fact
from stemmatics.core.keys import seed_from
from stemmatics.facts.prior import CEILING_ARMS, OWN, PRIOR, UNCORRECTED
from stemmatics.lm.checkpoints.loading import Loaded
from stemmatics.probe.base import Context, Cost, FactOutput, Failed, each
from stemmatics.probe.costs import forward_cost, num_tokens
from stemmatics.probe.passes import Reading, Refused
from stemmatics.probe.prior.arms import FitSettings, Fitted, ModelStatistics, fit_model
from stemmatics.probe.prior.draws import draw_rows
from stemmatics.probe.prior.states import HeadPass, head_pass, states_reading
from stemmatics.probe.sources import load_checkpoint

CORRECTIONS = "corrections.npz"
_BYTES_PER_LOGIT = 4


class Prior:
    """Every arm of one checkpoint on one corpus; a checkpoint is loaded once for all its corpora."""

    def group(self, fact: Fact) -> str:
        """Batching key: facts about one checkpoint share its load."""
        return fact.needs["checkpoint"].key

    def cost(self, fact: Fact) -> Cost:
        """The corpus through the checkpoint once; scratch disk for the columns of every position."""
        tokens = num_tokens(fact.needs["corpus"])
        scratch = tokens * int(fact.params["num_columns"]) * _BYTES_PER_LOGIT
        return forward_cost(fact.needs["checkpoint"], tokens, scratch)

    def reading(self, fact: Fact) -> Reading:
        """States of the sampled documents."""
        return states_reading(fact)

    def run(self, facts: Sequence[Fact], context: Context) -> Iterator[FactOutput | Failed]:
        """Sums by document and arm, the fits, the redrawn fits; the corrections go to the cache."""
        loaded = load_checkpoint(facts[0].needs["checkpoint"], context)
        yield from each(facts, lambda fact: _make(fact, loaded, context))


def settings_of(fact: Fact) -> FitSettings:
    """How the fact's arms are fitted."""
    references = fact.params["references"]
    return FitSettings(
        num_columns=int(fact.params["num_columns"]),
        smoothings=tuple(fact.params["smoothings"]),
        references=None if references is None else tuple(references),
    )


def scratch_folder(context: Context) -> tempfile.TemporaryDirectory[str]:
    """A folder on the cache's disk for columns; removed when the fact is made."""
    return tempfile.TemporaryDirectory(prefix="prior-", dir=context.scratch())


def _make(fact: Fact, loaded: Loaded, context: Context) -> FactOutput:
    with scratch_folder(context) as scratch:
        try:
            states = head_pass(fact, context)
        except Refused as refusal:
            return FactOutput(fact, tables_of([], [], [], {"refusal": str(refusal)}))
        settings = settings_of(fact)
        model = ModelStatistics(states, settings, Path(scratch))
        fitted, note = fit_model(model, settings)
        corpus = fact.needs["corpus"]
        # seeded by the corpus alone, so that base and descendant get the same weights
        seed = seed_from(int(corpus.params["seed"]), corpus.key, "prior draws")
        draws = draw_rows(
            model.eval_columns,
            fitted,
            states.group_of_fit_D,
            rng=np.random.default_rng(seed),
            num_draws=int(fact.params["draws"]),
            num_refits=int(fact.params["refits"]),
        )
        sums, fits = rows_of(fitted, states, OWN)
        _save_corrections(fact, fitted, states, context)
        metadata = {
            "refusal": "",
            "note": note,
            "num_columns": len(model.ids_K),
            "stored": str(np.dtype(model.eval_columns.logits_NK.dtype)),
            **_metadata(states, loaded),
        }
        return FactOutput(fact, tables_of(sums, fits, draws, metadata), {"flags": loaded.flags})


def rows_of(
    fitted: Sequence[Fitted], states: HeadPass, variant: str
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rows of ``prior_sums`` and ``prior_fits``."""
    evaluated = states.positions["EVAL"]
    tokens_D = np.bincount(evaluated.document_N, minlength=len(evaluated.index_D))
    sums = [
        {
            "index": int(index),
            "variant": variant,
            "arm": fit.arm,
            "reading": fit.reading,
            "nll_sum": float(nll),
            "num_tokens": int(tokens),
            "excluded_nll_sum": float(excluded),
            "num_outside_support": int(outside),
        }
        for fit in fitted
        if fit.nll_D is not None
        for index, nll, tokens, excluded, outside in zip(
            evaluated.index_D, fit.nll_D, tokens_D, states.excluded_D, states.num_outside_D, strict=True
        )
    ]
    fits = [
        {
            "variant": variant,
            "arm": fit.arm,
            "reading": fit.reading,
            "inverse_temperature": fit.correction.inverse_temperature,
            "flags": [],
            **fit.row,
        }
        for fit in fitted
    ]
    return sums, fits


def tables_of(
    sums: list[dict[str, Any]],
    fits: list[dict[str, Any]],
    draws: list[dict[str, Any]],
    metadata: dict[str, Any],
) -> dict[str, pa.Table]:
    """The four tables of a fact."""
    rows = {"prior_sums": sums, "prior_fits": fits, "prior_draws": draws, "prior_model": [metadata]}
    return {name: PRIOR.table(name, part) for name, part in rows.items()}


def _metadata(states: HeadPass, loaded: Loaded) -> dict[str, Any]:
    fit = states.positions["FIT"]
    mean_d, energy = fit.mean_state()
    return {
        "token_ids_sha256": states.counted.token_ids_sha256,
        "prefix_id": states.prefix_id,
        "num_ids": loaded.num_ids,
        "num_support": len(states.ids_S),
        "num_fit_documents": len(fit.index_D),
        "num_fit_tokens": fit.num_positions,
        "mean_state_energy": float(mean_d @ mean_d),
        "state_energy": energy,
        "dtype": str(loaded.model.dtype).removeprefix("torch."),
    }


def _save_corrections(fact: Fact, fitted: Sequence[Fitted], states: HeadPass, context: Context) -> None:
    """The corrections by arm, as arrays of ids and biases; in the cache alone, since ids are text."""
    arrays: dict[str, Any] = {}
    for fit in fitted:
        if fit.arm == UNCORRECTED or fit.arm in CEILING_ARMS or not fit.correction.keeps_all:
            continue
        moved_K = fit.correction.bias_K != 0
        arrays[f"{fit.name}.ids"] = states.ids_S[fit.ids[moved_K]]
        arrays[f"{fit.name}.bias"] = fit.correction.bias_K[moved_K]
        arrays[f"{fit.name}.inverse_temperature"] = np.array(fit.correction.inverse_temperature)
    with context.cache.scratch(fact.key) as folder:
        out = folder / "corrections"
        out.mkdir()
        np.savez_compressed(out / CORRECTIONS, **arrays)
        context.cache.finish(fact.key, out, {"label": f"corrections of {fact.label}"})
