"""Means, quantiles, controls and floor of the divergences of a pair, from sums by document.

Axes: N documents of one corpus, K bins.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from stemmatics.core.facts import Fact
from stemmatics.core.results import Category, Estimate, Result
from stemmatics.facts.divergence import (
    ATTENTION,
    HALF_PRECISION,
    ITSELF,
    ON_FLOOR,
    PAIR,
    SUMS,
    damage_name,
)
from stemmatics.facts.pinned import Pinned
from stemmatics.math.divergence import NUM_BINS, quantile_interval
from stemmatics.math.rates import ratios_of_means
from stemmatics.math.scipy_modules import sparse
from stemmatics.measure.base import Tables
from stemmatics.measure.divergence.needs import pair_facts
from stemmatics.measure.divergence.settings import DivergenceSettings
from stemmatics.measure.inputs import ALL, Batch, FloatArray, bin_order, names, numbers
from stemmatics.measure.present import ResultBuilder, estimate_from

NAME = "divergence"
NATS, SHARE = "nats/token", "share of tokens"
# quantities that are means over tokens, with the sum behind each and its units
MEANS = {
    "kl": ("kl", NATS),
    "kl_reverse": ("kl_reverse", NATS),
    "js": ("js", NATS),
    "delta_logp": ("delta_logp", NATS),
    "delta_entropy": ("delta_entropy", NATS),
    "same_top1": ("same_top1", SHARE),
    "top1_in_top5": ("top1_in_top5", SHARE),
}
QUANTILES = {"kl_p50": 0.5, "kl_p90": 0.9, "kl_p99": 0.99, "kl_p999": 0.999}
CONTROLS = (ITSELF, HALF_PRECISION, ATTENTION)
BEYOND, WITHIN, UNDETERMINED = "beyond precision", "within precision", "undetermined"


@dataclass(frozen=True)
class Sums:
    """The sums of one comparison, one row a document, with its register and near-duplicate group."""

    index_N: npt.NDArray[np.int64]
    group_N: npt.NDArray[np.str_]
    register_N: npt.NDArray[np.str_]
    num_tokens_N: FloatArray
    max_N: FloatArray
    sum_N: Mapping[str, FloatArray]

    @classmethod
    def of(cls, sums: pa.Table, documents: pa.Table, comparison: str) -> Sums:
        """The rows of a comparison."""
        sums = sums.filter(pc.equal(sums["comparison"], comparison))
        documents = documents.take(pc.index_in(sums["index"], documents["index"]))
        return cls(
            numbers(sums, "index").astype(np.int64),
            names(documents, "group"),
            names(documents, "register"),
            numbers(sums, "num_tokens"),
            numbers(sums, "kl_max"),
            {name: numbers(sums, name) for name in SUMS},
        )

    @property
    def num_documents(self) -> int:
        """Documents with a token."""
        return len(self.index_N)

    def rows(self, register: str) -> npt.NDArray[np.bool_]:
        """Mask of the documents of a register; ``all`` selects every document."""
        return np.ones(self.num_documents, dtype=bool) if register == ALL else self.register_N == register

    def registers(self) -> list[str]:
        """``all`` first, then each register if there are several."""
        names = sorted(set(self.register_N.tolist()) - {ALL})
        return [ALL, *names] if len(set(self.register_N.tolist())) > 1 else [ALL]


def estimate(
    pinned: Pinned, settings: DivergenceSettings, tables: Tables, rng: np.random.Generator
) -> list[Result]:
    """All results, pair by pair; a pair that can't be compared by token is refused with the reason."""
    results: list[Result] = []
    for corpus, base, descendant, fact in pair_facts(pinned, settings):
        if not tables.has(fact):
            continue
        subject = {"base": base, "descendant": descendant, "corpus": corpus}
        builder = ResultBuilder(NAME, subject, [fact], NATS)
        (model,) = tables.read(fact, "divergence_model").to_pylist()
        if model["refusal"]:
            results.append(builder.refusal("kl", model["refusal"], register=ALL))
        else:
            results += _of_pair(builder, fact, tables, model, rng)
    return results


