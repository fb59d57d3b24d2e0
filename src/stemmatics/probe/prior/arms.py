"""Every arm of the measure ``prior`` for one model: fitted on FIT, scored on EVAL.

Axes: N positions, D documents, K columns, S supported ids, R draws.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stemmatics.lm.scoring.head import LinearHead
from stemmatics.lm.scoring.head_pass import Positions, dense, reduced
from stemmatics.math import prior
from stemmatics.math.prior import Correction, Matched, Selected, Solution, Statistics

REFERENCES = ("ipf_full", "affine_full", "affine_top")
# Elements of the FIT logits up to which the published searches run without being asked for.
AFFORDABLE = 1 << 22
# The ceiling takes every target of EVAL as a column while its columns stay below this on disk.
SCORED_BYTES = 1 << 32
FITTED = ("bias", "temperature", "joint")


@dataclass(frozen=True)
class Choice:
    """How the arms are fitted: columns, smoothings of the closed form, references, draws."""

    num_columns: int
    smoothings: tuple[float, ...]
    references: tuple[str, ...] | None
    ceilings: bool = True


@dataclass(frozen=True, eq=False)
class Fitted:
    """One correction of one model. ``ids`` are the compact ids of its biases; ``note`` names what is odd."""

    arm: str
    reading: str
    correction: Correction
    ids: NDArray[np.int64]
    nll_D: NDArray[np.float64]
    facts: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Arm and reading."""
        return f"{self.arm}.{self.reading}" if self.reading else self.arm


class ModelStatistics:
    """One head over the FIT and EVAL positions: what the fits ask for, made when it is asked for."""

    def __init__(
        self, head: LinearHead, fit: Positions, scored: Positions, choice: Choice, scratch: Path
    ) -> None:
        self._head, self._fit, self._eval = head, fit, scored
        self._choice, self._scratch = choice, scratch
        num_first = len(self._first_targets())
        self.ids_K = prior.top_columns(fit.target_N[:num_first], choice.num_columns, head.num_ids)

    def _first_targets(self) -> NDArray[np.int64]:
        """Targets of the part of FIT that fits; the rest of it selects."""
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
        wanted = num_seen if fits else self._choice.num_columns
        ids = prior.top_columns(self._eval.target_N, wanted, self._head.num_ids)
        path = self._scratch / "own.columns"
        found = reduced(self._head, self._eval, ids, path)
        # the mapping holds the file while it is used; its disk is free for the columns of the fits then
        path.unlink(missing_ok=True)
        return found

    def references(self) -> tuple[str, ...]:
        """The published searches that run: those asked for, or all where they are cheap."""
        if self._choice.references is not None:
            return self._choice.references
        return REFERENCES if self._fit.num_positions * self._head.num_ids <= AFFORDABLE else ()


def fit_model(model: ModelStatistics, choice: Choice) -> tuple[list[Fitted], prior.FreeIds, str]:
    """All arms; the first is the model as it is. Also the free ids, and a note on their number."""
    ceilings = _ceilings(model.own_eval()) if choice.ceilings else []
    fit, held = model.fit_columns.split()
    free = prior.free_ids(fit, choice.num_columns)
    identity = Correction.identity(fit.num_columns)
    found = [_fitted("none", "", identity, model.eval_columns, {**_losses(fit, held, identity)})]
    arms = prior.fit_arms(fit, held, choice.num_columns)
    for name in FITTED:
        arm = getattr(arms, name)
        found.append(_optimum(name, arm.optimum, fit, held, model.eval_columns))
        found.append(_selected(name, arm.selected, fit, held, model.eval_columns))
    found += _closed_forms(model, choice)
    found.append(_matched("ipf_top", prior.fit_proportional(fit, held, free.mask_K), model.eval_columns))
    found += _references(model, fit, held, free)
    return [*found, *ceilings], free, arms.free.note


def _fitted(
    arm: str, reading: str, correction: Correction, evaluated: Statistics, facts: Mapping[str, Any]
) -> Fitted:
    return Fitted(arm, reading, correction, evaluated.ids_K, prior.nll_sums(evaluated, correction), facts)


