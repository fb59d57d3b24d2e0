"""A checkpoint over a corpus: tokens counted first, then scored.

Axes: V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stemmatics.core.numerics import Numerics
from stemmatics.core.scoring import Scoring
from stemmatics.lm.checkpoints.loading import Loaded
from stemmatics.lm.scoring.encoded import Counted, EncodedCorpus, tokenized
from stemmatics.lm.scoring.forward import score
from stemmatics.lm.scoring.sums import DocumentSums, TokenizedDocument, TokenScores
from stemmatics.lm.text.corpus import Document
from stemmatics.lm.tokens.tokenizer import TextTokenizer
from stemmatics.lm.tokens.windows import DEFAULT_SIZE, Cutter


@dataclass(frozen=True)
class Reader:
    """A loaded checkpoint with all that a scoring has to settle once."""

    loaded: Loaded
    tokenizer: TextTokenizer
    scoring: Scoring
    numerics: Numerics
    prefix_id: int | None
    prefix: str
    context_length: int

    @classmethod
    def of(cls, loaded: Loaded, scoring: Scoring, numerics: Numerics) -> Reader:
        """Settle prefix and context. Raises UserError where the policy can't be kept."""
        tokenizer = loaded.text_tokenizer
        prefix_id, prefix = tokenizer.prefix(scoring.prefix)
        context = loaded.context_length or DEFAULT_SIZE
        return cls(loaded, tokenizer, scoring, numerics, prefix_id, prefix, context)

    def cutter(self) -> Cutter:
        """The windows as they will be cut."""
        has_prefix = self.prefix_id is not None
        return Cutter.of(self.scoring.windows, context_length=self.context_length, has_prefix=has_prefix)

    def encode(self, documents: Iterable[Document]) -> EncodedCorpus:
        """Read and tokenise a corpus once, for counting and scoring."""
        return EncodedCorpus(self.tokenizer, documents)

    def count(self, documents: Iterable[Document]) -> Counted:
        """Hash and frequencies of the ids."""
        return self.encode(documents).counted(self.loaded.num_ids)

    def score(self, documents: Iterable[Document], **settings: Any) -> Iterator[DocumentSums]:
        """Sums of each document, in input order; settings as ``score_tokens`` takes them."""
        return self.score_tokens(tokenized(self.tokenizer, documents, self.prefix_id), **settings)

    def score_tokens(
        self,
        documents: Iterable[TokenizedDocument],
        *,
        support_V: NDArray[np.bool_] | None = None,
        frequencies_V: NDArray[np.int64] | None = None,
        want: Iterable[str] = ("nll",),
        token_sink: Callable[[TokenScores], None] | None = None,
        on_event: Callable[[Any], None] | None = None,
    ) -> Iterator[DocumentSums]:
        """The same of documents that are tokenised already."""
        yield from score(
            self.loaded.model,
            documents,
            self.scoring,
            self.numerics,
            prefix_id=self.prefix_id,
            context_length=self.context_length,
            support_mask=support_V,
            want=want,
            token_sink=token_sink,
            frequencies=frequencies_V,
            on_event=on_event,
        )
