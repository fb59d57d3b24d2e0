"""Newton's method with conjugate gradients for the convex fits, and the certificate of an optimum.

Axes: K columns; a *vector* has K + 1 entries, beta first.

Each step solves H d = -g by preconditioned conjugate gradients to a tolerance that tightens as the
gradient falls (Dembo, Eisenstat and Steihaug 1982; Nocedal and Wright 2006, algorithm 7.1), then
halves the step until the loss falls enough. beta stays in [0.25, 4]. Where every target is free and
nothing is penalised, the ids that are never a target are left out of the softmax: a common shift of the
free biases then changes nothing, and steps keep their sum.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stemmatics.core.errors import UserError
from stemmatics.math.prior.corrected import Correction
from stemmatics.math.prior.objective import Objective, Point
from stemmatics.math.prior.rest import (
    MAX_INVERSE_TEMPERATURE,
    MIN_INVERSE_TEMPERATURE,
)
from stemmatics.math.prior.statistics import (
    Floats,
    Mask,
    Statistics,
)

# nats a position: a share's standard error is some 1e-3
DEFAULT_GAP = 1e-7
_MAX_STEPS = 100
_MAX_PRODUCTS = 400
_MAX_HALVINGS = 12
_SUFFICIENT = 1e-4
_LEAST_CURVATURE = 1e-15


@dataclass(frozen=True, eq=False)
class Coordinates:
    """Which parts of a correction may move.

    ``gauge``: every target is free and nothing is penalised. A common shift of the free biases then competes
    with ids that are never a target (or with none), so the loss falls for ever along it. Its infimum is the
    optimum with those ids left out of the softmax, where the shift changes nothing and its sum may be kept.
    ``complete``: every id is free, so that nothing is left out.
    """

    free_K: Mask
    temperature: bool
    gauge: bool = False
    complete: bool = False

    @classmethod
    def of(
        cls, statistics: Statistics, free_K: Mask, *, temperature: bool, penalty: float = 0.0
    ) -> Coordinates:
        """Free ids must be targets; a penalty above 0 bounds every shift, so no id is left out.

        Where every id is free, the penalised optimum has the sum 0 by itself.
        """
        count_K = statistics.counts
        free_K = free_K & (count_K >= 1)
        every_target_free = int(count_K[free_K].sum()) == statistics.num_positions
        complete = statistics.rest is None and bool(free_K.all())
        gauge = bool(free_K.any()) and every_target_free and (penalty == 0 or complete)
        return cls(free_K, temperature, gauge, complete)

    def refuse_nothing(self) -> None:
        """Raise UserError where no coordinate may move."""
        if not (self.temperature or self.free_K.any()):
            raise UserError(
                "Nothing is free to be fitted", "no id is a target and beta is fixed", "use more text"
            )

    def leave_out(self, correction: Correction) -> Correction:
        """The same correction without the ids that the infimum leaves out, free biases summing to 0."""
        if not self.gauge:
            return correction
        free_bias_K = correction.bias_K[self.free_K]
        bias_K = np.full(len(self.free_K), -np.inf)
        bias_K[self.free_K] = free_bias_K - free_bias_K.mean()
        return Correction(correction.inverse_temperature, bias_K, keep_rest=self.complete)


@dataclass(frozen=True)
class Certificate:
    """How close to the optimum a fit is.

    ``newton_decrement`` is sqrt(g' H^-1 g); half its square is the loss, in nats a position, that a full
    Newton step is predicted to gain. Norms are over free coordinates, inside the constraints.
    ``num_passes`` counts evaluations of the probabilities of all rows (of a part of them by its share; those
    of ``Descent`` include products), ``num_products`` products with the Hessian.
    """

    gradient_norm: float
    newton_decrement: float
    converged: bool
    num_steps: int
    num_passes: float
    num_products: int

    @property
    def gap(self) -> float:
        """Estimated nats a position above the optimum."""
        return 0.5 * self.newton_decrement**2


@dataclass(frozen=True, eq=False)
class Solution:
    """An optimum with its certificate. ``loss`` is the cross-entropy without the penalty."""

    correction: Correction
    loss: float
    value: float
    certificate: Certificate
    at_edge: bool
    coordinates: Coordinates

    @property
    def attained(self) -> bool:
        """False where the loss has an infimum only, at which some ids have no probability."""
        return self.correction.keeps_all


def at_edge(inverse_temperature: float) -> bool:
    """Whether beta is at an end of its range."""
    return inverse_temperature in (MIN_INVERSE_TEMPERATURE, MAX_INVERSE_TEMPERATURE)


class Subspace:
    """The free directions at a point, and the preconditioned projection onto them."""

    def __init__(self, point: Point, coordinates: Coordinates) -> None:
        beta, slope = point.correction.inverse_temperature, float(point.gradient[0])
        pushes_out = (beta == MIN_INVERSE_TEMPERATURE and slope > 0) or (
            beta == MAX_INVERSE_TEMPERATURE and slope < 0
        )
        self.free = np.concatenate([[coordinates.temperature and not pushes_out], coordinates.free_K])
        self.gauge = coordinates.gauge
        self.inverse_diagonal = np.where(self.free, 1.0 / np.maximum(point.diagonal, _LEAST_CURVATURE), 0.0)

    def project(self, vector: Floats) -> Floats:
        """Orthogonal projection onto the free directions."""
        out = np.where(self.free, vector, 0.0)
        if self.gauge:
            out[1:][self.free[1:]] -= out[1:][self.free[1:]].mean()
        return out

    def precondition(self, vector: Floats) -> Floats:
        """The d that minimises d' diag d / 2 - vector' d over the free directions."""
        out = self.inverse_diagonal * vector
        if self.gauge:
            inverse_K = self.inverse_diagonal[1:]
            out[1:] -= inverse_K * (out[1:].sum() / inverse_K.sum())
        return out


def _newton_direction(
    objective: Objective, point: Point, space: Subspace, tolerance: float
) -> tuple[Floats, float, int]:
    """Approximate solution d of H d = -g in the free directions, its -g'd, and the products used."""
    residual = -space.project(point.gradient)
    scaled = space.precondition(residual)
    direction, search = np.zeros_like(residual), scaled.copy()
    energy = first = float(residual @ scaled)
    num_products = 0
    while num_products < _MAX_PRODUCTS and energy > tolerance**2 * first:
        curved = space.project(objective.hessian_product(point, search))
        num_products += 1
        bend = float(search @ curved)
        if bend <= 0.0:  # Only rounding, or the interpolated rest, can do this: the loss is convex.
            break
        length = energy / bend
        direction += length * search
        residual -= length * curved
        scaled = space.precondition(residual)
        energy, before = float(residual @ scaled), energy
        search = scaled + (energy / before) * search
    if not direction.any():
        direction = space.precondition(-space.project(point.gradient))
    return direction, float(-(point.gradient @ direction)), num_products


def _longest_step(beta: float, change: float) -> float:
    """The largest fraction of a step, at most 1, that leaves beta in its range."""
    if change == 0.0:
        return 1.0
    limit = MAX_INVERSE_TEMPERATURE if change > 0 else MIN_INVERSE_TEMPERATURE
    return min(1.0, (limit - beta) / change)


def _falls(objective: Objective, point: Point, candidate: Point, step: Floats, promised: float) -> bool:
    """Sufficient decrease; judged by the slope where the decrease is below the precision of the value.

    The loss is convex, so a slope along the step that is still negative shows a decrease that the values
    cannot resolve (the approximate condition of Hager and Zhang 2005, equation 23).
    """
    if candidate.value <= point.value - _SUFFICIENT * promised:
        return True
    digits = float(np.finfo(objective.statistics.dtype).eps) * max(1.0, abs(point.value))
    slope = float(candidate.gradient @ step)
    return candidate.value <= point.value + digits and slope <= (1.0 - 2.0 * _SUFFICIENT) * promised


def descend(objective: Objective, point: Point, direction: Floats, fall: float) -> tuple[Point, int]:
    """Halve the step until the value falls enough; the old point where rounding lets none."""
    start = point.correction.vector()
    length = _longest_step(float(start[0]), float(direction[0]))
    for halving in range(_MAX_HALVINGS):
        moved = start + length * direction
        moved[0] = np.clip(moved[0], MIN_INVERSE_TEMPERATURE, MAX_INVERSE_TEMPERATURE)
        candidate = objective.point(point.correction.moved(moved))
        if _falls(objective, point, candidate, length * direction, length * fall):
            return candidate, halving + 1
        length *= 0.5
    return point, _MAX_HALVINGS


def minimise(
    objective: Objective, start: Correction, coordinates: Coordinates, *, gap: float = DEFAULT_GAP
) -> Solution:
    """Minimise over the free coordinates from ``start`` until ``Certificate.gap`` is at most ``gap``.

    The value never rises above that of ``start``, to rounding. ``converged`` is False where rounding
    (float32 rows) or the number of steps ended the search first; the certificate then says how close it
    came. Where ``coordinates.gauge`` says that there is an infimum only, the ids that it leaves out are
    left out from the start, and the certificate is of that problem.
    """
    coordinates.refuse_nothing()
    point = objective.point(coordinates.leave_out(start))
    passes, products, first_norm = 1, 0, 0.0
    for step in range(_MAX_STEPS + 1):
        space = Subspace(point, coordinates)
        norm = float(np.linalg.norm(space.project(point.gradient)))
        first_norm = first_norm or norm
        tolerance = min(0.1, float(np.sqrt(norm / first_norm))) if first_norm else 0.1
        direction, fall, used = _newton_direction(objective, point, space, tolerance)
        products += used
        converged = 0.5 * fall <= gap
        if converged or step == _MAX_STEPS:
            break
        following, tried = descend(objective, point, direction, fall)
        passes += tried
        if following is point:
            break
        point = following
    certificate = Certificate(norm, float(np.sqrt(max(fall, 0.0))), converged, step, passes, products)
    edge = coordinates.temperature and at_edge(point.correction.inverse_temperature)
    return Solution(point.correction, point.loss, point.value, certificate, edge, coordinates)
