"""A checkpoint that exists: the hashes of its files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import pyarrow as pa

from stemmatics.core.facts import Fact, FactKind, FactParams
from stemmatics.core.stemma import Source

# one row a checkpoint, pinned or made
CHECKPOINTS = pa.schema(
    [
        ("source", pa.string()),
        ("kind", pa.string()),
        ("revision", pa.string()),
        ("weights_sha256", pa.string()),
        ("tokenizer_sha256", pa.string()),
        ("config_sha256", pa.string()),
        ("num_parameters", pa.int64()),
        ("flags", pa.list_(pa.string())),
    ]
)


class WeightsParams(FactParams):
    """SHA-256 of weights, tokenizer and configuration; ``planned`` instead, where a plan has only a name."""

    left_out_if_none: ClassVar[frozenset[str]] = frozenset({"planned"})

    weights: str | None = None
    tokenizer: str | None = None
    config: str | None = None
    planned: str | None = None

    def plain(self) -> dict[str, Any]:
        """Hashes, or the planned name alone."""
        return super().plain() if self.planned is None else {"planned": self.planned}


WEIGHTS = FactKind("weights", 1, WeightsParams, {"checkpoints": CHECKPOINTS})


def weights_fact(name: str, source: Source, pin: Mapping[str, Any]) -> Fact:
    """The checkpoint ``name`` of a stemma, with its pin."""
    where = source.model_dump(
        include={"source", "revision", "weights", "trust_remote_code", "allow_pickle", "num_parameters"}
    )
    return WEIGHTS.make(WeightsParams.model_validate(dict(pin)), label=name, where=where)