def _of_pair(
    builder: ResultBuilder, fact: Fact, tables: Tables, model: Mapping[str, Any], rng: np.random.Generator
) -> list[Result]:
    stored = tables.read(fact, "divergence_sums")
    documents = tables.read(fact.needs["corpus"], "documents")
    pair = Sums.of(stored, documents, PAIR)
    if not pair.num_documents:
        return [builder.refusal("kl", "no scored token is on the ids that both models have", register=ALL)]
    batch = Batch(rng)
    for register in pair.registers():
        _add_means(batch, builder, pair, register)
    _add_parts(batch, builder, pair, tables.read(fact, "divergence_parts"))
    controls = {name: Sums.of(stored, documents, name) for name in CONTROLS}
    for name, sums in controls.items():
        if sums.num_documents:
            batch.add(
                sums,
                sums.rows(ALL),
                sums.sum_N["kl"],
                sums.num_tokens_N,
                **_labels(builder, "control", NATS, tag="control", control=name),
            )
    estimates = batch.estimates()
    results: list[Result] = [
        _as_root(each) if each.quantity.endswith("rms_delta_p") else each for each in estimates
    ]
    results += _quantiles(builder, pair, tables.read(fact, "divergence_bins"))
    results += _floor(builder, stored, documents, model, rng)
    results.append(_verdict(builder, estimates))
    return results


def _labels(
    builder: ResultBuilder, quantity: str, units: str, *, tag: str = "main", **subject: str
) -> dict[str, Any]:
    return {
        "measure": NAME,
        "quantity": f"{NAME}.{quantity}",
        "subject": {**builder.subject, **subject},
        "units": units,
        "facts": builder.facts,
        "tag": tag,
    }


def _add_means(batch: Batch, builder: ResultBuilder, pair: Sums, register: str) -> None:
    rows = pair.rows(register)
    for quantity, (column, units) in MEANS.items():
        batch.add(
            pair,
            rows,
            pair.sum_N[column],
            pair.num_tokens_N,
            **_labels(builder, quantity, units, register=register),
        )
    batch.add(
        pair,
        rows,
        pair.sum_N["delta_p_squared"],
        pair.num_tokens_N,
        **_labels(builder, "rms_delta_p", "probability", register=register),
    )


def _as_root(square: Estimate) -> Estimate:
    """A mean square as its root, limits too; the root is monotone, so the interval keeps its level."""
    root = math.sqrt(square.value)
    effect = square.smallest_effect / (2 * root) if root else math.nan
    lo, hi = (
        math.sqrt(max(limit, 0.0)) if not math.isnan(limit) else limit for limit in (square.lo, square.hi)
    )
    return replace(square, value=root, lo=lo, hi=hi, smallest_effect=effect)


def _add_parts(batch: Batch, builder: ResultBuilder, pair: Sums, parts: pa.Table) -> None:
    """Mean KL, and the share of equal top ids, of the tokens of each class, position and base entropy."""
    axis_R, bin_R = names(parts, "axis"), names(parts, "bin")
    columns = {name: numbers(parts, name) for name in ("index", "kl", "same_top1", "num_tokens")}
    row_of = {int(index): row for row, index in enumerate(pair.index_N)}
    row_R = np.array([row_of[int(index)] for index in columns["index"]], dtype=np.int64)
    for axis, name in sorted(set(zip(axis_R.tolist(), bin_R.tolist(), strict=True)), key=bin_order):
        chosen_R = (axis_R == axis) & (bin_R == name)
        spread = {
            column: np.bincount(row_R[chosen_R], columns[column][chosen_R], pair.num_documents).astype(
                np.float64
            )
            for column in ("kl", "same_top1", "num_tokens")
        }
        has_tokens = spread["num_tokens"] > 0
        for quantity, column, units in (("where", "kl", NATS), ("where_same_top1", "same_top1", SHARE)):
            batch.add(
                pair,
                has_tokens,
                spread[column],
                spread["num_tokens"],
                **_labels(builder, quantity, units, axis=axis, bin=name),
            )


