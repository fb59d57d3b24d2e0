"""Facts about damage of a pair's size: which noise on the base costs as much as the descendant lost."""

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

# the loss increase is met to this share of itself
CLOSE = 0.02
MOST_EVALUATIONS = 24
_FIRST_SCALE = 0.02


class NoScale(Exception):  # noqa: N818 - an answer, kept in the store
    """Why no noise is a pair's floor."""


class NoiseScale:
    """Scales the noise of ``alter`` until the base has lost what the descendant lost."""

    def group(self, fact: Fact) -> str:
        """One load a base."""
        return fact.needs["base"].key

    def cost(self, fact: Fact) -> Cost:
        """A few documents, some ten times."""
        corpus = fact.needs["corpus"]
        share = min(1.0, fact.params["num_documents"] / max(1, corpus.params["num_documents"]))
        return forward_cost(fact.needs["base"], int(10 * num_tokens(corpus) * share))

    def run(self, facts: Sequence[Fact], context: Context) -> Iterator[Made | Failed]:
        """One row a fact; scale 0 where the descendant lost nothing, or where ``failure`` says why."""
        base = load_merged(facts[0].needs["base"], context)
        whole = {
            name: weight.detach().clone()
            for name, weight in base.model.named_parameters()
            if weight.ndim >= 2
        }
        yield from each(facts, lambda fact: _made(fact, base, whole, context))


def _stored(fact: Fact, **known: float | str) -> Made:
    row = {name: known.get(name) for name in NOISE_SCALES.names}
    return Made(fact, {"noise_scale": NOISE_SCALE.table("noise_scale", [row])})


def _made(fact: Fact, base: Loaded, whole: dict[str, torch.Tensor], context: Context) -> Made:
    if refusal_of(fact.needs["events"], context):
        return _stored(fact, scale=0.0, num_evaluations=0, failure="the pair can't be crossed")
    wanted = _spread(int(fact.needs["corpus"].params["num_documents"]), int(fact.params["num_documents"]))

    def loss_of(loaded: Loaded) -> tuple[float, int]:
        scoring = Scoring.model_validate(fact.params["scoring"]).model_copy(update={"support": "full"})
        chosen = (document for document in documents_of(fact.needs["corpus"])() if document.index in wanted)
        sums = list(Reader.of(loaded, scoring, context.numerics).score(chosen))
        return math.fsum(one.nll_sum for one in sums), sum(one.num_bytes for one in sums)

    def noised(scale: float) -> float:
        with torch.no_grad():
            for name, weight in base.model.named_parameters():
                if name in whole:
                    weight.copy_(whole[name])
        if scale:
            add_noise(base, scale, fact.seed(context.seed))
        return loss_of(base)[0]

    noised(0.0)
    start, num_bytes = loss_of(base)
    target = loss_of(load_merged(fact.needs["descendant"], context))[0]
    if not (math.isfinite(start) and math.isfinite(target) and num_bytes):
        raise UserError(
            "the loss that a floor is matched to is not known",
            "it is not finite, or no byte was scored",
            "Name another text under `floor`",
        )
    scale, reached, count = 0.0, start, 0
    failure = "" if target > start else "the descendant's loss did not rise"
    if not failure:
        try:
            scale, reached, count = match_scale(noised, target, start)
        except NoScale as missed:
            failure = str(missed)
        noised(0.0)
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


def _spread(total: int, at_most: int) -> frozenset[int]:
    """Documents taken evenly from a corpus: its registers may follow one another."""
    num_documents = min(total, at_most)
    return frozenset(place * total // num_documents for place in range(num_documents))


def match_scale(loss_at: Callable[[float], float], target: float, start: float) -> tuple[float, float, int]:
    """The scale at which ``loss_at`` (rising from ``start`` at 0) meets ``target``: doubling, then halving.

    Returns scale, the loss there, and how often the loss was taken.

    Raises:
        NoScale: the increase was not met to ``CLOSE`` of itself.
    """
    low, high, scale, near = 0.0, math.inf, _FIRST_SCALE, CLOSE * (target - start)
    for count in range(1, MOST_EVALUATIONS + 1):
        loss = loss_at(scale)
        if abs(loss - target) <= near:
            return scale, loss, count
        if loss < target:
            low = scale
        else:
            high = scale
        scale = 2 * scale if math.isinf(high) else (low + high) / 2
    message = f"after {MOST_EVALUATIONS} tries no noise costs what the descendant lost, to {CLOSE:.0%}"
    raise NoScale(message)
