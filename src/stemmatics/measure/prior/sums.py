"""Stored sums of the measure ``prior`` as arrays.

Axes: D EVAL documents, R draws.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from stemmatics.core.facts import Fact
from stemmatics.measure.base import Tables
from stemmatics.measure.inputs import FloatArray, names, numbers

NONE = ("none", "")
Arm = tuple[str, str]


@dataclass(frozen=True, eq=False)
class Model:
    """One model (or damaged base) under every arm; nats by EVAL document on the shared support."""

    fact: Fact
    said: Mapping[str, Any]
    index_D: npt.NDArray[np.int64]
    num_tokens_D: FloatArray
    excluded_D: FloatArray
    group_D: npt.NDArray[np.str_]
    nll: Mapping[Arm, FloatArray]
    fits: Mapping[Arm, Mapping[str, Any]]
    draws: Mapping[tuple[str, str, str], FloatArray]

    def gain(self, arm: Arm) -> FloatArray:
        """Nats that a correction removes, by document."""
        return self.nll[NONE] - self.nll[arm]

    def redrawn_gain(self, arm: Arm, kind: str) -> FloatArray:
        """The same in total under each redrawn fit; empty where none was made."""
        found = self.draws.get((*arm, kind))
        return np.empty(0) if found is None else float(self.nll[NONE].sum()) - found


def refusal_of(fact: Fact, tables: Tables) -> str:
    """Why a fact holds no fits, or the empty string."""
    return str(tables.read(fact, "prior_model").to_pylist()[0]["refusal"])


def read_models(fact: Fact, tables: Tables) -> dict[str, Model]:
    """The models of a fact by variant: ``own``, or the damaged bases of a floor."""
    table = tables.read(fact, "prior_sums")
    said = tables.read(fact, "prior_model").to_pylist()[0]
    documents = tables.read(fact.needs["corpus"], "documents")
    group_of = dict(zip(documents["index"].to_pylist(), documents["group"].to_pylist(), strict=True))
    draws = _draws(fact, tables)
    labels = [names(table, name) for name in ("variant", "arm", "reading")]
    columns = {name: numbers(table, name) for name in ("index", "nll_sum", "num_tokens", "excluded_nll_sum")}
    fits = tables.read(fact, "prior_fits").to_pylist()
    found = {}
    for variant in dict.fromkeys(labels[0].tolist()):
        mine = labels[0] == variant
        arms = dict.fromkeys(zip(labels[1][mine].tolist(), labels[2][mine].tolist(), strict=True))
        rows = {arm: mine & (labels[1] == arm[0]) & (labels[2] == arm[1]) for arm in arms}
        plain = rows[NONE]
        index_D = columns["index"][plain].astype(np.int64)
        found[variant] = Model(
            fact,
            said,
            index_D,
            columns["num_tokens"][plain],
            columns["excluded_nll_sum"][plain],
            np.array([group_of[int(index)] for index in index_D], dtype=str),
            {arm: columns["nll_sum"][rows[arm]] for arm in arms},
            {(row["arm"], row["reading"]): row for row in fits if row["variant"] == variant},
            draws,
        )
    return found


def _draws(fact: Fact, tables: Tables) -> dict[tuple[str, str, str], FloatArray]:
    table = tables.read(fact, "prior_draws")
    labels = [names(table, name) for name in ("arm", "reading", "kind")]
    nll, draw = numbers(table, "nll_sum"), numbers(table, "draw")
    found = {}
    for key in dict.fromkeys(zip(*(label.tolist() for label in labels), strict=True)):
        rows = np.all([label == part for label, part in zip(labels, key, strict=True)], axis=0)
        found[key] = nll[rows][np.argsort(draw[rows])]
    return found
