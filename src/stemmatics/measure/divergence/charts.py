"""Charts of the measure `divergence`, one set per corpus."""

from __future__ import annotations

from stemmatics.core.content import Chart, Named
from stemmatics.core.results import Results
from stemmatics.measure.inputs import ALL
from stemmatics.measure.present import forest, interval_points


def charts(corpus: str, results: Results) -> list[Chart]:
    """Mean KL by register, and by class of token; a chart without a known value is left out."""
    by_register = interval_points(
        results.all("divergence.kl", corpus=corpus), "descendant", "base", "register"
    )
    where = interval_points(
        results.all("divergence.where", corpus=corpus, axis="token_class"), "descendant", "base", "bin"
    )
    drawn = []
    if by_register:
        drawn.append(
            Chart(
                f"divergence/by-register/{corpus}",
                Named("KL(base || descendant) on {corpus}, by register", corpus=corpus),
                f"A point is a mean over tokens with its interval over documents; {ALL} is every document.",
                forest(
                    by_register, title="nats/token", row="descendant", colour="register", tooltip=["base"]
                ),
            )
        )
    if where:
        drawn.append(
            Chart(
                f"divergence/where/{corpus}",
                Named("KL(base || descendant) on {corpus}, by class of token", corpus=corpus),
                "A point is the mean over the tokens of a class, with its interval over documents.",
                forest(where, title="nats/token", row="descendant", colour="bin", tooltip=["base"]),
            )
        )
    return drawn
