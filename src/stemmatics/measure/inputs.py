"""Stored sums as arrays matched by document, whether two scorings are comparable, and ratios of sums."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

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
    """One checkpoint's sums on one corpus, one row per scored document, in corpus order.

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
        """Mask of the documents of a register; ``all`` selects every document."""
        if register == ALL:
            return np.ones(len(self.nll_N), dtype=bool)
        return np.asarray(self.register_N == register)

    def registers(self) -> list[str]:
        """``all`` first, then each register if there are several.

        A document without a register has ``all`` in the place of its name: it counts in the total alone. A
        corpus's own register of that name is stored under another one.
        """
        names = set(self.register_N.tolist())
        return [ALL, *sorted(names - {ALL})] if len(names) > 1 else [ALL]


def read_scores(fact: Fact, tables: Tables) -> Scores:
    """Sums of a ``score`` fact with the registers and groups of its corpus; empty documents left out."""
    scores = tables.read(fact, "scores")
    documents = tables.read(fact.needs["corpus"], "documents")
    metadata = tables.read(fact, "scoring").to_pylist()[0]
    documents = documents.take(pc.index_in(scores["index"], documents["index"]))
    # an empty document has a row in the tables but no rate, so it cannot be resampled
    not_empty = pc.greater(scores["num_tokens"], 0)
    scores, documents = scores.filter(not_empty), documents.filter(not_empty)
    return Scores(
        index_N=numbers(scores, "index").astype(np.int64),
        doc_id_N=names(scores, "doc_id"),
        nll_N=numbers(scores, "nll_sum"),
        num_tokens_N=numbers(scores, "num_tokens"),
        num_bytes_N=numbers(scores, "num_bytes"),
        register_N=names(documents, "register"),
        group_N=names(documents, "group"),
        token_ids=metadata["token_ids_sha256"],
        prefix_id=metadata["prefix_id"],
        support=str(fact.params["scoring"]["support"]),
        windows=(
            str(fact.params["scoring"]["windows"]["rule"]),
            int(metadata["window_size"]),
            int(metadata["window_stride"]),
        ),
        dtype=metadata["dtype"],
    )


def numbers(table: pa.Table, column: str) -> FloatArray:
    """A column as float64; nulls become NaN."""
    return np.asarray(table[column].to_numpy(zero_copy_only=False), dtype=np.float64)


def names(table: pa.Table, column: str) -> npt.NDArray[np.str_]:
    """A column as strings."""
    return np.array(table[column].to_pylist(), dtype=str)


@dataclass(frozen=True)
class Mismatch:
    """Why two scorings cannot be compared, and the setting that makes them comparable."""

    reason: str
    fix: str = ""

    @property
    def text(self) -> str:
        """Reason and fix as one line."""
        return f"{self.reason}: {self.fix}" if self.fix else self.reason


def byte_mismatch(first: Scores, second: Scores) -> Mismatch | None:
    """Why two scorings cannot be compared in nats/byte; None if they can.

    Defaults that follow the checkpoint (precision on a GPU, windows) may differ within one study.
    """
    if not np.array_equal(first.index_N, second.index_N) or not np.array_equal(
        first.num_bytes_N, second.num_bytes_N
    ):
        return Mismatch(
            "they did not score the same bytes in every document",
            "set scoring.prefix to always, so that every model scores the first byte",
        )
    if first.dtype != second.dtype:
        return Mismatch(
            f"they were scored in different precision ({first.dtype} and {second.dtype})",
            "set numerics.dtype",
        )
    # different windows do not matter where neither of them cuts a document
    if _is_uncut(first) and _is_uncut(second):
        return None
    if first.windows != second.windows:
        both = f"{_window_text(first.windows)} and {_window_text(second.windows)}"
        return Mismatch(f"their windows differ ({both})", "set scoring.windows.size")
    if first.windows[0] != "bytes" and first.token_ids != second.token_ids:
        return Mismatch(
            "their tokens differ, so their windows cut at different places",
            "set scoring.windows.rule to bytes",
        )
    return None


def token_mismatch(first: Scores, second: Scores) -> Mismatch | None:
    """Why two scorings cannot be compared in nats/token; None if they can."""
    if first.token_ids != second.token_ids:
        return Mismatch("their token ids differ")
    if first.prefix_id != second.prefix_id:
        return Mismatch(f"their prefixes differ (ids {first.prefix_id} and {second.prefix_id})")
    return byte_mismatch(first, second)


def comparable_by_byte(first: Scores, second: Scores) -> str:
    """:func:`byte_mismatch` as text; the empty string if the two are comparable."""
    mismatch = byte_mismatch(first, second)
    return "" if mismatch is None else mismatch.text


