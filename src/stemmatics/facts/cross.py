"""Both late stacks on both earlier states at every event: margins of the four cells."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import pyarrow as pa

from stemmatics.core.facts import Fact, FactKind, FactParams, Tag

# earlier state first, late stack second
CELLS = ("base_base", "base_desc", "desc_base", "desc_desc")
# whose final norm and head read the cells; rows are stored for two, ``own`` takes each late stack's own
DESCENDANT, BASE, OWN = "descendant", "base", "own"
STORED_READOUTS = (DESCENDANT, BASE)
READOUTS = (*STORED_READOUTS, OWN)
# which state stands in for the descendant's: its own, or a control
MAIN_ARM = "main"
PERMUTED_ARM = "permuted"
# one row an event, boundary, readout and arm: margins of the four cells in logits; whether the top token is
# the base's, the descendant's or another; whether it changed
CELL_ROWS = pa.schema(
    [
        ("event", pa.int64()),
        ("index", pa.int64()),
        ("support", pa.string()),
        ("boundary", pa.int64()),
        ("readout", pa.string()),
        ("arm", pa.string()),
        *((name, pa.float64()) for name in CELLS),
        *((f"top_{name}", pa.string()) for name in CELLS),
        ("changed_after_base", pa.int64()),
        ("changed_after_desc", pa.int64()),
        ("distance", pa.float64()),
    ]
)
# one row a crossing: its stack, its identity check, what it was computed with, or why there is none
CROSSING = pa.schema(
    [
        ("num_layers", pa.int64()),
        ("num_events", pa.int64()),
        ("main_boundary", pa.int64()),
        ("identity_error", pa.float64()),
        ("num_layer_evaluations", pa.int64()),
        ("dtype", pa.string()),
        ("device", pa.string()),
        ("attention", pa.string()),
        ("refusal", pa.string()),
    ]
)


class CrossParams(FactParams):
    """Where the stacks are cut, and which controls run.

    ``permutations`` is the number of draws, one if left out; ``only_main`` leaves out all boundaries but
    the main one.
    """

    left_out_if_none: ClassVar[frozenset[str]] = frozenset({"permutations", "only_main"})

    boundaries: Literal["default", "profile"] | list[int]
    interpolate: list[float]
    permute: bool
    numerics: dict[str, Any]
    permutations: int | None = None
    only_main: bool | None = None


CROSS = FactKind("cross", 1, CrossParams, {"cells": CELL_ROWS, "crossing": CROSSING})


def interpolated_arm(weight: float) -> str:
    """The control arm with ``(1 - weight)`` of the base's state and ``weight`` of the descendant's."""
    return f"interpolated {weight:g}"


def permuted_arm(draw: int) -> str:
    """The control arm of one signed permutation, numbered from 1."""
    return PERMUTED_ARM if draw == 1 else f"{PERMUTED_ARM} {draw}"


def cross_fact(
    params: CrossParams, models: dict[str, Fact], events: Fact, *, label: str, tag: Tag = "main"
) -> Fact:
    """``models`` (``base``, and ``descendant`` or ``noise``) crossed at ``events``."""
    return CROSS.make(params, {**models, "events": events}, label=label, tag=tag)
