"""Statistics of damaged heads from shared passes, against those of each damaged head alone."""

import numpy as np
import pytest
import torch

from stemmatics.lm.scoring import head_pass
from stemmatics.lm.scoring.head import LinearHead
from stemmatics.lm.scoring.head_damage import DamagedHeads, centred, damaged, head_noise
from stemmatics.lm.scoring.head_pass import Positions
from stemmatics.lm.scoring.head_states import StateWriter
from stemmatics.math import prior
from stemmatics.math.prior import Correction
from stemmatics.probe.prior.arms import FitSettings, ModelStatistics, fit_model
from stemmatics.probe.prior.states import HeadPass
from stemmatics.probe.prior_floor import DamagedModels

IDS, WIDTH, NUM = 50, 8, 200


def positions(path, seed):
    rng = np.random.default_rng(seed)
    states = (rng.normal(size=(NUM, WIDTH)) + 0.5).astype(np.float32)
    with StateWriter(path, torch.float32) as writer:
        writer.append(states)
    target = rng.integers(0, IDS // 2, NUM)
    return Positions(writer.states(), target, np.arange(NUM) // 10, np.arange(NUM // 10))


@pytest.fixture
def states(tmp_path):
    head = LinearHead(torch.randn(IDS, WIDTH, generator=torch.Generator().manual_seed(1)))
    split = {name: positions(tmp_path / name, seed) for seed, name in enumerate(("FIT", "EVAL"))}
    num = NUM // 10
    held = np.arange(num) < 2
    nothing = np.zeros(num)
    return HeadPass(
        head,
        np.arange(IDS),
        split,
        nothing,
        nothing.astype(int),
        np.arange(num),
        held,
        np.arange(num),
        None,
        None,
    )


@pytest.mark.parametrize("num_columns", [12, IDS])
def test_shared_passes_give_the_fits_of_each_damaged_head_alone(tmp_path, monkeypatch, states, num_columns):
    monkeypatch.setattr(head_pass, "_CPU_ELEMENTS", 40 * IDS)
    settings = FitSettings(num_columns, (0.1, 10.0), ("ipf_full",), alone=True)
    mean = states.positions["FIT"].mean_state()[0]
    noises = [head_noise((IDS, WIDTH), seed) for seed in range(2)]
    sigmas = {(0, False): 0.2, (0, True): 0.3, (1, True): 0.4}
    models = DamagedModels(DamagedHeads(states.head, noises, mean), sigmas, states, settings, tmp_path)
    for (number, is_centred), sigma in sigmas.items():
        noise = centred(noises[number].clone(), mean) if is_centred else noises[number]
        head = damaged(states.head, noise, sigma)
        alone = ModelStatistics(
            HeadPass(head, *[getattr(states, name) for name in list(vars(states))[1:]]), settings, tmp_path
        )
        fitted, note = fit_model(models.take((number, is_centred)), settings)
        expected, other = fit_model(alone, settings)
        assert note == other
        assert [(fit.arm, fit.reading) for fit in fitted] == [(fit.arm, fit.reading) for fit in expected]
        assert {fit.arm for fit in fitted} >= {"cf_0.1", "cf_10", "ipf_full", "joint"}
        for fit, same in zip(fitted, expected, strict=True):
            assert (fit.nll_D is None) == (same.nll_D is None), fit.name
            if fit.nll_D is not None:
                assert fit.nll_D == pytest.approx(same.nll_D, rel=2e-4), fit.name
    # their disk is free again
    assert not list(tmp_path.glob("EVAL.*.columns"))


def test_a_head_that_could_not_be_matched_has_no_statistics(tmp_path, states):
    settings = FitSettings(12, (), (), alone=True)
    mean = states.positions["FIT"].mean_state()[0]
    heads = DamagedHeads(states.head, [head_noise((IDS, WIDTH), 0)], mean)
    with pytest.raises(KeyError):
        DamagedModels(heads, {}, states, settings, tmp_path).take((0, False))
    model = DamagedModels(heads, {(0, False): 0.1}, states, settings, tmp_path).take((0, False))
    assert model.closed_forms() == []
    evaluated = model.eval_columns
    assert np.isfinite(prior.nll_sums(evaluated, Correction.identity(evaluated.num_columns))).all()
