"""`stemma analyse recovery`: how well recovered losses separate bases, from a table of losses."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from stemmatics.commands.analyse.numbers import as_data, count
from stemmatics.commands.analyse.placements import (
    coverage,
    flag_data,
    known_pairs,
    learned_flag,
    origins,
    placements,
    without_base,
)
from stemmatics.commands.analyse.table import Table
from stemmatics.core.errors import UserError
from stemmatics.math.intervals import Interval
from stemmatics.math.ranks import spearman_interval
from stemmatics.math.recovery import (
    PUBLISHED_HALF_WIDTHS,
    Calibration,
    DistillationFlag,
    Origin,
    Pairs,
    Resolution,
    calibration,
    pairs_of,
    resolution,
    size_slope,
    size_slope_by_family,
)
from stemmatics.math.sums import nats_from_bits

LABELS = ("corpus", "unit", "family", "base", "descendant")
LOSSES = ("native_base", "matched_base", "native", "recovered")
UNITS = ("nats_per_byte", "bits_per_byte")
NATS = "nats/byte"
# half widths that others published, nats/byte, by kind of comparison
PUBLISHED = {
    "two bases, both re-based": PUBLISHED_HALF_WIDTHS["re-based"],
    "two releases of one pipeline": PUBLISHED_HALF_WIDTHS["one pipeline"],
    "descendants of different labs, base unknown, ordinary": PUBLISHED_HALF_WIDTHS["ordinary"],
    "descendants of different labs, base unknown, possibly distilled": PUBLISHED_HALF_WIDTHS["distilled"],
}


def analyse_recovery(table: Table, *, rng: np.random.Generator) -> dict[str, Any]:
    """Each corpus of the table by itself, then pairs of corpora, then rows whose base is unknown.

    Losses are returned in nats/byte. A row without ``matched_base`` is a descendant of unknown base: its
    ``placements`` use the offsets of the other rows of its corpus.
    """
    unplaced = without_base(table)
    # a table of descendants alone needs no more of them than where they are from
    alone = unplaced.size > 0 and bool(unplaced.all())
    table.require(["corpus", "unit", "descendant", "recovered"] if alone else [*LABELS, *LOSSES])
    known, unknown = table.rows(~unplaced), table.rows(unplaced)
    if known.num_rows:
        known.refuse_duplicates(["corpus", "base", "descendant"])
    unknown.refuse_duplicates(["corpus", "descendant"])
    pairs_on, origins_on = _pairs_by_corpus(known)
    corpora: dict[str, Any] = {}
    calibrations: dict[str, Calibration] = {}
    flags: dict[str, DistillationFlag] = {}
    for corpus, pairs in pairs_on.items():
        origins = origins_on[corpus]
        calibrations[corpus], flag = known_pairs(pairs, origins), learned_flag(pairs, origins)
        corpora[corpus] = _corpus(pairs, rng) | {"coverage": coverage(calibrations[corpus])}
        if flag is not None:
            flags[corpus] = flag
            corpora[corpus]["distillation_flag"] = flag_data(flag)
        if known.has("parameters"):
            corpora[corpus]["size"] = _size(pairs, known.rows(known.labels("corpus") == corpus), rng)
    placed = []
    for corpus in dict.fromkeys(unknown.labels("corpus").tolist()):
        own_rows = unknown.rows(unknown.labels("corpus") == corpus)
        losses = {
            "recovered": _in_nats(own_rows, "recovered"),
            "native": _in_nats(own_rows, "native", required=False),
            "recovered_half_width": _in_nats(own_rows, "recovered_half_width", required=False),
        }
        none = calibration([], [])
        placed += placements(corpus, own_rows, losses, calibrations.get(corpus, none), flags.get(corpus))
    across = _across(pairs_on, rng)
    return {"corpora": corpora, "across_corpora": across, "placements": placed}


def _pairs_by_corpus(known: Table) -> tuple[dict[str, Pairs], dict[str, list[Origin]]]:
    """The pairs of each corpus, and where each descendant comes from."""
    pairs_on: dict[str, Pairs] = {}
    origins_on: dict[str, list[Origin]] = {}
    if not known.num_rows:
        return pairs_on, origins_on
    labels = {name: known.labels(name) for name in LABELS}
    losses = {name: _in_nats(known, name) for name in LOSSES}
    if known.has("parameters"):
        known.numbers("parameters")
    for corpus in dict.fromkeys(labels["corpus"].tolist()):
        rows = labels["corpus"] == corpus
        try:
            pairs_on[corpus] = pairs_of(
                family=labels["family"][rows].tolist(),
                base=labels["base"][rows].tolist(),
                descendant=labels["descendant"][rows].tolist(),
                native_base=losses["native_base"][rows],
                matched_base=losses["matched_base"][rows],
                native=losses["native"][rows],
                recovered=losses["recovered"][rows],
            )
        except UserError as error:
            raise UserError(f"{known.name}, corpus {corpus}: {error.what}", error.why, error.fix) from None
        origins_on[corpus] = origins(known.rows(rows))
    return pairs_on, origins_on


def _in_nats(table: Table, column: str, *, required: bool = True) -> Any:
    """A column of losses in nats/byte, by each row's unit."""
    units = table.labels("unit")
    for row, unit in enumerate(units.tolist(), start=1):
        if unit not in UNITS:
            number = row if table.row_numbers is None else table.row_numbers[row - 1]
            raise UserError(
                f"{table.name}: row {number} has the unit {unit!r}",
                "a loss in an unknown unit can't be compared",
                f"Write {' or '.join(UNITS)}",
            )
    losses = table.numbers(column, least=0.0, required=required)
    return np.where(units == "bits_per_byte", nats_from_bits(losses), losses)


