"""Fits redrawn with the choice of their penalty inside.

Axes: R draws, D documents, C candidates of a selection, K columns; a *vector* has K + 1 entries.

A draw weighs all FIT documents: those that fit and those that select. Under it every candidate moves by one
Newton step, and the selection is made again by the weighted held-out loss. The step of a candidate is only
made where the draws could choose it: where its penalty, or the next stronger or weaker one, is the best
under some draw of the held-out weights alone, or of the moved candidates so far.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from stemmatics.math.prior.arms import Selected
from stemmatics.math.prior.corrected import nll_sums
from stemmatics.math.prior.newton import Certificate, Coordinates, Solution
from stemmatics.math.prior.refit import moved_nll_sums, refit_fully, refit_one_step
from stemmatics.math.prior.statistics import Floats, Integers, Mask, Statistics

# a full refit checks one step, and is compared with it at the second digit
_REFIT_GAP = 1e-7


@dataclass(frozen=True, eq=False)
class Redrawn:
    """Nats of all scored positions under every draw, (R,), and the number of the candidate it chose.

    ``full_F`` are those of the first F draws, fitted in full with the penalty that the draw chose.
    """

    nll_R: Floats
    chosen_R: Integers
    full_F: Floats


def redraw(
    texts: tuple[Statistics, Statistics, Statistics],
    arms: Sequence[Sequence[Selected]],
    free_K: Mask,
    weight_RD: Floats,
    *,
    num_refits: int = 0,
) -> list[Redrawn]:
    """Refit and select again under every row of weights, for the candidates of each arm.

    ``texts`` are the part of FIT that fits, the part that selects, and EVAL; ``weight_RD`` has an entry for
    each document of FIT. A candidate that is one of several arms is moved once.
    """
    draws = _Draws(*texts, free_K, weight_RD)
    return [draws.of_arm(candidates, num_refits) for candidates in arms]


@dataclass(frozen=True, eq=False)
class _Moved:
    """One candidate under every draw: displacements (R, K + 1), and weighted held-out nats (R,)."""

    move_RX: Floats
    held_out_R: Floats


@dataclass(frozen=True, eq=False)
class _Draws:
    """The texts and the weights; ``moved`` are candidates by identity that have been moved."""

    fit: Statistics
    held_out: Statistics
    scored: Statistics
    free_K: Mask
    weight_RD: Floats
    moved: dict[int, _Moved] = field(default_factory=dict)

    def of_arm(self, candidates: Sequence[Selected], num_refits: int) -> Redrawn:
        """Move the candidates that a draw could choose, and choose in every draw."""
        nll_DC = np.stack([nll_sums(self.held_out, each.correction) for each in candidates], axis=1)
        chosen_R = np.argmin(self.weight_RD @ nll_DC, axis=1)
        tried = _within_reach(candidates, np.unique(chosen_R))
        while True:
            moves = [self._move(candidates[c]) for c in tried]
            best_R = np.argmin(np.stack([move.held_out_R for move in moves], axis=1), axis=1)
            chosen_R = np.array(tried)[best_R]
            wider = sorted({*tried, *_within_reach(candidates, np.unique(chosen_R))})
            if wider == tried:
                break
            tried = wider
        nll_R, full_F = np.empty(len(self.weight_RD)), np.empty(num_refits)
        for t in np.unique(best_R):
            candidate, rows = candidates[tried[t]], np.flatnonzero(best_R == t)
            nll_R[rows] = moved_nll_sums(self.scored, candidate.correction, moves[t].move_RX[rows]).sum(0)
            for row in rows[rows < num_refits]:
                full_F[row] = self._full(candidate, self.weight_RD[row])
        return Redrawn(nll_R, chosen_R.astype(np.int64), full_F)

    def _move(self, candidate: Selected) -> _Moved:
        if id(candidate) not in self.moved:
            solution = _solution(self.fit, candidate, self.free_K)
            move_RX = np.zeros((len(self.weight_RD), self.fit.num_columns + 1))
            if solution is not None:
                move_RX = refit_one_step(self.fit, solution, self.weight_RD, penalty=_penalty(candidate))
            nll_DR = moved_nll_sums(self.held_out, candidate.correction, move_RX)
            self.moved[id(candidate)] = _Moved(move_RX, np.einsum("rd,dr->r", self.weight_RD, nll_DR))
        return self.moved[id(candidate)]

    def _full(self, candidate: Selected, weight_D: Floats) -> float:
        solution = _solution(self.fit, candidate, self.free_K)
        correction, penalty = candidate.correction, _penalty(candidate)
        if solution is not None:
            moved_1X = refit_fully(self.fit, solution, weight_D[None], penalty=penalty, gap=_REFIT_GAP)
            correction = correction.moved(correction.vector() + moved_1X[0])
        return float(nll_sums(self.scored, correction).sum())


def _within_reach(candidates: Sequence[Selected], chosen: Integers) -> list[int]:
    """Numbers of the candidates whose penalty is that of a chosen one, or the next to it."""
    rank_C = np.unique([candidate.penalty for candidate in candidates], return_inverse=True)[1]
    return np.flatnonzero((np.abs(rank_C[:, None] - rank_C[chosen]) <= 1).any(axis=1)).tolist()


def _penalty(candidate: Selected) -> float:
    return candidate.penalty if candidate.biases else 0.0


def _solution(fit: Statistics, candidate: Selected, free_K: Mask) -> Solution | None:
    """A candidate with the coordinates that its fit moved; None where it moved none."""
    if not (candidate.temperature or candidate.biases):
        return None
    moved_K = free_K if candidate.biases else np.zeros_like(free_K)
    coordinates = Coordinates.of(fit, moved_K, temperature=candidate.temperature, penalty=_penalty(candidate))
    # a refit reads the correction and its coordinates only
    unknown = float("nan")
    unused = Certificate(unknown, unknown, converged=True, num_steps=0, num_passes=0, num_products=0)
    return Solution(candidate.correction, unknown, unknown, unused, at_edge=False, coordinates=coordinates)
