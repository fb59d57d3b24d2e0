"""Hand-made tables of the measure `prior`: what each correction recovers is known for every document."""

from dataclasses import dataclass, field

import numpy as np

from stemmatics.core.facts import Fact
from stemmatics.core.results import Results
from stemmatics.facts.corpus import CORPUS
from stemmatics.facts.prior import PRIOR
from stemmatics.facts.prior_floor import PRIOR_FLOOR
from stemmatics.measure.prior.estimate import pair_results
from stemmatics.measure.prior.sums import NONE

SUBJECT = {"base": "old", "descendant": "new", "corpus": "text"}
NUM = 80
# EVAL documents are the even records of the corpus, FIT documents the odd ones
INDEX = 2 * np.arange(NUM)
RNG = np.random.default_rng(1)
TOKENS = RNG.integers(20, 60, NUM)
BASE = TOKENS * RNG.normal(3.0, 0.1, NUM)
INCREASE = TOKENS * RNG.normal(0.3, 0.1, NUM)
JOINT, TEMPERATURE, BIAS = ((arm, "selected") for arm in ("joint", "temperature", "bias"))
CORPUS_FACT = Fact("corpus", 1, {})
OLD, NEW, FLOOR = (
    Fact(*what, {"corpus": CORPUS_FACT})
    for what in (("prior", 1, {"model": "old"}), ("prior", 1, {"model": "new"}), ("prior_floor", 1, {}))
)


class FakeTables:
    """Tables by fact and name; a fact is done if it has any."""

    def __init__(self):
        self.by_name = {}

    def put(self, fact, kind, name, rows):
        self.by_name[fact.key, name] = kind.table(name, rows)

    def has(self, fact):
        return any(key == fact.key for key, _ in self.by_name)

    def read(self, fact, table):
        return self.by_name[fact.key, table]


@dataclass
class Made:
    """One model: its loss by document, and the nats that each correction removes."""

    nll: np.ndarray
    gains: dict
    fits: dict = field(default_factory=dict)
    draws: dict = field(default_factory=dict)
    metadata: dict = field(default_factory=dict)
    excluded: np.ndarray = field(default_factory=lambda: np.zeros(NUM))
    tokens: np.ndarray = field(default_factory=lambda: TOKENS)
    only_fitted: dict = field(default_factory=dict)

    def sums(self, variant="own", order=None):
        """Rows of ``prior_sums``; every arm's rows in the order ``order``, the uncorrected ones sorted."""
        order = range(NUM) if order is None else order
        losses = {NONE: self.nll, **{arm: self.nll - gain for arm, gain in self.gains.items()}}
        return [
            {
                "index": INDEX[d],
                "variant": variant,
                "arm": arm,
                "reading": reading,
                "nll_sum": nll_D[d],
                "num_tokens": self.tokens[d],
                "excluded_nll_sum": self.excluded[d],
                "num_outside_support": 0,
            }
            for (arm, reading), nll_D in losses.items()
            for d in (range(NUM) if arm == "none" else order)
        ]

    def fit_rows(self, variant="own"):
        plain = {"inverse_temperature": 1.0, "flags": []}
        return [
            {
                "variant": variant,
                "arm": arm,
                "reading": reading,
                **plain,
                **{**self.fits, **self.only_fitted}.get((arm, reading), {}),
            }
            for arm, reading in (NONE, *self.gains, *self.only_fitted)
        ]

    def draw_rows(self):
        """The latest draw first, so that a reader has to sort."""
        return [
            {"arm": arm, "reading": reading, "kind": kind, "draw": draw, "nll_sum": total}
            for (arm, reading, kind), totals in self.draws.items()
            for draw, total in reversed(list(enumerate(totals)))
        ]


METADATA = {
    "refusal": "",
    "note": "",
    "token_ids_sha256": "same",
    "prefix_id": 0,
    "dtype": "float32",
    "mean_state_energy": 3.0,
    "state_energy": 12.0,
}


def put_model(tables, fact, made, order=None):
    tables.put(fact, PRIOR, "prior_sums", made.sums(order=order))
    tables.put(fact, PRIOR, "prior_fits", made.fit_rows())
    tables.put(fact, PRIOR, "prior_draws", made.draw_rows())
    tables.put(fact, PRIOR, "prior_model", [{**METADATA, **made.metadata}])


def put_corpus(tables, group_of=lambda index: f"g{index}"):
    """Documents of both splits, the last record first."""
    rows = [
        {"index": index, "doc_id": str(index), "group": group_of(index), "split": ("EVAL", "FIT")[index % 2]}
        for index in reversed(range(2 * NUM))
    ]
    tables.put(CORPUS_FACT, CORPUS, "documents", rows)


def put_floor(tables, shares, *, increase=INCREASE, failures=None, refusal=""):
    """Damaged bases; ``shares`` are what every correction recovers of their loss, by kind and seed."""
    sums, fits, damage = [], [], []
    for kind, values in shares.items():
        for seed, share in enumerate(values):
            variant = f"{kind}.{seed}"
            made = Made(BASE + increase, dict.fromkeys((BIAS, TEMPERATURE, JOINT), share * increase))
            sums += made.sums(variant)
            fits += made.fit_rows(variant)
            row = {"variant": variant, "kind": kind, "seed": seed, "num_evaluations": 9}
            damage.append({**row, "sigma": 0.1 * (seed + 1), "failure": ""})
    for kind, why in (failures or {}).items():
        row = {"variant": f"{kind}.9", "kind": kind, "seed": 9, "num_evaluations": 9}
        damage.append({**row, "sigma": None, "failure": why})
    tables.put(FLOOR, PRIOR_FLOOR, "prior_sums", sums)
    tables.put(FLOOR, PRIOR_FLOOR, "prior_fits", fits)
    tables.put(FLOOR, PRIOR_FLOOR, "prior_draws", [])
    tables.put(FLOOR, PRIOR_FLOOR, "prior_model", [{"refusal": refusal}])
    tables.put(FLOOR, PRIOR_FLOOR, "prior_damage", damage)


def made_base(**changes):
    """Its own corrections recover something too, each another share of the later increase."""
    gains = {BIAS: 0.05 * INCREASE, TEMPERATURE: 0.2 * INCREASE, JOINT: 0.1 * INCREASE}
    return Made(**{"nll": BASE, "gains": gains, **changes})


def made_descendant(noise=0.0, increase=INCREASE, **changes):
    """``noise``: how much its gains vary between documents, nats per token; the totals stay."""
    jitter = TOKENS * np.random.default_rng(3).normal(0.0, noise, NUM)
    jitter -= jitter.mean()
    gains = {BIAS: 0.3 * INCREASE, TEMPERATURE: 0.5 * INCREASE, JOINT: 0.7 * INCREASE}
    gains = {arm: gain + jitter for arm, gain in gains.items()}
    return Made(**{"nll": BASE + increase, "gains": gains, **changes})


def tables_of(old=None, new=None, floor=None, **options):
    """Both models and, where ``floor`` gives shares by kind, the damaged bases."""
    tables = FakeTables()
    put_corpus(tables)
    put_model(tables, OLD, old or made_base())
    put_model(tables, NEW, new or made_descendant())
    if floor is not None:
        put_floor(tables, floor, **options)
    return tables


def results_of(tables):
    floor = FLOOR if tables.has(FLOOR) else None
    return Results(pair_results(SUBJECT, (OLD, NEW), floor, tables, np.random.default_rng(0)))
