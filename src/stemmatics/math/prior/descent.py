"""Convex fits in few passes over the rows: quasi-Newton steps with the curvature of a subsample.

Axes: N positions, K columns, F free coordinates; a *vector* has K + 1 entries, beta first.

A pass over all rows gives the value, the gradient and the diagonal of the Hessian. The rest of the Hessian is
taken from a subsample of rows, as S H S with S diagonal and such that its diagonal is that of all rows: it
stays positive definite, is nearly exact for frequent ids, and for rare ids, whose covariances are small, the
diagonal is what counts. It is factored once a fit and improved by the steps themselves (L-BFGS: Nocedal and
Wright 2006, algorithm 7.4). The gap is certified at the end by conjugate gradients on the Hessian of all
rows, preconditioned by the factor.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np

from stemmatics.math.prior.corrected import Correction
from stemmatics.math.prior.newton import (
    DEFAULT_GAP,
    Certificate,
    Coordinates,
    Solution,
    Subspace,
    at_edge,
    descend,
)
from stemmatics.math.prior.objective import DEFAULT_CACHE_BYTES, Objective, Point
from stemmatics.math.prior.statistics import Floats, Integers, Statistics
from stemmatics.math.scipy_modules import linalg

# rows of the subsample: a share of all, and no fewer than the second number
_ROWS_SHARE, _FEWEST_ROWS = 16, 2048
# neighbouring rows that are taken together
_RUN = 32
_MEMORY = 12
_MAX_STEPS = 60
_MAX_PRODUCTS = 4
# the gap that the quasi-Newton model claims is trusted to this factor before it is certified
_TRUST = 0.5
# conjugate gradients stop where the squared residual has fallen by this
_CERTAIN = 0.05
# of a fit of the subsample, which only starts another
_ROUGH_GAP = 1e-5
_EXTREME = 1e3
# of one step of a bias, in nats; Newton steps that solve for it
_LONGEST, _INNER_STEPS = 8.0, 20
# a step that leaves more than this of the gap is taken with curvature that is out of date
_SLOW = 0.3


def subsample(statistics: Statistics) -> Statistics:
    """Runs of rows, evenly spread over the text; all of it where it is short."""
    num = statistics.num_positions
    num_rows = max(_FEWEST_ROWS, num // _ROWS_SHARE)
    if num < 2 * num_rows:
        return statistics
    every = num // num_rows
    return statistics.of_rows(np.flatnonzero(np.arange(num) // _RUN % every == every // 2))


class _Factor:
    """The factored Hessian on the free directions: S H S of the subsample plus the penalty."""

    def __init__(self, point: Point, space: Subspace, sampled: Floats, penalty: float) -> None:
        self.free = np.flatnonzero(space.free)
        bias_F = self.free > 0
        own_F = np.maximum(point.diagonal[self.free] - penalty * bias_F, np.finfo(float).tiny)
        scale_F = np.sqrt(np.clip(own_F / np.diag(sampled), 1.0 / _EXTREME, _EXTREME))
        hessian_FF = sampled * scale_F[:, None] * scale_F
        # a multiple of 1 1' changes nothing where biases sum to 0, and makes the matrix definite
        self.ones_F = bias_F.astype(np.float64) if space.gauge else None
        if self.ones_F is not None:
            weight = float(np.trace(hessian_FF)) / max(1.0, self.ones_F.sum()) ** 2
            hessian_FF += weight * np.outer(self.ones_F, self.ones_F)
        index_F = np.arange(len(self.free))
        # columns without any curvature of their own
        least = 1e-14 * max(1.0, float(np.trace(hessian_FF)) / max(1, len(index_F)))
        hessian_FF[index_F, index_F] += penalty * bias_F + least
        self._factor = linalg.cho_factor(hessian_FF, overwrite_a=True)
        if self.ones_F is not None:
            self._shift_F = linalg.cho_solve(self._factor, self.ones_F)

    def solve(self, vector: Floats) -> Floats:
        """H^-1 v on the free directions, 0 elsewhere."""
        out = np.zeros_like(vector)
        solved_F = linalg.cho_solve(self._factor, vector[self.free])
        if self.ones_F is not None:
            solved_F -= self._shift_F * (self.ones_F @ solved_F) / (self.ones_F @ self._shift_F)
        out[self.free] = solved_F
        return out


@dataclass(eq=False)
class _Model:
    """The inverse Hessian: a factor, and the last steps with the changes of gradient along them."""

    factor: _Factor
    pairs: deque[tuple[Floats, Floats]] = field(default_factory=lambda: deque(maxlen=_MEMORY))

    def learn(self, step: Floats, change: Floats) -> None:
        """A step and the change of the gradient along it; one without curvature teaches nothing."""
        if float(step @ change) > 0:
            self.pairs.append((step, change))

    def solve(self, gradient: Floats) -> Floats:
        """The two-loop recursion."""
        vector, shares = gradient.copy(), []
        for step, change in reversed(self.pairs):
            share = float(step @ vector) / float(step @ change)
            vector -= share * change
            shares.append(share)
        vector = self.factor.solve(vector)
        for (step, change), share in zip(self.pairs, reversed(shares), strict=True):
            vector += step * (share - float(change @ vector) / float(step @ change))
        return vector


def _step(model: _Model, space: Subspace, gradient: Floats) -> tuple[Floats, float]:
    """The quasi-Newton step and its -g'd."""
    direction = -space.project(model.solve(gradient))
    return direction, float(-(gradient @ direction))


