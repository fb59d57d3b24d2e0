"""Estimates for models with an unknown base; error bars with known truth."""

import math

import numpy as np
import pytest
from scipy import stats
from stemmatics.math.placing import Origin, calibration, offset_rule, other_generations, place


def origin(family, *, lab="a", generation="v1", pipeline="p", recipe_class="ordinary"):
    return Origin(family, lab, generation, pipeline, recipe_class)


def documents(rng, loss, num_documents=200):
    num_bytes = rng.integers(200, 900, num_documents).astype(float)
    nll = num_bytes * (loss + rng.normal(0, 0.1, num_documents))
    return nll, num_bytes, np.arange(num_documents).astype(str)


def test_the_lab_s_own_pair_comes_first_and_its_bar_is_added_in_quadrature():
    rng = np.random.default_rng(0)
    known = calibration([0.02, 0.03, 0.9], [origin("x"), origin("y"), origin("z", lab="b", pipeline="q")])
    nll, num_bytes, groups = documents(rng, 1.0)
    result = place(nll, num_bytes, groups, known, origin("new"))
    assert result.offset.source == "own pair"
    assert result.value == pytest.approx(nll.sum() / num_bytes.sum() - 0.025, abs=1e-12)
    # by brute force: the jackknife of the ratio, t at 90%, and the offset's own bar
    n = len(nll)
    left_out = (nll.sum() - nll) / (num_bytes.sum() - num_bytes)
    error = math.sqrt((n - 1) / n * ((left_out - left_out.mean()) ** 2).sum())
    half = stats.t.ppf(0.95, n - 1) * error
    assert result.bar == pytest.approx(math.hypot(result.offset.bar, half), rel=1e-9)


def test_another_generation_is_refused_and_named():
    rows = [origin("x", generation="v1"), origin("y", generation="v1")]
    known = calibration([0.02, 0.03], rows)
    new = origin("new", generation="v2")
    assert other_generations(known, new) == ["v1"]
    result = place(*documents(np.random.default_rng(1), 1.0), known, new)
    assert result.offset.source == "published default"
    assert "of another generation" in offset_rule(result.offset, other_generations(known, new))
    assert other_generations(known, origin("new")) == []


def test_undeclared_origins_match_no_other_model():
    first, second = (Origin.of(name, name, {"regime": "sft"}) for name in ("m", "n"))
    assert (first.lab, first.generation, first.pipeline) != (second.lab, second.generation, second.pipeline)
    assert Origin.of("d", "d", {"regime": "distill"}).recipe_class == "distilled"


def test_without_pairs_the_published_range_is_used_and_noted():
    result = place(*documents(np.random.default_rng(2), 1.0), calibration([], []), origin("new"))
    assert result.offset.source == "published default"
    assert "not measured" in result.offset.note


@pytest.mark.known
def test_bars_hold_nine_bases_in_ten():
    """2,000 families like the calibrated ones: 90% bars, documents included."""
    rng = np.random.default_rng(3)
    held = 0
    for _ in range(2000):
        families = [f"f{number // 2}" for number in range(24)]
        shared = np.repeat(rng.normal(0, 0.004, 12), 2)
        residuals = 0.015 + shared + rng.normal(0, 0.003, 24)
        rows = [origin(name, lab=name, generation=name, pipeline=name) for name in families]
        new = origin("new", lab="l", generation="g", pipeline="m")
        true = 1.0
        recovered = true + 0.015 + rng.normal(0, 0.004) + rng.normal(0, 0.003)
        result = place(*documents(rng, recovered, 60), calibration(residuals.tolist(), rows), new)
        assert result.offset.source == "class"
        held += abs(result.value - true) <= result.bar
    assert 0.88 <= held / 2000 <= 0.99