def _losses(fit: Statistics, held: Statistics, correction: Correction) -> dict[str, Any]:
    return {
        "fit_nll_sum": float(prior.nll_sums(fit, correction).sum()),
        "num_fit_tokens": fit.num_positions,
        "held_nll_sum": float(prior.nll_sums(held, correction).sum()),
        "num_held_tokens": held.num_positions,
    }


def certificate(solution: Solution) -> dict[str, Any]:
    """What a fit says of itself."""
    found = solution.certificate
    flags = ["at_edge"] if solution.at_edge else []
    return {
        "gap": found.gap,
        "gradient_norm": found.gradient_norm,
        "num_steps": found.num_steps,
        "flags": [*flags, *([] if found.converged else ["not_converged"])],
    }


def _optimum(
    arm: str, solution: Solution, fit: Statistics, held: Statistics, evaluated: Statistics
) -> Fitted:
    facts = {
        "penalty": 0.0,
        "num_free": int(solution.coordinates.free_K.sum()),
        **certificate(solution),
        **_losses(fit, held, solution.correction),
    }
    return _fitted(arm, "optimum", solution.correction, evaluated, facts)


def _selected(arm: str, chosen: Selected, fit: Statistics, held: Statistics, evaluated: Statistics) -> Fitted:
    correction = chosen.correction
    edge = correction.inverse_temperature in (
        prior.MIN_INVERSE_TEMPERATURE,
        prior.MAX_INVERSE_TEMPERATURE,
    )
    facts = {
        # inf where no bias is fitted; a table of numbers says nothing there
        "penalty": chosen.penalty if np.isfinite(chosen.penalty) else None,
        "num_free": int((correction.bias_K != 0).sum()),
        "flags": ["at_edge"] if edge else [],
        **_losses(fit, held, correction),
    }
    return _fitted(arm, "selected", correction, evaluated, facts)


def _matched(arm: str, matched: Matched, evaluated: Statistics) -> Fitted:
    flags = [name for name in ("capped", "at_edge") if getattr(matched, name)]
    facts = {"num_steps": matched.num_steps, "flags": flags}
    return _fitted(arm, "", matched.correction, evaluated, facts)


def _closed_forms(model: ModelStatistics, choice: Choice) -> list[Fitted]:
    """All of FIT, every id: nothing is selected, so nothing is held out."""
    if not choice.smoothings:
        return []
    fit = model.fit_dense
    expected_S, _ = prior.expected_counts(fit, Correction.identity(fit.num_columns))
    found = []
    for smoothing in choice.smoothings:
        bias_S = prior.closed_form_bias(fit.counts.astype(np.float64), expected_S, smoothing)
        found.append(
            _fitted(f"cf_{smoothing:g}", "", Correction(1.0, bias_S), model.eval_dense, {"flags": []})
        )
    return found


def _references(
    model: ModelStatistics, fit: Statistics, held: Statistics, free: prior.FreeIds
) -> list[Fitted]:
    found = []
    wanted: Sequence[str] = model.references()
    if "affine_top" in wanted:
        found.append(_matched("affine_top", prior.fit_affine(fit, held, free.mask_K), model.eval_columns))
    if "ipf_full" in wanted or "affine_full" in wanted:
        fit_S, held_S = model.fit_dense.split()
        all_S = np.ones(fit_S.num_columns, dtype=np.bool_)
        if "ipf_full" in wanted:
            found.append(_matched("ipf_full", prior.fit_proportional(fit_S, held_S, all_S), model.eval_dense))
        if "affine_full" in wanted:
            found.append(_matched("affine_full", prior.fit_affine(fit_S, held_S, all_S), model.eval_dense))
    return found


def _ceilings(own: Statistics) -> list[Fitted]:
    """On EVAL itself: the closed step with its lower bound, and the optimum."""
    step = prior.in_sample_step(own)
    complete = bool((own.target_column_N != prior.IN_REST).all())
    flags = [] if complete else ["some_targets_in_rest"]
    solution = prior.in_sample_optimum(own)
    closed = _fitted(
        "in_sample",
        "",
        step.correction,
        own,
        {"flags": flags, "bound_nll_sum": step.jensen_bound * own.num_positions},
    )
    said = certificate(solution)
    best = _fitted(
        "in_sample_joint",
        "",
        solution.correction,
        own,
        {**said, "flags": [*flags, *said["flags"]], "num_free": int(solution.coordinates.free_K.sum())},
    )
    return [closed, best]
