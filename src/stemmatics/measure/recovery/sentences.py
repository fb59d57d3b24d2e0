"""The sentences of the recovery section, and the reasons not to trust a number of it."""

from __future__ import annotations

from collections.abc import Sequence

from stemmatics.core.results import Claim, Estimate, Results, Sentence
from stemmatics.core.stages import recipe_name
from stemmatics.measure.present import COUNT, PLAIN, claim, interval_claims, known, pair_of
from stemmatics.measure.recovery.losses import POOL_COUNTS
from stemmatics.measure.recovery.needs import Arms
from stemmatics.measure.recovery.settings import NAME

_LIMITS = (
    "The residual is an upper bound on damage. It is shown beside a loss and never subtracted from it. It "
    "holds for this pool and this recipe only; the verdicts also depend on the recall items."
)
_CORRELATION = "{:.2f}"
_P_VALUE = "{:.2g}"


def sentences(arms: Arms, results: Results) -> list[Sentence]:
    """Summary, pairs and trajectories of each corpus; then what the residuals hold for."""
    prose: list[Sentence] = []
    for corpus in arms.corpora:
        here = results.about(corpus=corpus)
        prose += [*_largest_residual(corpus, here), *_verdict_counts(here), *_agreement(here)]
        prose += [_pair(residual, here) for residual in here.all("recovery.residual")]
        prose += _dose(here)
    return [*prose, _recipe(arms), Sentence(_LIMITS, topic=NAME)]


def _recipe(arms: Arms) -> Sentence:
    settings = arms.settings
    pool = str(arms.pinned.pins.corpora[settings.pool]["content_sha256"])
    return Sentence(
        "The arms were fine-tuned on {pool} with the recipe {name} (hash {hash}). They are not comparable "
        "with arms under another hash.",
        {
            "pool": settings.pool,
            "name": recipe_name(settings.recipe),
            "hash": settings.recipe.hash(pool)[:16],
        },
        topic=NAME,
    )


def _largest_residual(corpus: str, here: Results) -> list[Sentence]:
    residuals = [residual for residual in here.all("recovery.residual") if residual.is_known]
    if not residuals:
        return []
    largest = max(residuals, key=lambda residual: residual.value)
    drop = here.only("recovery.drop", **pair_of(largest))
    return [
        Sentence(
            "On {corpus}, {descendant} has the largest residual after the same fine-tune as its base: "
            "{value} nats/byte [{lo}, {hi}]. The fine-tune lowered its loss by {drop} [{drop_lo}, "
            "{drop_hi}].",
            {
                "descendant": largest.subject["descendant"],
                "corpus": corpus,
                **interval_claims(largest),
                **interval_claims(drop, PLAIN, "drop"),
            },
        )
    ]


def _verdict_counts(here: Results) -> list[Sentence]:
    counts = here.all("recovery.verdicts")
    if not counts:
        return []
    return [
        Sentence(
            "Of {total} descendants tested on recall items, {forgetting} forgot, {register} changed only in "
            "register, {both} did both, and {undetermined} are undetermined.",
            {
                "total": claim(counts[0], "{}", "n"),
                **{count.subject["verdict"]: claim(count, COUNT) for count in counts},
            },
        )
    ]


def _agreement(here: Results) -> list[Sentence]:
    rho = here.find("recovery.order.spearman")
    if rho is None:
        return []
    return [
        Sentence(
            "The order by loss as released and the order after the fine-tune have Spearman's rho "
            "{value} [{lo}, {hi}]; {reversed} pairs of checkpoints are in the opposite order. `stemma ladder "
            "RUN` prints the order.",
            {
                **interval_claims(rho, _CORRELATION),
                "reversed": claim(here.only("recovery.reversals"), COUNT),
            },
        )
    ]


def _pair(residual: Estimate, here: Results) -> Sentence:
    """The residual in words; where the interval holds 0, with the minimum detectable effect."""
    values: dict[str, Claim | str] = {
        **interval_claims(residual),
        **pair_of(residual),
        "unit": residual.unit,
    }
    if residual.lo > 0:
        text = "{descendant} is {value} nats/byte [{lo}, {hi}] above {base} after both were fine-tuned"
    elif residual.hi < 0:
        text = "{descendant} is below {base} after both were fine-tuned: {value} nats/byte [{lo}, {hi}]"
    elif known(residual.lo):
        text = (
            "{descendant} cannot be distinguished from {base} after both were fine-tuned: {value} nats/byte "
            "[{lo}, {hi}]; the minimum detectable effect ({power} power) is {effect}"
        )
        values |= {"power": "80%", "effect": claim(residual, PLAIN, "smallest_effect")}
    else:
        text = "The residual of {descendant} against {base} is {value}; its interval is unknown"
    text += " (by {unit})"
    verdict = here.category("recovery.verdict", **pair_of(residual))
    if verdict is None:
        return Sentence(f"{text}.", values, topic=NAME)
    return Sentence(f"{text}: {{verdict}}.", {**values, "verdict": claim(verdict)}, topic=NAME)


def _dose(here: Results) -> list[Sentence]:
    trends = []
    for slope in here.all("recovery.dose"):
        trajectory = slope.subject["trajectory"]
        p_value, smallest = (
            here.only(f"recovery.dose.{name}", trajectory=trajectory) for name in ("p", "smallest_p")
        )
        trends.append(
            Sentence(
                "Along {trajectory} the residual changes by {value} nats/byte per checkpoint [{lo}, {hi}] "
                "(by {unit}). Kendall's test of the order gives p = {p}; the smallest p possible here is "
                "{smallest}.",
                {
                    "trajectory": trajectory,
                    **interval_claims(slope),
                    "unit": slope.unit,
                    "p": claim(p_value, _P_VALUE),
                    "smallest": claim(smallest, _P_VALUE),
                },
                topic=NAME,
            )
        )
    return trends


def failures(corpora: Sequence[str], results: Results) -> list[str]:
    """Reasons not to trust a number of this section, corpus by corpus."""
    reasons: list[str] = []
    for corpus in corpora:
        here = results.about(corpus=corpus)
        for name in ("shared_documents", "shared_ngrams"):
            reasons += [
                f"the pool {count.subject['pool']} shares {POOL_COUNTS[name]} with {corpus}"
                for count in here.all(f"recovery.pool.{name}")
                if count.value > 0
            ]
        reasons += [
            f"{refusal.subject['checkpoint']}: {refusal.text}"
            for refusal in here.refusals("recovery.refused")
        ]
    return reasons
