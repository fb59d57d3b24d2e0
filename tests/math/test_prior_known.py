"""Known answers at full size: V = 400, d = 64, 10,000 FIT and EVAL positions."""

from dataclasses import dataclass

import numpy as np
import pytest
from tests.math.synthetic_pairs import Change, synthetic_pair

from stemmatics.math.prior import Correction, PairSums, fit_optimum, free_ids, nll_sums, shares
from stemmatics.math.prior.arms import PENALTY_STRENGTHS

NO_BIAS = np.zeros(400, dtype=bool)


@dataclass
class Result:
    recovered_share: float
    net_recovered_share: float
    temperature: float


def measure(change, seed, names=("joint", "temperature", "bias")):
    pair = synthetic_pair(np.random.default_rng(seed), change)
    identity = Correction.identity(400)
    before = {"old": nll_sums(pair.old_eval, identity), "new": nll_sums(pair.new_eval, identity)}
    delta_D = before["new"] - before["old"]
    out = {}
    for name in names:
        gains, solution = {}, None
        for side, fit, scored in (
            ("old", pair.old_fit, pair.old_eval),
            ("new", pair.new_fit, pair.new_eval),
        ):
            part, _ = fit.split()
            mask_K = NO_BIAS if name == "temperature" else free_ids(part).mask_K
            solution = fit_optimum(part, mask_K, temperature=name != "bias", gap=1e-8)
            assert solution.certificate.converged
            if not solution.correction.reaches(scored):
                # an infimum without a finite loss on other text: the weakest penalty instead
                penalty = min(PENALTY_STRENGTHS) / part.num_positions
                solution = fit_optimum(part, mask_K, temperature=name != "bias", penalty=penalty, gap=1e-8)
            gains[side] = before[side] - nll_sums(scored, solution.correction)
        result = shares(PairSums(delta_D, gains["new"], gains["old"]), (0.01, 9.0))
        out[name] = Result(
            result.recovered_share, result.net_recovered_share, solution.correction.temperature
        )
    return out


def check_damage(result):
    assert 0.28 < result["joint"].net_recovered_share < 0.33
    assert 0.23 < result["temperature"].net_recovered_share < 0.29
    assert 0.05 < result["bias"].net_recovered_share < 0.10


def test_random_damage_and_a_shifted_text_prior():
    result = measure(Change(noise_sd=0.25), 0)
    check_damage(result)
    shifted = measure(Change(noise_sd=0.25, prior_sd=1.0), 0, ("joint",))["joint"]
    assert shifted.recovered_share - shifted.net_recovered_share > 0.1
    assert abs(shifted.net_recovered_share - result["joint"].net_recovered_share) < 0.05


def test_planted_bias_is_taken_back_by_bias():
    result = measure(Change(bias_sd=0.5), 0)
    assert result["bias"].net_recovered_share > 0.9
    assert result["temperature"].net_recovered_share < 0.2


def test_doubled_logits_are_taken_back_by_temperature():
    result = measure(Change(scale=2.0), 0)
    assert result["temperature"].net_recovered_share > 0.9
    assert abs(result["temperature"].temperature - 2) < 0.06
    assert abs(result["joint"].temperature - 2) < 0.06
    assert result["bias"].net_recovered_share < 0.1


@pytest.mark.known
@pytest.mark.parametrize("seed", range(1, 9))
def test_known_answers_over_seeds(seed):
    check_damage(measure(Change(noise_sd=0.25), seed))
    assert measure(Change(bias_sd=0.5), seed, ("bias",))["bias"].net_recovered_share > 0.9
    doubled = measure(Change(scale=2.0), seed, ("temperature", "joint"))
    assert doubled["temperature"].net_recovered_share > 0.9
    assert abs(doubled["temperature"].temperature - 2) < 0.06
    assert abs(doubled["joint"].temperature - 2) < 0.06
