"""`stemma analyse divergence`: how far predictions are apart, from sums by document.

Axes: N documents, K bins.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from stemmatics.commands.analyse.numbers import as_data, count
from stemmatics.commands.analyse.table import Table
from stemmatics.core.errors import UserError
from stemmatics.facts.divergence import ATTENTION, DAMAGE, HALF_PRECISION, ITSELF, ON_FLOOR, PAIR, SUMS
from stemmatics.math.divergence import NUM_BINS, quantile_interval
from stemmatics.math.intervals import Interval
from stemmatics.math.rates import loss_rates, ratios_of_means
from stemmatics.measure.divergence.estimate import MEANS, NATS, QUANTILES

ALL = "all"
SQUARES, ROOT = "delta_p_squared", "rms_delta_p"
CONTROLS = (ITSELF, HALF_PRECISION, ATTENTION)
# sums that can't be negative, and how many times the number of tokens they may reach
_LARGEST = {
    "kl": math.inf,
    "kl_reverse": math.inf,
    "js": math.log(2),
    SQUARES: 1.0,
    "same_top1": 1.0,
    "top1_in_top5": 1.0,
}
_ROUNDING = 1e-6
FloatArray = npt.NDArray[np.float64]


def analyse_divergence(table: Table, *, rng: np.random.Generator) -> dict[str, Any]:
    """Means, quantiles, controls and floor; documents are the unit.

    Columns: ``doc_id`` (or ``index``), ``num_tokens`` and sums by document: ``kl`` and any of the other sums
    of ``divergence_sums``. Optional: ``register``, ``group`` (joins near-duplicates), ``kl_max``, ``bins``
    with ``counts``, and ``comparison``, whose rows of controls and damage are read as the run stores them.
    """
    table = _named(table)
    table.require(["doc_id", "num_tokens", "kl"])
    parts = _comparisons(table)
    if PAIR not in parts:
        raise UserError(
            f"{table.name} has no rows of the pair",
            f"its comparisons are {', '.join(parts)}",
            f"Mark the pair's rows with `{PAIR}` in the column comparison, or leave the column out",
            code=2,
        )
    pair = parts[PAIR]
    registers = sorted(set(pair.labels("register", required=False).tolist()) - {"", ALL})
    result: dict[str, Any] = {
        "num_documents": pair.num_rows,
        "num_tokens": int(_tokens(pair).sum()),
        "registers": {},
    }
    for register in [ALL, *(registers if len(registers) > 1 else [])]:
        chosen = np.ones(pair.num_rows, np.bool_)
        if register != ALL:
            chosen = pair.labels("register", required=False) == register
        result["registers"][register] = _totals(pair.rows(chosen), rng)
    controls = {name: _means(parts[name], ["kl"], rng)["kl"] for name in CONTROLS if name in parts}
    if controls:
        result["controls"] = {name: as_data(value, units=NATS) for name, value in controls.items()}
    floor = _floor(parts, rng)
    if floor:
        result["floor"] = floor
    return result


def _named(table: Table) -> Table:
    """The table with a column ``doc_id``: a run's own tables have the document's index."""
    if table.has("doc_id") or not table.has("index"):
        return table
    return Table(table.name, {**table.columns, "doc_id": table.columns["index"]}, table.row_numbers)


def _comparisons(table: Table) -> dict[str, Table]:
    """Checked rows by comparison; without that column all are of the pair."""
    names = table.labels("comparison") if table.has("comparison") else np.full(table.num_rows, PAIR)
    parts = {}
    for name in dict.fromkeys(names.tolist()):
        part = table.rows(names == name)
        part.refuse_duplicates(["doc_id"])
        _check(part, name)
        parts[name] = part
    return parts


def _check(table: Table, comparison: str) -> None:
    """Raise UserError for sums that no pair of models can have."""
    table.labels("doc_id")
    tokens = _tokens(table)
    if not tokens.sum() > 0:
        what = f"{table.name} has no tokens of the comparison {comparison}"
        raise UserError(what, "nothing was compared", "Check the column num_tokens")
    for name in SUMS:
        if not table.has(name):
            continue
        sums = table.numbers(name, least=0.0 if name in _LARGEST else -math.inf)
        largest = _LARGEST.get(name, math.inf)
        most = np.full(len(tokens), largest) if math.isinf(largest) else largest * tokens
        wrong = (sums > most * (1 + _ROUNDING)) | ((tokens == 0) & (sums != 0))
        _refuse_rows(table, wrong, name, "is more than so many tokens can have", "num_tokens")
    if table.has("kl_max"):
        maxima, sums = table.numbers("kl_max", least=0.0), table.numbers("kl")
        wrong = (maxima > sums * (1 + _ROUNDING)) | (maxima * tokens < sums * (1 - _ROUNDING))
        _refuse_rows(table, wrong, "kl_max", "is not the largest of values with this sum", "kl")


def _refuse_rows(table: Table, wrong: npt.NDArray[np.bool_], column: str, why: str, other: str) -> None:
    rows = np.flatnonzero(wrong)
    if len(rows):
        numbers = table.row_numbers or range(1, table.num_rows + 1)
        raise UserError(
            f"{table.name}: row {numbers[int(rows[0])]}, column {column!r} {why}",
            "columns hold sums over the document's tokens, not means",
            f"Correct {column} or {other} in that row",
        )


def _tokens(table: Table) -> FloatArray:
    return table.numbers("num_tokens", least=0.0)


def _groups(table: Table) -> Any:
    return table.labels("group") if table.has("group") else None


def _means(table: Table, columns: list[str], rng: np.random.Generator) -> dict[str, Interval]:
    """Means over tokens, all from the same resamples of documents."""
    with_tokens = table.rows(_tokens(table) > 0)
    sums = np.stack([with_tokens.numbers(name) for name in columns], axis=1)
    tokens = np.repeat(_tokens(with_tokens)[:, None], len(columns), axis=1)
    intervals = loss_rates(sums, tokens, rng=rng, groups=_groups(with_tokens))
    return dict(zip(columns, intervals, strict=True))


def _totals(table: Table, rng: np.random.Generator) -> dict[str, Any]:
    """The quantities of the pair on some documents, by name; those without a column are left out."""
    sums = {name: column for name, (column, _) in MEANS.items() if table.has(column)}
    columns = [*sums.values(), *([SQUARES] if table.has(SQUARES) else [])]
    means = _means(table, columns, rng)
    result = {name: as_data(means[column], units=MEANS[name][1]) for name, column in sums.items()}
    if SQUARES in means:
        result[ROOT] = as_data(_root(means[SQUARES]), units="probability")
    result |= _quantiles(table)
    if table.has("kl_max"):
        largest = float(table.numbers("kl_max").max())
        num_tokens = int(_tokens(table).sum())
        result["kl_max"] = {**count(0, num_tokens, of="token"), "value": largest, "units": NATS}
    return result


def _root(square: Interval) -> Interval:
    """A mean square as its root, limits too; the root is monotone, so the interval keeps its level."""
    root = math.sqrt(square.value)
    slope = 1 / (2 * root) if root else math.nan
    lo, hi = (limit if math.isnan(limit) else math.sqrt(max(limit, 0.0)) for limit in (square.lo, square.hi))
    return replace(
        square, value=root, lo=lo, hi=hi,
        smallest_effect=square.smallest_effect * slope, standard_error=square.standard_error * slope,
    )  # fmt: skip


def _quantiles(table: Table) -> dict[str, Any]:
    """Quantiles of KL over tokens; nothing without the columns of bins and counts."""
    if not (table.has("bins") and table.has("counts")):
        return {}
    counts = np.zeros((table.num_rows, NUM_BINS), dtype=np.int64)
    bins_N, counts_N = _lists(table, "bins"), _lists(table, "counts")
    for row, (bins, numbers) in enumerate(zip(bins_N, counts_N, strict=True)):
        if len(bins) == len(numbers) and all(0 <= each < NUM_BINS for each in bins):
            np.add.at(counts[row], bins, numbers)
    tokens = _tokens(table)
    wrong = counts.sum(1) != tokens
    _refuse_rows(table, wrong, "counts", "does not add up to the document's tokens", "bins")
    return {
        name: as_data(quantile_interval(counts, share, groups=_groups(table)), units=NATS)
        for name, share in QUANTILES.items()
    }


def _lists(table: Table, column: str) -> list[list[int]]:
    """A column of lists of whole numbers; in a CSV they are written as in JSON."""
    numbers = table.row_numbers or range(1, table.num_rows + 1)
    lists = []
    for number, value in zip(numbers, table.columns[column], strict=True):
        try:
            items = json.loads(value) if isinstance(value, str) else value
            if not isinstance(items, list) or any(not isinstance(item, int) or item < 0 for item in items):
                raise ValueError  # noqa: TRY301 - both kinds of damage are told in one place
        except ValueError:
            raise UserError(
                f"{table.name}: row {number}, column {column!r} is no list of whole numbers",
                "quantiles need counts of tokens by bin",
                "Write it as [1, 2, 3], or leave out bins and counts",
            ) from None
        lists.append(items)
    return lists


def _floor(parts: Mapping[str, Table], rng: np.random.Generator) -> dict[str, Any]:
    """KL of the damage and of the pair on the same documents, and their ratio; empty without damage."""
    draws = [table for name, table in parts.items() if name.startswith(f"{DAMAGE}-")]
    if not draws or ON_FLOOR not in parts:
        return {}
    pair = parts[ON_FLOOR]
    ids = pair.labels("doc_id").tolist()
    aligned = []
    for draw in draws:
        row_of = {name: row for row, name in enumerate(draw.labels("doc_id").tolist())}
        if set(row_of) != set(ids):
            raise UserError(
                f"{draw.name}: the damage was not measured on the documents of {ON_FLOOR}",
                "their ratio is a comparison on the same documents",
                "Give the same doc_id in both",
            )
        aligned.append(draw.numbers("kl")[[row_of[name] for name in ids]])
    damage = np.mean(aligned, axis=0)
    tokens = _tokens(pair)
    sums = np.stack([damage, pair.numbers("kl")], axis=1)
    groups = _groups(pair)
    floor, on_floor = loss_rates(sums, np.stack([tokens, tokens], axis=1), rng=rng, groups=groups)
    (ratio,) = ratios_of_means(pair.numbers("kl"), damage, rng=rng, groups=groups)
    return {
        "num_draws": len(draws),
        "floor": as_data(floor, units=NATS),
        "on_floor": as_data(on_floor, units=NATS),
        "against_damage": as_data(ratio, units="ratio"),
    }
