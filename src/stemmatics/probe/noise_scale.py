"""Facts about damage of a pair's size: the noise on the base that costs as much as the descendant lost."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import torch

from stemmatics.core.errors import UserError
from stemmatics.core.facts import Fact
from stemmatics.core.scoring import Scoring
from stemmatics.facts.noise_scale import NOISE_SCALE, NOISE_SCALES
from stemmatics.lm.checkpoints.loading import Loaded
from stemmatics.lm.scoring.passes import Reader
from stemmatics.probe.base import Context, Cost, Failed, Made, each
from stemmatics.probe.costs import forward_cost, num_tokens
from stemmatics.probe.pairs import add_noise, load_merged, refusal_of
from stemmatics.probe.sources import documents_of

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

    def run(self, facts: Sequence[Fact], context: Context) -> Iterator[Made | Failed]:
        """One row per fact; the scale is 0 if the descendant lost nothing or ``failure`` gives a reason."""
        base = load_merged(facts[0].needs["base"], context)
        weights = {
            name: weight.detach().clone()
            for name, weight in base.model.named_parameters()
            if weight.ndim >= 2
        }
        yield from each(facts, lambda fact: _made(fact, base, weights, context))


def _stored(fact: Fact, **values: float | str) -> Made:
    row = {name: values.get(name) for name in NOISE_SCALES.names}
    return Made(fact, {"noise_scale": NOISE_SCALE.table("noise_scale", [row])})


def _made(fact: Fact, base: Loaded, weights: dict[str, torch.Tensor], context: Context) -> Made:
    if refusal_of(fact.needs["events"], context):
        return _stored(fact, scale=0.0, num_evaluations=0, failure="the pair can't be crossed")
    selected = _evenly_spaced(
        int(fact.needs["corpus"].params["num_documents"]), int(fact.params["num_documents"])
    )

    def loss_of(loaded: Loaded) -> tuple[float, int]:
        scoring = Scoring.model_validate(fact.params["scoring"]).model_copy(update={"support": "full"})
        documents = (
            document for document in documents_of(fact.needs["corpus"])() if document.index in selected
        )
        scores = list(Reader.of(loaded, scoring, context.numerics).score(documents))
        return math.fsum(score.nll_sum for score in scores), sum(score.num_bytes for score in scores)

    def noised_loss(scale: float) -> float:
        with torch.no_grad():
            for name, weight in base.model.named_parameters():
                if name in weights:
                    weight.copy_(weights[name])
        if scale:
            add_noise(base, scale, fact.seed(context.seed))
        return loss_of(base)[0]

    noised_loss(0.0)
    start, num_bytes = loss_of(base)
    target = loss_of(load_merged(fact.needs["descendant"], context))[0]
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
            scale, reached, count = match_scale(noised_loss, target, start)
        except NoScale as error:
            failure = str(error)
        noised_loss(0.0)
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


def _evenly_spaced(total: int, at_most: int) -> frozenset[int]:
    """Indices of documents spread over a corpus, which may be sorted by register."""
    num_documents = min(total, at_most)
    return frozenset(number * total // num_documents for number in range(num_documents))


def match_scale(loss_at: Callable[[float], float], target: float, start: float) -> tuple[float, float, int]:
    """The scale at which ``loss_at`` (rising from ``start`` at 0) meets ``target``: doubling, then bisection.

    Returns the scale, the loss there, and the number of evaluations.

    Raises:
        NoScale: the increase was not met within ``TOLERANCE`` of itself.
    """
    low, high, scale, tolerance = 0.0, math.inf, _FIRST_SCALE, TOLERANCE * (target - start)
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
