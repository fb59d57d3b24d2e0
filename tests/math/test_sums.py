import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stemmatics.core.errors import UserError
from stemmatics.math import sums

finite = st.floats(-1e6, 1e6)


def test_rates_are_ratios_of_sums():
    assert sums.nats_per_byte([4.0, 0.0], [1, 3]) == 1.0
    assert sums.nats_per_byte([4.0, 6.0, 6.0, 6.0], [4, 2, 2, 2]) == pytest.approx(2.2, abs=1e-15)


def test_unknown_rates_are_nan():
    assert math.isnan(sums.nats_per_byte([0.0], [0]))
    assert math.isnan(sums.nats_per_byte([], []))
    np.testing.assert_array_equal(sums.ratio([1.0, 2.0], [0.0, 4.0]), [np.nan, 0.5])


def test_four_bytes_at_64_ids_are_six_bits_each():
    nats = sums.nats_per_byte([4 * math.log(64)], [4])
    assert nats == pytest.approx(4.158883, abs=1e-6)
    assert float(sums.nats_from_bits(6.0)) == pytest.approx(nats, abs=1e-12)


def test_float32_sums_are_added_in_float64():
    values = np.full(3_000, 0.1, dtype=np.float32)
    labels = np.zeros(3_000, dtype=int)
    exact = math.fsum(float(v) for v in values)
    assert sums.sum_by_label(labels, values)[1][0] == pytest.approx(exact, rel=1e-13)
    assert sums.nats_per_byte(values, np.ones(3_000)) == pytest.approx(exact / 3_000, rel=1e-13)


@given(st.lists(st.tuples(st.sampled_from("abcd"), finite, finite), min_size=1, max_size=30))
def test_sum_by_label_is_the_loop(rows):
    labels, totals = sums.sum_by_label([r[0] for r in rows], [[r[1], r[2]] for r in rows])
    assert list(labels) == sorted({r[0] for r in rows})
    for label, total in zip(labels, totals, strict=True):
        for column in (1, 2):
            expected = math.fsum(r[column] for r in rows if r[0] == label)
            assert total[column - 1] == pytest.approx(expected, rel=1e-12, abs=1e-7)


def test_mismatched_rows_are_refused():
    with pytest.raises(UserError, match="one label"):
        sums.sum_by_label(["a"], [1.0, 2.0])
    with pytest.raises(UserError, match="one count"):
        sums.nats_per_byte([1.0], [1, 2])
