"""Passes on a device give the sums of NumPy's; tried on the CPU's tensors, so that no GPU is needed."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from stemmatics.lm.scoring.device_passes import DevicePasses, passes_on
from stemmatics.math.prior import Correction, Statistics, fit_arms, reduce_logits
from stemmatics.math.prior.rest import Rest
from stemmatics.math.prior.row_passes import ArrayPasses

CPU = torch.device("cpu")
N, V, D = 220, 30, 11


def dense(dtype):
    rng = np.random.default_rng(0)
    logits_NV = rng.normal(0, 2, (N, V)).astype(dtype)
    return Statistics.dense(logits_NV, rng.integers(0, V, N), np.repeat(np.arange(D), N // D))


def reduced(dtype):
    whole = dense(np.float64)
    ids_K = np.arange(0, V, 3)
    columns_NK, column_N, target_N, log_z_NJ = reduce_logits(
        np.array(whole.logits_NK), whole.target_column_N, ids_K
    )
    assert (column_N < 0).any()
    return Statistics(
        columns_NK.astype(dtype), column_N, whole.document_N, ids_K, D, target_N, Rest(log_z_NJ)
    )


def close(dtype):
    return {"rtol": 1e-10, "atol": 1e-12} if dtype == np.float64 else {"rtol": 2e-5, "atol": 2e-6}


@pytest.mark.parametrize("most_bytes", [0, 1 << 30])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("form", [dense, reduced])
def test_sums_are_those_of_numpy(form, dtype, most_bytes):
    statistics = form(dtype)
    rng = np.random.default_rng(1)
    weight_N = rng.exponential(size=N)
    vector_K = rng.normal(size=statistics.num_columns)
    column_F = np.array([0, 2, 5])
    array = ArrayPasses(statistics, 1 << 30)
    # blocks of seven rows: 220 is no multiple
    device = DevicePasses(statistics, CPU, most_bytes, block_elements=7 * statistics.num_columns)
    for beta in (1.0, 0.6):
        correction = Correction(beta, rng.normal(0, 0.5, statistics.num_columns))
        expected, sums = array.evaluate(correction, weight_N), device.evaluate(correction, weight_N)
        for name in ("nll_N", "slope", "curvature", "expected_K", "squares_K", "cross_K"):
            assert np.allclose(getattr(sums, name), getattr(expected, name), **close(dtype)), name
        pulled_K = device.pull(correction, weight_N, vector_K)
        assert np.allclose(pulled_K, array.pull(correction, weight_N, vector_K), **close(dtype))
        for columns in (column_F, np.arange(statistics.num_columns)):
            sums_FF = device.gram(correction, weight_N, columns)
            assert np.allclose(sums_FF, array.gram(correction, weight_N, columns), **close(dtype))
    # an equal correction that was not the last one evaluated is computed again
    other = Correction(1.3, np.zeros(statistics.num_columns))
    assert np.allclose(
        device.pull(other, weight_N, vector_K), array.pull(other, weight_N, vector_K), **close(dtype)
    )


def test_removed_ids_have_no_probability():
    statistics = dense(np.float64)
    bias_K = np.zeros(V)
    bias_K[4] = -np.inf
    statistics = replace(statistics, target_column_N=np.where(statistics.target_column_N == 4, 5, 3))
    correction = Correction(0.8, bias_K)
    weight_N = np.ones(N)
    device, array = DevicePasses(statistics, CPU, 1 << 20), ArrayPasses(statistics, 1 << 20)
    sums = device.evaluate(correction, weight_N)
    assert sums.expected_K[4] == 0.0
    assert np.allclose(sums.nll_N, array.evaluate(correction, weight_N).nll_N)


def test_a_pass_that_ends_early_leaves_nothing_behind():
    statistics = dense(np.float64)
    device = DevicePasses(statistics, CPU, 1 << 30, block_elements=7 * V)
    next(iter(device._blocks()))
    correction, weight_N = Correction(0.9, np.zeros(V)), np.ones(N)
    expected = ArrayPasses(statistics, 1 << 30).evaluate(correction, weight_N)
    assert np.allclose(device.evaluate(correction, weight_N).nll_N, expected.nll_N)


def test_whole_fits_are_those_of_numpy():
    statistics = reduced(np.float64)
    on_device = replace(statistics, make_passes=lambda rows, _bytes: DevicePasses(rows, CPU, 1 << 30))
    held_out_D = np.arange(D) % 4 == 0
    fits = [fit_arms(*form.split_documents(held_out_D), 6) for form in (statistics, on_device)]
    for name in ("bias", "temperature", "joint"):
        optima = [getattr(fit, name).optimum.correction for fit in fits]
        assert optima[0].inverse_temperature != 1.0 or optima[0].bias_K.any()
        assert np.allclose(*(optimum.finite() for optimum in optima), atol=1e-5), name


def test_a_cpu_computes_with_numpy():
    assert passes_on(CPU) is None
    assert passes_on(torch.device("cuda")) is not None
