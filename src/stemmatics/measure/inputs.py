"""Stored sums as arrays, matched by document, and ratios of them resampled together."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from stemmatics.core.facts import Fact
from stemmatics.core.results import Estimate
from stemmatics.math.rates import loss_rates
from stemmatics.measure.base import Tables
from stemmatics.measure.present import estimate_from

FloatArray = npt.NDArray[np.float64]
ALL = "all"


@dataclass(frozen=True)
class Scores:
    """One checkpoint's sums on one corpus, one row a document that was scored, in corpus order.

    Axes: N documents. ``group_N`` labels near-duplicates, which are resampled together. ``windows``
    is the rule, the size and the stride with which the documents were cut.
    """

    index_N: npt.NDArray[np.int64]
    doc_id_N: npt.NDArray[np.str_]
    nll_N: FloatArray
    num_tokens_N: FloatArray
    num_bytes_N: FloatArray
    register_N: npt.NDArray[np.str_]
    group_N: npt.NDArray[np.str_]
    token_ids: str
    prefix_id: int | None
    support: str
    windows: tuple[str, int, int]
    dtype: str

    def rows(self, register: str) -> npt.NDArray[np.bool_]:
        """Which documents belong to a register; ``all`` is every one."""
        if register == ALL:
            return np.ones(len(self.nll_N), dtype=bool)
        return np.asarray(self.register_N == register)

    def registers(self) -> list[str]:
        """``all`` first, then each register if there are several."""
        names = sorted(set(self.register_N.tolist()))
        return [ALL, *names] if len(names) > 1 else [ALL]


def read_scores(fact: Fact, tables: Tables) -> Scores:
    """Sums of a ``score`` fact with the registers and groups of its corpus."""
    scores = tables.read(fact, "scores")
    documents = tables.read(fact.needs["corpus"], "documents")
    said = tables.read(fact, "scoring").to_pylist()[0]
    documents = documents.take(pc.index_in(scores["index"], documents["index"]))
    # an empty document has its row in the tables, and no rate: it can't enter a resample
    kept = pc.greater(scores["num_tokens"], 0)
    scores, documents = scores.filter(kept), documents.filter(kept)
    return Scores(
        index_N=numbers(scores, "index").astype(np.int64),
        doc_id_N=names(scores, "doc_id"),
        nll_N=numbers(scores, "nll_sum"),
        num_tokens_N=numbers(scores, "num_tokens"),
        num_bytes_N=numbers(scores, "num_bytes"),
        register_N=names(documents, "register"),
        group_N=names(documents, "group"),
        token_ids=said["token_ids_sha256"],
        prefix_id=said["prefix_id"],
        support=str(fact.params["scoring"]["support"]),
        windows=(
            str(fact.params["scoring"]["windows"]["rule"]),
            int(said["window_size"]),
            int(said["window_stride"]),
        ),
        dtype=said["dtype"],
    )


def numbers(table: pa.Table, column: str) -> FloatArray:
    """A column as float64; nulls become NaN."""
    return np.asarray(table[column].to_numpy(zero_copy_only=False), dtype=np.float64)


def names(table: pa.Table, column: str) -> npt.NDArray[np.str_]:
    """A column as strings."""
    return np.array(table[column].to_pylist(), dtype=str)


def comparable_by_byte(first: Scores, second: Scores) -> str:
    """Why two scorings can't be compared in nats/byte, or the empty string.

    Defaults that follow the checkpoint (precision on a GPU, windows) may differ within one study.
    """
    if not np.array_equal(first.index_N, second.index_N) or not np.array_equal(
        first.num_bytes_N, second.num_bytes_N
    ):
        return "they did not score the same bytes in every document"
    if first.dtype != second.dtype:
        return (
            f"they were scored in different precision ({first.dtype} and {second.dtype}): set numerics.dtype"
        )
    # Windows that differ don't matter to documents that neither of them cuts.
    if not (_uncut(first) and _uncut(second)):
        if first.windows != second.windows:
            both = f"{_named(first.windows)} and {_named(second.windows)}"
            return f"their windows differ ({both}): set windows.size"
        if first.windows[0] != "bytes" and first.token_ids != second.token_ids:
            return "their tokens differ and so their windows cut at other places: set windows.rule to bytes"
    return ""


def _uncut(scores: Scores) -> bool:
    rule, size, _ = scores.windows
    lengths_N = scores.num_bytes_N if rule == "bytes" else scores.num_tokens_N
    return bool((lengths_N <= size).all())


def _named(windows: tuple[str, int, int]) -> str:
    rule, size, stride = windows
    return f"{size} {'bytes' if rule == 'bytes' else 'tokens'}, stride {stride}"


def comparable_by_token(first: Scores, second: Scores) -> str:
    """Why two scorings can't be compared in nats/token, or the empty string."""
    if first.token_ids != second.token_ids:
        return "their token ids differ"
    if first.prefix_id != second.prefix_id:
        return f"their prefixes differ (ids {first.prefix_id} and {second.prefix_id})"
    return comparable_by_byte(first, second)


