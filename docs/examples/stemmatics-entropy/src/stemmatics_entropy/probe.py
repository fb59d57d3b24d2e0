"""Makes entropy facts: one pass of the checkpoint over the corpus."""

from collections.abc import Iterator, Sequence

from stemmatics.plugin import (
    Context,
    Cost,
    Fact,
    FactOutput,
    Failed,
    Reader,
    Scoring,
    documents_of,
    each,
    forward_cost,
    load_checkpoint,
    num_tokens,
)
from stemmatics_entropy.facts import ENTROPY


class Entropy:
    """Sums of the entropy of the next token."""

    def group(self, fact: Fact) -> str:
        """Batching key: facts with equal keys share one model load."""
        return fact.needs["checkpoint"].key

    def cost(self, fact: Fact) -> Cost:
        """The corpus through the checkpoint once."""
        return forward_cost(fact.needs["checkpoint"], num_tokens(fact.needs["corpus"]))

    def run(self, facts: Sequence[Fact], context: Context) -> Iterator[FactOutput | Failed]:
        """One row a document."""
        loaded = load_checkpoint(facts[0].needs["checkpoint"], context)

        def make(fact: Fact) -> FactOutput:
            reader = Reader.of(loaded, Scoring.model_validate(fact.params["scoring"]), context.numerics)
            rows = []

            def add(scores):
                any_scored = scores.scored.any()  # an empty document has nothing
                entropy = scores.extra["entropy"][scores.scored].sum(dtype="float64") if any_scored else 0.0
                rows.append(
                    {
                        "index": scores.document.index,
                        "entropy_sum": float(entropy),
                        "num_tokens": int(scores.scored.sum()),
                    }
                )

            for _ in reader.score(
                documents_of(fact.needs["corpus"])(), want=("nll", "entropy"), token_sink=add
            ):
                pass
            rows.sort(key=lambda row: row["index"])
            return FactOutput(fact, {"entropy_sums": ENTROPY.table("entropy_sums", rows)})

        yield from each(facts, make)
