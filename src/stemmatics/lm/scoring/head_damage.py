"""Noise on a head's output product, scaled to a given loss increase.

Axes: V vocabulary, D width, S supported ids.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stemmatics.core.keys import seed_from
from stemmatics.lm.scoring.head import LinearHead
from stemmatics.lm.scoring.head_pass import Positions, nll_sum, rows_of_block
from stemmatics.math.prior import Damage, damage_search

# The first guess of the noise, in standard deviations of the head's weights.
_FIRST_GUESS = 0.1
_SQUARE_STEPS = 6
# Tighter than the search's own 1%, so that its first trial succeeds.
_CLOSE = 0.008
# Rows that give several searches their first scale: a share of all, and no fewer than the second number.
_ROWS_SHARE, _FEWEST_ROWS = 16, 512


def head_noise(shape: tuple[int, int], seed: int) -> Tensor:
    """N, standard normal, (V, D) float32: one draw per seed, the same for all checkpoints of that shape."""
    rng = np.random.default_rng(seed_from(seed, "noise on the head"))
    return torch.from_numpy(rng.standard_normal(shape, dtype=np.float32))


def centred(noise_VD: Tensor, mean_state_D: NDArray[np.float64]) -> Tensor:
    """N - (N h) h' / |h|^2, which adds nothing at the mean state. Changes and returns ``noise_VD``."""
    energy = float(mean_state_D @ mean_state_D)
    if energy:
        mean_D = torch.from_numpy(mean_state_D.astype(np.float32))
        noise_VD.sub_(torch.outer(noise_VD @ mean_D, mean_D / energy))
    return noise_VD


def damaged(head: LinearHead, noise_SD: Tensor, sigma: float) -> LinearHead:
    """The head with ``sigma * N`` added to its weights, in their precision."""
    noise_SD = noise_SD.to(head.weight.device)
    return replace(head, weight=(head.weight.float() + sigma * noise_SD).to(head.weight.dtype))


def match(
    head: LinearHead, evaluated: Positions, noise_SD: Tensor, target: float, *, guess: float | None = None
) -> Damage:
    """Sigma such that the mean loss on ``evaluated`` rises by ``target`` nats a position, to 1%.

    Each trial is a pass of the head. The loss rises roughly with the square of sigma, which brings the
    search close to the root in a few trials; ``damage_search`` continues from there.
    """
    before = nll_sum(head, evaluated)
    search = _Search(target, guess or first_guess(head))
    while search.damage is None:
        total = nll_sum(damaged(head, noise_SD, search.sigma), evaluated)
        search.tell((total - before) / evaluated.num_positions)
    return search.damage


def first_guess(head: LinearHead) -> float:
    """A scale of noise to begin a search with."""
    return _FIRST_GUESS * float(head.weight.float().std())


class _Search:
    """A search for sigma that says what it wants to know next: ``sigma``, until ``damage`` is there."""

    def __init__(self, target: float, first: float) -> None:
        self._steps = _steps(target, first)
        self._known: dict[float, float] = {}
        self.damage: Damage | None = None
        self.sigma = next(self._steps)

    def tell(self, rise: float) -> None:
        """The loss increase at ``sigma``; what is known already is not asked again."""
        self._known[self.sigma] = rise
        try:
            while self.sigma in self._known:
                self.sigma = self._steps.send(self._known[self.sigma])
        except StopIteration as end:
            self.damage = replace(end.value, num_evaluations=len(self._known))


def _steps(target: float, first: float) -> Generator[float, float, Damage]:
    """Steps that assume a quadratic loss, each by at most a factor of 100; then the exact search."""
    sigma = first
    for _ in range(_SQUARE_STEPS):
        rise = yield sigma
        if not (np.isfinite(rise) and rise > 0):
            sigma = first
            break
        if abs(rise - target) <= _CLOSE * target:
            break
        sigma *= float(np.clip(np.sqrt(target / rise), 0.01, 100.0))
    return (yield from damage_search(target, start=sigma))


