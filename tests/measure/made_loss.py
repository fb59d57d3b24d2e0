"""Base and descendants whose losses are written by hand, for the tests of the measure `loss`."""

import numpy as np
from tests.measure.made_sums import METADATA, MadeTables, documents, parts, pinned, scores

from stemmatics.core.results import Results
from stemmatics.measure.loss import Loss
from stemmatics.measure.loss.needs import native_fact
from stemmatics.measure.loss.settings import LossSettings

REGISTERS = ["prose", "code", "prose", "code", "prose", "code"]
NUM_BYTES = np.array([10.0, 20.0, 30.0, 40.0, 50.0, 60.0])
NUM_TOKENS = np.array([4.0, 9.0, 11.0, 17.0, 20.0, 31.0])
BASE = np.array([11.0, 23.0, 29.0, 44.0, 52.0, 60.0])
# nats/byte by document
WORSE = np.array([0.10, 0.11, 0.12, 0.13, 0.09, 0.14])
MIXED = np.array([0.10, -0.11, 0.12, -0.13, 0.09, -0.01])
PROSE = np.array([True, False] * 3)


class Made:
    """A base and descendants scored on texts; what each adds to the base's loss is given in nats/byte."""

    def __init__(
        self, added, *, corpora=("text",), metadata=None, bytes_of=None, registers=REGISTERS, **given
    ):
        self.settings = LossSettings(**{"checks": 0, "movers": 2, **given})
        roles = {**dict.fromkeys(corpora, "text"), "training": "data"}
        self.pinned = pinned({"base": None, **dict.fromkeys(added, "base")}, roles)
        self.tables = MadeTables()
        for corpus in corpora:
            for name, rates in {"base": np.zeros(len(BASE)), **added}.items():
                fact = self.fact(name, corpus)
                num_bytes = (bytes_of or {}).get(name, NUM_BYTES)
                sums = scores(BASE + rates * NUM_BYTES, NUM_TOKENS, num_bytes)
                self.tables.put(
                    fact,
                    scores=sums,
                    score_parts=[],
                    scoring=[{**METADATA, **(metadata or {}).get(name, {})}],
                )
                self.tables.put(fact.needs["corpus"], documents=documents(registers))

    def fact(self, name, corpus="text"):
        return native_fact(self.pinned, self.settings, name, corpus)

    def results(self, seed=0):
        rng = np.random.default_rng(seed)
        return Results(Loss().estimate(self.pinned, self.settings, self.tables, rng))

    def findings(self, results=None):
        return Loss().findings(self.pinned, self.settings, results or self.results())


def texts(findings, results):
    return [sentence.plain(results) for sentence in findings.sentences]


def cells(table, results):
    return [
        [cell if isinstance(cell, str) or cell is None else cell.text(results) for cell in row]
        for row in table.rows
    ]


def table_of(findings, name):
    (table,) = [table for table in findings.tables if table.name == name]
    return table


def parted():
    made = Made({"a": WORSE})
    added = WORSE * NUM_BYTES
    before = parts("position", {"0-63": dict(enumerate(BASE - 1)), "64-255": dict.fromkeys(range(6), 1.0)})
    before += parts("token_class", {"word_start": dict(enumerate(BASE))})
    after = parts(
        "position",
        {
            "1024-4095": {1: 0.5, 5: 0.25},
            "256-1023": {0: added[0]},
            "64-255": {index: 1.0 + added[index] for index in range(1, 6)} | {0: 1.0},
            "0-63": {index: BASE[index] - 1 - {1: 0.5, 5: 0.25}.get(index, 0.0) for index in range(6)},
        },
    )
    # a class that only the descendant's table has, and one that only the base's has
    after += parts("token_class", {"number": dict(enumerate(BASE + added))})
    made.tables.put(made.fact("base"), score_parts=before)
    made.tables.put(made.fact("a"), score_parts=after)
    return made, added
