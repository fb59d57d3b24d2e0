"""The sentences of the recovery section, and the reasons not to trust a number of it."""

from __future__ import annotations

from collections.abc import Sequence

from stemmatics.core.results import Claim, Estimate, Results, Sentence
from stemmatics.core.stages import recipe_name
from stemmatics.math.recovery.offsets import FLAGGED
from stemmatics.math.recovery.verdict import UNDETERMINED
from stemmatics.measure.present import COUNT, PLAIN, SHARE, claim, interval_claims, known, pair_of
from stemmatics.measure.recovery.losses import POOL_COUNTS
from stemmatics.measure.recovery.needs import Arms
from stemmatics.measure.recovery.settings import NAME

_LIMITS = (
    "The residual is an upper bound on damage. That of a pair is shown beside its loss and never subtracted "
    "from it. It holds for this pool and this recipe only; the verdicts also depend on the recall items. A "
    "loss over all text is no meter of facts: a fine-tune can take most of it back while recall stays lost."
)
_CORRELATION = "{:.2f}"
_P_VALUE = "{:.2g}"


def sentences(arms: Arms, results: Results) -> list[Sentence]:
    """Summary, pairs, trajectories and flags of each corpus; then what the residuals hold for."""
    prose: list[Sentence] = []
    for corpus in arms.corpora:
        here = results.about(corpus=corpus)
        prose += [*_largest_residual(corpus, here), *_verdict_counts(here), *_agreement(here)]
        prose += [_pair(residual, here) for residual in here.all("recovery.residual")]
        prose += [*_dose(here), *_flagged(here)]
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
    """The largest of several, where it is told from 0; one pair alone has no largest."""
    residuals = [residual for residual in here.all("recovery.residual") if residual.is_known]
    counts = here.all("recovery.verdicts")
    if len(residuals) < 2 or not counts:
        return []
    largest = max(residuals, key=lambda residual: residual.value)
    if not largest.lo > 0:
        return []
    drop = here.only("recovery.drop", **pair_of(largest))
    text = (
        "The largest of {total} residuals on {corpus} is that of {descendant}: {value} nats/byte [{lo}, "
        "{hi}]; the largest of several tends to be too large."
    )
    values: dict[str, Claim | str] = {
        "total": claim(counts[0], "{}", "n"),
        "descendant": largest.subject["descendant"],
        "corpus": corpus,
        **interval_claims(largest),
    }
    if drop.lo > 0:
        text += " The fine-tune lowered its loss by {drop} [{drop_lo}, {drop_hi}]."
        values |= interval_claims(drop, PLAIN, "drop")
    return [Sentence(text, values)]


def _verdict_counts(here: Results) -> list[Sentence]:
    counts = here.all("recovery.verdicts")
    if not counts:
        return []
    total = claim(counts[0], "{}", "n")
    if all(count.value == 0 for count in counts if count.subject["verdict"] != UNDETERMINED):
        text = (
            "Whether training changed the register or made a model forget is undetermined for {total} of "
            "{total} descendants; the summary says what is missing."
        )
        return [Sentence(text, {"total": total}, topic=NAME)]
    return [
        Sentence(
            "Of {total} descendants, as far as the recall items tell, {forgetting} forgot (recall is lost "
            "and the residual stands), {register} changed in register (recall is kept and a fine-tune takes "
            "the gap back), {both} did both, and {undetermined} are undetermined.",
            {"total": total, **{count.subject["verdict"]: claim(count, COUNT) for count in counts}},
        )
    ]


def _agreement(here: Results) -> list[Sentence]:
    rho = here.find("recovery.order.spearman")
    if rho is None or not rho.is_known:
        return []
    values: dict[str, Claim | str] = {
        **interval_claims(rho, _CORRELATION),
        "reversed": claim(here.only("recovery.reversals"), COUNT),
        "clear": claim(here.only("recovery.reversals.clear"), COUNT),
    }
    return [
        Sentence(
            "The order by loss as released and the order after the fine-tune have Spearman's rho "
            "{value} [{lo}, {hi}]; {reversed} pairs of checkpoints are in the opposite order, {clear} of "
            "them by more than noise on both sides. `stemma ladder RUN` prints the order.",
            values,
        )
    ]


