"""The first screen of the measure `divergence`: a column."""

from __future__ import annotations

from stemmatics.core.content import CLEAR, NOT_MEASURED, UNCLEAR, Answer, Column
from stemmatics.core.results import Results
from stemmatics.measure.divergence.estimate import BEYOND, NAME, WITHIN
from stemmatics.measure.inputs import ALL
from stemmatics.measure.present import claim

_WORDS = {BEYOND: "moved", WITHIN: "precision only"}


def column(pairs: list[tuple[str, str]], corpus: str, results: Results) -> Column:
    """How far the predictions of every descendant moved."""
    answers = [_answer(corpus, base, name, results) for base, name in pairs]
    return Column(
        NAME,
        "predictions moved",
        "KL, nats/token",
        [answer for answer in answers if answer is not None],
        evidence=f"divergence/summary/{corpus}",
        bars=True,
    )


def _answer(corpus: str, base: str, descendant: str, results: Results) -> Answer | None:
    pair = {"base": base, "descendant": descendant, "corpus": corpus}
    refusal = results.refusal("divergence.kl", **pair)
    if refusal is not None:
        return Answer(base, descendant, NOT_MEASURED, mark=NOT_MEASURED, reason=refusal.text)
    mean = results.find("divergence.kl", register=ALL, **pair)
    if mean is None:
        return None
    verdict = results.category("divergence.verdict", register=ALL, **pair)
    word = None if verdict is None else _WORDS.get(verdict.value)
    return Answer(base, descendant, word or UNCLEAR, claim(mean, "{:.3g}"), CLEAR if word else UNCLEAR)