def _corpus(pairs: Pairs, rng: np.random.Generator) -> dict[str, Any]:
    resolved = resolution(pairs, rng=rng)
    return {
        "num_pairs": resolved.num_pairs,
        "num_bases": len(resolved.bases),
        "num_families": resolved.num_families,
        "mean_residual": as_data(resolved.mean_residual, units=NATS),
        "offset": as_data(resolved.offset, units=NATS),
        "delta95": as_data(resolved.delta95, units=NATS),
        "lofo90": as_data(resolved.lofo90, units=NATS),
        "misorder": [
            {"lo": band.lo, "hi": band.hi, "misordered": band.num_misordered, "pairs": band.num_pairs}
            | {"share": as_data(band.share)}
            for band in resolved.misorder
        ],
        "spearman_recovered_matched": as_data(resolved.spearman_recovered_matched),
        "spearman_native_matched": as_data(resolved.spearman_native_matched),
        "sibling_spread": _siblings(resolved),
        "rank_reversals": _reversals(resolved),
        "kendall_native_rebased": as_data(resolved.kendall_native_rebased),
        "spearman_native_rebased": as_data(resolved.spearman_native_rebased),
        "uncertainty": _uncertainty(resolved),
        "pairs": _rows(pairs),
    }


def _siblings(resolved: Resolution) -> dict[str, Any]:
    """The mean range over bases with its interval, and the range of each base."""
    bases = [
        {"base": base, "value": spread, "num_descendants": number}
        for base, (spread, number) in resolved.siblings.items()
    ]
    data = as_data(resolved.sibling_spread, units=NATS)
    if not bases:
        data["note"] = "no base has two descendants"
    largest = max((spread for spread, _ in resolved.siblings.values()), default=None)
    return data | {"largest": largest, "bases": bases}


def _reversals(resolved: Resolution) -> dict[str, Any]:
    """Pairs of bases in opposite order by native and by re-based loss."""
    num_bases = len(resolved.bases)
    listed = [
        {
            "lower_native": resolved.bases[reversal.lower],
            "lower_rebased": resolved.bases[reversal.higher],
            "native_gap": reversal.first_gap,
            "rebased_gap": reversal.second_gap,
        }
        for reversal in resolved.reversals
    ]
    return count(len(listed), num_bases * (num_bases - 1) // 2, of="pair of bases") | {"pairs": listed}


def _uncertainty(resolved: Resolution) -> list[dict[str, Any]]:
    """Half widths of 95% of the differences, by kind of comparison; from this table or published."""

    def measured(comparison: str, interval: Interval) -> dict[str, Any]:
        return {"comparison": comparison, "source": "this table"} | as_data(interval, units=NATS)

    rows = [
        measured("a base and its estimate from a descendant, offset taken off (lofo95)", resolved.lofo95),
        measured("descendants of different bases (delta95)", resolved.delta95),
    ]
    defaults: list[dict[str, Any]] = [
        {"comparison": comparison, "source": "published default", "value": value, "units": NATS}
        | {"lo": None, "hi": None, "n": 0, "method": "published default", "note": "not from this table"}
        for comparison, value in PUBLISHED.items()
    ]
    return rows + defaults


def _rows(pairs: Pairs) -> list[dict[str, Any]]:
    """Differences of each pair in nats/byte, straight from the table."""
    return [
        {
            "family": str(pairs.family_N[i]),
            "base": str(pairs.base_N[i]),
            "descendant": str(pairs.descendant_N[i]),
            "residual": float(pairs.residuals[i]),
            "drop": float(pairs.drops[i]),
            "rebase_shift": float(pairs.rebase_shifts[i]),
        }
        for i in range(pairs.base_N.size)
    ]


def _size(pairs: Pairs, rows: Table, rng: np.random.Generator) -> dict[str, Any]:
    """Residual per tenfold parameters, over all pairs and within each pipeline."""
    sizes = rows.numbers("parameters")
    pipelines = rows.labels("pipeline", required=False)
    units = "nats/byte per tenfold parameters"
    overall = size_slope_by_family(pairs.residuals, sizes, pairs.family_N, rng=rng)
    slopes: dict[str, Any] = {"overall": as_data(overall, units=units), "pipelines": {}}
    for name in np.unique(pipelines[pipelines != ""]):
        in_pipeline = pipelines == name
        slope = size_slope(pairs.residuals[in_pipeline], sizes[in_pipeline])
        slopes["pipelines"][str(name)] = as_data(slope, units=units)
    return slopes


def _across(pairs_on: dict[str, Pairs], rng: np.random.Generator) -> list[dict[str, Any]]:
    """Rank correlation of the residuals on two corpora, over the pairs that both have."""
    rows = []
    for (name, pairs), (other_name, other) in itertools.combinations(pairs_on.items(), 2):
        index, other_index = (
            {(str(p.base_N[i]), str(p.descendant_N[i])): i for i in range(p.base_N.size)}
            for p in (pairs, other)
        )
        shared = [key for key in index if key in other_index]
        here, there = ([positions[key] for key in shared] for positions in (index, other_index))
        agree = spearman_interval(
            pairs.residuals[here],
            other.residuals[there],
            pairs.family_N[here],
            rng=rng,
            num_resamples=2000,
        )
        row = {"corpora": [name, other_name], "num_pairs": len(shared)}
        rows.append(row | {"spearman_of_residuals": as_data(agree)})
    return rows
