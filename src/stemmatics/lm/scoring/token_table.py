"""A table with a row per token. It contains the text, so it is never written to a run folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from stemmatics.core.errors import UserError
from stemmatics.lm.scoring.sums import TokenScores

SCHEMA = pa.schema(
    [
        ("document", pa.int64()),
        ("doc_id", pa.string()),
        ("position", pa.int64()),
        ("start", pa.int64()),
        ("end", pa.int64()),
        ("id", pa.int64()),
        ("log_probability", pa.float64()),
        ("entropy", pa.float64()),
        ("top_1", pa.int64()),
    ]
)


class TokenTable:
    """Writes tokens as they are scored, one row group per document.

    ``start`` and ``end`` are bytes of the document; tokens that were not scored (the first one
    without a prefix) have null values.
    """

    def __init__(self, writer: pq.ParquetWriter) -> None:
        self._writer = writer

    def __call__(self, scores: TokenScores) -> None:
        """Add one document."""
        document, hidden = scores.document, ~scores.scored
        num_tokens = len(document.ids)
        if not num_tokens:
            return
        columns = {
            "document": np.full(num_tokens, document.index),
            "doc_id": [document.doc_id] * num_tokens,
            "position": np.arange(num_tokens),
            "start": document.starts,
            "end": document.ends,
            "id": document.ids,
            "log_probability": pa.array(scores.log_probability, mask=hidden),
        }
        for name, kind in (("entropy", np.float64), ("top_1", np.int64)):
            # A document without a scored token was not run, so it has no such values.
            values = scores.extra.get(name, np.zeros(num_tokens))
            columns[name] = pa.array(values.astype(kind), mask=hidden)
        self._writer.write_table(pa.table(columns, schema=SCHEMA))

    @classmethod
    @contextmanager
    def maybe(cls, path: Path | None) -> Iterator[TokenTable | None]:
        """A table at ``path``, written atomically; None without a path.

        Raises UserError for a path inside a run folder.
        """
        if path is None:
            yield None
            return
        inside = next(
            (folder for folder in path.resolve().parents if (folder / "manifest.json").is_file()), None
        )
        if inside is not None:
            raise UserError(
                f"{path} is in the run folder {inside}",
                "the token table contains the text, and run folders are shared",
                "Choose a path outside",
                code=2,
            )
        part = path.with_name(f"{path.name}.part")
        try:
            with pq.ParquetWriter(part, SCHEMA, compression="zstd") as writer:
                yield cls(writer)
            part.replace(path)
        except OSError as error:
            raise UserError(f"{path} can't be written", str(error), "Choose an existing folder") from error
        finally:
            part.unlink(missing_ok=True)
