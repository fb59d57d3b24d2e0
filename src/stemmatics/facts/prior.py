"""Context-independent corrections of a checkpoint's logits: fitted on FIT, their sums on EVAL."""

from __future__ import annotations

from typing import Any, Literal, get_args

import pyarrow as pa

from stemmatics.core.facts import Fact, FactKind, FactParams

# the three convex fits, each in two readings: the optimum on FIT, and the penalty that held-out FIT selects;
# the joint one also on a quarter and on half of FIT, with the penalty that a tenth of that selects
FittedArm = Literal["bias", "temperature", "joint"]
FITTED_ARMS: tuple[FittedArm, ...] = get_args(FittedArm)
BIAS, TEMPERATURE, JOINT = FITTED_ARMS
Reading = Literal["optimum", "selected", "quarter", "half"]
READINGS: tuple[Reading, ...] = get_args(Reading)
OPTIMUM, SELECTED, QUARTER, HALF = READINGS
SHARE_OF_FIT: dict[Reading, float] = {QUARTER: 0.25, HALF: 0.5}
# the other arms have no reading: ""
UNCORRECTED = "none"
IPF_TOP = "ipf_top"
# the published searches
ReferenceArm = Literal["ipf_full", "affine_full", "affine_top"]
REFERENCE_ARMS: tuple[ReferenceArm, ...] = get_args(ReferenceArm)
IPF_FULL, AFFINE_FULL, AFFINE_TOP = REFERENCE_ARMS
# fitted on EVAL itself: one closed step, and the optimum
CEILING_ARMS = ("in_sample", "in_sample_joint")
IN_SAMPLE, IN_SAMPLE_JOINT = CEILING_ARMS
CLOSED_FORM = "cf"
# a model's own fits; the damaged bases of a floor have other variants
OWN = "own"
# how a fit was repeated under a draw of FIT weights
DrawKind = Literal["one_step", "full"]
DRAW_KINDS: tuple[DrawKind, ...] = get_args(DrawKind)
ONE_STEP, FULL = DRAW_KINDS
FitFlag = Literal["at_edge", "not_converged", "capped", "some_targets_in_rest", "infimum"]
FIT_FLAGS: tuple[FitFlag, ...] = get_args(FitFlag)
AT_EDGE, NOT_CONVERGED, CAPPED, SOME_TARGETS_IN_REST, INFIMUM = FIT_FLAGS

# one row an EVAL document, arm and reading of a correction: nats on the shared support; no row where a fit is
# an infimum that gives a target of EVAL no probability
PRIOR_SUMS = pa.schema(
    [
        ("index", pa.int64()),
        ("variant", pa.string()),
        ("arm", pa.string()),
        ("reading", pa.string()),
        ("nll_sum", pa.float64()),
        ("num_tokens", pa.int64()),
        ("excluded_nll_sum", pa.float64()),
        ("num_outside_support", pa.int64()),
    ]
)
# one row an arm and reading: what was fitted, its sums on FIT, its certificate
PRIOR_FITS = pa.schema(
    [
        ("variant", pa.string()),
        ("arm", pa.string()),
        ("reading", pa.string()),
        ("inverse_temperature", pa.float64()),
        ("penalty", pa.float64()),
        ("num_free", pa.int64()),
        ("fit_nll_sum", pa.float64()),
        ("num_fit_tokens", pa.int64()),
        ("held_nll_sum", pa.float64()),
        ("num_held_tokens", pa.int64()),
        ("bound_nll_sum", pa.float64()),
        ("gap", pa.float64()),
        ("gradient_norm", pa.float64()),
        ("num_steps", pa.int64()),
        ("flags", pa.list_(pa.string())),
    ]
)
# one row a draw of FIT weights and arm: nats of all EVAL documents under the redrawn fit
PRIOR_DRAWS = pa.schema(
    [
        ("arm", pa.string()),
        ("reading", pa.string()),
        ("kind", pa.string()),
        ("draw", pa.int64()),
        ("nll_sum", pa.float64()),
    ]
)
# one row a model: what it was fitted on, or why it was not
PRIOR_MODEL = pa.schema(
    [
        ("refusal", pa.string()),
        ("note", pa.string()),
        ("token_ids_sha256", pa.string()),
        ("prefix_id", pa.int64()),
        ("num_ids", pa.int64()),
        ("num_support", pa.int64()),
        ("num_columns", pa.int64()),
        ("stored", pa.string()),
        ("num_fit_documents", pa.int64()),
        ("num_fit_tokens", pa.int64()),
        ("mean_state_energy", pa.float64()),
        ("state_energy", pa.float64()),
        ("dtype", pa.string()),
    ]
)
FIT_TABLES = {
    "prior_sums": PRIOR_SUMS,
    "prior_fits": PRIOR_FITS,
    "prior_draws": PRIOR_DRAWS,
    "prior_model": PRIOR_MODEL,
}


class FitParams(FactParams):
    """What decides a fit: scoring on the shared support, how much text, columns, arms.

    ``fit_tokens`` and ``eval_tokens`` are tokens of FIT and of EVAL that are read, to the end of a group of
    near-duplicates; None: all.
    """

    scoring: dict[str, Any]
    numerics: dict[str, Any]
    fit_tokens: int | None
    eval_tokens: int | None
    num_columns: int
    smoothings: list[float]
    references: list[ReferenceArm] | None


class PriorParams(FitParams):
    """``draws``: redrawn fits; ``refits``: how many of them are also fitted in full."""

    draws: int
    refits: int


# the fitted corrections name token ids, so they are an artifact in the cache and not rows
PRIOR = FactKind("prior", 3, PriorParams, FIT_TABLES, artifact="cache")


def closed_form_arm(smoothing: float) -> str:
    """The arm of the closed form at one smoothing."""
    return f"{CLOSED_FORM}_{smoothing:g}"


def prior_fact(params: PriorParams, checkpoint: Fact, corpus: Fact, *, partner: Fact | None = None) -> Fact:
    """Every arm of a checkpoint on a corpus; the support is shared with ``partner``'s tokenizer."""
    needs = {"checkpoint": checkpoint, "corpus": corpus}
    if partner is not None:
        needs["partner"] = partner
    return PRIOR.make(params, needs, label=f"{checkpoint.label} on {corpus.label}")
