"""Every correction of one model: fitted on FIT, scored on EVAL.

Axes: N positions, D documents, K columns, S supported ids, R draws.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stemmatics.facts import prior as prior_facts
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
    JOINT,
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
from stemmatics.lm.scoring.head_pass import dense, reduced
from stemmatics.math import prior
from stemmatics.math.prior import Arm, Correction, FreeIds, Matched, Selected, Solution, Statistics
from stemmatics.probe.prior.states import HeadPass

# elements of the FIT logits up to which the published searches run by default
AFFORDABLE = 1 << 22
# the ceiling takes every target of EVAL as a column while its columns stay below this on disk
SCORED_BYTES = 1 << 32


@dataclass(frozen=True)
class FitSettings:
    """How the arms are fitted: columns, smoothings of the closed form, references.

    ``alone``: neither ceilings nor smaller amounts of text, which a damaged base has no use for.
    """

    num_columns: int
    smoothings: tuple[float, ...]
    references: tuple[str, ...] | None
    alone: bool = False


@dataclass(frozen=True, eq=False)
class Selection:
    """What a selected correction was chosen from: the part that fits, the part that selects, candidates."""

    fit: Statistics
    held_out: Statistics
    free_K: NDArray[np.bool_]
    candidates: tuple[Selected, ...]


@dataclass(frozen=True, eq=False)
class Fitted:
    """One correction of one model.

    ``ids`` are the compact ids of its biases; ``row`` is what ``prior_fits`` says of the fit. ``nll_D`` is
    None where the correction gives a target of EVAL no probability; ``selection`` where it was selected.
    """

    arm: str
    reading: str
    correction: Correction
    ids: NDArray[np.int64]
    nll_D: NDArray[np.float64] | None
    row: Mapping[str, Any]
    selection: Selection | None = None

    @property
    def name(self) -> str:
        """Arm and reading."""
        return f"{self.arm}.{self.reading}" if self.reading else self.arm


class ModelStatistics:
    """One head over the FIT and EVAL positions: the statistics that fits read, each made at first use."""

    def __init__(self, states: HeadPass, settings: FitSettings, scratch: Path) -> None:
        self._head, self._states = states.head, states
        self._fit, self._eval = states.positions["FIT"], states.positions["EVAL"]
        self._settings, self._scratch = settings, scratch
        # the most frequent targets of either part that is fitted on: without the documents drawn at random,
        # and without the last tenth
        fitted_on = [self._first_targets()]
        if states.held_out_fit_D.any():
            fitted_on.append(self._fit.target_N[~states.held_out_fit_D[self._fit.document_N]])
        ids = [prior.top_columns(ids_N, settings.num_columns, self._head.num_ids) for ids_N in fitted_on]
        self.ids_K = np.unique(np.concatenate(ids))
        self.num_ids = self._head.num_ids

    def _first_targets(self) -> NDArray[np.int64]:
        """Targets of the part of FIT that the published arms are fitted on."""
        num = self._fit.num_positions
        return self._fit.target_N[: min(max(int(0.9 * num), 1), num - 1)]

    @cached_property
    def fit_columns(self) -> Statistics:
        """FIT, its most frequent targets as columns."""
        return reduced(self._head, self._fit, self.ids_K, self._scratch / "fit.columns")

    def fit_parts(self, reading: prior_facts.Reading = SELECTED) -> tuple[Statistics, Statistics] | None:
        """FIT without the documents that select the penalty, and those; of all FIT, or of a part of it.

        With one group of documents there is nothing to draw, and the last tenth selects; a part of it there
        is none.
        """
        held_out_D = self._states.held_out_fit_D
        whole = self.fit_columns
        if not held_out_D.any():
            return whole.split() if reading == SELECTED else None
        keep_D = np.ones_like(held_out_D)
        if reading != SELECTED:
            keep_D = prior.part_of_documents(
                self._states.order_of_fit_groups,
                self._states.group_of_fit_D,
                whole.num_tokens,
                held_out_D,
                prior_facts.SHARE_OF_FIT[reading],
            )
        return whole.of_documents(keep_D & ~held_out_D), whole.of_documents(keep_D & held_out_D)

    @cached_property
    def eval_columns(self) -> Statistics:
        """EVAL, the same columns."""
        return reduced(self._head, self._eval, self.ids_K, self._scratch / "eval.columns")

    @cached_property
    def fit_dense(self) -> Statistics:
        """FIT, every id a column."""
        return dense(self._whole_head(), self._fit)

    @cached_property
    def eval_dense(self) -> Statistics:
        """EVAL, every id a column."""
        return dense(self._whole_head(), self._eval)

    def _whole_head(self) -> LinearHead:
        return self._head

    def closed_forms(self) -> list[tuple[float, Correction, NDArray[np.float64]]]:
        """Smoothing, correction of every id, and nats by document of EVAL under it.

        All of FIT is used: nothing is selected, so nothing is held out.
        """
        if not self._settings.smoothings:
            return []
        fit, evaluated = self.fit_dense, self.eval_dense
        expected_S, _ = prior.expected_counts(fit, Correction.identity(fit.num_columns))
        forms = []
        for smoothing in self._settings.smoothings:
            bias_S = prior.closed_form_bias(fit.counts.astype(np.float64), expected_S, smoothing)
            correction = Correction(1.0, bias_S)
            forms.append((smoothing, correction, prior.nll_sums(evaluated, correction)))
        return forms

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


def fit_model(model: ModelStatistics, settings: FitSettings) -> tuple[list[Fitted], str]:
    """All arms; the first is the model as it is. Also a note on the number of free ids."""
    ceilings = [] if settings.alone else _ceilings(model.own_eval())
    parts = model.fit_parts()
    assert parts is not None, "all of FIT can be split"
    fit, held_out = parts
    identity = Correction.identity(fit.num_columns)
    fitted = [_fitted(UNCORRECTED, "", identity, model.eval_columns, _losses(fit, held_out, identity))]
    arms = prior.fit_arms(fit, held_out, settings.num_columns)
    for name in FITTED_ARMS:
        arm: Arm = getattr(arms, name)
        fitted.append(_optimum(name, arm.optimum, fit, held_out, model.eval_columns))
        fitted.append(_selected((name, SELECTED), arm, parts, arms.free, model.eval_columns))
    if not settings.alone:
        fitted += _on_parts(model, settings)
    ids_S = np.arange(model.num_ids)
    fitted += [
        Fitted(closed_form_arm(smoothing), "", correction, ids_S, nll_D, {"flags": []})
        for smoothing, correction, nll_D in model.closed_forms()
    ]
    # the published searches select on the last tenth in the order of the file
    first, last = model.fit_columns.split()
    free = prior.free_ids(first, settings.num_columns)
    fitted.append(_matched(IPF_TOP, prior.fit_proportional(first, last, free.mask_K), model.eval_columns))
    fitted += _references(model, first, last, free)
    return [*fitted, *ceilings], arms.free.note


def _on_parts(model: ModelStatistics, settings: FitSettings) -> list[Fitted]:
    """The joint fit on less text; none where a part has too few documents."""
    fitted = []
    for reading in prior_facts.SHARE_OF_FIT:
        parts = model.fit_parts(reading)
        if parts is not None:
            arms = prior.fit_arms(*parts, settings.num_columns)
            fitted.append(_selected((JOINT, reading), arms.joint, parts, arms.free, model.eval_columns))
    return fitted


def _fitted(
    arm: str, reading: str, correction: Correction, evaluated: Statistics, row: Mapping[str, Any]
) -> Fitted:
    nll_D = prior.nll_sums(evaluated, correction) if correction.reaches(evaluated) else None
    return Fitted(arm, reading, correction, evaluated.ids_K, nll_D, row)


def _losses(fit: Statistics, held_out: Statistics, correction: Correction) -> dict[str, Any]:
    return {
        "fit_nll_sum": float(prior.nll_sums(fit, correction).sum()),
        "num_fit_tokens": fit.num_positions,
        "held_nll_sum": float(prior.nll_sums(held_out, correction).sum())
        if correction.reaches(held_out)
        else None,
        "num_held_tokens": held_out.num_positions,
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
    arm: str, solution: Solution, fit: Statistics, held_out: Statistics, evaluated: Statistics
) -> Fitted:
    row = {
        "penalty": 0.0,
        "num_free": int(solution.coordinates.free_K.sum()),
        **certificate(solution),
        **_losses(fit, held_out, solution.correction),
    }
    return _fitted(arm, OPTIMUM, solution.correction, evaluated, row)


def _selected(
    which: tuple[str, str],
    arm: Arm,
    parts: tuple[Statistics, Statistics],
    free: FreeIds,
    evaluated: Statistics,
) -> Fitted:
    chosen = arm.selected
    correction = chosen.correction
    edge = correction.inverse_temperature in (
        prior.MIN_INVERSE_TEMPERATURE,
        prior.MAX_INVERSE_TEMPERATURE,
    )
    row = {
        # null where no bias is fitted
        "penalty": chosen.penalty if chosen.biases else None,
        "num_free": int((correction.bias_K != 0).sum()),
        "flags": [AT_EDGE] if edge else [],
        **_losses(*parts, correction),
    }
    fitted = _fitted(*which, correction, evaluated, row)
    return replace(fitted, selection=Selection(*parts, free.mask_K, arm.candidates))


def _matched(arm: str, matched: Matched, evaluated: Statistics) -> Fitted:
    flags = [flag for flag in (CAPPED, AT_EDGE) if getattr(matched, flag)]
    row = {"num_steps": matched.num_steps, "flags": flags}
    return _fitted(arm, "", matched.correction, evaluated, row)


def _references(model: ModelStatistics, fit: Statistics, held_out: Statistics, free: FreeIds) -> list[Fitted]:
    fitted = []
    arms = model.references()
    if AFFINE_TOP in arms:
        fitted.append(_matched(AFFINE_TOP, prior.fit_affine(fit, held_out, free.mask_K), model.eval_columns))
    if IPF_FULL in arms or AFFINE_FULL in arms:
        fit_S, held_out_S = model.fit_dense.split()
        all_S = np.ones(fit_S.num_columns, dtype=np.bool_)
        if IPF_FULL in arms:
            fitted.append(
                _matched(IPF_FULL, prior.fit_proportional(fit_S, held_out_S, all_S), model.eval_dense)
            )
        if AFFINE_FULL in arms:
            fitted.append(_matched(AFFINE_FULL, prior.fit_affine(fit_S, held_out_S, all_S), model.eval_dense))
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
