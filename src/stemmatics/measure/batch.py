"""Many ratios on the same documents, resampled together: one set of resamples, paired throughout."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from stemmatics.core.estimates import Estimate
from stemmatics.math.rates import loss_rates
from stemmatics.measure.base import estimate_from
from stemmatics.measure.scores import FloatArray, Scores


@dataclass
class _Problems:
    groups_N: npt.NDArray[np.str_]
    places: list[int] = field(default_factory=list)
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
        problems.places.append(len(self._what))
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
            for place, interval in zip(problems.places, intervals, strict=True):
                found[place] = estimate_from(interval, **self._what[place])
        return [found[place] for place in range(len(self._what))]


def _columns(arrays: Sequence[FloatArray]) -> FloatArray:
    return np.stack(arrays, axis=1)
