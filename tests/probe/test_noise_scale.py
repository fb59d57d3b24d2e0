"""The noise of a floor is found by its loss, or reported not to exist."""

import pytest

from stemmatics.probe.noise_scale import TOLERANCE, NoScale, _evenly_spaced, match_scale


@pytest.mark.parametrize("increase", [1e-4, 0.3, 5.0, 400.0])
def test_a_rising_loss_is_met(increase):
    scales = []

    def loss_at(scale):
        scales.append(scale)
        return 10 + 7 * scale**2

    scale, loss, count = match_scale(loss_at, 10 + increase, 10.0)
    assert loss == 10 + 7 * scale**2
    assert abs(loss - 10 - increase) <= TOLERANCE * increase
    assert count == len(scales) <= 20


def test_a_loss_that_is_never_met_is_reported():
    with pytest.raises(NoScale, match="no noise costs"):
        match_scale(lambda scale: 10 + min(scale, 0.5), 12.0, 10.0)
    with pytest.raises(NoScale, match="no noise costs"):
        match_scale(lambda scale: 11.0 if scale < 0.3 else 13.0, 12.0, 10.0)


def test_documents_are_spread_over_the_corpus():
    assert sorted(_evenly_spaced(10, 4)) == [0, 2, 5, 7]
    assert _evenly_spaced(3, 20) == {0, 1, 2}
