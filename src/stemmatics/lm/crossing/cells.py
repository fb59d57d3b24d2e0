"""The four cells of every event: both earlier states under both late stacks, under both readouts.

The states that enter the layers are kept from one pass of each model, and each crossed cell runs its
late layers only. So the whole profile of L layers costs L + 1 passes, and the identity check at the
last boundary less than one more, where whole passes for every cell would be 2 L.

Axes: B events of a batch, L positions, D width, V vocabulary, N rows of a readout.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stemmatics.core.errors import UserError
from stemmatics.facts.cross import CELLS, MAIN_ARM, STORED_READOUTS, interpolated_arm, permuted_arm
from stemmatics.lm.crossing.events import Event, right_padded
from stemmatics.lm.crossing.models import Crossable, relative_error, tolerance
from stemmatics.lm.scoring.batches import make_batches

# Elements of the states that are kept at once: a quarter of a gigabyte in float32.
STATE_ELEMENTS = 1 << 26
# Logits that one readout makes at once, 64 MB in float32; more if one crossing alone has more.
LOGIT_ELEMENTS = 1 << 24


@dataclass(frozen=True, slots=True)
class Cell:
    """One event at one boundary under one readout.

    ``arm`` names the state that stands in for the descendant's (``main``: its own). ``margins`` are
    logit(descendant's token) - logit(base's token), in the order of ``CELLS`` (earlier state first,
    late stack second); ``top_1`` are the most probable ids of the same cells. ``distance`` is the
    length of the difference of the two states at the event's position over that of the base's.
    """

    event: int
    boundary: int
    readout: str
    arm: str
    margins: tuple[float, ...]
    top_1: tuple[int, ...]
    distance: float


@dataclass(frozen=True, slots=True)
class _Row:
    """An event in a batch."""

    event: Event
    length: int


def default_boundary(num_layers: int) -> int:
    """floor(0.6 L), at least 1."""
    return max(1, int(0.6 * num_layers))


def resolve_boundaries(boundaries: str | Sequence[int], num_layers: int) -> list[int]:
    """Boundaries from ``default``, ``profile`` (all L - 1) or a list.

    Raises:
        UserError: a boundary that the stack does not have.
    """
    if boundaries == "default":
        return [default_boundary(num_layers)]
    if boundaries == "profile":
        return list(range(1, num_layers))
    outside = [boundary for boundary in boundaries if not 0 < int(boundary) < num_layers]
    if outside:
        raise UserError(
            f"boundary {outside[0]} is not in the stack",
            f"with {num_layers} layers it lies between 1 and {num_layers - 1}",
            "Name others, or `default` or `profile`",
        )
    return sorted({int(boundary) for boundary in boundaries})


@dataclass
class Crossing:
    """Two models and how to cross them.

    ``identity_error`` is the largest relative error so far of a model crossed with itself.
    """

    base: Crossable
    descendant: Crossable
    boundaries: Sequence[int]
    interpolate: Sequence[float] = ()
    permute: bool = False
    permutations: int = 1
    seed: int = 0
    token_budget: int = 8192
    identity_error: float = 0.0

    @property
    def main_boundary(self) -> int:
        """The boundary of the main numbers and the controls: the one nearest to 0.6 L."""
        default = default_boundary(self.base.num_layers)
        return min(self.boundaries, key=lambda boundary: (abs(boundary - default), boundary))

    def at_main_boundary(self) -> Crossing:
        """The same pair at the main boundary alone and without controls."""
        return replace(
            self, boundaries=[self.main_boundary], interpolate=(), permute=False, identity_error=0.0
        )

    def cells(self, events: Sequence[Event]) -> Iterator[Cell]:
        """All cells of all events, a batch at a time.

        Raises:
            UserError: a cell that must equal one of the two models does not.
        """
        width = self.base.model.get_input_embeddings().weight.shape[1]
        max_tokens = STATE_ELEMENTS // (2 * len(self.boundaries) * width)
        rows = [_Row(event, len(event.prefix_ids)) for event in events]
        for batch in make_batches(rows, max(1, min(self.token_budget, max_tokens))):
            yield from self._batch([row.event for row in batch])

    def _batch(self, events: list[Event]) -> Iterator[Cell]:
        device = self.base.model.device
        input_BL = right_padded([event.prefix_ids for event in events]).to(device)
        last_B = torch.tensor([len(event.prefix_ids) - 1 for event in events], device=device)
        batch = _Batch(self, events, input_BL, last_B)
        batch.assert_identity()
        yield from batch.cells()


@dataclass(frozen=True, slots=True)
class _CrossedArm:
    """One arm at one boundary: what left the last layers of its crossed cells, (B, D) each.

    ``ends`` are (b, d), (d, b) and, unless the arm's state is the descendant's own, (d, d).
    """

    boundary: int
    arm: str
    distance_B: list[float]
    ends: list[Tensor]


@dataclass(frozen=True, slots=True)
class _Readout:
    """One end under one readout: margins and the most probable ids, by event."""

    margins: list[float]
    top_1: list[int]


class _Batch:
    """The states and ends of one batch, and the cells made of them."""

    def __init__(self, crossing: Crossing, events: list[Event], input_BL: Tensor, last_B: Tensor) -> None:
        self.crossing = crossing
        self.events = events
        self.input_BL, self.last_B = input_BL, last_B
        self.models = (crossing.base, crossing.descendant)
        self.states = [model.states(input_BL, last_B, set(crossing.boundaries)) for model in self.models]

    def assert_identity(self) -> None:
        """Each model must reproduce itself under its own readout, and cut at the last boundary.

        With one boundary, as for the control supports, that is the main one.
        """
        boundary = max(self.crossing.boundaries)
        limit = tolerance(self.models[0].model.dtype)
        for model, states in zip(self.models, self.states, strict=True):
            logits_BV = model.read_out(self._at_event(states.final)[:, None])[:, 0]
            final_BLD = model.run_late_layers(self.input_BL, boundary, states.at[boundary])
            pairs = ((logits_BV, states.logits), (self._at_event(final_BLD), self._at_event(states.final)))
            for actual, expected in pairs:
                error = relative_error(actual, expected)
                # an error that is not a number fails too
                if not error <= limit:
                    raise UserError(
                        f"a model crossed with itself does not reproduce itself: relative error {error:.0e}",
                        f"at boundary {boundary} rounding explains up to {limit:.0e} of the largest value",
                        "Use `numerics: {dtype: float32}`, or leave the pair out",
                    )
                self.crossing.identity_error = max(self.crossing.identity_error, error)

    def cells(self) -> Iterator[Cell]:
        """Late layers for every boundary and arm first, then all their ends under both readouts together."""
        crossed = [self._main(boundary) for boundary in self.crossing.boundaries]
        main = next(arm for arm in crossed if arm.boundary == self.crossing.main_boundary)
        crossed += self._controls(main)
        readouts = self._read_out([arm.ends for arm in crossed])
        for arm, (base, descendant, *ends) in zip(crossed, readouts, strict=True):
            last = [] if len(ends) == len(CELLS) - 1 else [descendant]
            yield from self._cells(arm, [base, *ends, *last])

    def _main(self, boundary: int) -> _CrossedArm:
        """The natural states: the two crossed cells are run, the two others are the models' own ends."""
        base_BLD, descendant_BLD = (states.at[boundary] for states in self.states)
        ends = [self._late_end(1, boundary, base_BLD), self._late_end(0, boundary, descendant_BLD)]
        return _CrossedArm(boundary, MAIN_ARM, self._distance(boundary, descendant_BLD), ends)

    def _controls(self, main: _CrossedArm) -> list[_CrossedArm]:
        """Other states in place of the descendant's, at the boundary of ``main``."""
        boundary = main.boundary
        base_BLD, descendant_BLD = (states.at[boundary] for states in self.states)
        arms: dict[str, Tensor] = {}
        for weight in self.crossing.interpolate:
            arms[interpolated_arm(weight)] = (1 - weight) * base_BLD + weight * descendant_BLD
        if self.crossing.permute:
            change_BLD = descendant_BLD - base_BLD
            for draw in range(1, self.crossing.permutations + 1):
                order_D, sign_D = _signed_permutation(base_BLD.shape[-1], self.crossing.seed, draw)
                order, sign = torch.from_numpy(order_D), torch.from_numpy(sign_D)
                permuted_BLD = change_BLD[..., order.to(change_BLD.device)] * sign.to(change_BLD)
                arms[permuted_arm(draw)] = base_BLD + permuted_BLD
        return [
            _CrossedArm(
                boundary,
                arm,
                self._distance(boundary, state_BLD),
                [main.ends[0], *(self._late_end(side, boundary, state_BLD) for side in (0, 1))],
            )
            for arm, state_BLD in arms.items()
        ]

    def _late_end(self, side: int, boundary: int, hidden_BLD: Tensor) -> Tensor:
        return self._at_event(self.models[side].run_late_layers(self.input_BL, boundary, hidden_BLD))

    def _at_event(self, hidden_BLD: Tensor) -> Tensor:
        return hidden_BLD[torch.arange(len(self.events), device=hidden_BLD.device), self.last_B]

    def _distance(self, boundary: int, state_BLD: Tensor) -> list[float]:
        base_BD = self._at_event(self.states[0].at[boundary]).float()
        other_BD = self._at_event(state_BLD).float()
        distance_B: list[float] = ((other_BD - base_BD).norm(dim=-1) / base_BD.norm(dim=-1)).tolist()
        return distance_B

    def _read_out(self, crossed: Sequence[list[Tensor]]) -> Iterator[list[list[_Readout]]]:
        """Ends of several arms in one product, under the descendant's readout and under the base's.

        The models' own ends go with each of them: where nothing differs, rounding then does not either.
        """
        natural = [self._at_event(states.final) for states in self.states]
        num_ids = self.models[0].model.get_output_embeddings().weight.shape[0]
        max_ends = max(1, LOGIT_ELEMENTS // (len(self.events) * num_ids))
        for group in _grouped(crossed, max_ends - len(natural)):
            together = torch.cat([*natural, *(end for ends in group for end in ends)])
            by_readout = [
                self._summaries(model.read_out(together[:, None])[:, 0]) for model in reversed(self.models)
            ]
            readouts = [list(both) for both in zip(*by_readout, strict=True)]
            start = len(natural)
            for ends in group:
                yield [*readouts[: len(natural)], *readouts[start : start + len(ends)]]
                start += len(ends)

    def _cells(self, arm: _CrossedArm, ends: Sequence[Sequence[_Readout]]) -> Iterator[Cell]:
        for position, readout in enumerate(STORED_READOUTS):
            cells = [end[position] for end in ends]
            for row, event in enumerate(self.events):
                yield Cell(
                    event.event,
                    arm.boundary,
                    readout,
                    arm.arm,
                    tuple(cell.margins[row] for cell in cells),
                    tuple(cell.top_1[row] for cell in cells),
                    arm.distance_B[row],
                )

    def _summaries(self, logits_NV: Tensor) -> list[_Readout]:
        """One for each block of as many rows as there are events."""
        shape = (-1, len(self.events))
        num_ends = len(logits_NV) // len(self.events)
        rows_N = torch.arange(len(logits_NV), device=logits_NV.device)
        descendant_N, base_N = (
            logits_NV[rows_N, torch.tensor(ids * num_ends, device=logits_NV.device)].cpu().double()
            for ids in (
                [event.descendant_id for event in self.events],
                [event.base_id for event in self.events],
            )
        )
        # float64 on the CPU: a device may lack it
        margins = (descendant_N - base_N).view(shape).tolist()
        top_1 = logits_NV.argmax(-1).view(shape).tolist()
        return [_Readout(*both) for both in zip(margins, top_1, strict=True)]


def _grouped(crossed: Sequence[list[Tensor]], max_ends: int) -> Iterator[list[list[Tensor]]]:
    """Arms in order, together while they have at most so many ends; at least one at a time."""
    group: list[list[Tensor]] = []
    for ends in crossed:
        if group and sum(map(len, group)) + len(ends) > max_ends:
            yield group
            group = []
        group.append(ends)
    if group:
        yield group


def _signed_permutation(
    width: int, seed: int, draw: int = 1
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """An order of the hidden axes, and a sign for each."""
    rng = np.random.default_rng(seed if draw == 1 else [seed, draw])
    sign_D: NDArray[np.float32] = rng.choice(np.array([-1.0, 1.0], dtype=np.float32), size=width)
    return rng.permutation(width), sign_D
