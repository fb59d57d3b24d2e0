"""Workers that stand in for probes; the test puts this folder on the path."""

import os
from pathlib import Path

import pyarrow as pa

from stemmatics.core.facts import from_json
from stemmatics.store.ledger import Ledger


def record_or_die(job, on_event):
    """Makes facts; the one labelled ``killer`` ends the process, the one labelled ``broken`` fails."""
    del on_event
    facts = from_json(job["facts"])
    failed = {}
    for key in job["keys"]:
        if facts[key].label == "killer":
            os._exit(9)
        if facts[key].label == "broken":
            failed[key] = "told to"
            Ledger(Path(job["run"])).fail(facts[key], failed[key])
            continue
        Ledger(Path(job["run"])).record(facts[key], {"toy": pa.table({"x": [1]})})
    return failed