def parts_of(fact: Fact, tables: Tables) -> dict[tuple[str, str], dict[str, Any]]:
    """Sums by axis and bin, as arrays over the documents that have any: see the table's schema."""
    table = tables.read(fact, "score_parts")
    axis, bin_ = names(table, "axis"), names(table, "bin")
    columns = {name: numbers(table, name) for name in ("index", "nll_sum", "num_tokens", "num_bytes")}
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for key in sorted(set(zip(axis.tolist(), bin_.tolist(), strict=True))):
        rows = (axis == key[0]) & (bin_ == key[1])
        found[key] = {name: values[rows] for name, values in columns.items()}
    return found


def spread(part: dict[str, Any], column: str, index_N: npt.NDArray[np.int64]) -> FloatArray:
    """One bin's sums laid out over all documents; 0 where a document has no token in the bin."""
    out = np.zeros(len(index_N))
    position = {int(index): place for place, index in enumerate(index_N)}
    for index, value in zip(part["index"], part[column], strict=True):
        place = position.get(int(index))
        if place is not None:
            out[place] = value
    return out


@dataclass
class _Problems:
    groups_N: npt.NDArray[np.str_]
    positions: list[int] = field(default_factory=list)
    numerators: list[FloatArray] = field(default_factory=list)
    denominators: list[FloatArray] = field(default_factory=list)


class Batch:
    """Collects ratios of sums; ``estimates`` makes all of them, in the order in which they were added.

    A rate is nats over bytes (or tokens); a paired difference is the difference of nats over the
    bytes that both scored, so it is a ratio of sums too.
    """

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        self._problems: dict[str, _Problems] = {}
        self._what: list[Mapping[str, Any]] = []

    def add(
        self,
        scores: Scores,
        rows: npt.NDArray[np.bool_],
        numerator_N: FloatArray,
        denominator_N: FloatArray,
        **what: Any,
    ) -> None:
        """One ratio over the documents ``rows`` of ``scores``; ``what`` is handed to ``estimate_from``."""
        index_N = scores.index_N[rows]
        groups_N = scores.group_N[rows]
        key = hashlib.sha256(index_N.tobytes() + "\0".join(groups_N.tolist()).encode()).hexdigest()
        problems = self._problems.setdefault(key, _Problems(groups_N))
        problems.positions.append(len(self._what))
        problems.numerators.append(numerator_N[rows])
        problems.denominators.append(denominator_N[rows])
        self._what.append(what)

    def estimates(self) -> list[Estimate]:
        """All of them."""
        found: dict[int, Estimate] = {}
        for problems in self._problems.values():
            intervals = loss_rates(
                _columns(problems.numerators),
                _columns(problems.denominators),
                rng=self._rng,
                groups=problems.groups_N,
            )
            for position, interval in zip(problems.positions, intervals, strict=True):
                found[position] = estimate_from(interval, **self._what[position])
        return [found[position] for position in range(len(self._what))]


def _columns(arrays: Sequence[FloatArray]) -> FloatArray:
    return np.stack(arrays, axis=1)
