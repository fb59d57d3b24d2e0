"""Tables of the measure `loss`, one set per corpus."""

from __future__ import annotations

from typing import Any

from stemmatics.core.content import Named, Table
from stemmatics.core.results import Estimate, Results
from stemmatics.facts.pinned import Pinned
from stemmatics.measure.inputs import ALL
from stemmatics.measure.loss.estimate import REFUSED
from stemmatics.measure.present import PLAIN, SIGNED, claim, claim_if, table, with_rows

_EFFECT = "minimum detectable effect (80% power)"


def tables(pinned: Pinned, corpus: str, results: Results) -> list[Table]:
    """All tables of one corpus that have rows, the summary first."""
    return with_rows(
        _summary(pinned, corpus, results),
        _by_register(corpus, results),
        _native(pinned, corpus, results),
        _where(corpus, results),
        _movers(corpus, results),
        _control(corpus, results),
    )


def _summary(pinned: Pinned, corpus: str, results: Results) -> Table:
    rows: list[list[Any]] = []
    for base, descendant in pinned.stemma.pairs():
        subject = {"base": base, "descendant": descendant, "corpus": corpus}
        delta = results.find("loss.delta.byte", register=ALL, **subject)
        if delta is not None:
            verdict = claim_if(results.category("loss.verdict", **subject))
            rows.append([base, descendant, verdict, *_difference(delta)])
        elif results.refusal("loss.delta.byte", **subject) is not None:
            rows.append([base, descendant, REFUSED, None, None, None])
    return table(
        f"loss/summary/{corpus}",
        Named("Descendant minus base on {corpus}", corpus=corpus),
        ["base", "descendant", "verdict", "nats/byte", _EFFECT, "n"],
        rows,
        note="Above zero the descendant lost. Intervals are paired by document, near-duplicates together.",
    )


def _by_register(corpus: str, results: Results) -> Table:
    rows = [
        [
            delta.subject["base"],
            delta.subject["descendant"],
            delta.subject["register"],
            *_difference(delta),
        ]
        for delta in results.all("loss.delta.byte", corpus=corpus)
        if delta.subject["register"] != ALL
    ]
    columns = ["base", "descendant", "register", "nats/byte", _EFFECT, "n"]
    title = Named("Descendant minus base on {corpus}, by register", corpus=corpus)
    return table(f"loss/by-register/{corpus}", title, columns, rows)


def _difference(delta: Estimate) -> list[Any]:
    """The cells of a paired difference: value, smallest effect, n."""
    return [claim(delta, SIGNED), claim(delta, PLAIN, "smallest_effect"), claim(delta, field="n")]


def _native(pinned: Pinned, corpus: str, results: Results) -> Table:
    rows = []
    for checkpoint in pinned.stemma.names:
        for by_byte in results.all("loss.native.byte", checkpoint=checkpoint, corpus=corpus):
            register = by_byte.subject["register"]
            subject = {"checkpoint": checkpoint, "corpus": corpus, "register": register}
            by_token = results.only("loss.native.token", **subject)
            rows.append(
                [
                    checkpoint,
                    register,
                    claim(by_byte, PLAIN),
                    claim(by_token, PLAIN),
                    claim(by_byte, field="n"),
                ]
            )
    columns = ["checkpoint", "register", "nats/byte", "nats/token", "n"]
    return table(f"loss/native/{corpus}", Named("Native loss on {corpus}", corpus=corpus), columns, rows)


def _where(corpus: str, results: Results) -> Table:
    rows = [
        [
            part.subject["base"],
            part.subject["descendant"],
            part.subject["axis"].replace("_", " "),
            part.subject["bin"].replace("_", " "),
            claim(part, SIGNED),
        ]
        for part in results.all("loss.where", corpus=corpus)
    ]
    return table(
        f"loss/where/{corpus}",
        Named("Where the loss on {corpus} changed", corpus=corpus),
        ["base", "descendant", "axis", "bin", "nats/byte"],
        rows,
        note="What each bin adds to the difference; the bins of an axis add up to it.",
    )


def _movers(corpus: str, results: Results) -> Table:
    rows = [
        [
            mover.subject["base"],
            mover.subject["descendant"],
            mover.subject["direction"],
            mover.subject["document"],
            mover.subject["doc_id"],
            mover.subject["register"],
            claim(mover, SIGNED),
        ]
        for mover in results.all("loss.mover", corpus=corpus)
    ]
    return table(
        f"loss/movers/{corpus}",
        Named("Largest movers of {corpus}", corpus=corpus),
        ["base", "descendant", "direction", "document", "id", "register", "nats/byte"],
        rows,
        note="The documents whose loss changed most. Their text is not stored; "
        "`stemma show RUN movers --text FILE` joins it.",
    )


def _control(corpus: str, results: Results) -> Table:
    rows = [
        [control.subject["checkpoint"], claim(control, "{:.2e}"), claim(control, field="n")]
        for control in results.all("loss.control", corpus=corpus)
    ]
    return table(
        f"loss/control/{corpus}",
        Named("Control of the scoring on {corpus}", corpus=corpus),
        ["checkpoint", "nats/byte", "n"],
        rows,
        note="Absolute differences from a plain loop over the model's own logits, over bytes.",
    )
