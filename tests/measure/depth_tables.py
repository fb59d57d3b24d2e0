"""Hand-made tables for depth: a study with two bases, and stored rows whose truth is known.

Four prompts at the main boundary 2 of four layers. Under the descendant's readout:

=============================  ======  ======  ======  ======  ====
margin or effect               prompt  prompt  prompt  prompt  mean
=============================  ======  ======  ======  ======  ====
base state, base layers          -3      -1      -2      -2     -2
descendant state, base layers     1       0       2      -1    0.5
effect after base                 1       2       0       3    1.5
effect after descendant           4       6       5       5      5
interaction                       3       4       5       2    3.5
=============================  ======  ======  ======  ======  ====
"""

import pyarrow as pa

from stemmatics.core.results import Results
from stemmatics.core.stemma import Stemma
from stemmatics.facts.cross import CELLS
from stemmatics.facts.paths import NLL_COLUMNS
from stemmatics.facts.pinned import Pinned, Pins
from stemmatics.measure.depth import Depth
from stemmatics.measure.depth.settings import DepthSettings
from stemmatics.store.schema import schemas

ARMS = ("familiar", "nonce")
SEEDS = 3
SIZE = {"num_documents": 9, "num_bytes": 900}
MAIN = 2
BASE_BASE = (-3.0, -1.0, -2.0, -2.0)
DESC_BASE = (1.0, 0.0, 2.0, -1.0)
AFTER_BASE = (1.0, 2.0, 0.0, 3.0)
AFTER_DESCENDANT = (4.0, 6.0, 5.0, 5.0)


def margins(shift=0.0, *, after_base=AFTER_BASE, after_descendant=AFTER_DESCENDANT):
    """The four cells of the prompts above; ``shift`` is added to every effect on the descendant's state."""
    return [
        (low, low + first, high, high + second + shift)
        for low, high, first, second in zip(BASE_BASE, DESC_BASE, after_base, after_descendant, strict=True)
    ]


def cell_rows(
    cells, *, support="first", boundary=MAIN, readouts=("descendant", "base"), arm="main",
    distance=0.2, changed=((0, 1),),
):  # fmt: skip
    """Stored rows: margins by event, and by event in turn whether the top token changes."""
    return [
        {
            "event": event,
            "index": event,
            "support": support,
            "boundary": boundary,
            "readout": readout,
            "arm": arm,
            **dict(zip(CELLS, values, strict=True)),
            "changed_after_base": changed[event % len(changed)][0],
            "changed_after_desc": changed[event % len(changed)][1],
            "distance": distance,
        }
        for event, values in enumerate(cells)
        for readout in readouts
    ]


def summary(*, num_events=4, main_boundary=MAIN, identity_error=0.0):
    return {
        "num_layers": 4,
        "num_events": num_events,
        "main_boundary": main_boundary,
        "identity_error": identity_error,
        "refusal": "",
    }


def path_summary(*, refusal=""):
    return {
        "num_layers": 4,
        "main_boundary": MAIN,
        "identity_error": 0.0,
        "num_rendered": 4,
        "refusal": refusal,
    }


def event_rows(support="first", **counts):
    return [
        {"event": number, "index": number, "support": support, "outcome": outcome}
        for outcome, count in counts.items()
        for number in range(count)
    ]


def noise_row(*, scale=0.4, rise=30.0, failure=""):
    return {
        "scale": scale,
        "base_nll_sum": 100.0,
        "descendant_nll_sum": 100.0 + rise,
        "noised_nll_sum": 100.0 + rise,
        "num_bytes": 60,
        "failure": failure,
    }


def path_rows(nll=(1.0, 1.2, 1.3, 1.5), *, num_prompts=4, num_tokens=10, slope=1.0, spread=0.05, **outcomes):
    """Paths with an event, of a loss a token in each cell; the fourth cell is ``slope`` times the sum."""
    counts = {"event": num_prompts, **outcomes}
    rows, index = [], 0
    for outcome, count in counts.items():
        for _ in range(count):
            read = outcome in {"event", "agreed"}
            shift = spread * (-1) ** index
            losses = [num_tokens * (loss + shift) if read else None for loss in nll]
            rows.append(
                {
                    "index": index,
                    "outcome": outcome,
                    "num_tokens": num_tokens if read else None,
                    **dict(zip(NLL_COLUMNS, losses, strict=True)),
                    "fourth_by_sum": slope * (1 + shift) if read else None,
                    "sum_by_sum": 1 + shift if read else None,
                }
            )
            index += 1
    return rows


