"""Cost of the whole depth profile, all boundaries and both crossed cells, in passes of the model.

Layer evaluations are counted by hooks; seconds are measured on the same models and events, for ours and
for the plain way in turns. The plain way runs a whole model for every cell, with its layer inputs replaced
at the boundary: 2 L passes. The goal is at most L + 2 passes of the whole model, in evaluations and in
seconds, including readouts. A pass is timed on both models in turns, since any crossing runs both.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from stemmatics.facts.cross import CELLS
from stemmatics.lm.crossing.cells import Crossing, resolve_boundaries
from stemmatics.lm.crossing.events import Event, right_padded
from stemmatics.lm.crossing.models import Crossable

NUM_LAYERS = 16
NUM_EVENTS = 16
LENGTH = 48
REPEATS = 7


def make_pair() -> tuple[LlamaForCausalLM, LlamaForCausalLM]:
    """Two models of 16 layers of width 256, the second a small change of the first."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=8192,
        hidden_size=256,
        intermediate_size=688,
        num_hidden_layers=NUM_LAYERS,
        num_attention_heads=4,
        max_position_embeddings=LENGTH,
    )
    base, descendant = (LlamaForCausalLM(config).eval().requires_grad_(requires_grad=False) for _ in range(2))
    descendant.load_state_dict(base.state_dict())
    with torch.no_grad():
        for weight in descendant.parameters():
            weight.add_(0.01 * torch.randn_like(weight))
    return base, descendant


def make_events() -> list[Event]:
    """Prefixes of equal length, so that they form one batch."""
    draw = np.random.default_rng(0)
    return [
        Event(index, index, "first", tuple(draw.integers(8192, size=LENGTH).tolist()), 1, 2, 0)
        for index in range(NUM_EVENTS)
    ]


@torch.inference_mode()
def plain(
    pair: tuple[LlamaForCausalLM, LlamaForCausalLM], events: list[Event], count: Callable[[], None]
) -> dict[int, list[torch.Tensor]]:
    """Final hidden states at the events, by boundary and cell, from 2 L whole passes."""
    input_BL = right_padded([event.prefix_ids for event in events])
    kept: list[dict[int, torch.Tensor]] = [{}, {}]
    ends: list[torch.Tensor] = []

    def run(
        model: LlamaForCausalLM, *, keep: dict[int, torch.Tensor] | None, put: tuple[int, torch.Tensor] | None
    ) -> None:
        def hook(index: int) -> Callable[..., object]:
            def before(_module: torch.nn.Module, args: tuple[torch.Tensor, ...]) -> object:
                count()
                if keep is not None:
                    keep[index] = args[0]
                return (put[1], *args[1:]) if put is not None and put[0] == index else None

            return before

        handles = [
            layer.register_forward_pre_hook(hook(index)) for index, layer in enumerate(model.model.layers)
        ]
        last = model.model.layers[-1].register_forward_hook(lambda _m, _a, out: ends.append(out[:, -1]))
        model(input_BL, use_cache=False, logits_to_keep=1)
        for handle in (*handles, last):
            handle.remove()

    for model, keep in zip(pair, kept, strict=True):
        run(model, keep=keep, put=None)
    own = list(ends)
    cells = {}
    for boundary in range(1, NUM_LAYERS):
        ends.clear()
        run(pair[1], keep=None, put=(boundary, kept[0][boundary]))
        run(pair[0], keep=None, put=(boundary, kept[1][boundary]))
        cells[boundary] = [own[0], ends[0], ends[1], own[1]]
    return cells


def main() -> int:
    """Print both sides; returns 1 if the goal is missed."""
    pair, events = make_pair(), make_events()
    first, second = (Crossable(model) for model in pair)
    crossing = Crossing(first, second, resolve_boundaries("profile", NUM_LAYERS))
    times: dict[str, list[float]] = {"ours": [], "plain": [], "pass": []}
    evaluations = {"plain": 0}

    def count() -> None:
        evaluations["plain"] += 1

    input_BL = right_padded([event.prefix_ids for event in events])
    for _ in range(REPEATS):
        first.num_evaluations = second.num_evaluations = evaluations["plain"] = 0
        started = time.perf_counter()
        cells = list(crossing.cells(events))
        times["ours"].append(time.perf_counter() - started)
        started = time.perf_counter()
        ends = plain(pair, events, count)
        times["plain"].append(time.perf_counter() - started)
        for _ in range(REPEATS):
            started = time.perf_counter()
            with torch.inference_mode():
                for model in pair:
                    model(input_BL, use_cache=False, logits_to_keep=1)
            times["pass"].append((time.perf_counter() - started) / len(pair))
    seconds = {name: statistics.median(values) for name, values in times.items()}
    passes = (first.num_evaluations + second.num_evaluations) / NUM_LAYERS
    result = {
        "layers": NUM_LAYERS,
        "events": NUM_EVENTS,
        "evaluations": first.num_evaluations + second.num_evaluations,
        "evaluations_plain": evaluations["plain"],
        "passes": passes,
        "passes_plain": evaluations["plain"] / NUM_LAYERS,
        "passes_allowed": NUM_LAYERS + 2,
        "seconds": seconds["ours"],
        "seconds_plain": seconds["plain"],
        "seconds_a_pass": seconds["pass"],
        "seconds_in_passes": seconds["ours"] / seconds["pass"],
        "speedup": seconds["plain"] / seconds["ours"],
        "largest_difference": _difference(cells, ends, second),
    }
    result["goal_met"] = (
        passes <= NUM_LAYERS + 2
        and result["seconds_in_passes"] <= NUM_LAYERS + 2
        and result["largest_difference"] <= 1e-4
    )
    ours, theirs = result["evaluations"], result["evaluations_plain"]
    print(f"layer evaluations: {ours} ({passes:.2f} passes), the plain way {theirs}")
    print(f"seconds: {seconds['ours']:.3f} ({result['seconds_in_passes']:.2f} passes)")
    print(f"the plain way: {seconds['plain']:.3f} s, {result['speedup']:.2f} times as long")
    print(json.dumps(result))
    return 0 if result["goal_met"] else 1


def _difference(cells: list, ends: dict[int, list[torch.Tensor]], reader: Crossable) -> float:
    """Largest difference of our margins from those of the plain way, under the descendant's readout."""
    ours = {(cell.event, cell.boundary): cell.margins for cell in cells if cell.readout == "descendant"}
    worst = 0.0
    for boundary, states in ends.items():
        for index in range(len(CELLS)):
            logits_BV = reader.read_out(states[index][:, None])[:, 0].double()
            margins_B = (logits_BV[:, 2] - logits_BV[:, 1]).tolist()
            worst = max(
                worst, *(abs(margin - ours[row, boundary][index]) for row, margin in enumerate(margins_B))
            )
    return worst


if __name__ == "__main__":
    sys.exit(main())
