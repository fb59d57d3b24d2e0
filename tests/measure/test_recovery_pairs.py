"""Residual, drop and rebase shift of a pair, what run noise adds, and what a second pool moves."""

import math

import numpy as np
import pytest
from scipy import stats
from tests.measure.recovery_by_hand import TEXT, make_study, results_of

from stemmatics.measure.recovery.losses import pool_results
from stemmatics.measure.recovery.pairs import (
    noise_estimate,
    pair_estimates,
    read_pairs,
    register_estimates,
    run_noise,
)

PAIR = ("base", "tuned")
CHECKPOINTS = {"base": {"regime": "base"}, "tuned": {"base": "base", "regime": "sft"}}


def pair_study(**settings):
    return make_study(CHECKPOINTS, **settings)


def read(study):
    losses = study.losses()
    return read_pairs(losses, study.arms.pairs, run_noise(losses), np.random.default_rng(0))


def results(study):
    losses = study.losses()
    noise = run_noise(losses)
    pairs = read_pairs(losses, study.arms.pairs, noise, np.random.default_rng(0))
    return results_of([noise_estimate(losses, noise)], pair_estimates(losses, pairs.values()))


def test_each_difference_has_its_sign():
    study = pair_study()
    # worse than the base, and the fine-tune lowers both: all three are above 0
    study.add_arm("base", [1.00], native=1.04)
    study.add_arm("tuned", [1.10], native=1.50)
    found = results(study)
    assert found.only("recovery.residual").value == pytest.approx(1.10 - 1.00)
    assert found.only("recovery.drop").value == pytest.approx(1.50 - 1.10)
    assert found.only("recovery.shift").value == pytest.approx(1.04 - 1.00)
    assert all(dict(each.subject)["corpus"] == TEXT for each in found.values())


def test_losses_are_nats_of_all_documents_over_their_bytes():
    study = pair_study(num_bytes=(100, 300, 100, 300))
    study.add_arm("base", [1.0])
    study.add_arm("tuned", [[1.2, 1.4, 1.2, 1.4]])
    # (2 x 100 x 0.2 + 2 x 300 x 0.4) / 800
    assert results(study).only("recovery.residual").value == pytest.approx(0.35)


def test_an_arm_is_the_mean_of_its_runs():
    study = pair_study(runs=2, base_runs=3)
    study.add_arm("base", [1.00, 1.02, 1.10])
    study.add_arm("tuned", [1.20, 1.30], native=1.5)
    found = results(study)
    assert found.only("recovery.residual").value == pytest.approx(1.25 - 1.04)
    assert found.only("recovery.drop").value == pytest.approx(1.5 - 1.25)
    squares = 0.04**2 + 0.02**2 + 0.06**2 + 2 * 0.05**2
    assert found.only("recovery.noise").value == pytest.approx(math.sqrt(squares / 3))
    # sd x sqrt(1/3 + 1/2)
    error = found.only("recovery.residual.runs")
    assert error.value == pytest.approx(math.sqrt(squares / 3 * (1 / 3 + 1 / 2)))


def noisy_pair(residual):
    """Two runs of the base 0.002 apart: sd 0.001414, of the difference sd x sqrt(1/2 + 1) = 0.001732."""
    study = pair_study(base_runs=2)
    study.add_arm("base", [1.000, 1.002])
    study.add_arm("tuned", [1.001 + residual], native=1.2)
    return read(study)[PAIR]


def test_the_residual_holds_the_noise_of_documents_and_of_runs():
    pair = noisy_pair(0.05)
    # documents are all alike, so the limits are those of the runs
    assert (pair.documents.lo, pair.documents.hi) == pytest.approx((0.05, 0.05))
    assert pair.residual.hi - 0.05 == pytest.approx(0.022008, abs=1e-5)
    assert 0.05 - pair.residual.lo == pytest.approx(0.022008, abs=1e-5)
    assert pair.residual.unit == "document and run"


def test_without_repeats_the_residual_is_that_of_documents_and_says_so():
    study = pair_study()
    study.add_arm("base", [1.0])
    study.add_arm("tuned", [[1.1, 1.2, 1.3, 1.2]])
    found = results(study)
    residual, documents = found.only("recovery.residual"), found.only("recovery.residual.documents")
    assert (residual.value, residual.lo, residual.hi) == (documents.value, documents.lo, documents.hi)
    assert "without run noise" in residual.note
    assert "without run noise" not in documents.note
    assert math.isnan(found.only("recovery.noise").value)


