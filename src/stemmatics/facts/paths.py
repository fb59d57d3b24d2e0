"""A base's own greedy path read by all four cells: losses of its tokens, and events chosen by three cells."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import pyarrow as pa

from stemmatics.core.facts import Fact, FactKind, FactParams, Tag
from stemmatics.facts.cross import CELLS

# the event's two tokens follow from three cells, and the fourth measures it
THREE_CELLS = "three_cells"
NLL_COLUMNS = tuple(f"nll_{cell}" for cell in CELLS)
# one row a prompt. Losses are of the path's tokens, in nats, each cell read by its late stack's own norm and
# head. ``fourth_by_sum`` and ``sum_by_sum`` fit the temperature of the fourth cell: see math/three_cells.py
PATH_ROWS = pa.schema(
    [
        ("index", pa.int64()),
        ("item_id", pa.string()),
        ("category", pa.string()),
        ("outcome", pa.string()),
        ("num_tokens", pa.int64()),
        *((name, pa.float64()) for name in NLL_COLUMNS),
        ("fourth_by_sum", pa.float64()),
        ("sum_by_sum", pa.float64()),
    ]
)
# margins in logits at the main boundary: one row an event, readout and support (three cells, or the first
# disagreement)
PATH_CELLS = pa.schema(
    [
        ("event", pa.int64()),
        ("index", pa.int64()),
        ("support", pa.string()),
        ("readout", pa.string()),
        *((name, pa.float64()) for name in CELLS),
        ("distance", pa.float64()),
    ]
)
# one row a pair: how it was cut, its identity check, whether a chat template rendered the prompts, or why
# there is nothing
PATH_SUMMARY = pa.schema(
    [
        ("num_layers", pa.int64()),
        ("main_boundary", pa.int64()),
        ("identity_error", pa.float64()),
        ("num_layer_evaluations", pa.int64()),
        ("num_rendered", pa.int64()),
        ("refusal", pa.string()),
    ]
)


class PathsParams(FactParams):
    """Which prompts, how far the base continues them, and where the stacks may be cut."""

    left_out_if_none: ClassVar[frozenset[str]] = frozenset({"opening_tokens"})

    boundaries: Literal["default", "profile"] | list[int]
    max_prompts: int
    max_new_tokens: int
    numerics: dict[str, Any]
    opening_tokens: int | None = None


PATHS = FactKind(
    "paths",
    1,
    PathsParams,
    {"paths": PATH_ROWS, "path_cells": PATH_CELLS, "path_summary": PATH_SUMMARY},
    artifact="private",
)


def paths_fact(
    params: PathsParams, models: dict[str, Fact], corpus: Fact, *, label: str, tag: Tag = "main"
) -> Fact:
    """Paths of ``models`` (``base``, and ``descendant`` or ``noise``) on the prompts of a corpus."""
    return PATHS.make(params, {**models, "corpus": corpus}, label=label, tag=tag)