def comparable_by_token(first: Scores, second: Scores) -> str:
    """:func:`token_mismatch` as text; the empty string if the two are comparable."""
    mismatch = token_mismatch(first, second)
    return "" if mismatch is None else mismatch.text


def _is_uncut(scores: Scores) -> bool:
    rule, size, _ = scores.windows
    lengths_N = scores.num_bytes_N if rule == "bytes" else scores.num_tokens_N
    return bool((lengths_N <= size).all())


def _window_text(windows: tuple[str, int, int]) -> str:
    rule, size, stride = windows
    return f"{size} {'bytes' if rule == 'bytes' else 'tokens'}, stride {stride}"


def parts_of(fact: Fact, tables: Tables) -> dict[tuple[str, str], dict[str, Any]]:
    """Sums of a ``score`` fact by axis and bin, in the order of :func:`bin_order`.

    Each value has the columns ``index``, ``nll_sum``, ``num_tokens`` and ``num_bytes`` as arrays over
    the documents that have a token in the bin.
    """
    table = tables.read(fact, "score_parts")
    axis_R, bin_R = names(table, "axis"), names(table, "bin")
    columns = {name: numbers(table, name) for name in ("index", "nll_sum", "num_tokens", "num_bytes")}
    parts: dict[tuple[str, str], dict[str, Any]] = {}
    for axis, bin_name in sorted(set(zip(axis_R.tolist(), bin_R.tolist(), strict=True)), key=bin_order):
        rows_R = (axis_R == axis) & (bin_R == bin_name)
        parts[axis, bin_name] = {name: values_R[rows_R] for name, values_R in columns.items()}
    return parts


def bin_order(axis_and_bin: tuple[str, str]) -> tuple[str, int, str]:
    """Sort key of bins: by axis, then by the number that a bin starts with (64-255 before 1024-4095)."""
    axis, bin_name = axis_and_bin
    number = re.match(r"\d+", bin_name)
    return axis, int(number[0]) if number else 0, bin_name


def spread(part: Mapping[str, Any], column: str, index_N: npt.NDArray[np.int64]) -> FloatArray:
    """One bin's sums over all documents; 0 where a document has no token in the bin."""
    spread_N = np.zeros(len(index_N))
    position_of = {int(index): position for position, index in enumerate(index_N)}
    for index, value in zip(part["index"], part[column], strict=True):
        position = position_of.get(int(index))
        if position is not None:
            spread_N[position] = value
    return spread_N


class Documents(Protocol):
    """Documents of one corpus: their indices, and the labels of near-duplicates."""

    @property
    def index_N(self) -> npt.NDArray[np.int64]:  # noqa: N802 - named with its axis
        """Index of each document."""
        ...

    @property
    def group_N(self) -> npt.NDArray[np.str_]:  # noqa: N802
        """Group of each document."""
        ...


@dataclass
class _Ratios:
    """Ratios on the same documents, which share their resamples."""

    groups_N: npt.NDArray[np.str_]
    positions: list[int] = field(default_factory=list)
    numerators: list[FloatArray] = field(default_factory=list)
    denominators: list[FloatArray] = field(default_factory=list)


class Batch:
    """Collects ratios of sums; ``estimates`` computes them together, in the order of ``add``.

    A rate is nats over bytes (or tokens); a paired difference is the difference of nats over the
    bytes that both scored, so it is a ratio of sums too.
    """

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        self._ratios: dict[str, _Ratios] = {}
        self._labels: list[Mapping[str, Any]] = []

    def add(
        self,
        scores: Documents,
        rows: npt.NDArray[np.bool_],
        numerator_N: FloatArray,
        denominator_N: FloatArray,
        **labels: Any,
    ) -> None:
        """One ratio over the documents ``rows`` of ``scores``; ``labels`` are those of ``estimate_from``."""
        index_N = scores.index_N[rows]
        groups_N = scores.group_N[rows]
        key = hashlib.sha256(index_N.tobytes() + "\0".join(groups_N.tolist()).encode()).hexdigest()
        ratios = self._ratios.setdefault(key, _Ratios(groups_N))
        ratios.positions.append(len(self._labels))
        ratios.numerators.append(numerator_N[rows])
        ratios.denominators.append(denominator_N[rows])
        self._labels.append(labels)

    def estimates(self) -> list[Estimate]:
        """All of them."""
        by_position: dict[int, Estimate] = {}
        for ratios in self._ratios.values():
            intervals = loss_rates(
                _columns(ratios.numerators),
                _columns(ratios.denominators),
                rng=self._rng,
                groups=ratios.groups_N,
            )
            for position, interval in zip(ratios.positions, intervals, strict=True):
                by_position[position] = estimate_from(interval, **self._labels[position])
        return [by_position[position] for position in range(len(self._labels))]


def _columns(arrays: Sequence[FloatArray]) -> FloatArray:
    return np.stack(arrays, axis=1)
