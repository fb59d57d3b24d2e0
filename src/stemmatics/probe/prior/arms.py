"""Every correction of one model: fitted on FIT, scored on EVAL.

Axes: N positions, D documents, K columns, S supported ids, R draws.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stemmatics.facts.prior import (
    AFFINE_FULL,
    AFFINE_TOP,
    AT_EDGE,
    CAPPED,
    FITTED_ARMS,
    IN_SAMPLE,
    IN_SAMPLE_JOINT,
    INFIMUM,
    IPF_FULL,
    IPF_TOP,
    NOT_CONVERGED,
    OPTIMUM,
    REFERENCE_ARMS,
    SELECTED,
    SOME_TARGETS_IN_REST,
    UNCORRECTED,
    FitFlag,
    closed_form_arm,
)
from stemmatics.lm.scoring.head import LinearHead
from stemmatics.lm.scoring.head_pass import Positions, dense, reduced
from stemmatics.math import prior
from stemmatics.math.prior import Correction, Matched, Selected, Solution, Statistics

# elements of the FIT logits up to which the published searches run by default
AFFORDABLE = 1 << 22
# the ceiling takes every target of EVAL as a column while its columns stay below this on disk
SCORED_BYTES = 1 << 32


@dataclass(frozen=True)
class FitSettings:
    """How the arms are fitted: columns, smoothings of the closed form, references, whether ceilings too."""

    num_columns: int
    smoothings: tuple[float, ...]
    references: tuple[str, ...] | None
    ceilings: bool = True


@dataclass(frozen=True, eq=False)
class Fitted:
    """One correction of one model.

    ``ids`` are the compact ids of its biases; ``row`` is what ``prior_fits`` says of the fit. ``nll_D`` is
    None where the correction gives a target of EVAL no probability.
    """

    arm: str
    reading: str
    correction: Correction
    ids: NDArray[np.int64]
    nll_D: NDArray[np.float64] | None
    row: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Arm and reading."""
        return f"{self.arm}.{self.reading}" if self.reading else self.arm


class ModelStatistics:
    """One head over the FIT and EVAL positions: the statistics that fits read, each made at first use."""

    def __init__(
        self, head: LinearHead, fit: Positions, evaluated: Positions, settings: FitSettings, scratch: Path
    ) -> None:
        self._head, self._fit, self._eval = head, fit, evaluated
        self._settings, self._scratch = settings, scratch
        num_first = len(self._first_targets())
        self.ids_K = prior.top_columns(fit.target_N[:num_first], settings.num_columns, head.num_ids)

    def _first_targets(self) -> NDArray[np.int64]:
        """Targets of the part of FIT that is fitted on; the rest selects."""
        num = self._fit.num_positions
        return self._fit.target_N[: min(max(int(0.9 * num), 1), num - 1)]

    @cached_property
    def fit_columns(self) -> Statistics:
        """FIT, its most frequent targets as columns."""
        return reduced(self._head, self._fit, self.ids_K, self._scratch / "fit.columns")

    @cached_property
    def eval_columns(self) -> Statistics:
        """EVAL, the same columns."""
        return reduced(self._head, self._eval, self.ids_K, self._scratch / "eval.columns")

    @cached_property
    def fit_dense(self) -> Statistics:
        """FIT, every id a column."""
        return dense(self._head, self._fit)

    @cached_property
    def eval_dense(self) -> Statistics:
        """EVAL, every id a column."""
        return dense(self._head, self._eval)

    def own_eval(self) -> Statistics:
        """EVAL with its own targets as columns: all where that fits, else the most frequent."""
        num_seen = len(np.unique(self._eval.target_N))
        fits = 2 * num_seen * self._eval.num_positions <= SCORED_BYTES
        num_columns = num_seen if fits else self._settings.num_columns
        ids = prior.top_columns(self._eval.target_N, num_columns, self._head.num_ids)
        path = self._scratch / "own.columns"
        statistics = reduced(self._head, self._eval, ids, path)
        # the mapping keeps the file alive; its disk is free again once the statistics are dropped
        path.unlink(missing_ok=True)
        return statistics

    def references(self) -> tuple[str, ...]:
        """The published searches that run: the configured ones, or all where they are cheap."""
        if self._settings.references is not None:
            return self._settings.references
        return REFERENCE_ARMS if self._fit.num_positions * self._head.num_ids <= AFFORDABLE else ()


def fit_model(model: ModelStatistics, settings: FitSettings) -> tuple[list[Fitted], prior.FreeIds, str]:
    """All arms; the first is the model as it is. Also the free ids, and a note on their number."""
    ceilings = _ceilings(model.own_eval()) if settings.ceilings else []
    fit, held = model.fit_columns.split()
    free = prior.free_ids(fit, settings.num_columns)
    identity = Correction.identity(fit.num_columns)
    fitted = [_fitted(UNCORRECTED, "", identity, model.eval_columns, _losses(fit, held, identity))]
    arms = prior.fit_arms(fit, held, settings.num_columns)
    for name in FITTED_ARMS:
        arm: prior.Arm = getattr(arms, name)
        fitted.append(_optimum(name, arm.optimum, fit, held, model.eval_columns))
        fitted.append(_selected(name, arm.selected, fit, held, model.eval_columns))
    fitted += _closed_forms(model, settings)
    fitted.append(_matched(IPF_TOP, prior.fit_proportional(fit, held, free.mask_K), model.eval_columns))
    fitted += _references(model, fit, held, free)
    return [*fitted, *ceilings], free, arms.free.note


