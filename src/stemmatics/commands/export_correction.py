"""Fitted corrections of a run, written so that other programs can apply them."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stemmatics.core.errors import UserError
from stemmatics.core.extras import require
from stemmatics.core.facts import Fact
from stemmatics.facts.prior import CEILING_ARMS, OWN, SELECTED, UNCORRECTED
from stemmatics.math.rates import loss_rate, paired_difference
from stemmatics.measure.prior.needs import corpora_of, fit_facts, pairs_of
from stemmatics.measure.prior.sums import NONE, Model, read_models, refusal_of
from stemmatics.store.cache import Cache
from stemmatics.store.files import write_json
from stemmatics.store.ledger import Ledger
from stemmatics.study.read import OpenRun, open_run
from stemmatics.study.request import StoredTables
from stemmatics.study.scratch import made_in_scratch

FORMS = ("transformers", "vllm", "checkpoint")
_FILE = "corrections.npz"
# a fit that is made again on another machine agrees with the stored one to this share of the loss
_SAME_FIT = 1e-4
Listener = Callable[[Mapping[str, Any]], None]


@dataclass(frozen=True, eq=False)
class _Correction:
    """A bias by token id and a temperature, the fit that they come from, and what is said of them."""

    fact: Fact
    ids: NDArray[np.int64]
    bias: NDArray[np.float64]
    inverse_temperature: float
    metadata: Mapping[str, Any]


def export_correction(
    root: Path,
    descendant: str,
    out: Path,
    form: str,
    *,
    arm: str = "joint",
    corpus: str | None = None,
    on_event: Listener = lambda _event: None,
) -> list[Path]:
    """Write one descendant's correction under ``out / descendant``, with its held-out gain beside it.

    ``transformers``: a LogitsProcessor with its weights. ``vllm``: a JSON table for SamplingParams.
    ``checkpoint``: the descendant with the correction in its head. A fit that has left the cache is made
    again from its sources. Raises UserError where the run has no such fit, or a source is missing.
    """
    if form not in FORMS:
        raise UserError(
            f"unknown form {form!r}",
            "a correction is exported for one of three uses",
            f"Choose {', '.join(FORMS)}",
            code=2,
        )
    run = open_run(root)
    correction = _find(run, descendant, arm, corpus, on_event)
    folder = out / descendant
    if form == "vllm":
        paths = [_write_vllm(correction, folder)]
    else:
        require("lm", "writing weights")
        paths = (
            _write_processor(correction, folder)
            if form == "transformers"
            else [_write_head(run, correction, folder, on_event)]
        )
    sidecar = folder / "correction.json"
    write_json(sidecar, dict(correction.metadata))
    return [*paths, sidecar]


def _find(run: OpenRun, descendant: str, arm: str, corpus: str | None, on_event: Listener) -> _Correction:
    fact, name = _fit_of(run, descendant, corpus)
    tables = StoredTables(run.ledger)
    if not tables.has(fact) or refusal_of(fact, tables):
        what = f"{descendant} has no correction on {name}"
        if tables.has(fact):
            raise UserError(what, refusal_of(fact, tables), "Choose another --correction or --corpus")
        reason = "its fact failed or was not made"
        raise UserError(what, reason, "Run the study again with `stemma run STEMMA --retry-failed`")
    model = read_models(fact, tables)[OWN]
    reading = SELECTED if (arm, SELECTED) in model.nll else ""
    if (arm, reading) not in model.nll or not _is_exported(arm):
        arms = dict.fromkeys(known for known, _ in model.nll if _is_exported(known))
        raise UserError(
            f"there is no arm {arm!r}", "the run has fits of other arms", f"Choose {', '.join(arms)}", code=2
        )
    stored = _stored_fits(run, fact, model, on_event)
    key = f"{arm}.{reading}" if reading else arm
    inverse_temperature = float(stored[f"{key}.inverse_temperature"])
    metadata = {
        "descendant": descendant,
        "corpus": name,
        "arm": arm,
        "reading": reading or "fitted",
        "temperature": 1.0 / inverse_temperature,
        "num_biases": len(stored[f"{key}.ids"]),
        **_gain(model, (arm, reading), run),
    }
    return _Correction(fact, stored[f"{key}.ids"], stored[f"{key}.bias"], inverse_temperature, metadata)


def _fit_of(run: OpenRun, descendant: str, corpus: str | None) -> tuple[Fact, str]:
    """The fact of a descendant's fits, and the name of its corpus."""
    request = run.request("prior")
    if request is None:
        raise UserError(
            "the run has no corrections",
            "its study does not configure the measure prior",
            "Add `prior: {}` under `measures:` and run the study again",
        )
    pairs = {pair[1]: pair for pair in pairs_of(run.pinned, request.settings)}
    corpora = corpora_of(run.pinned, request.settings)
    name = corpus or corpora[0]
    if descendant not in pairs or name not in corpora:
        raise UserError(
            f"there is no correction for {descendant!r} on {name!r}",
            "the run has no such pair or corpus",
            f"Choose a descendant of {', '.join(pairs) or 'none'} and a corpus of {', '.join(corpora)}",
            code=2,
        )
    return fit_facts(run.pinned, request.settings, pairs[descendant], name)[1], name


