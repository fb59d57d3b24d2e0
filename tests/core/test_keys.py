"""One spelling for each value; values without an exact spelling are refused."""

import hashlib
import math

import numpy as np
import pytest

from stemmatics.core.keys import canonical_json, key_of, seed_from


def test_the_order_of_names_and_the_kind_of_sequence_do_not_matter():
    assert canonical_json({"b": (1, 2), "a": None}) == '{"a":null,"b":[1,2]}'
    assert key_of({"b": [1, 2], "a": None}) == key_of({"a": None, "b": (1, 2)})


def test_a_key_is_the_hash_of_the_canonical_json():
    assert key_of({"x": 1}) == hashlib.sha256(b'{"x":1}').hexdigest()


def test_text_outside_ascii_is_escaped():
    assert canonical_json({"ä": "é\n"}) == '{"\\u00e4":"\\u00e9\\n"}'


@pytest.mark.parametrize("pair", [(1, 1.0), (1, True), (0, None), ("1", 1), ("", None), ([], {}), (0.1, 0.2)])
def test_values_that_differ_have_keys_that_differ(pair):
    assert key_of({"x": pair[0]}) != key_of({"x": pair[1]})


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, np.float64("nan"), {"x": [math.nan]}])
def test_numbers_that_are_not_finite_are_refused(value):
    with pytest.raises(ValueError, match="can't hold"):
        key_of(value)


@pytest.mark.parametrize("value", [{1, 2}, b"bytes", bytearray(b"b"), object(), np.arange(3), np.int64(3)])
def test_values_that_json_cannot_represent_are_refused(value):
    with pytest.raises(TypeError, match="can't hold"):
        key_of({"x": value})


def test_names_with_the_same_spelling_are_refused():
    with pytest.raises(ValueError, match="same spelling"):
        key_of({1: "a", "1": "b"})


def test_seeds_follow_from_seed_and_names_and_fit_in_63_bits():
    assert seed_from(0, "a") == seed_from(0, "a")
    seeds = {seed_from(0, "a"), seed_from(1, "a"), seed_from(0, "b"), seed_from(0, "a", "b"), seed_from(0)}
    assert len(seeds) == 5
    assert all(0 <= seed < 2**63 for seed in seeds)
