"""A share against its damage floor: documents by brute force, seeds by formula, false labels drawn."""

import numpy as np
import pytest
from scipy import stats

from stemmatics.math.prior.over_damage import over_damage


def drawn(rng, *, num_documents=40, num_seeds=5, spread=0.03, noise=0.1, skewed=False):
    """A descendant that is one more seed of the damage, with nats by document."""
    shared_D = rng.normal(size=num_documents)
    scatter = rng.exponential(size=num_seeds + 1) - 1 if skewed else rng.normal(size=num_seeds + 1)
    increase_D = 1.0 + 0.2 * rng.random(num_documents)
    own_MD = shared_D + rng.normal(size=(num_seeds + 1, num_documents))
    gain_MD = (0.3 + spread * scatter[:, None]) * increase_D + noise * own_MD
    return gain_MD[0], increase_D, gain_MD[1:], np.broadcast_to(increase_D, gain_MD[1:].shape)


def names_of(num):
    return np.arange(num).astype(str)


def test_the_document_part_is_that_of_a_jackknife_of_whole_groups():
    gain_D, increase_D, gain_ZD, increase_ZD = drawn(np.random.default_rng(0), spread=0.0, num_documents=60)
    gain_ZD = np.stack([gain_ZD[0]] * 3)
    increase_ZD = increase_ZD[:3]
    groups_D = np.arange(60) // 2
    interval = over_damage(gain_D, increase_D, gain_ZD, increase_ZD, groups_D=groups_D.astype(str))
    left_out = []
    for group in range(30):
        keep = groups_D != group
        left_out.append((gain_D[keep].sum() - gain_ZD[0][keep].sum()) / increase_D[keep].sum())
    error = np.sqrt(29 / 30 * np.sum((np.array(left_out) - np.mean(left_out)) ** 2))
    assert interval.hi - interval.value == pytest.approx(stats.t.ppf(0.975, 29) * error, rel=0.02)


def test_the_seed_part_is_a_prediction_of_one_more_seed():
    increase_D = np.ones(50)
    gain_ZD = np.array([0.1, 0.2, 0.4])[:, None] * np.ones((3, 50))
    got = over_damage(0.9 * increase_D, increase_D, gain_ZD, np.ones((3, 50)), groups_D=names_of(50))
    seeds = stats.t.ppf(0.975, 2) * np.std([0.1, 0.2, 0.4], ddof=1) * np.sqrt(4 / 3)
    assert got.value == pytest.approx(0.9 - 0.7 / 3)
    assert got.hi - got.value == pytest.approx(seeds)


@pytest.mark.parametrize(("num_seeds", "num_documents"), [(1, 40), (5, 1)])
def test_too_little_evidence_gives_no_limits(num_seeds, num_documents):
    parts = drawn(np.random.default_rng(1), num_seeds=num_seeds, num_documents=num_documents)
    got = over_damage(*parts, groups_D=names_of(num_documents))
    assert np.isnan(got.lo)
    assert np.isnan(got.hi)
    assert got.note


def test_copies_of_documents_in_their_groups_change_nothing():
    parts = drawn(np.random.default_rng(2))
    once = over_damage(*parts, groups_D=names_of(40))
    copies = [np.concatenate([part, part], axis=-1) for part in parts]
    twice = over_damage(*copies, groups_D=np.tile(names_of(40), 2))
    assert (twice.lo, twice.hi) == pytest.approx((once.lo, once.hi))


def false_rate(noise, *, skewed, num=6000):
    rng = np.random.default_rng(7)
    groups_D = names_of(40)
    intervals = (over_damage(*drawn(rng, noise=noise, skewed=skewed), groups_D=groups_D) for _ in range(num))
    return np.mean([interval.excludes(0.0) for interval in intervals])


@pytest.mark.known
@pytest.mark.parametrize("positions", [4_000, 400_000])
def test_false_labels_stay_at_5_percent_for_any_amount_of_text(positions):
    """The descendant is one more seed; documents scatter as 40 of positions / 40 tokens each."""
    noise = 0.1 * np.sqrt(4_000 / positions)
    rate, skewed = (false_rate(noise, skewed=kind) for kind in (False, True))
    print(f"{positions} positions: false {rate:.4f}, with skewed seeds {skewed:.4f}")  # noqa: T201
    assert rate <= 0.055
