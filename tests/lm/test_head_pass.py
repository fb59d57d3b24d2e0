"""The head's statistics against all logits at once; states on disk; noise on the head."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from stemmatics.lm.scoring import head_pass
from stemmatics.lm.scoring.head import LinearHead, Transform
from stemmatics.lm.scoring.head_damage import DamagedHeads, centred, damaged, head_noise, match
from stemmatics.lm.scoring.head_pass import Positions, dense, nll_sum, reduced, restricted
from stemmatics.lm.scoring.head_states import StateWriter
from stemmatics.math import prior
from stemmatics.math.prior import Correction

NUM, WIDTH, IDS = 90, 12, 60


def positions(path, *, num=NUM, width=WIDTH, ids=IDS, dtype=torch.float32, mean=0.0):
    """Random states in documents of 10, targets that the states know something of."""
    draw = torch.Generator().manual_seed(3)
    states = (torch.randn(num, width, generator=draw) + mean).to(dtype).float().numpy()
    with StateWriter(path, dtype) as writer:
        for start in range(0, num, 10):
            writer.append(states[start : start + 10])
    target = np.random.default_rng(1).integers(0, ids // 2, num)
    document = np.arange(num) // 10
    return Positions(writer.states(), target, document, np.arange(document[-1] + 1) * 2), states


def a_head(*, ids=IDS, width=WIDTH, **changes):
    draw = torch.Generator().manual_seed(5)
    return LinearHead(torch.randn(ids, width, generator=draw), torch.randn(ids, generator=draw), **changes)


def log_probs(head, states):
    logits = head.transform.apply_(
        torch.from_numpy(states).double() @ head.weight.double().T + head.bias.double()
    )
    return logits.log_softmax(1).numpy()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_states_come_back_as_they_were(tmp_path, dtype):
    scored, states = positions(tmp_path / "states", dtype=dtype)
    assert np.array_equal(scored.states.rows(7, 33).numpy(), states[7:33])
    size = 4 if dtype == torch.float32 else 2
    assert (tmp_path / "states").stat().st_size == NUM * WIDTH * size
    mean, squared = scored.mean_state()
    assert mean == pytest.approx(states.mean(0, dtype=np.float64))
    assert squared == pytest.approx((states.astype(np.float64) ** 2).sum(1).mean())


@pytest.mark.parametrize("transform", [Transform(), Transform(0.7, 5.0)])
@pytest.mark.parametrize("kept", [np.float32, np.float16])
def test_columns_and_the_rest_are_those_of_all_logits(tmp_path, monkeypatch, transform, kept):
    # small blocks, so that several rows of blocks are met
    monkeypatch.setattr(head_pass, "_CPU_ELEMENTS", IDS * 7)
    monkeypatch.setattr(head_pass, "_POWER_ELEMENTS", IDS * 3)
    if kept is np.float16:
        monkeypatch.setattr(head_pass, "FLOAT32_BYTES", 0)
    scored, states = positions(tmp_path / "states")
    head = a_head(transform=transform)
    ids = np.array([3, 4, 9, 30, 59])
    small = reduced(head, scored, ids, tmp_path / "columns")
    assert small.logits_NK.dtype == kept
    expected = log_probs(head, states)
    near = 2e-6 if kept is np.float32 else 8e-3
    assert np.abs(np.asarray(small.logits_NK) - expected[:, ids]).max() < near
    rest = np.delete(expected, ids, axis=1)
    for beta in (0.25, 0.8, 1.0, 1.7, 4.0):
        by_hand = np.log(np.exp(beta * rest).sum(1))
        assert small.rest.at(beta)[0] == pytest.approx(by_hand, abs=2e-6 * max(1.0, beta))
    bias = np.array([0.5, -1.0, 0.2, 0.0, 2.0])
    correction = Correction(1.3, bias)
    whole = Correction(1.3, np.zeros(IDS))
    whole.bias_K[ids] = bias
    ours = prior.nll_sums(small, correction)
    assert ours == pytest.approx(prior.nll_sums(dense(head, scored), whole), abs=near * 20)
    corrected = 1.3 * expected + whole.bias_K
    corrected -= np.log(np.exp(corrected).sum(1, keepdims=True))
    by_hand = np.bincount(scored.document_N, -corrected[np.arange(NUM), scored.target_N])
    assert ours == pytest.approx(by_hand, abs=near * 20)


@pytest.mark.parametrize("spread", [0.5, 3.0, 8.0])
def test_sums_of_powers_are_those_of_float64(spread):
    draw = torch.Generator().manual_seed(2)
    logits = spread * torch.randn(12, 30_000, generator=draw)
    logits[:, :7] = -torch.inf  # columns
    rest = prior.Rest(head_pass._rest(logits.clone()))
    for beta in (0.25, 0.6, 1.0, 1.9, 4.0):
        by_hand = (beta * logits.double()).logsumexp(1).numpy()
        assert np.abs(rest.at(beta)[0] - by_hand).max() < 1e-6


def test_logits_made_on_demand_are_those_that_are_kept(tmp_path, monkeypatch):
    scored, _ = positions(tmp_path / "states")
    head = a_head()
    kept = dense(head, scored)
    monkeypatch.setattr(head_pass, "DENSE_BYTES", 0)
    monkeypatch.setattr(head_pass, "_CPU_ELEMENTS", IDS * 8)
    made = dense(head, scored)
    assert isinstance(made.logits_NK, head_pass.HeadRows)
    for rows in (slice(0, 3), slice(5, 9), slice(85, 90), slice(2, 40)):
        assert made.logits_NK[rows] == pytest.approx(kept.logits_NK[rows], abs=1e-6)


def test_a_support_is_compact(tmp_path):
    scored, _ = positions(tmp_path / "states")
    head = a_head()
    ids = np.arange(0, IDS, 2)
    part = restricted(head, ids)
    states = scored.states.rows(0, NUM)
    assert torch.equal(part.logits(states), head.logits(states)[:, ids])
    assert restricted(head, np.arange(IDS)) is head


_MEASURED = """
import sys, threading
from pathlib import Path
import numpy as np, psutil, torch
from stemmatics.lm.scoring import head_pass
from tests.lm.test_head_pass import a_head, positions