def _quantiles(builder: ResultBuilder, pair: Sums, stored: pa.Table) -> list[Result]:
    """Quantiles of KL over tokens by register, and its exact maximum."""
    row_of = {int(index): row for row, index in enumerate(pair.index_N)}
    columns = stored.to_pydict()
    lengths = [len(bins) for bins in columns["bins"]]
    row_R = np.repeat([row_of[index] for index in columns["index"]], lengths)
    bin_R, count_R = (np.concatenate(columns[name]) for name in ("bins", "counts"))
    shape = pair.num_documents, NUM_BINS
    counts_NK = sparse.csr_array((count_R, (row_R, bin_R)), shape=shape, dtype=np.int64)
    results: list[Result] = []
    for register in pair.registers():
        rows = pair.rows(register)
        for quantity, probability in QUANTILES.items():
            interval = quantile_interval(counts_NK[rows], probability, groups=pair.group_N[rows])
            results.append(builder.interval(quantity, interval, register=register))
        results.append(
            builder.number(
                "kl_max", float(pair.max_N[rows].max()), n=int(pair.num_tokens_N[rows].sum()), unit="token",
                register=register,
            )
        )  # fmt: skip
    return results


def _floor(
    builder: ResultBuilder,
    stored: pa.Table,
    documents: pa.Table,
    model: Mapping[str, Any],
    rng: np.random.Generator,
) -> list[Result]:
    """KL of random damage that costs as much, of the pair on the same documents, and their ratio."""
    if model["noise_failure"]:
        return [builder.refusal("floor", model["noise_failure"], tag="floor")]
    pair = Sums.of(stored, documents, ON_FLOOR)
    draws = [Sums.of(stored, documents, damage_name(1 + draw)) for draw in range(len(model["noise_scales"]))]
    damage_N = np.mean([draw.sum_N["kl"] for draw in draws], axis=0)
    batch = Batch(rng)
    for quantity, sum_N in (("floor", damage_N), ("on_floor", pair.sum_N["kl"])):
        batch.add(
            pair, pair.rows(ALL), sum_N, pair.num_tokens_N, **_labels(builder, quantity, NATS, tag="floor")
        )
    (ratio,) = ratios_of_means(pair.sum_N["kl"], damage_N, rng=rng, groups=pair.group_N)
    means = [float(draw.sum_N["kl"].sum() / draw.num_tokens_N.sum()) for draw in draws]
    note = f"interval over documents; {len(draws)} draws of the damage are averaged"
    return [
        *batch.estimates(),
        estimate_from(
            ratio, measure=NAME, quantity=f"{NAME}.against_damage", subject=builder.subject, units="ratio",
            facts=builder.facts, tag="floor", note=note,
        ),
        builder.number("floor_lowest", min(means), n=len(draws), unit="draw", tag="floor"),
        builder.number("floor_highest", max(means), n=len(draws), unit="draw", tag="floor"),
    ]  # fmt: skip


def _verdict(builder: ResultBuilder, estimates: list[Estimate]) -> Category:
    """Whether the divergence exceeds what precision and attention alone make of the base."""
    (mean,) = [
        each for each in estimates if each.quantity == "divergence.kl" and each.subject["register"] == ALL
    ]
    controls = [each for each in estimates if each.quantity == "divergence.control"]
    if not controls:
        return builder.category("verdict", UNDETERMINED, "no numerical control was measured", register=ALL)
    largest = max(controls, key=lambda each: each.value)
    name = largest.subject["control"]
    if mean.lo > largest.hi:
        value, reason = BEYOND, f"the whole interval lies above that of the base with itself ({name})"
    elif mean.hi < largest.lo:
        value, reason = WITHIN, f"the whole interval lies below that of the base with itself ({name})"
    else:
        value, reason = UNDETERMINED, f"the interval is not clear of that of the base with itself ({name})"
    return builder.category("verdict", value, reason, n=mean.n, unit=mean.unit, register=ALL)
