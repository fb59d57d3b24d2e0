"""The tables of the recovery section, each named ``recovery/TABLE`` or ``recovery/TABLE/CORPUS``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stemmatics.core.content import Named, Table
from stemmatics.core.results import Estimate, Results
from stemmatics.measure.present import (
    COUNT,
    PLAIN,
    SHARE,
    SIGNED,
    WHOLE,
    claim,
    claim_if,
    pair_of,
    table,
    with_rows,
)
from stemmatics.measure.recovery.losses import POOL_COUNTS
from stemmatics.measure.recovery.recall import ARMS
from stemmatics.measure.recovery.uncertainty import (
    ANOTHER_CORPUS,
    ONE_PIPELINE,
    OTHER_LABS,
    OTHER_LABS_DISTILLED,
    OWN_BASE,
    TWO_BASES,
)

_SIGNED_SHARE = "{:+.3f}"
_CORRELATION = "{:.2f}"


def tables(corpora: Sequence[str], results: Results) -> list[Table]:
    """All that have rows: corpus by corpus, recall last."""
    every_table = []
    for corpus in corpora:
        here = results.about(corpus=corpus)
        every_table += [
            _summary(corpus, here),
            _ladder(corpus, here),
            _resolution(corpus, here),
            _uncertainty(corpus, here),
            _registers(corpus, here),
            _verdicts(corpus, here),
            _second_pool(corpus, here),
            _reversals(corpus, here),
            _agreement(corpus, here),
            _blind(corpus, here),
            _left_out(corpus, here),
            _pool(corpus, here),
            _read(corpus, here),
        ]
    return with_rows(*every_table, _recall(results))


def _summary(corpus: str, here: Results) -> Table:
    """One row a pair: what is left, what came off, what the fine-tune did to the base, and the verdict."""
    rows: list[list[Any]] = []
    for residual in here.all("recovery.residual"):
        pair = pair_of(residual)
        verdict = here.category("recovery.verdict", **pair)
        rows.append(
            [
                *pair.values(),
                claim(residual, SIGNED),
                claim_if(here.find("recovery.drop", **pair), SIGNED),
                claim_if(here.find("recovery.shift", **pair), SIGNED),
                claim_if(verdict),
                "" if verdict is None else verdict.reason,
            ]
        )
    columns = ["base", "descendant", "residual", "drop", "rebase shift", "verdict", "because"]
    note = (
        "In nats/byte. Residual: the recovered descendant less the matched base; its interval includes "
        "documents and repeated fine-tunes. Drop: how much the fine-tune lowered the descendant's loss; "
        "rebase shift: how much it lowered the base's. The verdict is about the whole text."
    )
    return table(
        f"recovery/summary/{corpus}", Named("Recovery on {corpus}", corpus=corpus), columns, rows, note
    )


_LADDER_NOTES = {
    "tied": "Checkpoints that share a letter cannot be distinguished.",
    "base, estimated": "Where the base is unknown, the rank is that of its estimated loss: re-based loss "
    "less an offset; ranks, ties and bars are about the base's loss on this text.",
    "on other text": "On other text: the same estimate as one of the base's loss on text like this.",
    "flag": "Flag: whether the drop is that of known distilled releases.",
    "base, borrowed": "Borrowed: with the offset of another recipe or text, for orientation only.",
}


def _ladder(corpus: str, here: Results) -> Table:
    """Models from the lowest loss up; columns that would be empty are left out."""
    rows = []
    for rank in sorted(here.all("recovery.rank"), key=lambda rank: rank.value):
        checkpoint = rank.subject["checkpoint"]
        rule = here.category("recovery.rule", checkpoint=checkpoint)
        flag = here.category("recovery.distilled.flag", checkpoint=checkpoint)
        rows.append(
            [
                claim(rank, COUNT),
                checkpoint,
                claim_if(here.find("recovery.native", checkpoint=checkpoint), PLAIN),
                claim_if(here.find("recovery.rebased", checkpoint=checkpoint), PLAIN),
                "" if (tie := here.category("recovery.tie", checkpoint=checkpoint)) is None else claim(tie),
                claim_if(here.find("recovery.estimated_base", checkpoint=checkpoint), PLAIN),
                claim_if(here.find("recovery.estimated_base.elsewhere", checkpoint=checkpoint), PLAIN),
                "" if rule is None else claim(rule),
                "" if rule is None else rule.reason,
                "" if flag is None else claim(flag),
                claim_if(here.find("recovery.borrowed", checkpoint=checkpoint), PLAIN),
            ]
        )
    columns = [
        "rank",
        "checkpoint",
        "native",
        "re-based",
        "tied",
        "base, estimated",
        "on other text",
        "offset from",
        "not used",
        "flag",
        "base, borrowed",
    ]
    filled = [column for column in range(len(columns)) if any(row[column] not in {None, ""} for row in rows)]
    notes = [
        "Lowest loss first, in nats/byte.",
        *(_LADDER_NOTES.get(columns[column], "") for column in filled),
    ]
    return table(
        f"recovery/ladder/{corpus}",
        Named("The ladder on {corpus}", corpus=corpus),
        [columns[column] for column in filled],
        [[row[column] for column in filled] for row in rows],
        " ".join(filter(None, notes)),
    )


def _recall(results: Results) -> Table:
    """Shares of items answered correctly by the four arms, and the change."""
    rows = []
    for change in results.all("recovery.recall.change"):
        pair = pair_of(change)
        shares = [claim_if(results.find("recovery.recall", arm=arm, **pair), SHARE) for arm in ARMS]
        rows.append(
            [
                *pair.values(),
                *shares,
                claim(change, _SIGNED_SHARE),
                claim_if(results.find("recovery.recall.lost", **pair), COUNT),
                claim_if(results.find("recovery.recall.lost_between_runs", **pair), COUNT),
                claim_if(results.find("recovery.recall.margin", **pair), SHARE),
                claim_if(results.find("recovery.recall.needed", **pair), COUNT),
            ]
        )
    columns = [
        "base",
        "descendant",
        *ARMS,
        "change",
        "lost",
        "lost between runs",
        "smallest passing margin",
        "needed",
    ]
    note = (
        "Shares of the items, after the first run of the fine-tune. Change: recovered less matched base. "
        "Lost between runs: items that the base itself loses from one run to the next. Smallest passing "
        "margin: the smallest margin within which the change would count as none. Needed: items that would "
        "show it within the margin that was asked for, if there is none."
    )
    return table("recovery/recall", "What the four arms recall", columns, rows, note)


_RESOLUTION = {
    "resolution.delta95": "95th percentile of the gap error",
    "resolution.lofo90": "90th percentile of the left-out offset error",
    "resolution.offset": "offset, mean over families",
    "resolution.mean_residual": "residual, mean over pairs",
    "resolution.sibling_spread": "range among descendants of one base, mean",
    "left_out.total": "pairs of descendants of different bases",
    "left_out.apart": "of these, distinguished by bars built without the family",
    "left_out.right": "of those, in the right order",
    "noise": "standard deviation between runs",
    "distilled.threshold": "drop above which a release is flagged as distilled",
    "distilled.sensitivity": "sensitivity of that flag, left out",
    "distilled.specificity": "specificity of that flag, left out",
}


def _resolution(corpus: str, here: Results) -> Table:
    """How finely bases are told apart through their descendants."""

    def row(quantity: str, of: str, estimate: Estimate, form: str) -> list[Any]:
        return [quantity, of, claim(estimate, form), estimate.units, claim(estimate, WHOLE, "n")]

    rows = [
        row(words, "", estimate, PLAIN)
        for quantity, words in _RESOLUTION.items()
        for estimate in here.all(f"recovery.{quantity}")
    ]
    for share in here.all("recovery.resolution.coverage"):
        of = f"{share.subject['recipe_class']}, offset from: {share.subject['rule']}"
        rows.append(row("coverage of bars built without the family", of, share, SHARE))
    for share in here.all("recovery.misorder"):
        band = share.subject["band"]
        num_pairs = here.find("recovery.misorder.pairs", band=band)
        of = f"true gap {band}"
        rows.append(["misordered pairs", of, claim(share, SHARE), share.units, claim_if(num_pairs, COUNT)])
    rows += [
        row("range among descendants", spread.subject["base"], spread, PLAIN)
        for spread in here.all("recovery.siblings")
    ]
    rows += [
        row("residual against size", slope.subject["pipeline"], slope, SIGNED)
        for slope in here.all("recovery.size")
    ]
    columns = ["quantity", "of", "value", "in", "n"]
    note = (
        "From pairs whose base is known. A gap error is the difference of two residuals of different bases."
    )
    return table(
        f"recovery/resolution/{corpus}", Named("Resolution on {corpus}", corpus=corpus), columns, rows, note
    )


_COMPARISONS = {
    TWO_BASES: "two bases, re-based",
    ONE_PIPELINE: "two releases of one pipeline",
    OWN_BASE: "a descendant and its own base",
    OTHER_LABS: "descendants of different labs, base unknown",
    OTHER_LABS_DISTILLED: "the same, one possibly distilled",
    ANOTHER_CORPUS: "another corpus",
}


def _uncertainty(corpus: str, here: Results) -> Table:
    """How sure a comparison is, by kind of comparison."""
    widths = [
        (estimate.subject["comparison"], estimate, PLAIN) for estimate in here.all("recovery.uncertainty")
    ]
    widths += [
        (ANOTHER_CORPUS, estimate, _CORRELATION) for estimate in here.all("recovery.uncertainty.corpus")
    ]
    rows = []
    for comparison, estimate, form in widths:
        source = here.category("recovery.uncertainty.source", comparison=comparison)
        rows.append(
            [
                _COMPARISONS[comparison],
                claim(estimate, form),
                estimate.units,
                claim_if(source),
                claim(estimate, WHOLE, "n"),
            ]
        )
    note = (
        "Half widths of intervals, all at one level, of a difference, without the documents' common error; "
        "for another corpus, the agreement of the two orders. A published default was not measured here."
    )
    columns = ["comparison", "plus or minus", "in", "from", "n"]
    title = Named("How sure a comparison on {corpus} is", corpus=corpus)
    return table(f"recovery/uncertainty/{corpus}", title, columns, rows, note)


def _registers(corpus: str, here: Results) -> Table:
    rows = []
    for residual in here.all("recovery.register"):
        register = residual.subject["register"]
        verdict = here.category("recovery.verdict.register", register=register, **pair_of(residual))
        rows.append(
            [
                *pair_of(residual).values(),
                register,
                claim(residual, SIGNED),
                claim_if(verdict),
                "" if verdict is None else verdict.reason,
            ]
        )
    columns = ["base", "descendant", "register", "residual", "verdict", "because"]
    note = (
        "Residuals in nats/byte, with intervals of documents alone; verdicts rest on documents, runs and "
        "recall items. Recall is asked over all registers."
    )
    return table(
        f"recovery/register/{corpus}",
        Named("Residual on {corpus}, by register", corpus=corpus),
        columns,
        rows,
        note,
    )


_STATEMENTS = {
    "gap-first": "gap, first pool",
    "gap-second": "gap, second pool",
    "above-first": "residual less a tenth of the gap, first pool",
    "above-second": "residual less a tenth of the gap, second pool",
    "not-below-first": "residual and a tenth of the gap, first pool",
    "not-below-second": "residual and a tenth of the gap, second pool",
    "more-than-half": "second residual less half of the first",
}


def _verdicts(corpus: str, here: Results) -> Table:
    """What each verdict rests on, and what would settle it: a row a number."""
    rows: list[list[Any]] = []
    for quantity in ("recovery.verdict", "recovery.verdict.register"):
        for verdict in here.categories(quantity):
            subject = dict(verdict.subject)
            register = subject.get("register", "all")
            first = [*pair_of(verdict).values(), register, claim(verdict)]
            rows += [
                [
                    *first,
                    _STATEMENTS[statement.subject["statement"]],
                    claim(statement, SIGNED),
                    statement.units,
                ]
                for statement in here.all(f"{quantity}.statement", **subject)
            ]
            rows += [
                [*first, "retention of recall", claim(filled, _SIGNED_SHARE), filled.units]
                for filled in here.all(f"{quantity}.retention", **subject)
            ]
            rows += [
                [*first, "needed, about", claim(count, COUNT), count.units]
                for count in here.all(f"{quantity}.needed", **subject)
            ]
    columns = ["base", "descendant", "register", "verdict", "number", "value", "in"]
    note = (
        "A verdict needs the whole interval of a number on its side. Retention: of the items right in one "
        "run of the matched base, the share that the descendant gets right over the share that another run "
        "of the base gets right, less one. Needed: at these estimates, in all."
    )
    return table(
        f"recovery/verdicts/{corpus}",
        Named("What the verdicts on {corpus} rest on", corpus=corpus),
        columns,
        rows,
        note,
    )


def _second_pool(corpus: str, here: Results) -> Table:
    rows = [[*pair_of(moved).values(), claim(moved, SIGNED)] for moved in here.all("recovery.residual.moved")]
    columns = ["base", "descendant", "residual, second less first"]
    note = "In nats/byte; intervals include documents and repeated fine-tunes."
    title = Named("How the second pool changes the residual on {corpus}", corpus=corpus)
    return table(f"recovery/second-pool/{corpus}", title, columns, rows, note)


def _reversals(corpus: str, here: Results) -> Table:
    rows = []
    for gap in here.all("recovery.reversal"):
        pair = {side: gap.subject[side] for side in ("lower", "higher")}
        native = here.find("recovery.reversal.native", **pair)
        rows.append([*pair.values(), claim_if(native, SIGNED), claim(gap, SIGNED)])
    columns = ["native lower", "native higher", "native gap", "re-based gap"]
    note = "Second less first, in nats/byte. A re-based gap whose interval includes zero proves no reversal."
    title = Named("Pairs in the opposite order after the fine-tune on {corpus}", corpus=corpus)
    return table(f"recovery/reversals/{corpus}", title, columns, rows, note)


def _agreement(corpus: str, here: Results) -> Table:
    rows = [
        [rho.subject["registers"], claim(rho, _CORRELATION)] for rho in here.all("recovery.order.registers")
    ]
    columns = ["registers", "Spearman's rho"]
    note = "Mean over the choices of that many registers."
    title = Named("Agreement of native and re-based order on {corpus}", corpus=corpus)
    return table(f"recovery/agreement/{corpus}", title, columns, rows, note)


def _blind(corpus: str, here: Results) -> Table:
    rows = []
    for predicted in here.all("recovery.blind"):
        pair = pair_of(predicted)
        rows.append(
            [
                *pair.values(),
                claim(predicted, PLAIN),
                claim_if(here.find("recovery.blind.error", **pair), SIGNED),
                claim_if(here.find("recovery.blind.covered", **pair), COUNT),
                claim_if(here.category("recovery.blind.rule", **pair)),
                predicted.subject["sha256"],
            ]
        )
    columns = [
        "base",
        "descendant",
        "predicted",
        "measured less predicted",
        "covered",
        "offset from",
        "SHA-256",
    ]
    note = (
        "In nats/byte. The base is fine-tuned only after the prediction, whose hash is given, is stored. The "
        "bar is that for its loss on this text. `covered = 1` where the measured loss is within it, else `0`."
    )
    title = Named("Bases predicted before they were measured, on {corpus}", corpus=corpus)
    return table(f"recovery/blind/{corpus}", title, columns, rows, note)


def _left_out(corpus: str, here: Results) -> Table:
    rows = []
    for estimated in here.all("recovery.left_out"):
        pair = pair_of(estimated)
        measured = here.find("recovery.rebased", checkpoint=pair["base"])
        rows.append([*pair.values(), claim(estimated, PLAIN), claim_if(measured, PLAIN)])
    columns = ["base", "through", "base, estimated", "base, measured"]
    note = "In nats/byte, re-based; offset and bar, for this text, are built without the family."
    title = Named("Known bases on {corpus}, estimated through one descendant", corpus=corpus)
    return table(f"recovery/left-out/{corpus}", title, columns, rows, note)


def _pool(corpus: str, here: Results) -> Table:
    rows = [
        [count.subject["pool"], name.replace("_", " "), claim(count, COUNT), count.units]
        for name in POOL_COUNTS
        for count in here.all(f"recovery.pool.{name}")
    ]
    columns = ["pool", "what", "value", "in"]
    note = "Runs are of thirteen words, letters and digits in lower case."
    return table(
        f"recovery/pool/{corpus}",
        Named("What the pools share with {corpus}", corpus=corpus),
        columns,
        rows,
        note,
    )


def _read(corpus: str, here: Results) -> Table:
    rows = []
    for num_tokens in here.all("recovery.read.tokens"):
        checkpoint = num_tokens.subject["checkpoint"]
        num_bytes = here.find("recovery.read.bytes", checkpoint=checkpoint)
        rows.append(
            [checkpoint, claim(num_tokens, COUNT), claim_if(num_bytes, COUNT), claim(num_tokens, WHOLE, "n")]
        )
    columns = ["checkpoint", "tokens", "bytes", "documents started"]
    note = "The same documents in the same order, cut into updates by each model's own tokens."
    return table(f"recovery/read/{corpus}", "What each arm read", columns, rows, note)
