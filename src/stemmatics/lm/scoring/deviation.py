"""How far a lower precision changes the loss: the first documents are also scored in float32."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from stemmatics.core.errors import UserError
from stemmatics.core.numerics import Numerics
from stemmatics.lm.checkpoints.loading import device_of
from stemmatics.lm.scoring.passes import Reader
from stemmatics.lm.scoring.sums import DocumentSums
from stemmatics.lm.text.corpus import Document

# Enough for a mean within a few per cent, at a bounded cost.
NUM_DOCUMENTS = 8
MAX_TOKENS = 512


def float32_sums(
    reader_of: Callable[[Numerics], Reader],
    documents: Callable[[Reader], Iterable[Document]],
    numerics: Numerics,
    *,
    on_event: Callable[[dict[str, Any]], None],
) -> list[DocumentSums] | None:
    """`first_sums` in float32; None if that is the requested precision, or if it fails.

    It may not fit into memory; the deviation is then unknown, which is reported to ``on_event``.
    Problems of a text or a checkpoint are raised when it is scored as requested.
    """
    if numerics.dtype == "float32" or (numerics.dtype == "auto" and device_of(numerics).type == "cpu"):
        return None
    try:
        reader = reader_of(numerics.model_copy(update={"dtype": "float32"}))
        return first_sums(reader, documents(reader))
    except (MemoryError, RuntimeError, UserError):
        on_event({"kind": "warning", "flag": "dtype_deviation_unknown"})
        return None


def first_sums(reader: Reader, documents: Iterable[Document]) -> list[DocumentSums]:
    """Sums of the first documents, each cut at ``MAX_TOKENS``."""
    longest = min(reader.scoring.max_doc_tokens or MAX_TOKENS, MAX_TOKENS)
    cut = replace(reader, scoring=reader.scoring.model_copy(update={"max_doc_tokens": longest}))
    return list(cut.score(islice(documents, NUM_DOCUMENTS)))


def deviation(sums: Sequence[DocumentSums], exact: Sequence[DocumentSums]) -> float:
    """Nats/byte of ``sums`` minus nats/byte of ``exact``; NaN where no byte was scored."""
    num_bytes = sum(row.num_bytes for row in exact)
    difference = math.fsum(
        row.nll_sum - other.nll_sum for row, other in zip(sums, exact, strict=True) if other.num_bytes
    )
    return difference / num_bytes if num_bytes else math.nan
