"""Control facts: what an n-gram trained on the same tokens makes of the corpus."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stemmatics.core.facts import Fact
from stemmatics.facts.ngram import NGRAM
from stemmatics.lm.scoring.sums import DocumentSums
from stemmatics.lm.text.corpus import Document
from stemmatics.lm.tokens.tokenizer import TextTokenizer
from stemmatics.math.ngram import KneserNey
from stemmatics.probe.base import Context, FactOutput, NoModel
from stemmatics.probe.score import score_row
from stemmatics.probe.sources import documents_of, records_of, text_tokenizer_of


class Ngram(NoModel):
    """Interpolated Kneser-Ney in the tokens of a checkpoint."""

    def run(self, facts: Sequence[Fact], context: Context) -> Iterator[FactOutput]:
        """Sums of every document, as if a model had scored it with a prefix."""
        for fact in facts:
            tokenizer = text_tokenizer_of(fact.needs["checkpoint"], context)
            texts = (str(record["text"]) for record in records_of(fact.needs["training"])())
            sequences = [tokenizer.encode(text).ids for text in texts]
            model = KneserNey.fit(sequences, len(tokenizer.hf), order=fact.params["order"])
            rows = [
                score_row(_sums(model, tokenizer, document))
                for document in documents_of(fact.needs["corpus"])()
            ]
            yield FactOutput(fact, {"scores": NGRAM.table("scores", rows)})


def _sums(model: KneserNey, tokenizer: TextTokenizer, document: Document) -> DocumentSums:
    ids = tokenizer.encode(document.text).ids
    return DocumentSums(
        index=document.index,
        doc_id=document.doc_id,
        nll_sum=float(-model.log_probs(ids).sum()),
        num_tokens=len(ids),
        num_bytes=len(document.text.encode()),
    )