class DamagedHeads:
    """Logits under several damaged heads, a block of rows at a time.

    A damaged head's product is Z + sigma (H N'), with Z that of the head itself. Z is computed once a block
    for all, and H N' once a noise for both of its kinds: the centred one takes off the rank-one term
    (H h / |h|^2) (N h)'. No damaged weights are ever formed.

    Args:
        head: the undamaged one, S x D.
        noises: the raw noises (S x D float32), one a seed.
        mean_state_D: h, the mean that centred noise is blind to.

    A damaged head is named by the number of its noise and whether that is centred.
    """

    def __init__(self, head: LinearHead, noises: Sequence[Tensor], mean_state_D: NDArray[np.float64]) -> None:
        self.head = head
        device, dtype = head.weight.device, head.weight.dtype
        self.plain = LinearHead(head.weight)
        self.mean_D = torch.from_numpy(mean_state_D.astype(np.float32)).to(device)
        self.energy = float(mean_state_D @ mean_state_D)
        self.noises = [LinearHead(noise_SD.to(device, dtype)) for noise_SD in noises]
        self.at_mean = [noise_SD.to(device) @ self.mean_D for noise_SD in noises]

    @torch.inference_mode()
    def blocks(self, positions: Positions, stop: int | None = None) -> Iterator[DamagedBlock]:
        """Blocks of the first ``stop`` rows in order (all by default)."""
        num = positions.num_positions if stop is None else min(stop, positions.num_positions)
        # the product, the noise's product and the result are alive at once
        size = max(1, rows_of_block(self.head) // 2)
        for start in range(0, num, size):
            part = slice(start, min(start + size, num))
            states_BD = positions.states.rows(part.start, part.stop).to(self.head.weight.device)
            yield DamagedBlock(self, part, states_BD)

    def nll_sums(
        self,
        positions: Positions,
        sigmas: Mapping[tuple[int, bool], float],
        stop: int | None = None,
    ) -> dict[tuple[int, bool], float]:
        """Nats of the first ``stop`` rows (all by default); ``sigmas`` by number of a noise and its kind."""
        totals = dict.fromkeys(sigmas, 0.0)
        for block in self.blocks(positions, stop):
            target_B1 = torch.from_numpy(positions.target_N[block.part]).to(self.head.weight.device)[:, None]
            for which, sigma in sorted(sigmas.items()):
                logits_BS = block.logits(which, sigma)
                target_B = logits_BS.gather(1, target_B1)[:, 0]
                totals[which] += float((logits_BS.logsumexp(1) - target_B).cpu().double().sum())
        return totals

    def match(
        self, positions: Positions, which: Iterable[tuple[int, bool]], target: float
    ) -> dict[tuple[int, bool], Damage]:
        """As the function ``match``, for all noises at once: a pass serves every search that still runs.

        The first scales come from a search on the first rows alone.
        """
        few = max(_FEWEST_ROWS, positions.num_positions // _ROWS_SHARE)
        guesses = dict.fromkeys(which, first_guess(self.head))
        if few < positions.num_positions:
            matches = self._match(positions, guesses, target, few)
            guesses = {
                each: guesses[each] if matches[each].failure else matches[each].sigma for each in guesses
            }
        return self._match(positions, guesses, target, positions.num_positions)

    def _match(
        self, positions: Positions, guesses: Mapping[tuple[int, bool], float], target: float, stop: int
    ) -> dict[tuple[int, bool], Damage]:
        (before,) = self.nll_sums(positions, {(0, False): 0.0}, stop).values()
        searches = {which: _Search(target, guess) for which, guess in guesses.items()}
        while running := {which: each.sigma for which, each in searches.items() if each.damage is None}:
            for which, total in self.nll_sums(positions, running, stop).items():
                searches[which].tell((total - before) / stop)
        return {which: each.damage for which, each in searches.items() if each.damage is not None}


class DamagedBlock:
    """One block of rows: its logits under any of the damaged heads, (B, S) float32."""

    def __init__(self, heads: DamagedHeads, part: slice, states_BD: Tensor) -> None:
        self.part = part
        self._heads, self._states_BD = heads, states_BD
        self._plain_BS = heads.plain.logits(states_BD).float()
        self._noise: tuple[int, Tensor] | None = None

    @torch.inference_mode()
    def logits(self, which: tuple[int, bool], sigma: float) -> Tensor:
        """Under the noise of a number, centred or not, of the scale sigma. Of one noise both are cheap."""
        heads, (number, is_centred) = self._heads, which
        if sigma == 0.0:
            logits_BS = self._plain_BS.clone()
        else:
            if self._noise is None or self._noise[0] != number:
                self._noise = (number, heads.noises[number].logits(self._states_BD).float())
            logits_BS = torch.add(self._plain_BS, self._noise[1], alpha=sigma)
            if is_centred and heads.energy:
                along_B = self._states_BD.float() @ heads.mean_D
                logits_BS.addr_(along_B, heads.at_mean[number], alpha=-sigma / heads.energy)
        if heads.head.bias is not None:
            logits_BS.add_(heads.head.bias)
        return heads.head.transform.apply_(logits_BS)
