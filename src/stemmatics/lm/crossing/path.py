"""All four cells at every position of a base's own greedy path, at one boundary.

An event is chosen by three cells and left to the fourth: it is the first position where the sum of both
effects, z_bd + z_db - z_bb, has another most probable token than z_bb. The first letter is the earlier
state's model, the second the late stack's; z are logits under the descendant's norm and head. The choice
never sees z_dd, so it can't favour events at which the fourth cell happens to be large.

Axes: B prompts of a batch, L positions of a row, D width, V vocabulary, N positions of paths, C cells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from stemmatics.core.errors import UserError
from stemmatics.facts.cross import STORED_READOUTS
from stemmatics.facts.events import FIRST
from stemmatics.facts.paths import THREE_CELLS
from stemmatics.lm.crossing.cells import LOGIT_ELEMENTS, STATE_ELEMENTS
from stemmatics.lm.crossing.events import GreedyDecoder, Prompt, right_padded
from stemmatics.lm.crossing.models import Crossable, relative_error, tolerance
from stemmatics.lm.scoring.batches import make_batches

# cells read by the descendant's head, and by the base's
_NUM_READ = 6
# states of both models at the boundary, and the ends of the four cells
_NUM_STATES = 6


@dataclass(frozen=True, slots=True)
class Path:
    """A prompt and the ids with which the base continues it greedily, its end included."""

    prompt: Prompt
    new_ids: tuple[int, ...]

    @property
    def length(self) -> int:
        """Positions fed: the last id is predicted only."""
        return len(self.prompt.ids) + len(self.new_ids) - 1


@dataclass(frozen=True, slots=True)
class PathEvent:
    """A position of a path (its number of new ids before it) with two tokens and their margins.

    ``margins`` by readout are logit(second token) - logit(first token) in the four cells.
    """

    position: int
    base_id: int
    descendant_id: int
    margins: Mapping[str, tuple[float, ...]]
    distance: float


@dataclass(frozen=True, slots=True)
class PathCells:
    """What the four cells say of one path.

    ``nll_sums`` are those of the path's tokens, each cell read by its late stack's own norm and head.
    ``events`` has at most one event a support. ``fourth_by_sum`` and ``sum_by_sum`` are inner products
    over the vocabulary, weighted by the base's probabilities and summed over positions: of z_dd, and of
    z_bd + z_db - z_bb, with z_bd + z_db - z_bb, all centred.
    """

    path: Path
    nll_sums: tuple[float, ...]
    fourth_by_sum: float
    sum_by_sum: float
    events: Mapping[str, PathEvent]


def greedy_paths(
    base: GreedyDecoder, prompts: Sequence[Prompt], num_new: int, stop_ids: frozenset[int]
) -> list[Path]:
    """The base's continuations, up to and including the first of ``stop_ids``."""
    paths = []
    for prompt, ids in zip(prompts, base.decode([prompt.ids for prompt in prompts], num_new), strict=True):
        end = next((position + 1 for position, token in enumerate(ids) if token in stop_ids), len(ids))
        paths.append(Path(prompt, tuple(ids[:end])))
    return paths


