"""The measure `prior` on made sums: parts add up, labels, refusals; no model, no file."""

import math
from dataclasses import replace

import numpy as np
import pytest

from stemmatics.core.facts import Fact
from stemmatics.measure.prior.estimate import Pair, incomparable, pair_estimates
from stemmatics.measure.prior.floors import floor_estimates
from stemmatics.measure.prior.sums import NONE, Model

NUM = 80
SUBJECT = {"base": "b", "descendant": "d", "corpus": "t"}
SELECTED = {name: (name, "selected") for name in ("bias", "temperature", "joint")}
RNG = np.random.default_rng(1)
TOKENS = RNG.integers(20, 60, NUM).astype(float)
BASE = TOKENS * RNG.normal(3.0, 0.1, NUM)
LOST = TOKENS * RNG.normal(0.3, 0.1, NUM)


def model(nll, gains, *, draws=None, **said):
    """Sums of one model: ``gains`` by arm are what each correction removes, by document."""
    said = {
        "token_ids_sha256": "same",
        "prefix_id": 0,
        "dtype": "float32",
        "note": "",
        "mean_state_energy": 3.0,
        "state_energy": 6.0,
        **said,
    }
    return Model(
        Fact("prior", 1, {}),
        said,
        np.arange(NUM),
        TOKENS,
        np.zeros(NUM),
        np.arange(NUM).astype(str),
        {NONE: nll, **{arm: nll - gain for arm, gain in gains.items()}},
        {arm: {"flags": [], "inverse_temperature": 1.0} for arm in (NONE, *gains)},
        draws or {},
    )


def a_pair(share=0.6, noise=0.01, **changes):
    rng = np.random.default_rng(3)
    jitter = TOKENS * rng.normal(0.0, noise, NUM)
    new = {
        SELECTED["joint"]: share * LOST + jitter,
        SELECTED["temperature"]: 0.5 * LOST + jitter,
        SELECTED["bias"]: 0.2 * LOST + jitter,
    }
    old = {arm: np.zeros(NUM) for arm in new}
    return Pair(SUBJECT, (Fact("prior", 1, {}),), model(BASE, old), model(BASE + LOST, new, **changes))


def found(pair):
    estimates = pair_estimates(pair, np.random.default_rng(0))
    return estimates, {(one.quantity, *sorted(one.subject.items())): one for one in estimates}


def value(estimates, quantity, **subject):
    (one,) = (
        one
        for one in estimates
        if one.quantity == quantity and all(one.subject.get(name) == what for name, what in subject.items())
    )
    return one


def test_shares_parts_and_contrasts():
    estimates, _ = found(a_pair(noise=0.0))
    assert value(estimates, "prior.sym", arm="joint").value == pytest.approx(0.6)
    assert value(estimates, "prior.card", arm="bias").value == pytest.approx(0.2)
    # Shapley: temperature (0.5 + 0.6 - 0.2) / 2, bias the rest of 0.6
    assert value(estimates, "prior.part", part="temperature").value == pytest.approx(0.45)
    assert value(estimates, "prior.part", part="bias").value == pytest.approx(0.15)
    assert value(estimates, "prior.part", part="rest").value == pytest.approx(0.4)
    assert value(estimates, "prior.lead", part="temperature", over="rest").value == pytest.approx(0.05)
    delta = value(estimates, "prior.delta")
    assert delta.value == pytest.approx(LOST.sum() / TOKENS.sum())
    assert delta.lo < delta.value < delta.hi


def test_a_share_without_variation_has_its_own_limits():
    estimates, _ = found(a_pair(noise=1e-9))
    joint = value(estimates, "prior.sym", arm="joint")
    assert joint.lo == pytest.approx(joint.hi, abs=1e-5)


def test_no_share_where_nothing_was_lost():
    pair = a_pair()
    nothing = TOKENS * np.random.default_rng(5).normal(0.0, 0.3, NUM)
    same = replace(pair, new=replace(pair.new, nll={**pair.new.nll, NONE: pair.old.nll[NONE] + nothing}))
    estimates, _ = found(same)
    joint = value(estimates, "prior.sym", arm="joint")
    assert math.isnan(joint.value)
    assert "holds 0" in joint.note
    better = replace(pair, new=replace(pair.new, nll={**pair.new.nll, NONE: pair.old.nll[NONE] - LOST}))
    estimates, _ = found(better)
    assert "improved" in value(estimates, "prior.sym", arm="joint").note
    assert math.isnan(value(estimates, "prior.part", part="rest").value)


def test_redrawn_fits_widen_the_interval_and_bad_ones_are_said():
    rng = np.random.default_rng(2)
    pair = a_pair()
    total = pair.new.nll[SELECTED["joint"]].sum()
    steps = total + 0.05 * LOST.sum() * rng.normal(size=100)
    for full, off in ((steps[:20] + 1e-3, False), (steps[19::-1], True)):
        draws = {(*SELECTED["joint"], "one_step"): steps, (*SELECTED["joint"], "full"): full}
        old = {
            (*SELECTED["joint"], kind): np.full(len(what), BASE.sum()) for (_, _, kind), what in draws.items()
        }
        both = replace(pair, new=replace(pair.new, draws=draws), old=replace(pair.old, draws=old))
        estimates, _ = found(both)
        held, redrawn = (value(estimates, name, arm="joint") for name in ("prior.sym", "prior.sym_redrawn"))
        assert redrawn.lo < held.lo < held.hi < redrawn.hi
        assert ("far from full refits" in redrawn.note) is off
        assert value(estimates, "prior.refit.rms", arm="joint").n == 20


@pytest.mark.parametrize(
    ("floor", "label"), [((0.1, 0.2), 1.0), ((0.55, 0.65), 0.0), ((0.8, 0.9), -1.0), ((0.1, 0.61), 0.0)]
)
def test_a_share_is_set_against_its_floor(floor, label):
    pair = a_pair()
    estimates, _ = found(pair)
    damaged = {
        f"{kind}.{seed}": model(BASE + LOST, dict.fromkeys(SELECTED.values(), share * LOST))
        for kind in ("centred", "raw")
        for seed, share in enumerate(floor)
    }
    rows = [{"variant": "raw.0", "kind": "raw", "seed": 0, "sigma": None, "failure": "no sigma"}]
    more = floor_estimates(pair, Fact("prior_floor", 1, {}), damaged, rows, estimates)
    band = value(more, "prior.floor.sym", kind="centred", arm="joint")
    assert (band.lo, band.hi) == pytest.approx(floor)
    assert value(more, "prior.above_floor", arm="joint").value == label
    assert value(more, "prior.mean_energy").value == 0.5
    assert math.isnan(value(more, "prior.sigma", kind="raw").value)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"token_ids_sha256": "other"}, "tokenizers differ"),
        ({"prefix_id": None}, "prefix ids differ"),
        ({"dtype": "bfloat16"}, "different precision"),
    ],
)
def test_models_that_can_not_be_compared(changes, said):
    pair = a_pair(**changes)
    assert said in incomparable(pair.old, pair.new)
    assert not incomparable(a_pair().old, a_pair().new)
