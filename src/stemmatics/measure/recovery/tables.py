"""The tables of the recovery section."""

from __future__ import annotations

from typing import Any

from stemmatics.core.content import Table
from stemmatics.core.results import Estimate
from stemmatics.measure.recovery.recall import ARMS
from stemmatics.measure.recovery.select import PLAIN, SIGNED, Estimates, claim, claim_if, letters, of

_SHARE = "{:.3f}"
_COUNT = "{:.0f}"


def summary_table(corpus: str, mine: Estimates) -> Table:
    """One row a pair: what is left, what came off, what the fine-tune did to the base."""
    rows = []
    for one in of(mine, "residual"):
        pair = {side: one.subject[side] for side in ("base", "descendant")}
        told = [verdict.subject["verdict"] for verdict in of(mine, "verdict", **pair)]
        rows.append(
            [
                *pair.values(),
                claim(one, SIGNED),
                claim_if(mine, "drop", **pair),
                claim_if(mine, "shift", **pair),
                told[0] if told else "not asked",
            ]
        )
    columns = ["base", "descendant", "residual", "drop", "rebase shift", "verdict"]
    note = (
        "In nats/byte. Residual: the recovered descendant less the matched base, documents and repeats of "
        "the fine-tune in its interval. Drop: what the fine-tune took off the descendant; rebase shift: off "
        "the base."
    )
    return Table(f"summary-{corpus}", f"Recovery on {corpus}", columns, rows, note)


_COLUMN_NOTES = {
    "tied": "Checkpoints that share a letter can't be told apart.",
    "its base, estimated": "Where the base is unknown, the place is that of the estimate: re-based loss less "
    "an offset.",
    "borrowed": "Borrowed: by the offset of another recipe or text, for orientation only.",
}


def ladder_table(corpus: str, mine: Estimates) -> Table:
    """Models from the lowest loss up."""
    rows = []
    ranked = sorted(of(mine, "rank"), key=lambda one: one.value)
    for rank in ranked:
        subject = {"checkpoint": rank.subject["checkpoint"]}
        placed = of(mine, "placed", **subject)
        borrowed = of(mine, "borrowed", **subject)
        rows.append(
            [
                claim(rank, _COUNT),
                subject["checkpoint"],
                claim_if(mine, "native", PLAIN, **subject),
                claim_if(mine, "rebased", PLAIN, **subject),
                ties_of(mine, subject["checkpoint"]),
                claim(placed[0], PLAIN) if placed else None,
                placed[0].subject["rule"] if placed else "",
                claim(borrowed[0], PLAIN) if borrowed else None,
            ]
        )
    columns = [
        "place",
        "checkpoint",
        "native",
        "re-based",
        "tied",
        "its base, estimated",
        "by the rule",
        "borrowed",
    ]
    kept = [place for place in range(len(columns)) if any(row[place] not in (None, "") for row in rows)]
    notes = ["Lowest loss first, in nats/byte.", *(_COLUMN_NOTES.get(columns[place], "") for place in kept)]
    return Table(
        f"ladder-{corpus}",
        f"The ladder on {corpus}",
        [columns[place] for place in kept],
        [[row[place] for place in kept] for row in rows],
        " ".join(filter(None, notes)),
    )


def ties_of(mine: Estimates, name: str) -> str:
    """The letters of the groups in which a checkpoint stands."""
    return " ".join(letters(int(one.subject["group"])) for one in of(mine, "tie", checkpoint=name))


def recall_table(estimates: Estimates) -> Table:
    """Shares of items answered rightly by the four arms, and what that says."""
    rows = []
    for one in of(estimates, "recall.change"):
        pair = {side: one.subject[side] for side in ("base", "descendant")}
        shares = [claim_if(estimates, "recall", _SHARE, arm=arm, **pair) for arm in ARMS]
        rows.append(
            [
                *pair.values(),
                *shares,
                claim(one, "{:+.3f}"),
                claim_if(estimates, "recall.lost", _COUNT, **pair),
                claim_if(estimates, "recall.lost_between_runs", _COUNT, **pair),
                claim_if(estimates, "recall.lost_corrected", "{:+.3f}", **pair),
                claim_if(estimates, "recall.margin", _SHARE, **pair),
            ]
        )
    columns = [
        "base",
        "descendant",
        *ARMS,
        "change",
        "lost",
        "lost between runs",
        "lost, corrected",
        "least margin",
    ]
    note = (
        "Shares of the items. Change: recovered less matched base. Corrected: the share lost, less the share "
        "that the base itself loses from one run of the fine-tune to the next. The least margin is the "
        "smallest that would have passed as no change."
    )
    return Table("recall", "What the four arms recall", columns, rows, note)


def resolution_table(corpus: str, mine: Estimates) -> Table:
    """How finely bases are told apart through their descendants."""
    names = {
        "resolution.delta95": "gap error, its high percentile",
        "resolution.lofo90": "left-out offset error, its high percentile",
        "resolution.offset": "offset, mean over families",
        "resolution.mean_residual": "residual, mean over pairs",
        "resolution.sibling_spread": "range among descendants of one base, mean",
        "resolution.coverage": "share held by bars built without the family",
        "left_out.total": "pairs of descendants of different bases",
        "left_out.apart": "of these, told apart by bars built without the family",
        "left_out.right": "of those, in the right order",
        "noise": "standard deviation between runs",
        "distilled.threshold": "drop above which a release is flagged as distilled",
        "distilled.sensitivity": "sensitivity of that flag, left out",
        "distilled.specificity": "specificity of that flag, left out",
    }
    rows: list[list[Any]] = []
    for quantity, words in names.items():
        rows += [
            [words, "", claim(one, PLAIN), one.units, claim(one, "{}", "n")] for one in of(mine, quantity)
        ]
    rows += [
        [
            "misordered pairs",
            f"true gap {one.subject['band']}",
            claim(one, _SHARE),
            one.units,
            _pairs(mine, one),
        ]
        for one in of(mine, "misorder")
    ]
    rows += [
        ["range among descendants", one.subject["base"], claim(one, PLAIN), one.units, claim(one, "{}", "n")]
        for one in of(mine, "siblings")
    ]
    rows += [
        [
            "residual against size",
            one.subject["pipeline"],
            claim(one, SIGNED),
            one.units,
            claim(one, "{}", "n"),
        ]
        for one in of(mine, "size")
    ]
    columns = ["quantity", "of", "value", "in", "n"]
    note = (
        "From pairs whose base is known. A gap error is the difference of two residuals of different bases."
    )
    return Table(f"resolution-{corpus}", f"Resolution on {corpus}", columns, rows, note)


def _pairs(mine: Estimates, one: Estimate) -> Any:
    return claim_if(mine, "misorder.pairs", _COUNT, band=one.subject["band"])


def uncertainty_table(corpus: str, mine: Estimates) -> Table:
    """How sure a comparison is."""
    rows = [
        [one.subject["kind"], claim(one, PLAIN), one.units, one.subject["from"], claim(one, "{}", "n")]
        for one in of(mine, "uncertainty")
    ]
    rows += [
        [one.subject["kind"], claim(one, "{:.2f}"), one.units, one.subject["from"], claim(one, "{}", "n")]
        for one in of(mine, "uncertainty.corpus")
    ]
    note = "Half widths of intervals; for another corpus, the agreement of the two orders."
    columns = ["comparison", "plus or minus", "in", "from", "n"]
    return Table(f"uncertainty-{corpus}", f"How sure a comparison on {corpus} is", columns, rows, note)