def _bent(point: Point, space: Subspace, direction: Floats, penalty: float) -> tuple[Floats, float]:
    """The step with the curvature of rare ids followed, and its -g'd.

    The loss by the bias of an id with small probabilities is m exp(x) - n x: a Newton step d overshoots where
    n is far above m, and falls short where it is far below. What solves m (exp(x) - 1) + lambda x =
    (m + lambda) d is exact there, and equals d to first order anywhere. The plain step is kept where this is
    no descent.
    """
    curvature_K = np.maximum(point.diagonal[1:] - penalty, 1e-300)
    aim_K = (curvature_K + penalty) * direction[1:]
    # from above the root of a convex function Newton's steps fall to it; log1p bounds it where lambda is 0
    step_K = np.maximum(direction[1:], -_LONGEST)
    step_K = np.where(step_K > 0, np.log1p(np.maximum(aim_K, 0.0) / curvature_K), step_K)
    for _ in range(_INNER_STEPS):
        grown_K = curvature_K * np.exp(step_K)
        step_K -= (grown_K - curvature_K + penalty * step_K - aim_K) / (grown_K + penalty)
        step_K = np.clip(step_K, -_LONGEST, _LONGEST)
    bent = space.project(np.concatenate([direction[:1], step_K]))
    promised = float(-(point.gradient @ bent))
    if promised > 0:
        return bent, promised
    return direction, float(-(point.gradient @ direction))