torch.set_num_threads(1)
head_pass._CPU_ELEMENTS = 1 << 18
folder, num = Path(sys.argv[1]), int(sys.argv[2])
head, ids = a_head(ids=2048, width=8), np.arange(512)
found, _ = positions(folder / f"s{num}", num=num, width=8, ids=2048)
warm, _ = positions(folder / "warm", num=100, width=8, ids=2048)
head_pass.reduced(head, warm, ids, folder / "first")
own = lambda: (lambda m: m.rss - getattr(m, 'shared', 0))(psutil.Process().memory_info())
before = most = own()
done = threading.Event()
def watch():
    global most
    while not done.wait(0.001):
        most = max(most, own())
thread = threading.Thread(target=watch)
thread.start()
head_pass.reduced(head, found, ids, folder / f"c{num}")
done.set()
thread.join()
print(most - before)
"""


def test_memory_does_not_grow_with_the_corpus(tmp_path):
    """Beside the columns on disk (mapped, so shared), a position costs its row of numbers and a few more.

    Resident memory of a process of its own: what torch holds counts.
    """
    added = []
    for num in (2_000, 26_000):
        done = subprocess.run(
            [sys.executable, "-c", _MEASURED, str(tmp_path), str(num)],
            capture_output=True,
            text=True,
            check=True,
            cwd=Path(__file__).parents[2],
        )
        added.append(int(done.stdout))
        assert (tmp_path / f"c{num}").stat().st_size == num * 512 * 4
    # 24,000 more positions have 49 MB of columns and 197 MB of logits
    assert added[1] - added[0] < 24_000 * 60 * 8


def test_noise_is_the_seeds_and_centred_noise_leaves_the_mean_alone():
    noise = head_noise((IDS, WIDTH), 4)
    assert torch.equal(noise, head_noise((IDS, WIDTH), 4))
    assert not torch.equal(noise, head_noise((IDS, WIDTH), 5))
    mean = np.arange(1.0, WIDTH + 1)
    still = centred(noise.clone(), mean)
    assert (still @ torch.from_numpy(mean).float()).abs().max() < 1e-4
    # nothing else is taken away
    across = torch.zeros(WIDTH)
    across[0], across[1] = mean[1], -mean[0]
    assert still @ across == pytest.approx((noise @ across).numpy(), abs=1e-4)


@pytest.mark.parametrize("target", [0.003, 0.4])
def test_the_noise_costs_the_requested_loss(tmp_path, target):
    scored, _ = positions(tmp_path / "states")
    head = a_head()
    noise = head_noise((IDS, WIDTH), 0)
    # targets of the model itself, so that damage must cost
    best = head.logits(scored.states.rows(0, NUM)).argmax(1).numpy()
    scored = Positions(scored.states, best, scored.document_N, scored.index_D)
    result = match(head, scored, noise, target)
    assert not result.failure
    rise = (nll_sum(damaged(head, noise, result.sigma), scored) - nll_sum(head, scored)) / NUM
    assert rise == pytest.approx(target, rel=0.011)
    assert result.num_evaluations < 20
    assert torch.equal(head.weight, a_head().weight)


def test_a_soft_cap_can_keep_damage_from_costing_enough(tmp_path):
    """Capped logits bound the loss, so that no noise brackets a target above the bound: that is said."""
    scored, _ = positions(tmp_path / "states")
    head = a_head(transform=Transform(1.0, 2.0))
    noise = head_noise((IDS, WIDTH), 0)
    result = match(head, scored, noise, 50.0)
    assert np.isnan(result.sigma)
    assert "reaches the loss increase" in result.failure
    assert not match(head, scored, noise, 0.2).failure


@pytest.mark.parametrize("transform", [Transform(), Transform(0.7, 5.0)])
def test_damaged_heads_that_share_a_pass_are_those_with_damaged_weights(tmp_path, monkeypatch, transform):
    monkeypatch.setattr(head_pass, "_CPU_ELEMENTS", 40 * IDS)
    scored, states = positions(tmp_path / "states", mean=0.5)
    head = a_head(transform=transform)
    noises = [head_noise((IDS, WIDTH), seed) for seed in range(3)]
    mean = scored.mean_state()[0]
    heads = DamagedHeads(head, noises, mean)
    which = [(number, is_centred) for number in range(3) for is_centred in (False, True)]
    sigmas = {each: 0.1 * (1 + place) for place, each in enumerate(which)}
    rows = 0
    for block in heads.blocks(scored):
        rows += block.part.stop - block.part.start
        for (number, is_centred), sigma in sigmas.items():
            noise = centred(noises[number].clone(), mean) if is_centred else noises[number]
            expected = damaged(head, noise, sigma).logits(torch.from_numpy(states[block.part]))
            got = block.logits((number, is_centred), sigma)
            assert torch.allclose(got, expected, atol=2e-5)
    assert rows == NUM
    totals = heads.nll_sums(scored, sigmas)
    for (number, is_centred), sigma in sigmas.items():
        noise = centred(noises[number].clone(), mean) if is_centred else noises[number]
        assert totals[number, is_centred] == pytest.approx(
            nll_sum(damaged(head, noise, sigma), scored), rel=1e-5
        )


def test_searches_that_share_passes_find_what_each_finds_alone(tmp_path, monkeypatch):
    scored, _ = positions(tmp_path / "states", num=600)
    head = a_head()
    noises = [head_noise((IDS, WIDTH), seed) for seed in range(3)]
    heads = DamagedHeads(head, noises, scored.mean_state()[0])
    passes = []
    whole = DamagedHeads.nll_sums

    def counted(self, positions, sigmas, stop=None):
        passes.append(stop)
        return whole(self, positions, sigmas, stop)

    monkeypatch.setattr(DamagedHeads, "nll_sums", counted)
    found = heads.match(scored, [(0, False), (1, False), (2, True)], 0.3)
    before = nll_sum(head, scored)
    for (number, is_centred), damage in found.items():
        noise = centred(noises[number].clone(), scored.mean_state()[0]) if is_centred else noises[number]
        delta = (nll_sum(damaged(head, noise, damage.sigma), scored) - before) / scored.num_positions
        assert delta == pytest.approx(0.3, rel=0.011)
        alone = match(head, scored, noise, 0.3)
        assert damage.sigma == pytest.approx(alone.sigma, rel=0.02)
    # one pass serves all three
    assert sum(stop == scored.num_positions for stop in passes) < 6
    capped = DamagedHeads(a_head(transform=Transform(1.0, 2.0)), noises, scored.mean_state()[0])
    assert capped.match(scored, [(0, False)], 50.0)[0, False].failure
