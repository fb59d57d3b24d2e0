"""Settings that `spread` measures, a row of results for each, and the advice from the rows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from stemmatics.lm.scoring.sums import DocumentSums, TokenizedDocument

# Tolerance of a result that does not depend on its setting, nats per document (docs/scoring.md).
TOLERANCE, RELATIVE_TOLERANCE = 1e-4, 1e-6
# Nats/byte by which a lower precision may change the loss and still be recommended.
LARGEST_DEVIATION = 1e-3


@dataclass(frozen=True)
class Spread:
    """The measurements, and which setting to use.

    Rows of ``settings``: ``setting``, ``nats/byte``, ``deviation`` (nats/byte minus the
    reference's on the same documents), ``largest`` (largest absolute difference of a document from
    the reference, nats), ``same`` (all differences within max(1e-4 nats, 1e-6 of the sum)),
    ``tokens/s``. A setting that the device can't run, or whose loss is not finite, has NaN.
    """

    settings: list[dict[str, Any]]
    advice: str
    reference: str


@dataclass(frozen=True)
class Setting:
    """One setting to measure; ``num_pads`` is None if documents are batched as in a study."""

    dtype: str
    attention: str
    token_budget: int
    num_pads: int | None = None

    @property
    def name(self) -> str:
        """The printed name."""
        how = f"{self.token_budget:,} tokens a batch" if self.token_budget > 1 else "one document at a time"
        if self.num_pads is not None:
            how = f"padded by {self.num_pads}"
        return f"{self.dtype}, {self.attention}, {how}"

    @property
    def options(self) -> str:
        """The command-line options."""
        budget = f" --batch-tokens {self.token_budget}"
        return f"--dtype {self.dtype} --attention {self.attention}{budget}"


@dataclass(frozen=True)
class Sample:
    """The documents as tokens and their sums under the reference."""

    documents: list[TokenizedDocument]
    sums: list[DocumentSums]
    tokens_per_second: float


def row_of(setting: Setting, sample: Sample, sums: Sequence[DocumentSums], rate: float) -> dict[str, Any]:
    """A setting's row: its sums compared with the reference's on the same documents."""
    reference = sample.sums[: len(sums)]
    differences = np.array([a.nll_sum - b.nll_sum for a, b in zip(sums, reference, strict=True)])
    allowed = [max(TOLERANCE, RELATIVE_TOLERANCE * row.nll_sum) for row in reference]
    num_bytes = sum(row.num_bytes for row in sums)
    name = setting.name
    if not sums:
        name += " (can't be run here)"
    elif len(sums) < len(sample.sums):
        name += f" (slow: {len(sums)} documents)"
    return {
        "setting": name,
        "nats/byte": math.fsum(row.nll_sum for row in sums) / num_bytes if num_bytes else math.nan,
        "deviation": float(differences.sum()) / num_bytes if num_bytes else math.nan,
        "largest": float(np.abs(differences).max()) if len(sums) else math.nan,
        "same": bool(len(sums)) and bool((np.abs(differences) <= allowed).all()),
        "tokens/s": rate,
    }


def advice(settings: Sequence[Setting], rows: Sequence[Mapping[str, Any]]) -> str:
    """The fastest setting with the reference's numbers, then the effect of a lower precision."""
    candidates = [
        pair for pair in zip(settings, rows, strict=True) if pair[0].num_pads is None and pair[1]["same"]
    ]
    setting, row = max(candidates, key=lambda pair: pair[1]["tokens/s"])
    first = (
        f"Use {setting.options}: the reference's numbers (no document differs by more than "
        f"{row['largest']:.1g} nats) at {row['tokens/s']:,.0f} tokens/s."
    )
    lower = [
        (other, result)
        for other, result in zip(settings, rows, strict=True)
        if other.dtype != "float32" and not result["same"] and not math.isnan(result["tokens/s"])
    ]
    faster = [
        (other, result)
        for other, result in lower
        if result["tokens/s"] > row["tokens/s"] and abs(result["deviation"]) < LARGEST_DEVIATION
    ]
    if faster:
        other, result = max(faster, key=lambda pair: pair[1]["tokens/s"])
        times = result["tokens/s"] / row["tokens/s"]
        return (
            f"{first} {other.options} is {times:.1f} times as fast and changes the loss by "
            f"{result['deviation']:+.1e} nats/byte, which is sufficient for much larger differences."
        )
    if lower:
        each = " and ".join(
            f"{other.dtype} ({result['deviation']:+.1e} nats/byte, {result['tokens/s']:,.0f} tokens/s)"
            for other, result in lower
        )
        return f"{first} Not recommended here: {each}."
    return first
