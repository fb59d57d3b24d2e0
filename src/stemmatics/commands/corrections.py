"""Fitted corrections of a run, written so that other programs can apply them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stemmatics.core.errors import UserError
from stemmatics.core.extras import require
from stemmatics.core.facts import Fact
from stemmatics.math.rates import loss_rate, paired_difference
from stemmatics.measure.prior.needs import corpora_of, fit_facts, pairs_of
from stemmatics.measure.prior.sums import NONE, Model, read_models, refusal_of
from stemmatics.store.cache import Cache
from stemmatics.store.files import write_json
from stemmatics.store.ledger import Ledger
from stemmatics.study.read import OpenRun, open_run
from stemmatics.study.request import StoredTables

FORMS = ("transformers", "vllm", "checkpoint")
_FILE = "corrections.npz"


@dataclass(frozen=True, eq=False)
class _Found:
    """A correction with where it came from."""

    fact: Fact
    ids: NDArray[np.int64]
    bias: NDArray[np.float64]
    inverse_temperature: float
    said: Mapping[str, Any]


def export_correction(
    root: Path, descendant: str, out: Path, form: str, *, arm: str = "joint", corpus: str | None = None
) -> list[Path]:
    """Write one descendant's correction under ``out / descendant``, with its held-out gain beside it.

    ``transformers``: a LogitsProcessor with its weights. ``vllm``: a JSON table for SamplingParams.
    ``checkpoint``: the descendant with the correction in its head. Raises UserError where the run has no
    such fit.
    """
    if form not in FORMS:
        raise UserError(
            f"there is no form {form!r}",
            "a correction goes out in one of a few",
            f"Choose {', '.join(FORMS)}",
            code=2,
        )
    run = open_run(root)
    found = _find(run, descendant, arm, corpus)
    folder = out / descendant
    if form == "vllm":
        paths = [_write_vllm(found, folder)]
    else:
        require("lm", "writing weights")
        paths = (
            _write_processor(found, folder) if form == "transformers" else [_write_head(run, found, folder)]
        )
    sidecar = folder / "correction.json"
    write_json(sidecar, dict(found.said))
    return [*paths, sidecar]


def _find(run: OpenRun, descendant: str, arm: str, corpus: str | None) -> _Found:
    asked = next((one for one in run.requests if one.name == "prior"), None)
    if asked is None:
        raise UserError(
            "the run has no corrections", "it did not ask for `prior`", "Add `prior: {}` under `measures:`"
        )
    pairs = {pair[1]: pair for pair in pairs_of(run.pinned, asked.settings)}
    corpora = corpora_of(run.pinned, asked.settings)
    name = corpus or corpora[0]
    if descendant not in pairs or name not in corpora:
        raise UserError(
            f"there is no correction for {descendant!r} on {name!r}",
            "the run has no such pair or corpus",
            f"Choose a descendant of {', '.join(pairs) or 'none'} and a corpus of {', '.join(corpora)}",
            code=2,
        )
    fact = fit_facts(run.pinned, asked.settings, pairs[descendant], name)[1]
    tables = StoredTables(run.ledger)
    if not tables.has(fact) or refusal_of(fact, tables):
        why = refusal_of(fact, tables) if tables.has(fact) else "its fact failed or was not made"
        raise UserError(f"{descendant} has no correction on {name}", why, "Run the study again")
    model = read_models(fact, tables)["own"]
    reading = "selected" if (arm, "selected") in model.nll else ""
    if (arm, reading) not in model.nll or arm == NONE[0] or arm.startswith("in_sample"):
        arms = dict.fromkeys(
            one for one, _ in model.nll if one != NONE[0] and not one.startswith("in_sample")
        )
        raise UserError(
            f"there is no arm {arm!r}", "the fits have others", f"Choose {', '.join(arms)}", code=2
        )
    stored = _stored(fact)
    key = f"{arm}.{reading}" if reading else arm
    beta = float(stored[f"{key}.inverse_temperature"])
    said = {"descendant": descendant, "corpus": name, "arm": arm, "reading": reading or "fitted"}
    said |= {
        "temperature": 1.0 / beta,
        "num_biases": len(stored[f"{key}.ids"]),
        **_gain(model, (arm, reading), run),
    }
    return _Found(fact, stored[f"{key}.ids"], stored[f"{key}.bias"], beta, said)


def _stored(fact: Fact) -> Mapping[str, NDArray[Any]]:
    folder = Cache().find(fact.key)
    if folder is None:
        raise UserError(
            f"the corrections of {fact.label} are not in the cache",
            "they name token ids, so the run folder does not hold them",
            "Run the study again into another folder: it fits them anew",
        )
    with np.load(folder / _FILE) as arrays:
        return {name: arrays[name] for name in arrays.files}


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


def _write_vllm(found: _Found, folder: Path) -> Path:
    """In vLLM ``logit_bias`` is added first and ``temperature`` divides then, so the bias is scaled by T."""
    temperature = 1.0 / found.inverse_temperature
    table = {str(index): float(bias * temperature) for index, bias in zip(found.ids, found.bias, strict=True)}
    path = folder / "logit_bias.json"
    write_json(path, {"temperature": temperature, "logit_bias": table})
    return path


def _write_processor(found: _Found, folder: Path) -> list[Path]:
    from stemmatics.lm.scoring.patched_head import write_processor

    return write_processor(folder, found.ids, found.bias, found.inverse_temperature)


def _write_head(run: OpenRun, found: _Found, folder: Path) -> Path:
    from stemmatics.lm.checkpoints.loading import save
    from stemmatics.lm.checkpoints.model_card import write_card
    from stemmatics.lm.scoring.patched_head import fold_correction
    from stemmatics.lm.tokens.windows import DEFAULT_SIZE
    from stemmatics.probe.base import Context
    from stemmatics.probe.sources import load_checkpoint

    stemma = run.pinned.stemma
    context = Context(Ledger(run.ledger.root), Cache(), stemma.numerics, stemma.seed)
    loaded = load_checkpoint(found.fact.needs["checkpoint"], context)
    length = loaded.context_length or DEFAULT_SIZE
    fold_correction(loaded.model, found.ids, found.bias, found.inverse_temperature, length)
    out = folder / "checkpoint"
    save(loaded.model, loaded.tokenizer, out)
    name = str(found.said["descendant"])
    last = stemma.trained_last(name)
    write_card(out, f"{name}, corrected", made_from=name, how="correction", trained_last=last)
    return out