def second_pool_study(base, tuned, base_second, tuned_second):
    study = pair_study(base_runs=2, second_pool="second-pool")
    study.add_arm("base", base, second=base_second)
    study.add_arm("tuned", tuned, second=tuned_second)
    return study


def test_a_second_pool_moves_the_residual_by_what_it_does_to_both_arms():
    # residual 0.10 on the first run of the first pool, 0.13 on the second
    study = second_pool_study([1.00, 1.08], [1.10], 1.20, 1.33)
    moved = results(study).only("recovery.residual.moved")
    assert moved.value == pytest.approx((1.33 - 1.20) - (1.10 - 1.00))
    assert moved.tag == "control"
    # four arms of one run each: sd x sqrt(4)
    reach = stats.t.ppf(0.975, 1) * 0.08 / math.sqrt(2) * 2
    assert moved.hi - moved.value == pytest.approx(reach)


def test_a_second_pool_that_moves_both_arms_alike_moves_nothing():
    study = second_pool_study([1.00, 1.00], [1.10], 1.50, 1.60)
    assert results(study).only("recovery.residual.moved").value == pytest.approx(0.0, abs=1e-12)


def test_only_the_pairs_named_go_through_the_second_pool():
    study = pair_study(second_pool="second-pool", again=[])
    study.add_arm("base", [1.0], second=1.2)
    study.add_arm("tuned", [1.1], second=1.4)
    assert read(study)[PAIR].moved is None
    assert results(study).find("recovery.residual.moved") is None


def test_each_register_has_its_own_residual():
    study = pair_study(registers=["prose", "code", "prose", "code"])
    study.add_arm("base", [1.0])
    study.add_arm("tuned", [[1.1, 1.4, 1.1, 1.4]])
    losses = study.losses()
    found = results_of(register_estimates(losses, study.arms.pairs, np.random.default_rng(0)))
    assert found.only("recovery.register", register="prose").value == pytest.approx(0.1)
    assert found.only("recovery.register", register="code").value == pytest.approx(0.4)
    assert len(found) == 2


def test_a_checkpoint_that_is_not_comparable_is_refused_with_the_reason():
    other = {"base": "base", "regime": "sft"}
    study = make_study({**CHECKPOINTS, "half": other, "failed": other})
    study.add_arm("base", [1.0])
    study.add_arm("tuned", [1.1])
    study.add_arm("half", [1.1])
    study.add_scores("half", 1.2, dtype="float16")
    study.add_scores("failed", 1.2)
    losses = study.losses()
    assert losses.names == ["base", "tuned"]
    assert list(read(study)) == [PAIR]
    found = results_of(pool_results(study.arms, losses, study))
    reasons = {refusal.subject["checkpoint"]: refusal for refusal in found.refusals("recovery.refused")}
    assert set(reasons) == {"half", "failed"}
    assert "precision" in reasons["half"].reason
    assert "failed" in reasons["failed"].reason
    assert "--retry-failed" in reasons["failed"].fix


def test_what_a_pool_shares_and_what_an_arm_read_is_counted():
    study = pair_study()
    study.add_arm("base", [1.0])
    study.add_arm("tuned", [1.1])
    row = {
        "num_pool_documents": 9,
        "num_shared_documents": 1,
        "num_shared_ngrams": 7,
        "num_pool_documents_sharing": 2,
    }
    study.add("overlap", f"pool and {TEXT}", overlap=[row])
    found = results_of(pool_results(study.arms, study.losses(), study))
    shared = {
        each.quantity.rpartition(".")[2]: (each.value, each.n, each.units)
        for each in found.all("recovery.pool.shared_documents")
        + found.all("recovery.pool.shared_ngrams")
        + found.all("recovery.pool.pool_documents_sharing")
    }
    assert shared == {
        "shared_documents": (1.0, 9, "documents"),
        "shared_ngrams": (7.0, 9, "runs of words"),
        "pool_documents_sharing": (2.0, 9, "documents"),
    }
    tokens = found.only("recovery.read.tokens", checkpoint="tuned")
    assert (tokens.value, tokens.n, tokens.units) == (64.0, 5, "tokens")
    assert found.only("recovery.read.bytes", checkpoint="base").value == 300.0