@dataclass
class PathCrossing:
    """Two models cut at one boundary; ``identity_error`` is the largest so far."""

    base: Crossable
    descendant: Crossable
    boundary: int
    token_budget: int = 8192
    identity_error: float = 0.0
    _checked: bool = field(default=False, init=False)

    def cells(
        self, paths: Sequence[Path], on_done: Callable[[int], None] = lambda _done: None
    ) -> Iterator[PathCells]:
        """The cells of every path, a batch at a time.

        Raises:
            UserError: a model crossed with itself does not reproduce itself.
        """
        width = self.base.model.get_input_embeddings().weight.shape[1]
        budget = max(1, min(self.token_budget, STATE_ELEMENTS // (_NUM_STATES * width)))
        done = 0
        for batch in make_batches(list(paths), budget):
            yield from self._batch(batch)
            done += len(batch)
            on_done(done)

    def _batch(self, paths: list[Path]) -> Iterator[PathCells]:
        device = self.base.model.device
        input_BL = right_padded([(*path.prompt.ids, *path.new_ids[:-1]) for path in paths]).to(device)
        last_B = torch.tensor([path.length - 1 for path in paths], device=device)
        models = (self.base, self.descendant)
        base, descendant = (model.states(input_BL, last_B, [self.boundary]) for model in models)
        rows_N = torch.cat([torch.full((len(path.new_ids),), row) for row, path in enumerate(paths)])
        starts = [len(path.prompt.ids) - 1 for path in paths]
        at_N = torch.cat(
            [
                torch.arange(start, start + len(path.new_ids))
                for start, path in zip(starts, paths, strict=True)
            ]
        )
        where = rows_N.to(device), at_N.to(device)
        finals = (
            base.final,
            self.descendant.run_late_layers(input_BL, self.boundary, base.at[self.boundary]),
            self.base.run_late_layers(input_BL, self.boundary, descendant.at[self.boundary]),
            descendant.final,
        )
        ends_CND = torch.stack([final_BLD[where] for final_BLD in finals])
        lasts = torch.tensor([len(path.new_ids) for path in paths]).cumsum(0) - 1
        for model, states, end_ND in zip(models, (base, descendant), (ends_CND[0], ends_CND[3]), strict=True):
            self._check(model.read_out(end_ND[lasts.to(device)][:, None])[:, 0], states.logits)
            if not self._checked:
                again_BLD = model.run_late_layers(input_BL, self.boundary, states.at[self.boundary])
                self._check(again_BLD[where], end_ND)
        self._checked = True
        change_ND = (descendant.at[self.boundary][where] - base.at[self.boundary][where]).float()
        distance_N = change_ND.norm(dim=-1) / base.at[self.boundary][where].float().norm(dim=-1)
        yield from self._of_paths(paths, ends_CND, distance_N)

    def _check(self, actual: Tensor, expected: Tensor) -> None:
        error, limit = relative_error(actual, expected), tolerance(self.base.model.dtype)
        if not error <= limit:
            raise UserError(
                f"a model crossed with itself does not reproduce itself: relative error {error:.0e}",
                f"at boundary {self.boundary} rounding explains up to {limit:.0e} of the largest value",
                "Use `numerics: {dtype: float32}`, or leave the pair out",
            )
        self.identity_error = max(self.identity_error, error)

    def _of_paths(self, paths: list[Path], ends_CND: Tensor, distance_N: Tensor) -> Iterator[PathCells]:
        """Reads positions in chunks, chooses the events of each path, and measures them."""
        tokens_N = torch.tensor([token for path in paths for token in path.new_ids], device=ends_CND.device)
        num_ids = self.base.model.get_output_embeddings().weight.shape[0]
        size = max(1, LOGIT_ELEMENTS // (_NUM_READ * num_ids))
        parts = [
            self._read(ends_CND[:, start : start + size], tokens_N[start : start + size])
            for start in range(0, len(tokens_N), size)
        ]
        sums_N6 = torch.cat([sums for sums, _ in parts])
        top_N4 = torch.cat([top for _, top in parts])
        stop = 0
        for path in paths:
            start, stop = stop, stop + len(path.new_ids)
            *nll_sums, fourth_by_sum, sum_by_sum = sums_N6[start:stop].sum(0).tolist()
            events = {}
            for support, (first, second) in {THREE_CELLS: (0, 1), FIRST: (2, 3)}.items():
                parted = (top_N4[start:stop, first] != top_N4[start:stop, second]).nonzero()
                if len(parted):
                    position = int(parted[0])
                    base_id, other_id = (int(top_N4[start + position, k]) for k in (first, second))
                    events[support] = PathEvent(
                        position,
                        base_id,
                        other_id,
                        self._margins(ends_CND[:, start + position], base_id, other_id),
                        float(distance_N[start + position]),
                    )
            yield PathCells(path, tuple(nll_sums), fourth_by_sum, sum_by_sum, events)

    def _read(self, ends_CND: Tensor, tokens_N: Tensor) -> tuple[Tensor, Tensor]:
        """Sums by position (four losses, two products), and four most probable ids.

        The ids are those of z_bb and z_bd + z_db - z_bb, then of the base and the descendant as released.
        """
        num_cells, num_positions = ends_CND.shape[:2]
        by_descendant = self.descendant.read_out(ends_CND.flatten(0, 1)[:, None])[:, 0]
        z_bb, z_bd, z_db, z_dd = by_descendant.view(num_cells, num_positions, -1)
        by_base = self.base.read_out(ends_CND[[0, 2]].flatten(0, 1)[:, None])[:, 0]
        own_bb, own_db = by_base.view(2, num_positions, -1)
        losses = [
            torch.nn.functional.cross_entropy(z_NV, tokens_N, reduction="none")
            for z_NV in (own_bb, z_bd, own_db, z_dd)
        ]
        sum_NV = z_bd + z_db - z_bb
        weight_NV = z_bb.softmax(-1)
        sum_centred, fourth_centred = (
            z_NV - (weight_NV * z_NV).sum(-1, keepdim=True) for z_NV in (sum_NV, z_dd)
        )
        weighted = weight_NV * sum_centred
        products = [(weighted * other).sum(-1) for other in (fourth_centred, sum_centred)]
        top = [z_NV.argmax(-1) for z_NV in (z_bb, sum_NV, own_bb, z_dd)]
        # float64 on the CPU: a device may lack it
        return torch.stack([*losses, *products], -1).cpu().double(), torch.stack(top, -1).cpu()

    def _margins(self, ends_CD: Tensor, base_id: int, descendant_id: int) -> dict[str, tuple[float, ...]]:
        margins = {}
        for name, model in zip(STORED_READOUTS, (self.descendant, self.base), strict=True):
            logits_CV = model.read_out(ends_CD[:, None])[:, 0]
            pair_C2 = logits_CV[:, [descendant_id, base_id]].cpu().double()
            margins[name] = tuple((pair_C2[:, 0] - pair_C2[:, 1]).tolist())
        return margins
