"""Tables of the measure ``prior``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from stemmatics.core.content import Named, Table
from stemmatics.core.results import Claim, Estimate, Refusal, Results
from stemmatics.facts.prior import (
    AFFINE_FULL,
    AFFINE_TOP,
    BIAS,
    CLOSED_FORM,
    HALF,
    IN_SAMPLE,
    IN_SAMPLE_JOINT,
    IPF_FULL,
    IPF_TOP,
    JOINT,
    OPTIMUM,
    QUARTER,
    SELECTED,
    SHARE_OF_FIT,
    TEMPERATURE,
)
from stemmatics.facts.prior_floor import CENTRED, RAW
from stemmatics.measure.present import PLAIN, SIGNED, WHOLE, cell, claim, table, with_rows
from stemmatics.measure.prior.estimate import FAR, PARTS, shown_share
from stemmatics.measure.prior.sums import NET, RECOVERED

SIGNED_SHARE = "{:+.3f}"
COUNTED = "{:,.0f}"
_THREE = "{:.3f}"
_TINY = "{:.1e}"
# the headline first, the published searches, the closed forms and the ceilings after it
_ORDER = (
    JOINT,
    TEMPERATURE,
    BIAS,
    IPF_TOP,
    IPF_FULL,
    AFFINE_TOP,
    AFFINE_FULL,
    CLOSED_FORM,
    IN_SAMPLE,
    IN_SAMPLE_JOINT,
)
Pair = Mapping[str, str]


def tables_of(results: Results, pairs: Sequence[Pair], columns: int) -> list[Table]:
    """All tables, corpus by corpus. A pair is its base, descendant and corpus; ``columns`` is K."""
    tables: list[Table] = []
    for corpus in dict.fromkeys(pair["corpus"] for pair in pairs):
        measured = [pair for pair in pairs if pair["corpus"] == corpus and has_increase(results, pair)]
        fitted = [pair for pair in measured if arms_of(results, pair)]
        tables += [
            summary_table(corpus, results, measured),
            parts_table(corpus, results, fitted),
            text_table(corpus, results, fitted),
            support_table(corpus, results, fitted),
            *(arms_table(results, pair, columns) for pair in fitted),
            *(fits_table(results, pair, columns) for pair in fitted),
            refits_table(corpus, results, fitted),
        ]
    return with_rows(*tables)


def has_increase(results: Results, pair: Pair) -> bool:
    """Whether a pair has a loss increase, or one that was refused."""
    return cell(results, "prior.delta", **pair) is not None


def arm_name(arm: str, reading: str, columns: int) -> str:
    """An arm as it is printed: ``joint_4096, selected``."""
    name = arm
    if arm in {BIAS, JOINT}:
        name = f"{arm}_{columns}"
    elif arm in {IPF_TOP, AFFINE_TOP}:
        name = f"{arm}{columns}"
    return f"{name}, {reading}" if reading else name


def arms_of(results: Results, pair: Pair) -> list[tuple[str, str]]:
    """Arms and readings of a pair on all FIT, in the order of a table, the selected reading first."""
    quantity = "prior.net_recovered_share"
    shares: list[Estimate | Refusal] = [*results.all(quantity, **pair), *results.refusals(quantity, **pair)]

    def rank(arm: tuple[str, str]) -> tuple[int, bool]:
        kind = CLOSED_FORM if arm[0].startswith(f"{CLOSED_FORM}_") else arm[0]
        return _ORDER.index(kind) if kind in _ORDER else len(_ORDER), arm[1] == OPTIMUM

    arms = [(share.subject["arm"], share.subject["reading"]) for share in shares]
    return sorted((arm for arm in arms if arm[1] not in SHARE_OF_FIT), key=rank)


def summary_table(corpus: str, results: Results, pairs: Sequence[Pair]) -> Table:
    """One row a pair: the loss increase, the selected shares, and the label of the joint one."""
    rows: list[list[Any]] = []
    for pair in pairs:
        shares = [
            _share(shown_share(results, **pair, arm=arm, reading=SELECTED))
            for arm in (JOINT, TEMPERATURE, BIAS)
        ]
        label = cell(results, "prior.label", **pair, arm=JOINT, reading=SELECTED)
        increase = cell(results, "prior.delta", SIGNED, **pair)
        rows.append([pair["base"], pair["descendant"], increase, *shares, label])
    return table(
        f"prior/summary/{corpus}",
        Named("What a correction recovers on {corpus}", corpus=corpus),
        ["base", "descendant", "nats/token", "joint", "temperature", "bias", "joint share is"],
        rows,
        "The loss increase on the shared support, and the net recovered share of each selected correction: "
        "what it recovers of the increase in the descendant, less what the same kind of correction recovers "
        "in the base.",
    )


def _share(share: Estimate | Refusal | None) -> Claim | None:
    return None if share is None else Claim(share.id, "value", SIGNED_SHARE)


def parts_table(corpus: str, results: Results, pairs: Sequence[Pair]) -> Table:
    """The loss increase in three parts."""
    rows = [
        [
            pair["descendant"],
            *(cell(results, "prior.part", SIGNED_SHARE, **pair, part=part) for part in PARTS),
        ]
        for pair in pairs
        if cell(results, "prior.part", **pair) is not None
    ]
    return table(
        f"prior/parts/{corpus}",
        Named("The loss increase on {corpus} in three parts", corpus=corpus),
        ["descendant", "temperature", "bias", "remainder (net)"],
        rows,
        "Net shares that add up to one: the joint net share, split between temperature and bias (Shapley), "
        "and the remainder, which these fits do not recover beyond what they recover in the base. Intervals "
        "have the fits redrawn where redrawn fits were made.",
    )


# a quarter, half and all of FIT, as they are printed
AMOUNTS = {QUARTER: "a quarter of FIT", HALF: "half of FIT", SELECTED: "all of FIT"}


def text_table(corpus: str, results: Results, pairs: Sequence[Pair]) -> Table:
    """The joint shares by amount of FIT text; the rise of the last step, and whether it is one."""
    rows: list[list[Any]] = []
    for pair in pairs:
        if cell(results, "prior.rise", **pair) is None:
            continue
        for reading, amount in AMOUNTS.items():
            of_arm = {**pair, "arm": JOINT, "reading": reading}
            last = reading == SELECTED
            rows.append(
                [
                    pair["descendant"],
                    amount,
                    cell(results, "prior.fit.tokens", COUNTED, **of_arm, side="descendant"),
                    cell(results, "prior.recovered_share", SIGNED_SHARE, **of_arm),
                    _last(results, RECOVERED, pair, last=last),
                    cell(results, "prior.net_recovered_share", SIGNED_SHARE, **of_arm),
                    _last(results, NET, pair, last=last),
                    cell(results, "prior.text", **pair, of=NET) if last else "",
                ]
            )
    return table(
        f"prior/text/{corpus}",
        Named("The joint shares on {corpus} by amount of FIT text", corpus=corpus),
        [
            "descendant",
            "fitted on",
            "tokens",
            "recovered share",
            "rise since half",
            "net recovered share",
            "net rise since half",
            "net share is",
        ],
        rows,
        "The selected bias and temperature, fitted on less text: nested random parts of FIT, in whole groups "
        "of near-duplicates, each with a tenth of its own that selects the penalty. A share is called still "
        "rising where the interval of its last step, paired by document and with the fits redrawn, lies "
        "above zero.",
    )


def _last(results: Results, share: str, pair: Pair, *, last: bool) -> Any:
    return cell(results, "prior.rise", SIGNED_SHARE, **pair, of=share) if last else ""


def support_table(corpus: str, results: Results, pairs: Sequence[Pair]) -> Table:
    """The loss increase on all ids, split at the support; the mean-energy share."""
    rows = [
        [
            pair["descendant"],
            *(cell(results, f"prior.{name}", SIGNED, **pair) for name in ("delta", "excluded", "delta_full")),
            cell(results, "prior.mean_energy", _THREE, **pair),
        ]
        for pair in pairs
    ]
    return table(
        f"prior/support/{corpus}",
        Named("The support on {corpus}, and the mean of the base's final state", corpus=corpus),
        ["descendant", "nats/token", "from excluded tokens", "on all tokens", "mean-energy share"],
        rows,
        "The increase on all tokens is that on the shared support plus the change in what the excluded "
        "tokens take. Noise on the head acts as a bias to the extent that the final state is its mean.",
    )


def arms_table(results: Results, pair: Pair, columns: int) -> Table:
    """Every arm of a pair, each share beside its floor."""
    floor = "prior.floor.net_recovered_share"
    rows: list[list[Any]] = []
    for arm, reading in arms_of(results, pair):
        of_arm = {**pair, "arm": arm, "reading": reading}
        share = "prior.recovered_share"
        rows.append(
            [
                arm_name(arm, reading, columns),
                cell(results, share, SIGNED_SHARE, **of_arm),
                cell(results, "prior.floor.recovered_share", SIGNED_SHARE, **of_arm, kind=CENTRED),
                cell(results, "prior.net_recovered_share", SIGNED_SHARE, **of_arm),
                cell(results, "prior.net_recovered_share_redrawn", SIGNED_SHARE, **of_arm),
                cell(results, floor, SIGNED_SHARE, **of_arm, kind=CENTRED),
                cell(results, floor, SIGNED_SHARE, **of_arm, kind=RAW),
                cell(results, "prior.label", **of_arm),
                cell(results, "prior.fit.temperature", _THREE, **of_arm, side="base"),
                cell(results, "prior.fit.temperature", _THREE, **of_arm, side="descendant"),
                _flags(results, of_arm),
            ]
        )
    return table(
        f"prior/arms/{pair['corpus']}/{pair['descendant']}",
        Named(
            "Corrections of {descendant} on {corpus}", descendant=pair["descendant"], corpus=pair["corpus"]
        ),
        [
            "arm",
            "recovered share",
            "its floor",
            "net recovered share",
            "with fits redrawn",
            "floor of net share",
            "raw floor of net share",
            "net share is",
            "T of base",
            "T of descendant",
            "flags",
        ],
        rows,
        "Shares of the loss increase. The recovered share is what the descendant's own correction recovers; "
        "the net recovered share subtracts what the base's correction recovers. The floor is what the same "
        "fits recover in the base with noise on its head (centred, and raw) that costs as much. For the "
        "in-sample arms the recovered share is a ceiling, and the net share, a difference of two ceilings, "
        "bounds nothing.",
    )


def _flags(results: Results, of_arm: Mapping[str, str]) -> str:
    """What a reader has to know about the fits of an arm and its share, or why there is no share."""
    share = shown_share(results, **of_arm)
    fits = [
        f"{flag.subject['side']}: {flag.value}" for flag in results.categories("prior.fit.flags", **of_arm)
    ]
    agreement = results.category("prior.refit.agreement", **of_arm)
    refits = [f"redrawn fits {FAR}"] if agreement is not None and agreement.value == FAR else []
    reason = share.reason if isinstance(share, Refusal) else ""
    note = share.note if isinstance(share, Estimate) else ""
    return "; ".join(part for part in (*fits, *refits, note, reason) if part)


def fits_table(results: Results, pair: Pair, columns: int) -> Table:
    """What was fitted in either model, and how near to the optimum it is."""
    forms = {
        "fit_loss": "{:.5f}",
        "held_loss": "{:.5f}",
        "penalty": "{:.2g}",
        "gap": _TINY,
        "gradient": _TINY,
    }
    rows: list[list[Any]] = []
    for loss in results.all("prior.fit.fit_loss", **pair):
        subject = dict(loss.subject)
        rows.append(
            [
                pair[subject["side"]],
                arm_name(subject["arm"], subject["reading"], columns),
                *(cell(results, f"prior.fit.{name}", form, **subject) for name, form in forms.items()),
            ]
        )
    return table(
        f"prior/fits/{pair['corpus']}/{pair['descendant']}",
        Named("Fits for {descendant} on {corpus}", descendant=pair["descendant"], corpus=pair["corpus"]),
        [
            "checkpoint",
            "arm",
            "loss on the fit part",
            "loss on the held-out part",
            "penalty",
            "gap",
            "gradient norm",
        ],
        rows,
        "Nats per token. The gap is what a full Newton step would still gain; the penalty is the one that "
        "the held-out part selected, n/a where no bias is fitted.",
    )


def refits_table(corpus: str, results: Results, pairs: Sequence[Pair]) -> Table:
    """One Newton step against full refits."""
    rows = [
        [
            pair["descendant"],
            rms.subject["arm"],
            claim(rms, PLAIN),
            cell(results, "prior.refit.sd", PLAIN, **rms.subject),
            cell(results, "prior.refit.r", _THREE, **rms.subject),
            claim(rms, WHOLE, "n"),
        ]
        for pair in pairs
        for rms in results.all("prior.refit.rms", **pair)
    ]
    return table(
        f"prior/refits/{corpus}",
        Named("Redrawn fits on {corpus} against full refits", corpus=corpus),
        ["descendant", "arm", "RMS difference", "SD of refits", "correlation", "refits"],
        rows,
        "Of the net recovered share. One Newton step suffices where the RMS difference is small beside the "
        "standard deviation of the refits.",
    )
