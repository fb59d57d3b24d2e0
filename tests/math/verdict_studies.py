"""Simulated studies whose true verdict is known: documents, runs and items, many studies at once.

Axes: S studies, N documents, R runs, I items.
"""

from dataclasses import dataclass

import numpy as np

from stemmatics.math.recovery.retention import retention
from stemmatics.math.recovery.verdict import (
    ARMS,
    STATEMENTS,
    decide,
    run_half_width,
    run_scale,
    with_run_noise,
)
from stemmatics.math.scipy_modules import stats

GAP, BASE = 0.5, 1.0
NUM_DOCUMENTS, NUM_ITEMS = 60, 200


@dataclass(frozen=True)
class Truth:
    """Residual on both pools as shares of the gap, and retention; ``gap`` in nats/byte."""

    first: float
    second: float
    retention: float
    gap: float = GAP


def losses(rng, truth, num_studies, num_runs, run_noise):
    """Means and jackknife-like limits over documents of every statement, and the pooled deviation of runs.

    Documents are of lognormal length with heavy-tailed (t, 5 degrees) scatter of every difference. The
    descendant's gap scatters with the document; runs shift whole arms.
    """
    size_SN = rng.lognormal(0, 0.5, (num_studies, NUM_DOCUMENTS))

    def scatter(share):
        return share * rng.standard_t(5, (num_studies, NUM_DOCUMENTS)) * np.sqrt(3 / 5)

    base_SN = BASE + scatter(0.2)
    gap_SN = truth.gap + scatter(0.25)
    arms = {
        "native": base_SN + gap_SN,
        "base": base_SN,
        "recovered": base_SN + truth.first * gap_SN + scatter(0.03),
        "second base": base_SN + scatter(0.02),
    }
    arms["second recovered"] = (
        arms["second base"] + truth.second * (arms["native"] - arms["second base"]) + scatter(0.03)
    )
    counts = {"base": num_runs, "recovered": num_runs, "second base": 1, "second recovered": 1}
    shift_SR = {arm: rng.normal(0, run_noise, (num_studies, runs)) for arm, runs in counts.items()}
    squares = sum(
        ((shift_SR[arm] - shift_SR[arm].mean(1, keepdims=True)) ** 2).sum(1) for arm in ("base", "recovered")
    )
    degrees = 2 * (num_runs - 1)
    deviation_S = np.sqrt(squares / degrees)
    reach = stats.t.ppf(0.975, NUM_DOCUMENTS - 1)
    total_S1 = size_SN.sum(1, keepdims=True)
    limits = {}
    for name, weights in STATEMENTS.items():
        rate_SN = sum(weight * arms[arm] for arm, weight in zip(ARMS, weights, strict=True))
        value_S = (size_SN * rate_SN).sum(1) / total_S1[:, 0]
        spread_SN = size_SN * (rate_SN - value_S[:, None])
        error_S = np.sqrt((spread_SN**2).sum(1) * NUM_DOCUMENTS / (NUM_DOCUMENTS - 1)) / total_S1[:, 0]
        shifted_S = value_S + sum(
            weight * shift_SR[arm].mean(1)
            for arm, weight in zip(ARMS, weights, strict=True)
            if arm in shift_SR
        )
        half_S = run_half_width(deviation_S, degrees, run_scale(name, counts))
        limits[name] = with_run_noise(
            shifted_S, shifted_S - reach * error_S, shifted_S + reach * error_S, half_S
        )
    return limits


def answers(rng, truth, num_studies, num_runs):
    """Which items each run of both arms answers; the expected retention is that of the truth.

    What is lost is lost in all runs; what rises, rises for every item. Runs differ as a whole too.
    """
    kept = min(1.0, 1 + truth.retention)
    can = 0.95 if truth.retention <= 0 else 0.95 / (1 + truth.retention)
    p_SI = can * np.ones((num_studies, NUM_ITEMS))
    q_SI = p_SI * (rng.random(p_SI.shape) < kept) * max(1.0, 1 + truth.retention)

    def runs(p):
        whole = 1 + rng.normal(0, 0.015, (num_studies, num_runs, 1))
        return rng.random((num_studies, num_runs, NUM_ITEMS)) < p[:, None, :] * whole

    return runs(p_SI), runs(q_SI)


def verdicts(seed, truth, num_studies, num_runs, *, run_noise=0.004):
    """Share of studies that read each verdict, by its name."""
    rng = np.random.default_rng(seed)
    limits = losses(rng, truth, num_studies, num_runs, run_noise)
    kept = retention(*answers(rng, truth, num_studies, num_runs))
    decision = decide(limits, (kept.lo, kept.hi))
    words = {name: getattr(decision, name) for name in ("forgetting", "register", "both")}
    assert (sum(held.astype(int) for held in words.values()) <= 1).all(), "two verdicts at once"
    return {name: float(held.mean()) for name, held in words.items()}
