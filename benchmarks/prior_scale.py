"""Cost of the fits of a correction at scale: passes, seconds, memory, and that it is linear in positions.

States are drawn (a head with Zipf's unigram; targets from a sharpened and shifted one), so that the size is
free: by default 100,000 positions, K = 4,096 and V = 49,152. One head pass keeps K columns and the
log-partition of the rest. Then bias, temperature and joint are fitted with their path of penalties, on all
positions and on the first quarter of them. *Limit*: all columns read once with their exponentials, timed in
the same run.

Goals: at most 25 passes a fit (path, warm start and certificates included), every optimum certified to 1e-7
nats, seconds a position on all positions at most 1.3 times those on a quarter, and memory that no file backs
under ``MEMORY_GOAL``. The last line is JSON; the exit status is 1 if a goal is missed.

Run: python benchmarks/prior_scale.py [--positions N] [--columns K] [--vocabulary V] [--width D]

Axes: N positions, V vocabulary, K columns, D width.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch

from stemmatics.lm.scoring.head import LinearHead
from stemmatics.lm.scoring.head_pass import Positions, reduced
from stemmatics.lm.scoring.head_states import StateWriter
from stemmatics.math import prior
from stemmatics.math.prior import Correction, Objective, Statistics

PASSES_GOAL, GAP_GOAL, LINEAR_GOAL = 25.0, 1e-7, 1.3
# bytes besides the memory-mapped columns: blocks, kept probabilities (1 GiB), factors, the log-partitions
MEMORY_GOAL = 4 << 30
BLOCK = 1024
DOCUMENT_TOKENS = 250
STATUS = Path("/proc/self/status")


class PeakMemory:
    """Largest resident memory that is not backed by a file, while the block runs, in bytes."""

    def __enter__(self) -> Self:
        self.peak, self._done = 0, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(0.05):
            self.peak = max(self.peak, anonymous_bytes())


def anonymous_bytes() -> int:
    """Resident memory that no file backs; all resident memory where the system does not tell them apart."""
    if STATUS.exists():
        for line in STATUS.read_text().splitlines():
            if line.startswith("RssAnon"):
                return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def drawn(num: int, head: LinearHead, path: Path) -> Positions:
    """Random states, and targets that a sharpened and shifted head draws."""
    rng = np.random.default_rng(0)
    num_ids, width = head.weight.shape
    shift_V = torch.from_numpy(rng.normal(0.0, 0.5, num_ids).astype(np.float32))
    targets = []
    with StateWriter(path, torch.float32) as writer:
        for start in range(0, num, BLOCK):
            size = min(BLOCK, num - start)
            states_BD = torch.from_numpy(rng.normal(0.0, 2.0, (size, width)).astype(np.float32))
            writer.append(states_BD)
            logits_BV = head.logits(states_BD).mul_(1.2).add_(shift_V)
            total_BV = logits_BV.sub_(logits_BV.amax(1, keepdim=True)).exp_().cumsum_(1)
            place_B1 = torch.from_numpy(rng.random((size, 1), dtype=np.float32)) * total_BV[:, -1:]
            targets.append(torch.searchsorted(total_BV, place_B1)[:, 0].clamp_(max=num_ids - 1).numpy())
        states = writer.states()
    document_N = np.arange(num) // DOCUMENT_TOKENS
    return Positions(states, np.concatenate(targets), document_N, np.arange(document_N[-1] + 1))


def one_size(columns: Statistics, num_columns: int) -> dict[str, float]:
    """Fits on one text."""
    fit, held_out = columns.split()
    start = time.perf_counter()
    Objective(fit, cache_bytes=0).point(Correction.identity(fit.num_columns))
    pass_seconds = time.perf_counter() - start
    limit = exponentials(fit)
    with PeakMemory() as memory:
        start = time.perf_counter()
        arms = prior.fit_arms(fit, held_out, num_columns)
        seconds = time.perf_counter() - start
    each = {"temperature": arms.temperature, "bias": arms.bias, "joint": arms.joint}
    return {
        "num_positions": float(columns.num_positions),
        "num_columns": float(columns.num_columns),
        "num_free": float(arms.free.mask_K.sum()),
        "one_pass_seconds": pass_seconds,
        "exponentials_seconds": limit,
        "fit_seconds": seconds,
        "fit_microseconds_per_position": 1e6 * seconds / columns.num_positions,
        "fit_over_exponentials": seconds / limit,
        **{f"{name}_passes": arm.num_passes for name, arm in each.items()},
        **{f"{name}_gap": arm.optimum.certificate.gap for name, arm in each.items()},
        "converged": float(all(arm.optimum.certificate.converged for arm in each.values())),
        "peak_bytes": float(memory.peak),
    }


def exponentials(fit: Statistics) -> float:
    """Seconds to read all columns once and take their exponentials, and nothing else."""
    start = time.perf_counter()
    scratch_BK = np.empty((fit.block_rows, fit.num_columns), dtype=fit.dtype)
    for _, logits_BK in fit.blocks():
        np.exp(logits_BK, out=scratch_BK[: len(logits_BK)])
    return time.perf_counter() - start


def main() -> int:
    """Measure, print, compare with the goals."""
    parser = argparse.ArgumentParser(description="Cost of the fits of a correction at scale")
    parser.add_argument("--positions", type=int, default=100_000)
    parser.add_argument("--columns", type=int, default=4096)
    parser.add_argument("--vocabulary", type=int, default=49_152)
    parser.add_argument("--width", type=int, default=64)
    arguments = parser.parse_args()
    rng = np.random.default_rng(1)
    weight_VD = rng.normal(0.0, 2.2 / np.sqrt(arguments.width), (arguments.vocabulary, arguments.width))
    unigram_V = -np.log(np.arange(1, arguments.vocabulary + 1) + 2.0)
    head = LinearHead(*(torch.from_numpy(array.astype(np.float32)) for array in (weight_VD, unigram_V)))
    results: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        positions = drawn(arguments.positions, head, folder / "states")
        ids_K = prior.top_columns(
            positions.target_N[: int(0.9 * arguments.positions)], arguments.columns, arguments.vocabulary
        )
        start = time.perf_counter()
        columns = reduced(head, positions, ids_K, folder / "columns")
        head_seconds = time.perf_counter() - start
        print(f"head pass {head_seconds:.1f} s", flush=True)
        parts = {"quarter": columns.rows(0, arguments.positions // 4), "whole": columns}
        for label, text in parts.items():
            results[label] = one_size(text, arguments.columns)
            for what, value in results[label].items():
                print(f"{label:8} {what:32} {value:.6g}", flush=True)
    whole = results["whole"]
    names = [key for key in whole if key.endswith("_passes")]
    per_position = [results[label]["fit_microseconds_per_position"] for label in ("whole", "quarter")]
    linear = per_position[0] / per_position[1]
    print(f"seconds a position, whole over a quarter: {linear:.3f}")
    missed = [
        goal
        for goal, failed in (
            ("passes", any(row[key] > PASSES_GOAL for row in results.values() for key in names)),
            ("gap", any(not row["converged"] for row in results.values())),
            ("linear", linear > LINEAR_GOAL),
            ("memory", whole["peak_bytes"] > MEMORY_GOAL),
        )
        if failed
    ]
    goals = {"passes": PASSES_GOAL, "gap": GAP_GOAL, "linear": LINEAR_GOAL, "memory": MEMORY_GOAL}
    print(
        json.dumps(
            {
                **results,
                "head_pass_seconds": head_seconds,
                "whole_over_quarter": linear,
                "goals": goals,
                "missed": missed,
            }
        )
    )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
