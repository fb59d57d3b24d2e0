"""A recovery study whose sums are written by hand: the rows of its facts without a model or a file."""

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from stemmatics.core.results import Results
from stemmatics.core.stemma import Stemma
from stemmatics.facts.pinned import Pinned, Pins
from stemmatics.measure.recovery.losses import read_losses
from stemmatics.measure.recovery.needs import Arms
from stemmatics.measure.recovery.settings import RecoverySettings

TEXT, POOL, SECOND_POOL, ITEMS, REGISTRY = "text", "pool", "second-pool", "items", "known"
BYTES = (100, 200, 300, 400)
SCORING = {
    "token_ids_sha256": "ids",
    "prefix_id": 0,
    "window_size": 512,
    "window_stride": 512,
    "dtype": "float32",
}


@dataclass
class Study:
    """Arms, and the rows of their facts by probe and label; a fact without rows has failed."""

    arms: Arms
    bytes_N: np.ndarray
    rows: dict = field(default_factory=dict)

    def has(self, fact):
        return (fact.probe, fact.label) in self.rows

    def read(self, fact, table):
        return pa.Table.from_pylist(self.rows[fact.probe, fact.label][table])

    def add(self, probe, label, **tables):
        self.rows[probe, label] = tables

    def add_scores(self, checkpoint, loss, **scoring):
        """Sums of one checkpoint: its loss in nats/byte, one for all documents or one for each."""
        nats = self.bytes_N * np.asarray(loss, dtype=float)
        scores = [
            {
                "index": index,
                "doc_id": str(index),
                "nll_sum": float(nll),
                "num_tokens": 9,
                "num_bytes": int(size),
            }
            for index, (nll, size) in enumerate(zip(nats, self.bytes_N, strict=True))
        ]
        self.add("score", f"{checkpoint} on {TEXT}", scores=scores, scoring=[{**SCORING, **scoring}])

    def add_arm(self, name, runs, *, native=2.0, second=None, num_parameters=1000):
        """Losses of one checkpoint: after each run of the fine-tune, as released, after the second pool."""
        self.add_scores(name, native)
        for run, loss in enumerate(runs):
            self.add_scores(f"{name} recovered on {POOL}" + (f", run {run}" if run else ""), loss)
        if second is not None:
            self.add_scores(f"{name} recovered on {SECOND_POOL}", second)
        read = {"num_tokens": 64, "num_bytes": 300, "num_documents": 5, "num_parameters": num_parameters}
        self.add("train", f"{name} recovered on {POOL}", arms=[read])

    def add_replies(self, name, correct, *, run=None):
        """Which recall items were answered correctly."""
        arm = "" if run is None else f" recovered on {POOL}" + (f", run {run}" if run else "")
        items = [
            {
                "index": index,
                "item_id": f"item {index}",
                "correct": int(each),
                "num_accepted": 1,
                "category": "recall",
            }
            for index, each in enumerate(correct)
        ]
        self.add("replies", f"{name}{arm} asked {ITEMS}", items=items)

    def losses(self):
        return read_losses(self.arms, TEXT, self)


def make_study(checkpoints, *, num_bytes=BYTES, registers=None, groups=None, **settings):
    """A study of declared checkpoints (their lineage) on one text; every document is a group of its own."""
    data = [POOL, SECOND_POOL, ITEMS, REGISTRY]
    source = {"path": ["nowhere.jsonl"]}
    stemma = Stemma.model_validate(
        {
            "checkpoints": {
                name: {"source": f"org/{name}", **lineage} for name, lineage in checkpoints.items()
            },
            "corpora": {TEXT: source, **{name: {**source, "role": "data"} for name in data}},
        }
    )
    pins = Pins(
        {name: {"weights": name} for name in checkpoints},
        {name: {"content_sha256": name, "num_documents": 9, "num_bytes": 900} for name in [TEXT, *data]},
    )
    given = RecoverySettings.model_validate({"pool": POOL, "base_runs": 1, **settings})
    study = Study(Arms(Pinned(stemma, pins), given), np.array(num_bytes))
    num_documents = len(num_bytes)
    documents = [
        {"index": index, "register": register, "group": str(group)}
        for index, register, group in zip(
            range(num_documents),
            registers or ["prose"] * num_documents,
            groups or range(num_documents),
            strict=True,
        )
    ]
    study.add("corpus", TEXT, documents=documents)
    return study


def pairs_study(residuals, *, bases, hard=0.0, **settings):
    """One base a family and its descendants, all documents alike: ``residuals[family]`` of its descendants.

    Base ``b-FAMILY`` has the loss ``bases[family]`` after the fine-tune, descendant ``d-FAMILY-0`` as much
    and its residual. ``hard`` is added to every loss: one number a document makes documents differ.
    """
    checkpoints = {}
    for family, own in residuals.items():
        checkpoints[f"b-{family}"] = {"regime": "base", "family": family}
        for number in range(len(own)):
            checkpoints[f"d-{family}-{number}"] = {"base": f"b-{family}", "regime": "sft"}
    study = make_study(checkpoints, **settings)
    for family, own in residuals.items():
        study.add_arm(f"b-{family}", [bases[family] + hard])
        for number, residual in enumerate(own):
            study.add_arm(f"d-{family}-{number}", [bases[family] + residual + hard])
    return study


def results_of(*parts):
    """Results of several parts of the measure, with their look-ups."""
    return Results(result for part in parts for result in part)