class Descent:
    """Fits of one text under several penalties and free coordinates, with a count of the passes.

    ``num_passes`` counts evaluations of probabilities and products with the Hessian, each by the share of the
    rows that it reads.
    """

    def __init__(self, objective: Objective, few: Objective | None = None) -> None:
        self.objective = objective
        self._few = objective if few is None else few
        self._whole = few is None
        self._share = self._few.statistics.num_positions / objective.statistics.num_positions
        self.num_passes = 0.0
        self._last: tuple[Integers, Floats] | None = None

    @classmethod
    def of(cls, statistics: Statistics, *, cache_bytes: int = DEFAULT_CACHE_BYTES) -> Descent:
        """With a subsample where the text is long."""
        few = subsample(statistics)
        objective = Objective(statistics, cache_bytes=cache_bytes)
        return cls(objective, None if few is statistics else Objective(few, cache_bytes=cache_bytes))

    def warm_start(self, start: Correction, coordinates: Coordinates, penalty: float) -> Correction:
        """The fit on the subsample; the start itself where the subsample is the text."""
        if self._whole:
            return start
        descent = Descent(self._few)
        # the subsample's own error is far larger
        solution, _ = descent.minimise(
            descent.point(start), coordinates, penalty, gap=_ROUGH_GAP, certify=False
        )
        self.num_passes += self._share * descent.num_passes
        return solution.correction

    def take_passes(self) -> float:
        """The passes so far; the count begins anew."""
        passes, self.num_passes = self.num_passes, 0.0
        return passes

    def point(self, correction: Correction) -> Point:
        """The objective without a penalty: a pass."""
        self.num_passes += 1.0
        return self.objective.point(correction)

    def minimise(
        self,
        start: Point,
        coordinates: Coordinates,
        penalty: float,
        *,
        gap: float = DEFAULT_GAP,
        certify: bool = True,
    ) -> tuple[Solution, Point]:
        """The optimum at a penalty from a point without one, and the point there, without the penalty too.

        Where ``coordinates`` leave ids out, ``start`` must have left them out already.
        """
        coordinates.refuse_nothing()
        objective = self.objective.penalised(penalty)
        point = start.penalised(penalty)
        first_passes, products, fresh = self.num_passes, 0, False
        model: _Model | None = None
        converged, before = False, np.inf
        for step in range(_MAX_STEPS + 1):
            space = Subspace(point, coordinates)
            gradient = space.project(point.gradient)
            if model is None or not np.array_equal(np.flatnonzero(space.free), model.factor.free):
                # a path begins each fit with the curvature of the last one
                factor, fresh = self._factor(point, space, penalty, again=model is not None)
                model = _Model(factor)
            direction, fall = _step(model, space, gradient)
            if not fresh and fall > max(_SLOW * before, 2.0 * _TRUST * gap):
                # the curvature has changed
                model, fresh = _Model(self._factor(point, space, penalty, again=True)[0]), True
                direction, fall = _step(model, space, gradient)
            before = fall
            if 0.5 * fall <= _TRUST * gap or step == _MAX_STEPS:
                converged = 0.5 * fall <= _TRUST * gap
                if not (certify and converged):
                    break
                direction, fall, used = self._certified(objective, point, space, model)
                products += used
                converged = 0.5 * fall <= gap
                if converged:
                    break
            direction, promised = _bent(point, space, direction, penalty)
            following, tried = descend(objective, point, direction, promised)
            self.num_passes += tried
            if following is point:
                if fresh:
                    break
                model, self._last = None, None
                continue
            fresh = False
            model.learn(
                following.correction.finite() - point.correction.finite(),
                space.project(following.gradient - point.gradient),
            )
            point = following
        passes = self.num_passes - first_passes
        certificate = Certificate(
            float(np.linalg.norm(Subspace(point, coordinates).project(point.gradient))),
            float(np.sqrt(max(fall, 0.0))),
            converged,
            step,
            passes,
            products,
        )
        edge = coordinates.temperature and at_edge(point.correction.inverse_temperature)
        solution = Solution(point.correction, point.loss, point.value, certificate, edge, coordinates)
        return solution, point.penalised(-penalty)

    def _factor(self, point: Point, space: Subspace, penalty: float, *, again: bool) -> tuple[_Factor, bool]:
        """From the subsample's Hessian at the point, which costs a pass of it, and that it is from there.

        Unless ``again``, the last one serves if it has the same coordinates.
        """
        free = np.flatnonzero(space.free)
        fresh = again or self._last is None or not np.array_equal(self._last[0], free)
        if fresh or self._last is None:
            few = point
            if not self._whole:
                few = self._few.point(point.correction)
                self.num_passes += self._share
            self._last = free, self._few.penalised(0.0).hessian(few, free)
        return _Factor(point, space, self._last[1], penalty), fresh

    def _certified(
        self, objective: Objective, point: Point, space: Subspace, model: _Model
    ) -> tuple[Floats, float, int]:
        """Direction and twice the gap by the Hessian of all rows; each product is a pass."""
        residual = -space.project(point.gradient)
        scaled = space.project(model.solve(residual))
        direction, search = np.zeros_like(residual), scaled.copy()
        energy = first = float(residual @ scaled)
        products = 0
        while products < _MAX_PRODUCTS and energy > _CERTAIN * first > 0:
            curved = space.project(objective.hessian_product(point, search))
            products += 1
            bend = float(search @ curved)
            if bend <= 0.0:
                break
            length = energy / bend
            direction += length * search
            residual -= length * curved
            scaled = space.project(model.solve(residual))
            energy, before = float(residual @ scaled), energy
            search = scaled + (energy / before) * search
        self.num_passes += products
        if not direction.any():
            direction = scaled
        return direction, float(-(point.gradient @ direction)), products
