"""What the recovery measure says: sentences and tables; the figures are in ``recovery_charts``."""

from __future__ import annotations

from collections.abc import Sequence

from stemmatics.core.content import Table
from stemmatics.core.results import Claim, Estimate, Sentence
from stemmatics.core.stages import recipe_name
from stemmatics.measure.base import Findings
from stemmatics.measure.present import known
from stemmatics.measure.recovery.charts import charts
from stemmatics.measure.recovery.more_tables import other_tables
from stemmatics.measure.recovery.needs import Arms
from stemmatics.measure.recovery.select import SIGNED, Estimates, claim, of, one_of
from stemmatics.measure.recovery.tables import (
    ladder_table,
    recall_table,
    resolution_table,
    summary_table,
    uncertainty_table,
)

TOPIC = "recovery"


def findings(arms: Arms, estimates: Estimates) -> Findings:
    """One set of sentences, tables and figures a corpus."""
    sentences: list[Sentence] = []
    tables: list[Table] = []
    figures = []
    failures: list[str] = []
    for corpus in arms.corpora:
        mine = {name: one for name, one in estimates.items() if one.subject.get("corpus") == corpus}
        sentences += _summary(corpus, mine)
        sentences += [_pair(one, mine) for one in of(mine, "residual")]
        sentences += _dose(mine)
        tables += [
            summary_table(corpus, mine),
            ladder_table(corpus, mine),
            resolution_table(corpus, mine),
            uncertainty_table(corpus, mine),
            *other_tables(corpus, mine),
        ]
        figures += charts(corpus, mine)
        failures += _failures(mine)
    tables.append(recall_table(estimates))
    sentences += [_recipe(arms), Sentence(_LIMITS, topic=TOPIC)]
    return Findings(sentences, [table for table in tables if table.rows], figures, failures)


_LIMITS = (
    "The residual is an upper bound on damage and is shown beside a loss, never subtracted from it. It "
    "holds for this pool and this recipe; the verdicts also rest on the items that were asked."
)


def _recipe(arms: Arms) -> Sentence:
    settings = arms.settings
    pool = str(arms.pinned.pins.corpora[settings.pool]["content_sha256"])
    return Sentence(
        "The arms were fine-tuned on {pool} under the recipe {name}, whose hash is {hash}; arms under "
        "another hash do not compare with them.",
        {
            "pool": settings.pool,
            "name": recipe_name(settings.recipe),
            "hash": settings.recipe.hash(pool)[:16],
        },
        topic=TOPIC,
    )


def _summary(corpus: str, mine: Estimates) -> list[Sentence]:
    residuals = [one for one in of(mine, "residual") if known(one.value)]
    found = []
    if residuals:
        worst = max(residuals, key=lambda one: one.value)
        drop = one_of(mine, "drop", **_pair_of(worst))
        found.append(
            Sentence(
                "After the same fine-tune, {descendant} stays furthest above its base on {corpus}: "
                "residual {value} nats/byte [{lo}, {hi}]. The fine-tune took {drop} [{drop_lo}, {drop_hi}] "
                "off it.",
                {
                    "descendant": worst.subject["descendant"],
                    "corpus": corpus,
                    **_ends(worst),
                    "drop": claim(drop, SIGNED),
                    "drop_lo": claim(drop, SIGNED, "lo"),
                    "drop_hi": claim(drop, SIGNED, "hi"),
                },
            )
        )
    counts = {one.subject["verdict"]: claim(one, "{:.0f}") for one in of(mine, "verdicts")}
    if counts:
        total = of(mine, "verdicts")[0]
        found.append(
            Sentence(
                "Of {total} descendants that were asked what they recall, {forgetting} forgot, {register} "
                "only left the register, {both} did both, and {undetermined} are undetermined.",
                {"total": claim(total, "{}", "n"), **counts},
            )
        )
    return found + _order(mine)


def _order(mine: Estimates) -> list[Sentence]:
    orders = of(mine, "order.spearman")
    if not orders:
        return []
    rho = orders[0]
    return [
        Sentence(
            "The order by native loss and the order after the fine-tune agree with Spearman's rho "
            "{value} [{lo}, {hi}]; {reversed} pairs of checkpoints change places. `stemma ladder RUN` "
            "prints the order.",
            {
                "value": claim(rho, "{:.2f}"),
                "lo": claim(rho, "{:.2f}", "lo"),
                "hi": claim(rho, "{:.2f}", "hi"),
                "reversed": claim(of(mine, "reversals")[0], "{:.0f}"),
            },
        )
    ]


def _pair_of(one: Estimate) -> dict[str, str]:
    return {side: one.subject[side] for side in ("base", "descendant")}


def _ends(one: Estimate, form: str = SIGNED) -> dict[str, Claim | str]:
    return {field: claim(one, form, field) for field in ("value", "lo", "hi")}


def _pair(one: Estimate, mine: Estimates) -> Sentence:
    """The residual in words, with the least that would have been seen where nothing was."""
    told = [v.subject["verdict"] for v in of(mine, "verdict", **_pair_of(one))]
    places: dict[str, Claim | str] = {
        **_ends(one),
        **_pair_of(one),
        "unit": one.unit,
        "least": claim(one, "{:.4f}", "smallest_effect"),
        "verdict": told[0] if told else "",
    }
    if one.lo > 0:
        text = "{descendant} is {value} nats/byte [{lo}, {hi}] above {base} when both have been fine-tuned"
    elif one.hi < 0:
        text = "{descendant} ends below {base} when both have been fine-tuned: {value} nats/byte [{lo}, {hi}]"
    elif known(one.lo):
        text = (
            "{descendant} can't be told from {base} when both have been fine-tuned: {value} nats/byte "
            "[{lo}, {hi}]; a residual of {least} would have been seen"
        )
    else:
        text = "the residual of {descendant} against {base} is {value}, its interval unknown"
    text += " (by {unit})"
    return Sentence(text + (": {verdict}." if told else "."), places, topic=TOPIC)


def _dose(mine: Estimates) -> list[Sentence]:
    found = []
    for one in of(mine, "dose"):
        subject = {"trajectory": one.subject["trajectory"]}
        p, smallest = (one_of(mine, f"dose.{name}", **subject) for name in ("p", "smallest_p"))
        found.append(
            Sentence(
                "Along {trajectory} the residual changes by {value} nats/byte a checkpoint [{lo}, {hi}] (by "
                "{unit}); Kendall's test of the order has p {p}, and could not reach below {smallest}.",
                {
                    **subject,
                    **_ends(one),
                    "unit": one.unit,
                    "p": claim(p, "{:.2g}"),
                    "smallest": claim(smallest, "{:.2g}"),
                },
                topic=TOPIC,
            )
        )
    return found


def _failures(mine: Estimates) -> list[str]:
    """Reasons not to trust a number of this section."""
    said: list[str] = []
    shared: Sequence[tuple[str, str]] = (
        ("pool.shared_documents", "documents"),
        ("pool.shared_ngrams", "runs of words"),
    )
    for quantity, what in shared:
        said += [
            f"the pool {one.subject['pool']} shares {what} with {one.subject['corpus']}"
            for one in of(mine, quantity)
            if one.value > 0
        ]
    said += [f"{one.subject['checkpoint']}: {one.note}" for one in of(mine, "refused")]
    return said
