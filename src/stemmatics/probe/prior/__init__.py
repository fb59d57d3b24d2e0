"""Facts about corrections without context: fitted on FIT, their sums on EVAL by document.

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
from stemmatics.facts.prior import PRIOR
from stemmatics.lm.checkpoints.loading import Loaded
from stemmatics.probe.base import Context, Cost, Failed, Made, each
from stemmatics.probe.costs import forward_cost, num_tokens
from stemmatics.probe.prior.arms import Choice, Fitted, ModelStatistics, fit_model
from stemmatics.probe.prior.draws import draws
from stemmatics.probe.prior.states import HeadPass, Refused, head_pass
from stemmatics.probe.sources import load_checkpoint

CORRECTIONS = "corrections.npz"
_FLOAT = 4


class Prior:
    """Every arm of one checkpoint on one corpus; a checkpoint is loaded once for all its corpora."""

    def group(self, fact: Fact) -> str:
        """One load a checkpoint."""
        return fact.needs["checkpoint"].key

    def cost(self, fact: Fact) -> Cost:
        """The corpus through the checkpoint once; on disk the columns of every position, for a while."""
        tokens = num_tokens(fact.needs["corpus"])
        return forward_cost(
            fact.needs["checkpoint"], tokens, tokens * int(fact.params["num_columns"]) * _FLOAT
        )

    def run(self, facts: Sequence[Fact], context: Context) -> Iterator[Made | Failed]:
        """Sums by document and arm, the fits, the redrawn fits; the corrections go to the cache."""
        loaded = load_checkpoint(facts[0].needs["checkpoint"], context)
        yield from each(facts, lambda fact: _one(fact, loaded, context))


def choice_of(fact: Fact) -> Choice:
    """The fact's settings."""
    references = fact.params["references"]
    return Choice(
        num_columns=int(fact.params["num_columns"]),
        smoothings=tuple(fact.params["smoothings"]),
        references=None if references is None else tuple(references),
    )


def scratch_folder(context: Context) -> tempfile.TemporaryDirectory[str]:
    """A folder on the cache's disk for states and columns; gone when the fact is made."""
    folder = context.cache.root / "making"
    folder.mkdir(parents=True, exist_ok=True)
    return tempfile.TemporaryDirectory(prefix="prior-", dir=folder)


def _one(fact: Fact, loaded: Loaded, context: Context) -> Made:
    with scratch_folder(context) as scratch:
        try:
            found = head_pass(fact, loaded, context, Path(scratch))
        except Refused as refusal:
            return Made(fact, tables_of([], [], [], {"refusal": str(refusal)}))
        choice = choice_of(fact)
        model = ModelStatistics(
            found.head, found.positions["FIT"], found.positions["EVAL"], choice, Path(scratch)
        )
        fitted, free, note = fit_model(model, choice)
        seed = seed_from(int(fact.needs["corpus"].params["seed"]), fact.needs["corpus"].key, "prior draws")
        redrawn = draws(
            (model.fit_columns.split()[0], model.eval_columns),
            free.mask_K,
            fitted,
            found.group_of_fit_D,
            rng=np.random.default_rng(seed),
            num_draws=int(fact.params["draws"]),
            num_refits=int(fact.params["refits"]),
        )
        sums, fits = rows_of(fitted, found, "own")
        _keep(fact, fitted, found, context)
        said = {
            "refusal": "",
            "note": note,
            "num_columns": len(model.ids_K),
            "stored": str(np.dtype(model.eval_columns.logits_NK.dtype)),
            **_model_row(found, loaded),
        }
        return Made(fact, tables_of(sums, fits, redrawn, said), {"flags": loaded.flags})


def rows_of(
    fitted: Sequence[Fitted], found: HeadPass, variant: str
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rows of ``prior_sums`` and ``prior_fits``."""
    evaluated = found.positions["EVAL"]
    tokens_D = np.bincount(evaluated.document_N, minlength=len(evaluated.index_D))
    sums = [
        {
            "index": int(index),
            "variant": variant,
            "arm": one.arm,
            "reading": one.reading,
            "nll_sum": float(nll),
            "num_tokens": int(tokens),
            "excluded_nll_sum": float(excluded),
            "num_outside_support": int(outside),
        }
        for one in fitted
        for index, nll, tokens, excluded, outside in zip(
            evaluated.index_D, one.nll_D, tokens_D, found.excluded_D, found.num_outside_D, strict=True
        )
    ]
    fits = [
        {
            "variant": variant,
            "arm": one.arm,
            "reading": one.reading,
            "inverse_temperature": one.correction.inverse_temperature,
            "flags": [],
            **one.facts,
        }
        for one in fitted
    ]
    return sums, fits


def tables_of(
    sums: list[dict[str, Any]],
    fits: list[dict[str, Any]],
    redrawn: list[dict[str, Any]],
    said: dict[str, Any],
) -> dict[str, pa.Table]:
    """The four tables of a fact."""
    rows = {"prior_sums": sums, "prior_fits": fits, "prior_draws": redrawn, "prior_model": [said]}
    return {name: PRIOR.table(name, part) for name, part in rows.items()}


def _model_row(found: HeadPass, loaded: Loaded) -> dict[str, Any]:
    mean_d, squared = found.positions["FIT"].mean_state()
    return {
        "token_ids_sha256": found.counted.token_ids_sha256,
        "prefix_id": found.prefix_id,
        "num_ids": loaded.num_ids,
        "num_support": len(found.ids_S),
        "num_fit_documents": len(found.positions["FIT"].index_D),
        "num_fit_tokens": found.positions["FIT"].num_positions,
        "mean_state_energy": float(mean_d @ mean_d),
        "state_energy": squared,
        "dtype": str(loaded.model.dtype).removeprefix("torch."),
    }


def _keep(fact: Fact, fitted: Sequence[Fitted], found: HeadPass, context: Context) -> None:
    """The corrections by arm, as arrays of ids and biases; they stay in the cache, since ids are text."""
    arrays: dict[str, Any] = {}
    for one in fitted:
        if one.arm == "none" or one.arm.startswith("in_sample"):
            continue
        moved_K = one.correction.bias_K != 0
        arrays[f"{one.name}.ids"] = found.ids_S[one.ids[moved_K]]
        arrays[f"{one.name}.bias"] = one.correction.bias_K[moved_K]
        arrays[f"{one.name}.inverse_temperature"] = np.array(one.correction.inverse_temperature)
    with context.cache.making(fact.key) as folder:
        out = folder / "corrections"
        out.mkdir()
        np.savez_compressed(out / CORRECTIONS, **arrays)
        context.cache.finish(fact.key, out, {"label": f"corrections of {fact.label}"})
