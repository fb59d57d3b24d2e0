"""Facts about bases not yet read: where a blind family's base will stand, written first and hashed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from stemmatics.core.facts import Fact
from stemmatics.core.keys import key_of
from stemmatics.facts.prediction import PREDICTION
from stemmatics.math.recovery.unknown_base import (
    Origin,
    calibration,
    estimate_base,
    not_used,
    offset_rule,
)
from stemmatics.math.sums import nats_per_byte
from stemmatics.probe.base import Context, FactOutput, NoModel


class Prediction(NoModel):
    """Estimates the base of a recovered descendant from the offsets of pairs whose bases are known.

    The base's own arm needs this fact, so it is trained and scored only after the prediction is stored.
    """

    def run(self, facts: Sequence[Fact], context: Context) -> Iterator[FactOutput]:
        """One row a fact: the value, its bar on this text, and the SHA-256 of both."""
        for fact in facts:
            yield FactOutput(fact, {"prediction": PREDICTION.table("prediction", [_row(fact, context)])})


def _row(fact: Fact, context: Context) -> dict[str, object]:
    origins = [Origin(**declared) for declared in fact.params["pairs"]]
    residuals = []
    for number in range(len(origins)):
        base, descendant = (
            _sums(fact.needs[f"{number:04d}.{side}"], context) for side in ("base", "descendant")
        )
        residuals.append(nats_per_byte(*descendant[:2]) - nats_per_byte(*base[:2]))
    origin = Origin(**fact.params["origin"])
    known = calibration(residuals, origins)
    estimate = estimate_base(*_sums(fact.needs["recovered"], context), known, origin)
    values = {
        "checkpoint": fact.params["checkpoint"],
        "value": estimate.value,
        "bar": estimate.half_width,
        "rule": offset_rule(estimate.offset, not_used(known, origin, estimate.offset)),
        "num_pairs": estimate.offset.num_pairs,
    }
    return {**values, "sha256": key_of(values)}


def _sums(fact: Fact, context: Context) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.str_]]:
    """Nats, bytes and groups of the documents that were scored."""
    scores = context.ledger.read(fact.key, "scores")
    documents = context.ledger.read(fact.needs["corpus"].key, "documents")
    groups = documents["group"].take(pc.index_in(scores["index"], documents["index"]))
    scored = pc.greater(scores["num_tokens"], 0).to_numpy(zero_copy_only=False)
    columns = (np.asarray(scores[name].to_numpy(), np.float64)[scored] for name in ("nll_sum", "num_bytes"))
    nll_N, bytes_N = columns
    return nll_N, bytes_N, np.array(groups.to_pylist(), dtype=np.str_)[scored]
