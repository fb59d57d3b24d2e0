"""What tests read from a run folder."""

import json

from stemmatics.store.ledger import Ledger


def manifest(root):
    return json.loads((root / "manifest.json").read_text())


def sums(root):
    """Every stored number of the scores by fact and document."""
    ledger = Ledger(root)
    numbers = {}
    for key in ledger.done():
        if "scores" in ledger.tables_of(key):
            label = ledger.fact_record(key)["label"]
            probe = ledger.fact_record(key)["probe"]
            for row in ledger.read(key, "scores").to_pylist():
                numbers[probe, label, row["index"]] = (row["nll_sum"], row["num_tokens"], row["num_bytes"])
    return numbers


def estimates(root):
    ledger = Ledger(root)
    rows = ledger.read(manifest(root)["estimates"]["loss"], "estimates").to_pylist()
    return {row["id"]: row for row in rows}
