"""Pairs of models whose change is known, for checks of the fits.

Axes: N positions, V vocabulary, d state width.

States are standard normal (zero mean, so that noise on the head is not a bias), head weights normal
with standard deviation 0.5, targets drawn from the old model's own distribution.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stemmatics.math.prior.statistics import Floats, Integers, Statistics


@dataclass(frozen=True)
class Change:
    """What turns the old model into the new one, and the text that both see.

    noise_sd: of normal noise on every head weight (random damage). bias_sd: of a fixed bias per id.
    scale: factor on the logits. prior_sd: of a shift of the text's own log-probabilities, which
    neither model knows of.
    """

    noise_sd: float = 0.0
    bias_sd: float = 0.0
    scale: float = 1.0
    prior_sd: float = 0.0


@dataclass(frozen=True, eq=False)
class SyntheticPair:
    """Old and new model on FIT and EVAL text."""

    old_fit: Statistics
    new_fit: Statistics
    old_eval: Statistics
    new_eval: Statistics


def synthetic_pair(
    rng: np.random.Generator,
    change: Change,
    *,
    num_positions: int = 10_000,
    vocabulary_size: int = 400,
    width: int = 64,
    document_length: int = 100,
) -> SyntheticPair:
    """Draw a pair; FIT and EVAL have ``num_positions`` each. Logits are float64."""
    head_Vd = rng.normal(0.0, 0.5, (vocabulary_size, width))
    damage_Vd = rng.normal(0.0, 1.0, head_Vd.shape) * change.noise_sd
    bias_V = rng.normal(0.0, 1.0, vocabulary_size) * change.bias_sd
    prior_V = rng.normal(0.0, 1.0, vocabulary_size) * change.prior_sd
    document_N = np.arange(num_positions, dtype=np.int64) // document_length

    def text() -> tuple[Statistics, Statistics]:
        state_Nd = rng.normal(0.0, 1.0, (num_positions, width))
        old_NV = state_Nd @ head_Vd.T
        new_NV = change.scale * (state_Nd @ (head_Vd + damage_Vd).T) + bias_V
        target_N = _draw(rng, old_NV + prior_V)
        return Statistics.dense(old_NV, target_N, document_N), Statistics.dense(new_NV, target_N, document_N)

    old_fit, new_fit = text()
    old_eval, new_eval = text()
    return SyntheticPair(old_fit, new_fit, old_eval, new_eval)


def _draw(rng: np.random.Generator, logits_NV: Floats) -> Integers:
    """One id per row from softmax, by the Gumbel-max rule."""
    drawn_N: Integers = np.argmax(logits_NV + rng.gumbel(size=logits_NV.shape), axis=1).astype(np.int64)
    return drawn_N
