"""The recovery section's smaller tables: registers, reversals, agreement, blind bases, the pools."""

from __future__ import annotations

from stemmatics.core.content import Table
from stemmatics.measure.recovery.select import PLAIN, SIGNED, Estimates, claim, claim_if, of

_COUNT = "{:.0f}"


def other_tables(corpus: str, mine: Estimates) -> list[Table]:
    """All of them; those without rows are dropped by the caller."""
    return [
        _registers(corpus, mine),
        _second_pool(corpus, mine),
        _reversals(corpus, mine),
        _agreement(corpus, mine),
        _blind(corpus, mine),
        _left_out(corpus, mine),
        _pool(corpus, mine),
        _read(corpus, mine),
    ]


def _registers(corpus: str, mine: Estimates) -> Table:
    rows = [
        [one.subject["base"], one.subject["descendant"], one.subject["register"], claim(one, SIGNED)]
        for one in of(mine, "register")
    ]
    columns = ["base", "descendant", "register", "residual"]
    note = "In nats/byte; documents alone."
    return Table(f"register-{corpus}", f"Residual on {corpus}, by register", columns, rows, note)


def _second_pool(corpus: str, mine: Estimates) -> Table:
    rows = [
        [one.subject["base"], one.subject["descendant"], claim(one, SIGNED)]
        for one in of(mine, "residual.moved")
    ]
    columns = ["base", "descendant", "residual, second less first"]
    note = "In nats/byte, documents and repeats of the fine-tune together."
    return Table(f"second-pool-{corpus}", f"What the second pool changes on {corpus}", columns, rows, note)


def _reversals(corpus: str, mine: Estimates) -> Table:
    rows = []
    for one in of(mine, "reversal"):
        pair = {side: one.subject[side] for side in ("lower", "higher")}
        native = claim_if(mine, "reversal.native", SIGNED, **pair)
        rows.append([*pair.values(), native, claim(one, SIGNED)])
    columns = ["native lower", "native higher", "native gap", "re-based gap"]
    note = "Second less first, in nats/byte; a re-based gap whose interval holds zero is no proof."
    return Table(f"reversals-{corpus}", f"Pairs that change places on {corpus}", columns, rows, note)


def _agreement(corpus: str, mine: Estimates) -> Table:
    rows = [[one.subject["registers"], claim(one, "{:.2f}")] for one in of(mine, "order.registers")]
    columns = ["registers", "Spearman's rho"]
    note = "Mean over the choices of so many registers."
    return Table(f"agreement-{corpus}", f"Agreement of the two orders on {corpus}", columns, rows, note)


def _blind(corpus: str, mine: Estimates) -> Table:
    rows = []
    for one in of(mine, "blind"):
        name = {"descendant": one.subject["descendant"]}
        rows.append(
            [
                one.subject["base"],
                one.subject["descendant"],
                claim(one, PLAIN),
                claim_if(mine, "blind.error", SIGNED, **name),
                claim_if(mine, "blind.held", _COUNT, **name),
                one.subject["rule"],
                one.subject["sha256"],
            ]
        )
    columns = ["base", "descendant", "predicted", "found less predicted", "held", "by the rule", "SHA"]
    note = (
        "In nats/byte. The base's fine-tune waits for the prediction, whose SHA is given; held is one, "
        "missed is zero."
    )
    title = f"Bases that were predicted before they were read, on {corpus}"
    return Table(f"blind-{corpus}", title, columns, rows, note)


def _left_out(corpus: str, mine: Estimates) -> Table:
    rows = []
    for one in of(mine, "left_out"):
        base = claim_if(mine, "rebased", PLAIN, checkpoint=one.subject["base"])
        rows.append([one.subject["base"], one.subject["descendant"], claim(one, PLAIN), base])
    columns = ["base", "seen through", "its loss, estimated", "its loss"]
    note = "In nats/byte, re-based; offset and bar are built without the family."
    return Table(f"left-out-{corpus}", f"Bases of {corpus} seen through one descendant", columns, rows, note)


def _pool(corpus: str, mine: Estimates) -> Table:
    rows = [
        [
            one.subject["pool"],
            one.quantity.rpartition(".")[2].replace("_", " "),
            claim(one, _COUNT),
            one.units,
        ]
        for name in ("shared_documents", "shared_ngrams", "pool_documents_sharing")
        for one in of(mine, f"pool.{name}")
    ]
    note = "Runs are of thirteen words, letters and digits in lower case."
    columns = ["pool", "what", "value", "in"]
    return Table(f"pool-{corpus}", f"What the pools share with {corpus}", columns, rows, note)


def _read(corpus: str, mine: Estimates) -> Table:
    rows = [
        [
            one.subject["checkpoint"],
            claim(one, _COUNT),
            claim_if(mine, "read.bytes", _COUNT, checkpoint=one.subject["checkpoint"]),
            claim(one, "{}", "n"),
        ]
        for one in of(mine, "read.tokens")
    ]
    columns = ["checkpoint", "tokens", "bytes", "documents begun"]
    note = "The same documents in the same order, cut into updates by each model's own tokens."
    return Table(f"read-{corpus}", "What each arm read", columns, rows, note)