def _is_exported(arm: str) -> bool:
    return arm != UNCORRECTED and arm not in CEILING_ARMS


def _stored_fits(run: OpenRun, fact: Fact, model: Model, on_event: Listener) -> Mapping[str, NDArray[Any]]:
    """The arrays of a fit from the cache; made again from its sources where they are not there."""
    folder = Cache().find(fact.key)
    if folder is None:
        _make_again(run, fact, model, on_event)
        folder = Cache().find(fact.key)
    assert folder is not None, "a fit that is made leaves its corrections in the cache"
    with np.load(folder / _FILE) as arrays:
        return {name: arrays[name] for name in arrays.files}


def _make_again(run: OpenRun, fact: Fact, model: Model, on_event: Listener) -> None:
    """Fit outside the run, so that its sums and its digest stay; the new fit must reproduce the sums."""
    require("lm", "fitting a correction that is no longer in the cache")
    what = f"the correction of {fact.label}, which is no longer in the cache,"
    with made_in_scratch([fact], run.pinned, what=what, on_event=on_event) as ledger:
        refitted = read_models(fact, StoredTables(ledger))[OWN]
    for arm, nll_D in model.nll.items():
        stored, fitted = (float(values.sum()) for values in (nll_D, refitted.nll[arm]))
        if not math.isclose(stored, fitted, rel_tol=_SAME_FIT):
            shutil.rmtree(Cache().path(fact.key))
            raise UserError(
                f"the correction of {fact.label} can't be made again",
                f"with arm {arm[0]!r} its held-out loss is {fitted:.6g} nats, the run has {stored:.6g}",
                "Run the study again in a new folder",
            )


def _gain(model: Model, arm: tuple[str, str], run: OpenRun) -> dict[str, Any]:
    """Held-out loss with and without, and the gain with its interval, over EVAL documents."""
    settings: dict[str, Any] = {"rng": np.random.default_rng(run.pinned.stemma.seed), "groups": model.group_D}
    before = loss_rate(model.nll[NONE], model.num_tokens_D, **settings)
    gain = paired_difference(model.nll[arm], model.nll[NONE], model.num_tokens_D, **settings)
    return {
        "held_out_nats_per_token": before.value,
        "held_out_gain": gain.value,
        "held_out_gain_interval": [None if np.isnan(end) else end for end in (gain.lo, gain.hi)],
        "level": gain.level,
        "method": gain.method,
        "num_documents": gain.n,
        "unit": gain.unit,
    }


def _write_vllm(correction: _Correction, folder: Path) -> Path:
    """VLLM adds ``logit_bias`` and then divides by ``temperature``, so the bias is scaled by T."""
    temperature = 1.0 / correction.inverse_temperature
    biases = zip(correction.ids, correction.bias, strict=True)
    table = {str(index): float(bias * temperature) for index, bias in biases}
    path = folder / "logit_bias.json"
    write_json(path, {"temperature": temperature, "logit_bias": table})
    return path


def _write_processor(correction: _Correction, folder: Path) -> list[Path]:
    from stemmatics.lm.scoring.patched_head import write_processor

    return write_processor(folder, correction.ids, correction.bias, correction.inverse_temperature)


def _write_head(run: OpenRun, correction: _Correction, folder: Path, on_event: Listener) -> Path:
    from stemmatics.lm.checkpoints.loading import save
    from stemmatics.lm.checkpoints.model_card import write_card
    from stemmatics.lm.scoring.patched_head import fold_correction
    from stemmatics.lm.tokens.windows import DEFAULT_SIZE
    from stemmatics.probe.base import Context
    from stemmatics.probe.sources import load_checkpoint

    stemma = run.pinned.stemma
    checkpoint = correction.fact.needs["checkpoint"]
    if checkpoint.probe != "weights" and Cache().find(checkpoint.key) is None:
        what = f"the checkpoint {checkpoint.label!r}, which is no longer in the cache,"
        with made_in_scratch([checkpoint], run.pinned, what=what, on_event=on_event):
            pass
    context = Context(Ledger(run.ledger.root), Cache(), stemma.numerics, stemma.seed)
    loaded = load_checkpoint(checkpoint, context)
    length = loaded.context_length or DEFAULT_SIZE
    fold_correction(loaded.model, correction.ids, correction.bias, correction.inverse_temperature, length)
    out = folder / "checkpoint"
    save(loaded.model, loaded.tokenizer, out)
    name = str(correction.metadata["descendant"])
    last = stemma.trained_last(name)
    write_card(out, f"{name}, corrected", made_from=name, how="correction", trained_last=last)
    return out
