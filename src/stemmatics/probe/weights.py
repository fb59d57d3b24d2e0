"""Facts about checkpoints that exist: what they hash to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from stemmatics.core.facts import Fact
from stemmatics.facts.weights import WEIGHTS
from stemmatics.lm.checkpoints.pin import Pin
from stemmatics.probe.base import Context, Cost, FactOutput, NoModel
from stemmatics.probe.costs import weights_cost
from stemmatics.probe.sources import pin_of


class Weights(NoModel):
    """Pins a given checkpoint; nothing is loaded."""

    def cost(self, fact: Fact) -> Cost:
        """What has to be downloaded."""
        return weights_cost(fact)

    def run(self, facts: Sequence[Fact], context: Context) -> Iterator[FactOutput]:
        """One row a checkpoint."""
        for fact in facts:
            pinned = pin_of(fact, context)
            yield FactOutput(fact, {"checkpoints": checkpoint_row(pinned)}, {"checkpoint": pinned.files})


def _name(pinned: Pin) -> str:
    """A name on the Hub, or a folder's or file's own name: no paths of the user's machine."""
    if pinned.parts:
        return "+".join(_name(part) for part in pinned.parts)
    return pinned.source if pinned.kind == "hub" else Path(pinned.source).name


def checkpoint_row(pinned: Pin, **more: Any) -> pa.Table:
    """The row of ``checkpoints`` for a pin."""
    row = {
        "source": _name(pinned),
        "kind": pinned.kind,
        "revision": pinned.revision,
        "weights_sha256": pinned.weights_sha256,
        "tokenizer_sha256": pinned.tokenizer_sha256,
        "config_sha256": pinned.config_sha256,
        "num_parameters": None,
        "flags": list(pinned.notices),
        **more,
    }
    return WEIGHTS.table("checkpoints", [row])