def _pair(residual: Estimate, here: Results) -> Sentence:
    """The residual in words; where the interval includes 0, with the minimum detectable effect.

    Without repeated fine-tunes the interval is of documents alone, and the sentence says so: other runs may
    scatter by more than it.
    """
    values: dict[str, Claim | str] = {
        **interval_claims(residual),
        **pair_of(residual),
        "unit": residual.unit,
    }
    runs = here.find("recovery.residual.runs", **pair_of(residual))
    once = runs is None or not runs.is_known
    after = "after one fine-tune of each" if once else "after both were fine-tuned"
    if residual.lo > 0:
        text = f"{{descendant}} is {{value}} nats/byte [{{lo}}, {{hi}}] above {{base}} {after}"
    elif residual.hi < 0:
        text = f"{{descendant}} is below {{base}} {after}: {{value}} nats/byte [{{lo}}, {{hi}}]"
    elif known(residual.lo):
        text = (
            f"{{descendant}} cannot be distinguished from {{base}} {after}: {{value}} nats/byte "
            "[{lo}, {hi}]; the minimum detectable effect ({power} power) is {effect}"
        )
        values |= {"power": "80%", "effect": claim(residual, PLAIN, "smallest_effect")}
    else:
        text = "The residual of {descendant} against {base} is {value}; its interval is unknown"
    text += " (by {unit})"
    if once and known(residual.lo):
        text += ", and how far other runs scatter is not known"
    verdict = here.category("recovery.verdict", **pair_of(residual))
    if verdict is None or verdict.value == UNDETERMINED:
        return Sentence(f"{text}.", values, topic=NAME)
    return Sentence(f"{text}: {{verdict}}.", {**values, "verdict": claim(verdict)}, topic=NAME)


def _dose(here: Results) -> list[Sentence]:
    """The trend along a trajectory: a change only where the whole interval is on one side of 0."""
    trends = []
    for slope in here.all("recovery.dose"):
        trajectory = slope.subject["trajectory"]
        p_value, smallest = (
            here.only(f"recovery.dose.{name}", trajectory=trajectory) for name in ("p", "smallest_p")
        )
        values: dict[str, Claim | str] = {
            "trajectory": trajectory,
            **interval_claims(slope),
            "unit": slope.unit,
            "p": claim(p_value, _P_VALUE),
            "smallest": claim(smallest, _P_VALUE),
        }
        if slope.lo > 0 or slope.hi < 0:
            text = "Along {trajectory} the residual changes by {value} nats/byte per checkpoint [{lo}, {hi}]"
        elif known(slope.lo):
            text = (
                "Along {trajectory} no trend of the residual is shown: {value} nats/byte per checkpoint "
                "[{lo}, {hi}]"
            )
        else:
            text = (
                "Along {trajectory} the slope of the residual is {value} nats/byte per checkpoint; its "
                "interval is unknown"
            )
        text += (
            " (by {unit}). Kendall's test of the order gives p = {p}; the smallest p possible here is "
            "{smallest}."
        )
        trends.append(Sentence(text, values, topic=NAME))
    return trends


def _flagged(here: Results) -> list[Sentence]:
    """Models of unknown base whose drop is that of distilled releases."""
    sentences = []
    for flag in here.categories("recovery.distilled.flag"):
        if flag.value != FLAGGED:
            continue
        drop = here.only("recovery.distilled.drop", checkpoint=flag.subject["checkpoint"])
        numbers = {
            name: claim(here.only(f"recovery.distilled.{name}"), form)
            for name, form in (("threshold", PLAIN), ("sensitivity", SHARE), ("specificity", SHARE))
        }
        sentences.append(
            Sentence(
                "The fine-tune lowered the loss of {checkpoint} by {value} [{lo}, {hi}], more than the "
                "threshold of {threshold} above which known releases were distilled (sensitivity "
                "{sensitivity}, specificity {specificity} on left-out families).",
                {
                    "checkpoint": flag.subject["checkpoint"],
                    **interval_claims(drop, PLAIN),
                    **numbers,
                },
                topic=NAME,
            )
        )
    return sentences


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
