"""Tables as somebody else would have made them, and what is read from the answers."""

import csv
import itertools
import json
import math
from pathlib import Path

import numpy as np

DATA = Path(__file__).parents[2] / "../shared/data"
"""Published tables, where they are at hand; they are no part of the project."""
PAIR_NAMES = (
    "corpus", "unit", "family", "base", "descendant", "native_base", "matched_base", "native", "recovered",
)  # fmt: skip
LN2 = math.log(2)


def strict_json(ran):
    """What --json printed; NaN and Infinity are no JSON."""

    def refuse(constant):
        message = f"JSON has no {constant}"
        raise AssertionError(message)

    return json.loads(ran.out, parse_constant=refuse)


def write_csv(path, rows):
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def pair_rows(corpus="prose", unit="nats_per_byte", seed=0, num_families=9):
    rng = np.random.default_rng(seed)
    scale = 1.0 if unit == "nats_per_byte" else 1 / LN2
    rows = []
    for f, b in itertools.product(range(num_families), range(2)):
        matched = rng.uniform(0.5, 0.7)
        losses = [matched + 0.02, matched, matched + 0.1, matched + rng.normal(0.02, 0.01)]
        if f == 0:
            losses[0] = matched + 0.2
        texts = [corpus, unit, f"f{f}", f"f{f}b{b}", f"f{f}b{b}-chat"]
        rows.append(dict(zip(PAIR_NAMES, [*texts, *(x * scale for x in losses)], strict=True)))
    return rows


def event_rows(num_prompts=60, seed=0):
    rng = np.random.default_rng(seed)
    rows = []
    for k in range(num_prompts):
        cells = {}
        for readout in ("common_descendant", "common_base"):
            first, second = rng.normal(1, 1), rng.normal(3, 1)
            base, other = rng.normal(-1, 1), rng.normal(0, 1)
            for cell, value in zip(
                ("base_base", "base_desc", "desc_base", "desc_desc"),
                (base, base + first, other, other + second),
                strict=True,
            ):
                cells[f"{readout}_{cell}"] = value
        rows.append({"prompt_id": f"p{k}", "category": "AB"[k % 2], **cells})
    return rows


def prior_rows(num_documents=60, increase=0.1, seed=0):
    rng = np.random.default_rng(seed)
    rows = []
    for k in range(num_documents):
        tokens = int(rng.integers(100, 500))
        old = 3 * tokens
        new = old + tokens * (increase + 0.02 * rng.standard_normal())
        removed = {"old_bias": old - 0.01 * tokens, "new_bias": new - tokens * (0.03 + 0.01 * rng.random())}
        rows.append(
            {"doc_id": f"d{k:03d}", "num_tokens": tokens, "old_none": old, "new_none": new, **removed}
        )
    return rows


def score_rows(num_models=16, num_tasks=4, seed=0):
    rng = np.random.default_rng(seed)
    ability = rng.standard_normal(num_models)
    rows = []
    for m, t in itertools.product(range(num_models), range(num_tasks)):
        before, after = (1 / (1 + np.exp(-s * ability[m] - rng.standard_normal())) for s in (0.7, 2.0))
        rows.append({"task": f"t{t}", "model": f"m{m}", "before": before, "after": after})
    return rows
