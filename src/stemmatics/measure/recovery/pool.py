"""The pool: what it shares with the scored text, what was read of it, and who could not be compared."""

from __future__ import annotations

import math

from stemmatics.core.results import Estimate
from stemmatics.facts.overlap import overlap_fact
from stemmatics.measure.base import Tables
from stemmatics.measure.recovery.losses import Losses
from stemmatics.measure.recovery.needs import NAME, Arms

SHARED = ("num_shared_documents", "num_shared_ngrams", "num_pool_documents_sharing")


def pool_estimates(arms: Arms, losses: Losses, tables: Tables) -> list[Estimate]:
    """Counts of shared documents and word runs, bytes and tokens read by each arm, refusals."""
    found: list[Estimate] = []
    second = [arms.settings.second_pool] if arms.settings.second_pool and arms.again else []
    for pool in [arms.settings.pool, *second]:
        fact = overlap_fact(arms.pinned, pool, losses.corpus)
        if tables.has(fact):
            row = tables.read(fact, "overlap").to_pylist()[0]
            found += [
                Estimate(
                    measure=NAME,
                    quantity=f"recovery.pool.{name.removeprefix('num_')}",
                    subject={"pool": pool, "corpus": losses.corpus},
                    value=float(row[name]),
                    n=int(row["num_pool_documents"]),
                    unit="document of the pool",
                    units="documents" if "documents" in name else "runs of words",
                    tag="control",
                    facts=(fact.key,),
                )
                for name in SHARED
            ]
    for name in losses.names:
        arm = arms.arm(name)
        row = tables.read(arm, "arms").to_pylist()[0]
        for column in ("num_tokens", "num_bytes"):
            found.append(
                Estimate(
                    measure=NAME,
                    quantity=f"recovery.read.{column.removeprefix('num_')}",
                    subject={"checkpoint": name, "corpus": losses.corpus},
                    value=float(row[column]),
                    n=int(row["num_documents"]),
                    unit="document of the pool",
                    units=column.removeprefix("num_"),
                    facts=(arm.key,),
                )
            )
    found += [
        Estimate(
            measure=NAME,
            quantity="recovery.refused",
            subject={"checkpoint": name, "corpus": losses.corpus},
            value=math.nan,
            note=f"refused: {reason}",
        )
        for name, reason in losses.refused.items()
    ]
    return found
