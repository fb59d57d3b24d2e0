"""Rows of the tables of ``divergence``: sums, counts and parts by document.

Axes: T tokens of one document, N of them scored and on the support.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from stemmatics.facts.divergence import PAIR
from stemmatics.lm.scoring.compared import ComparedDocument
from stemmatics.lm.scoring.divergence import TokenDivergence
from stemmatics.lm.scoring.sums import POSITION_BINS, POSITION_EDGES, TOKEN_CLASSES
from stemmatics.math.divergence import bin_of

# nats of the base's entropy
ENTROPY_EDGES = (0.1, 0.5, 1.0, 2.0, 4.0)
ENTROPY_BINS = ("0-0.1", "0.1-0.5", "0.5-1", "1-2", "2-4", "4+")


@dataclass(eq=False)
class Rows:
    """Collects what the tables store, document by document."""

    sums: list[dict[str, Any]] = field(default_factory=list)
    bins: list[dict[str, Any]] = field(default_factory=list)
    parts: list[dict[str, Any]] = field(default_factory=list)

    def tables(self) -> dict[str, list[dict[str, Any]]]:
        """Rows by table."""
        return {"divergence_sums": self.sums, "divergence_bins": self.bins, "divergence_parts": self.parts}

    def add(self, comparison: str, document: ComparedDocument, values: TokenDivergence) -> None:
        """One document's sums; counts and parts of the pair itself only."""
        index = document.tokens.index
        self.sums.append(
            {
                "index": index,
                "comparison": comparison,
                "kl": float(values.kl.sum()),
                "kl_reverse": float(values.kl_reverse.sum()),
                "js": float(values.js.sum()),
                "delta_logp": float(values.delta_logp.sum()),
                "delta_p_squared": float((values.delta_p**2).sum()),
                "delta_entropy": float(values.delta_entropy.sum()),
                "same_top1": float(values.same_top1.sum()),
                "top1_in_top5": float(values.top1_in_top5.sum()),
                "num_tokens": len(values.kl),
                "num_outside_support": int((document.scored_T & ~document.inside_T).sum()),
                "num_set_to_zero": int(values.set_to_zero.sum()),
                "kl_max": float(values.kl.max()),
            }
        )
        if comparison == PAIR:
            bins, counts = np.unique(bin_of(values.kl), return_counts=True)
            self.bins.append({"index": index, "bins": bins.tolist(), "counts": counts.tolist()})
            self.parts += _parts(document, values)


def _parts(document: ComparedDocument, values: TokenDivergence) -> list[dict[str, Any]]:
    position_T = np.arange(len(document.inside_T))
    axes = {
        "token_class": (TOKEN_CLASSES, document.tokens.classes[document.inside_T].astype(np.int64)),
        "position": (
            POSITION_BINS,
            np.searchsorted(POSITION_EDGES, position_T[document.inside_T], side="right"),
        ),
        "base_entropy": (ENTROPY_BINS, np.searchsorted(ENTROPY_EDGES, values.base_entropy, side="right")),
    }
    rows = []
    for axis, (names, bin_N) in axes.items():
        sums = {
            name: np.bincount(bin_N, weights=weights_N, minlength=len(names))
            for name, weights_N in (("kl", values.kl), ("same_top1", values.same_top1))
        }
        num_tokens = np.bincount(bin_N, minlength=len(names))
        rows += [
            {
                "index": document.tokens.index,
                "axis": axis,
                "bin": name,
                **{column: float(sums[column][number]) for column in sums},
                "num_tokens": int(num_tokens[number]),
            }
            for number, name in enumerate(names)
            if num_tokens[number]
        ]
    return rows
