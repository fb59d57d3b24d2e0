"""Control facts: the same loss by a plain loop over the model's own logits.

Nothing of the scoring engine is used but the windows, so that a fault there shows.

Axes: L positions of one window, V vocabulary.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from stemmatics.core.facts import Fact
from stemmatics.core.keys import seed_from
from stemmatics.core.scoring import Scoring
from stemmatics.facts.reference import REFERENCE
from stemmatics.lm.checkpoints.loading import Loaded
from stemmatics.lm.scoring.encoded import tokenized
from stemmatics.lm.scoring.passes import Reader
from stemmatics.lm.scoring.sums import DocumentSums, TokenizedDocument
from stemmatics.probe.base import Context, Cost, FactOutput, Failed, each
from stemmatics.probe.costs import forward_cost, num_tokens
from stemmatics.probe.passes import report_pass
from stemmatics.probe.score import score_row
from stemmatics.probe.sources import documents_of, load_checkpoint


class Reference:
    """One window at a time, whole logits, log-softmax in float64."""

    def group(self, fact: Fact) -> str:
        """One load a checkpoint."""
        return fact.needs["checkpoint"].key

    def cost(self, fact: Fact) -> Cost:
        """A few documents of the corpus."""
        corpus = fact.needs["corpus"]
        share = min(1.0, fact.params["num_documents"] / max(1, corpus.params["num_documents"]))
        return forward_cost(fact.needs["checkpoint"], int(num_tokens(corpus) * share))

    def run(self, facts: Sequence[Fact], context: Context) -> Iterator[FactOutput | Failed]:
        """Sums of the first documents of each corpus."""
        loaded = load_checkpoint(facts[0].needs["checkpoint"], context)
        yield from each(facts, lambda fact: _output(fact, loaded, context))


def _output(fact: Fact, loaded: Loaded, context: Context) -> FactOutput | Failed:
    scoring = Scoring.model_validate(fact.params["scoring"]).model_copy(update={"support": "full"})
    reader = Reader.of(loaded, scoring, context.numerics)
    first = itertools.islice(documents_of(fact.needs["corpus"])(), fact.params["num_documents"])
    change = planted_change(fact.params["planted"], loaded.num_ids)
    started = time.monotonic()
    rows = [
        score_row(plain_sums(reader, document, change))
        for document in tokenized(reader.tokenizer, first, reader.prefix_id)
    ]
    num_scored = sum(row["num_tokens"] for row in rows)
    report_pass(
        context, f"{fact.needs['checkpoint'].label}, control", fact.needs["corpus"], num_scored, started
    )
    broken = [row["index"] for row in rows if not math.isfinite(row["nll_sum"])]
    if broken:
        return Failed(fact, f"the loss of {len(broken)} documents is not finite (first: index {broken[0]})")
    return FactOutput(fact, {"scores": REFERENCE.table("scores", rows)})


def planted_change(planted: Mapping[str, Any] | None, num_ids: int) -> tuple[float, torch.Tensor | None]:
    """Factor and bias that make an altered checkpoint's logits out of its base's."""
    if planted is None:
        return 1.0, None
    if planted["change"] == "temperature":
        return float(planted["scale"]), None
    draw_V = np.random.default_rng(seed_from(int(planted["seed"]), "head.bias"))
    bias_V = draw_V.standard_normal(num_ids, dtype=np.float32) * np.float32(planted["scale"])
    return 1.0, torch.from_numpy(bias_V).double()


@torch.inference_mode()
def plain_sums(
    reader: Reader, document: TokenizedDocument, change: tuple[float, torch.Tensor | None]
) -> DocumentSums:
    """A document's sums, window by window."""
    limit = reader.scoring.max_doc_tokens
    if limit is not None:
        document = document.first_tokens(limit)
    factor, bias_V = change
    device = reader.loaded.model.device
    losses: list[float] = []
    num_bytes = 0
    for window in reader.cutter().cut(document.starts.tolist(), document.doc_id):
        fed = document.ids[window.start : window.stop - 1].tolist()
        if window.prefixed:
            fed = [reader.prefix_id, *fed]
        logits_LV = reader.loaded.model(torch.tensor([fed], device=device)).logits[0].double().cpu() * factor
        if bias_V is not None:
            logits_LV = logits_LV + bias_V
        log_probs_LV = torch.log_softmax(logits_LV, dim=-1)
        for index in range(window.first_scored, window.stop):
            if document.scored_mask is not None and not document.scored_mask[index]:
                continue
            position = index - window.start - 1 + window.prefixed
            losses.append(-log_probs_LV[position, int(document.ids[index])].item())
            num_bytes += int(document.ends[index] - document.starts[index])
    return DocumentSums(
        index=document.index,
        doc_id=document.doc_id,
        nll_sum=math.fsum(losses),
        num_tokens=len(losses),
        num_bytes=num_bytes,
    )
