"""Facts about damage of a pair's size: the noise on the base that costs as much as the descendant lost."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from stemmatics.core.errors import UserError
from stemmatics.core.facts import Fact
from stemmatics.core.scoring import Scoring
from stemmatics.facts.noise_scale import NOISE_SCALE, NOISE_SCALES
from stemmatics.lm.scoring.stored_pass import PassRequest
from stemmatics.probe.base import Context, Cost, FactOutput, Failed, each
from stemmatics.probe.costs import forward_cost, num_tokens
from stemmatics.probe.pairs import copy_of, refusal_of
from stemmatics.probe.passes import Reading, pass_over, report_pass
from stemmatics.probe.sources import encoded
from stemmatics.train.alter import MatrixNoise

# relative tolerance of the loss increase
TOLERANCE = 0.02
MAX_EVALUATIONS = 24
_FIRST_SCALE = 0.02


class NoScale(Exception):  # noqa: N818 - a result, kept in the store
    """Why no noise matches a pair's loss increase."""


class NoiseScale:
    """Scales the noise of ``alter`` until the base has lost as much as the descendant."""

    def group(self, fact: Fact) -> str:
        """Batching key: one load per base."""
        return fact.needs["base"].key

    def cost(self, fact: Fact) -> Cost:
        """A few documents, about ten times."""
        corpus = fact.needs["corpus"]
        share = min(1.0, fact.params["num_documents"] / max(1, corpus.params["num_documents"]))
        return forward_cost(fact.needs["base"], int(10 * num_tokens(corpus) * share))

    def run(self, facts: Sequence[Fact], context: Context) -> Iterator[FactOutput | Failed]:
        """One row a fact; the scale is 0 if the descendant lost nothing or ``failure`` gives a reason."""
        yield from each(facts, lambda fact: _output(fact, context))


def _stored(fact: Fact, **values: float | str) -> FactOutput:
    row = {name: values.get(name) for name in NOISE_SCALES.names}
    return FactOutput(fact, {"noise_scale": NOISE_SCALE.table("noise_scale", [row])})


def _output(fact: Fact, context: Context) -> FactOutput:
    if refusal_of(fact.needs["events"], context):
        return _stored(fact, scale=0.0, num_evaluations=0, failure="the pair can't be crossed")
    selected = _evenly_spaced(
        int(fact.needs["corpus"].params["num_documents"]), int(fact.params["num_documents"])
    )
    start, num_bytes = _loss_of(fact, "base", selected, context)
    target = _loss_of(fact, "descendant", selected, context)[0]
    if not (math.isfinite(start) and math.isfinite(target) and num_bytes):
        raise UserError(
            "the loss that a floor has to match is unknown",
            "it is not finite, or no byte was scored",
            "Name another text under `floor`",
        )
    scale, reached, count = 0.0, start, 0
    failure = "" if target > start else "the descendant's loss did not rise"
    if not failure:
        try:
            loss_at = _noised_loss(fact, selected, context)
            scale, reached, count = match_scale(loss_at, target, start, _first_scale(fact, context))
        except NoScale as error:
            failure = str(error)
    return _stored(
        fact,
        scale=scale,
        base_nll_sum=start,
        descendant_nll_sum=target,
        noised_nll_sum=reached,
        num_bytes=num_bytes,
        num_evaluations=count,
        failure=failure,
    )


def _first_scale(fact: Fact, context: Context) -> float:
    """Where the search starts: a further draw of the noise needs about the scale of the first."""
    if "first" not in fact.needs:
        return _FIRST_SCALE
    (row,) = context.ledger.read(fact.needs["first"].key, "noise_scale").to_pylist()
    return float(row["scale"]) or _FIRST_SCALE


def _reading(fact: Fact, role: str, selected: frozenset[int]) -> Reading:
    """Losses of the selected documents; a pass over all of them serves too."""
    scoring = Scoring.model_validate(fact.params["scoring"]).model_copy(update={"support": "full"})
    return Reading(
        fact.needs[role],
        fact.needs["corpus"],
        scoring,
        lambda _reader, _context: PassRequest(selected),
        merged=True,
    )


def _loss_of(fact: Fact, role: str, selected: frozenset[int], context: Context) -> tuple[float, int]:
    """Nats and bytes of the selected documents."""
    scores = list(pass_over(_reading(fact, role, selected), context).sums(documents=selected))
    return math.fsum(score.nll_sum for score in scores), sum(score.num_bytes for score in scores)


def _noised_loss(fact: Fact, selected: frozenset[int], context: Context) -> Callable[[float], float]:
    """The loss of a copy of the base at a scale of the noise."""
    reading = _reading(fact, "base", selected)
    reader = reading.reader(context)
    corpus = encoded(fact.needs["corpus"], reader.tokenizer, context)
    documents = [document for document in corpus.documents(reader.prefix_id) if document.index in selected]
    context.workspace.models.make_room(2 * reader.loaded.num_bytes, keep=1)
    noise = MatrixNoise(reader.loaded.model, fact.seed(context.seed))
    noised = replace(reader, loaded=copy_of(reader.loaded))

    def loss_at(scale: float) -> float:
        noise.put_on(noised.loaded.model, scale)
        started = time.monotonic()
        scores = list(noised.score_tokens(iter(documents)))
        num_tokens = sum(score.num_tokens for score in scores)
        report_pass(context, f"{reading.checkpoint.label}, damaged", reading.corpus, num_tokens, started)
        return math.fsum(score.nll_sum for score in scores)

    return loss_at


def _evenly_spaced(total: int, at_most: int) -> frozenset[int]:
    """Indices of documents spread over a corpus, which may be sorted by register."""
    num_documents = min(total, at_most)
    return frozenset(number * total // num_documents for number in range(num_documents))


def match_scale(
    loss_at: Callable[[float], float], target: float, start: float, first: float = _FIRST_SCALE
) -> tuple[float, float, int]:
    """The scale at which ``loss_at`` (rising from ``start`` at 0) meets ``target``.

    The search doubles the scale from ``first`` on, then bisects.

    Returns the scale, the loss there, and the number of evaluations.

    Raises:
        NoScale: the increase was not met within ``TOLERANCE`` of itself.
    """
    low, high, scale, tolerance = 0.0, math.inf, first, TOLERANCE * (target - start)
    for count in range(1, MAX_EVALUATIONS + 1):
        loss = loss_at(scale)
        if abs(loss - target) <= tolerance:
            return scale, loss, count
        if loss < target:
            low = scale
        else:
            high = scale
        scale = 2 * scale if math.isinf(high) else (low + high) / 2
    message = f"after {MAX_EVALUATIONS} tries no noise costs what the descendant lost, within {TOLERANCE:.0%}"
    raise NoScale(message)