def _fitted(
    arm: str, reading: str, correction: Correction, evaluated: Statistics, row: Mapping[str, Any]
) -> Fitted:
    nll_D = prior.nll_sums(evaluated, correction) if correction.reaches(evaluated) else None
    return Fitted(arm, reading, correction, evaluated.ids_K, nll_D, row)


def _losses(fit: Statistics, held: Statistics, correction: Correction) -> dict[str, Any]:
    return {
        "fit_nll_sum": float(prior.nll_sums(fit, correction).sum()),
        "num_fit_tokens": fit.num_positions,
        "held_nll_sum": float(prior.nll_sums(held, correction).sum()) if correction.reaches(held) else None,
        "num_held_tokens": held.num_positions,
    }


def certificate(solution: Solution) -> dict[str, Any]:
    """How near to the optimum a fit is, with its flags."""
    reached = solution.certificate
    flags: list[FitFlag] = []
    if solution.at_edge:
        flags.append(AT_EDGE)
    if not reached.converged:
        flags.append(NOT_CONVERGED)
    if not solution.attained:
        flags.append(INFIMUM)
    return {
        "gap": reached.gap,
        "gradient_norm": reached.gradient_norm,
        "num_steps": reached.num_steps,
        "flags": flags,
    }


def _optimum(
    arm: str, solution: Solution, fit: Statistics, held: Statistics, evaluated: Statistics
) -> Fitted:
    row = {
        "penalty": 0.0,
        "num_free": int(solution.coordinates.free_K.sum()),
        **certificate(solution),
        **_losses(fit, held, solution.correction),
    }
    return _fitted(arm, OPTIMUM, solution.correction, evaluated, row)


def _selected(arm: str, chosen: Selected, fit: Statistics, held: Statistics, evaluated: Statistics) -> Fitted:
    correction = chosen.correction
    edge = correction.inverse_temperature in (
        prior.MIN_INVERSE_TEMPERATURE,
        prior.MAX_INVERSE_TEMPERATURE,
    )
    row = {
        # inf where no bias is fitted: null in the table
        "penalty": chosen.penalty if np.isfinite(chosen.penalty) else None,
        "num_free": int((correction.bias_K != 0).sum()),
        "flags": [AT_EDGE] if edge else [],
        **_losses(fit, held, correction),
    }
    return _fitted(arm, SELECTED, correction, evaluated, row)


def _matched(arm: str, matched: Matched, evaluated: Statistics) -> Fitted:
    flags = [flag for flag in (CAPPED, AT_EDGE) if getattr(matched, flag)]
    row = {"num_steps": matched.num_steps, "flags": flags}
    return _fitted(arm, "", matched.correction, evaluated, row)


def _closed_forms(model: ModelStatistics, settings: FitSettings) -> list[Fitted]:
    """All of FIT, every id: nothing is selected, so nothing is held out."""
    if not settings.smoothings:
        return []
    fit = model.fit_dense
    expected_S, _ = prior.expected_counts(fit, Correction.identity(fit.num_columns))
    fitted = []
    for smoothing in settings.smoothings:
        bias_S = prior.closed_form_bias(fit.counts.astype(np.float64), expected_S, smoothing)
        arm = closed_form_arm(smoothing)
        fitted.append(_fitted(arm, "", Correction(1.0, bias_S), model.eval_dense, {"flags": []}))
    return fitted


def _references(
    model: ModelStatistics, fit: Statistics, held: Statistics, free: prior.FreeIds
) -> list[Fitted]:
    fitted = []
    arms = model.references()
    if AFFINE_TOP in arms:
        fitted.append(_matched(AFFINE_TOP, prior.fit_affine(fit, held, free.mask_K), model.eval_columns))
    if IPF_FULL in arms or AFFINE_FULL in arms:
        fit_S, held_S = model.fit_dense.split()
        all_S = np.ones(fit_S.num_columns, dtype=np.bool_)
        if IPF_FULL in arms:
            fitted.append(_matched(IPF_FULL, prior.fit_proportional(fit_S, held_S, all_S), model.eval_dense))
        if AFFINE_FULL in arms:
            fitted.append(_matched(AFFINE_FULL, prior.fit_affine(fit_S, held_S, all_S), model.eval_dense))
    return fitted


def _ceilings(own: Statistics) -> list[Fitted]:
    """On EVAL itself: the closed step with its lower bound, and the optimum."""
    step = prior.in_sample_step(own)
    complete = bool((own.target_column_N != prior.IN_REST).all())
    flags = [] if complete else [SOME_TARGETS_IN_REST]
    solution = prior.in_sample_optimum(own)
    closed = _fitted(
        IN_SAMPLE,
        "",
        step.correction,
        own,
        {"flags": list(flags), "bound_nll_sum": step.jensen_bound * own.num_positions},
    )
    reached = certificate(solution)
    # a ceiling is an infimum by definition, and its own text has no id that it leaves out
    flags += [flag for flag in reached["flags"] if flag != INFIMUM]
    best = _fitted(
        IN_SAMPLE_JOINT,
        "",
        solution.correction,
        own,
        {**reached, "flags": flags, "num_free": int(solution.coordinates.free_K.sum())},
    )
    return [closed, best]
