"""Stored sums of the measure ``prior`` as arrays.

Axes: D EVAL documents, R draws.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from stemmatics.core.facts import Fact
from stemmatics.facts.prior import FITTED_ARMS, SELECTED, UNCORRECTED, DrawKind
from stemmatics.measure.base import Tables
from stemmatics.measure.inputs import FloatArray, names, numbers
from stemmatics.measure.present import ResultBuilder
from stemmatics.measure.prior.settings import NAME

# arm and reading of a correction
Arm = tuple[str, str]
NONE: Arm = (UNCORRECTED, "")
# what a descendant's own fit recovers of the loss increase, and that less what the base's fit recovers
ShareName = Literal["recovered_share", "net_recovered_share"]
SHARES: tuple[ShareName, ...] = get_args(ShareName)
RECOVERED, NET = SHARES
HEADLINE: tuple[Arm, ...] = tuple((arm, SELECTED) for arm in FITTED_ARMS)


@dataclass(frozen=True, eq=False)
class Model:
    """One model (or damaged base) under every arm; nats by EVAL document on the shared support.

    ``metadata`` is the model's row of ``prior_model``; ``fits`` are its rows of ``prior_fits`` by arm;
    ``draws`` are nats over all of EVAL by arm, reading and kind of refit, one a draw of FIT weights.
    """

    fact: Fact
    metadata: Mapping[str, Any]
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

    def redrawn_gain(self, arm: Arm, kind: DrawKind) -> FloatArray:
        """Nats that each redrawn fit removes from all of EVAL; empty where there are none."""
        total_R = self.draws.get((*arm, kind))
        return np.empty(0) if total_R is None else float(self.nll[NONE].sum()) - total_R


@dataclass(frozen=True, eq=False)
class Pair:
    """Two models on the same EVAL documents."""

    subject: Mapping[str, str]
    facts: tuple[Fact, ...]
    old: Model
    new: Model

    @property
    def builder(self) -> ResultBuilder:
        """Builds results of this pair."""
        return ResultBuilder(NAME, self.subject, self.facts, n=len(self.old.index_D))

    @property
    def loss_increase(self) -> FloatArray:
        """Loss increase by document, nats on the shared support."""
        return self.new.nll[NONE] - self.old.nll[NONE]

    @property
    def arms(self) -> list[Arm]:
        """Corrections that both models have."""
        return [arm for arm in self.new.nll if arm != NONE and arm in self.old.nll]

    def net_gain(self, arm: Arm) -> FloatArray:
        """Numerator of the net recovered share, by document."""
        return self.new.gain(arm) - self.old.gain(arm)

    def gain(self, arm: Arm, share: ShareName) -> FloatArray:
        """Numerator of a share, by document."""
        return self.new.gain(arm) if share == RECOVERED else self.net_gain(arm)

    def redrawn_shares(self, arm: Arm, kind: DrawKind, share: ShareName = NET) -> FloatArray:
        """A share under each draw of FIT weights, the same in both models; EVAL held fixed.

        Empty where there are no redrawn fits; NaN where nothing was lost.
        """
        new_R, old_R = self.new.redrawn_gain(arm, kind), self.old.redrawn_gain(arm, kind)
        if new_R.shape != old_R.shape:
            return np.empty(0)
        increase = float(self.loss_increase.sum())
        gain_R = new_R if share == RECOVERED else new_R - old_R
        shares_R: FloatArray = gain_R / (increase if increase > 0 else np.nan)
        return shares_R


def incomparable(old: Model, new: Model) -> str:
    """Why two models can't be compared by token, or the empty string."""
    first, second = old.metadata, new.metadata
    if first["token_ids_sha256"] != second["token_ids_sha256"]:
        return "the tokenizers differ: the two models do not see the same tokens of this corpus"
    if first["prefix_id"] != second["prefix_id"]:
        return f"the prefix ids differ ({first['prefix_id']} and {second['prefix_id']})"
    if first["dtype"] != second["dtype"]:
        return f"they were scored in different precision ({first['dtype']} and {second['dtype']})"
    same = np.array_equal(old.index_D, new.index_D) and np.array_equal(old.num_tokens_D, new.num_tokens_D)
    return "" if same else "they did not score the same tokens in every document"


def refusal_of(fact: Fact, tables: Tables) -> str:
    """Why a fact holds no fits, or the empty string."""
    return str(tables.read(fact, "prior_model").to_pylist()[0]["refusal"])


def read_models(fact: Fact, tables: Tables) -> dict[str, Model]:
    """The models of a fact by variant: ``own``, or the damaged bases of a floor."""
    table = tables.read(fact, "prior_sums")
    metadata = tables.read(fact, "prior_model").to_pylist()[0]
    documents = tables.read(fact.needs["corpus"], "documents")
    group_of = dict(zip(documents["index"].to_pylist(), documents["group"].to_pylist(), strict=True))
    draws = _draws(fact, tables)
    variants, arms, readings = (names(table, name) for name in ("variant", "arm", "reading"))
    columns = {name: numbers(table, name) for name in ("nll_sum", "num_tokens", "excluded_nll_sum")}
    index = numbers(table, "index").astype(np.int64)
    fits = tables.read(fact, "prior_fits").to_pylist()
    models = {}
    for variant in dict.fromkeys(variants.tolist()):
        rows = _rows_by_arm(variants == variant, arms, readings)
        index_D = index[rows[NONE]]
        models[variant] = Model(
            fact=fact,
            metadata=metadata,
            index_D=index_D,
            num_tokens_D=columns["num_tokens"][rows[NONE]],
            excluded_D=columns["excluded_nll_sum"][rows[NONE]],
            group_D=np.array([group_of[int(document)] for document in index_D], dtype=str),
            nll={arm: columns["nll_sum"][_in_order(rows_D, index, index_D)] for arm, rows_D in rows.items()},
            fits={(row["arm"], row["reading"]): row for row in fits if row["variant"] == variant},
            draws=draws,
        )
    return models


def _rows_by_arm(
    among: npt.NDArray[np.bool_], arms: npt.NDArray[np.str_], readings: npt.NDArray[np.str_]
) -> dict[Arm, npt.NDArray[np.int64]]:
    """Row numbers of each arm, in the order of the table."""
    present = dict.fromkeys(zip(arms[among].tolist(), readings[among].tolist(), strict=True))
    return {
        (arm, reading): np.flatnonzero(among & (arms == arm) & (readings == reading))
        for arm, reading in present
    }


def _in_order(
    rows_D: npt.NDArray[np.int64], index: npt.NDArray[np.int64], index_D: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """The rows in the order of the documents ``index_D``."""
    by_index_D = rows_D[np.argsort(index[rows_D])]
    ordered_D: npt.NDArray[np.int64] = by_index_D[np.argsort(np.argsort(index_D))]
    return ordered_D


def _draws(fact: Fact, tables: Tables) -> dict[tuple[str, str, str], FloatArray]:
    table = tables.read(fact, "prior_draws")
    labels = [names(table, name) for name in ("arm", "reading", "kind")]
    nll, draw = numbers(table, "nll_sum"), numbers(table, "draw")
    totals = {}
    for key in dict.fromkeys(zip(*(label.tolist() for label in labels), strict=True)):
        rows = np.all([label == part for label, part in zip(labels, key, strict=True)], axis=0)
        totals[key] = nll[rows][np.argsort(draw[rows])]
    return totals
