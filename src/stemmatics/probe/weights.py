"""Facts about checkpoints that exist: what they hash to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from stemmatics.core.facts import Fact
from stemmatics.facts.weights import WEIGHTS
from stemmatics.lm.checkpoints.pin import Pin
from stemmatics.probe.base import Context, Cost, Made, NoModel
from stemmatics.probe.costs import weights_cost
from stemmatics.probe.sources import pin_of


class Weights(NoModel):
    """Pins a given checkpoint; nothing is loaded."""

    def cost(self, fact: Fact) -> Cost:
        """What has to be downloaded."""
        return weights_cost(fact)

    def run(self, facts: Sequence[Fact], context: Context) -> Iterator[Made]:
        """One row a checkpoint."""
        for fact in facts:
            found = pin_of(fact, context)
            yield Made(fact, {"checkpoints": checkpoint_row(found)}, {"checkpoint": found.files})


def _name(found: Pin) -> str:
    """A name on the Hub, or a folder's or file's own name: no paths of the user's machine."""
    if found.parts:
        return "+".join(_name(part) for part in found.parts)
    return found.source if found.kind == "hub" else Path(found.source).name


def checkpoint_row(found: Pin, **more: Any) -> pa.Table:
    """The row of ``checkpoints`` for a pin."""
    row = {
        "source": _name(found),
        "kind": found.kind,
        "revision": found.revision,
        "weights_sha256": found.weights_sha256,
        "tokenizer_sha256": found.tokenizer_sha256,
        "config_sha256": found.config_sha256,
        "num_parameters": None,
        "flags": list(found.notices),
        **more,
    }
    return WEIGHTS.table("checkpoints", [row])