class HandMade:
    """Stored tables: rows by table, others for facts of a floor or of one descendant.

    A table that is not given has what a plain pair has. Rows of first disagreements stand for the events
    of three cells too, unless there are such rows; so do the margins of a floor's paths.
    """

    def __init__(self, rows=None, *, floor=None, by_descendant=None, missing=()):
        plain = {
            "cells": cell_rows(margins()),
            "paths": path_rows(),
            "crossing": [summary()],
            "events": event_rows(event=4),
            "noise_scale": [noise_row()],
            "forced": [],
        }
        self.rows = {**plain, **(rows or {})}
        self.floor = floor or {}
        self.by_descendant = by_descendant or {}
        self.missing = missing

    def has(self, fact):
        descendant = fact.needs.get("descendant")
        return fact.probe not in self.missing and (descendant is None or descendant.label not in self.missing)

    def read(self, fact, table):
        rows = self.rows
        if fact.tag == "floor":
            rows = {**rows, **self.floor}
        elif "descendant" in fact.needs:
            rows = {**rows, **self.by_descendant.get(fact.needs["descendant"].label, {})}
        schema = schemas()[table]
        found = {
            "cells": lambda: _cells_of(fact, rows["cells"]),
            "path_cells": lambda: _path_cells(rows["cells"]),
            "path_summary": lambda: [path_summary(refusal=rows["crossing"][0]["refusal"])],
        }.get(table, lambda: rows[table])()
        assert all(row.keys() <= set(schema.names) for row in found), "no column of that name"
        return pa.Table.from_pylist(found, schema=schema)


def _by_three_cells(rows):
    """Rows of events chosen by three cells; first disagreements stand for them where there are none."""
    own = [row for row in rows if row["support"] == "three_cells"]
    return own or [{**row, "support": "three_cells"} for row in rows if row["support"] == "first"]


def _cells_of(fact, rows):
    if fact.needs["events"].probe == "paths":
        return _by_three_cells(rows)
    return [row for row in rows if row["support"] != "three_cells"]


def _path_cells(rows):
    names = [*schemas()["path_cells"].names]
    both = [*_by_three_cells(rows), *(row for row in rows if row["support"] == "first")]
    return [
        {name: row[name] for name in names} for row in both if (row["boundary"], row["arm"]) == (MAIN, "main")
    ]


def pinned():
    """Two bases; three descendants an arm of the first, one of the second."""

    def made(base, scale):
        return {"kind": "alter", "init": base, "base": base, "change": "noise", "scale": scale}

    names = [f"{arm}-{seed}" for arm in ARMS for seed in range(SEEDS)]
    return Pinned(
        Stemma.model_validate(
            {
                "checkpoints": {"base": {"source": "base"}, "other": {"source": "other"}},
                "stages": {
                    **{name: made("base", 0.1 + number) for number, name in enumerate(names)},
                    "far": made("other", 0.5),
                },
                "corpora": {f"{arm}-events": {"path": "events.jsonl", "role": "data"} for arm in ARMS},
            }
        ),
        Pins(
            {"base": {"weights": "0"}, "other": {"weights": "1"}},
            {f"{arm}-events": {"content_sha256": arm, **SIZE} for arm in ARMS},
        ),
    )


def depth_settings(*descendants, **settings):
    """Depth on the prompts ``familiar-events``, of ``familiar-0`` if nobody is named."""
    plain = {
        "prompts": "familiar-events",
        "descendants": list(descendants or ["familiar-0"]),
        "floor": "familiar-events",
        "forced_tokens": 4,
    }
    return DepthSettings.model_validate({**plain, **settings})


def results_of(tables, settings, rng):
    return Results(Depth().estimate(pinned(), settings, tables, rng))


def findings_of(results, settings):
    return Depth().findings(pinned(), settings, results)


def texts_of(results, settings):
    return [sentence.plain(results) for sentence in findings_of(results, settings).sentences]
