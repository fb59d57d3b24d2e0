"""The measure `divergence` on sums written by hand: means, quantiles, controls, floor, and what it says."""

import math

import numpy as np
import pyarrow as pa
import pytest
from tests.measure.made_sums import doc_id, pinned

from stemmatics.core.errors import UserError
from stemmatics.core.results import Results
from stemmatics.facts.corpus import DOCUMENTS
from stemmatics.facts.divergence import (
    ATTENTION,
    DIVERGENCE,
    HALF_PRECISION,
    ITSELF,
    ON_FLOOR,
    PAIR,
    damage_name,
)
from stemmatics.math.divergence import bin_of
from stemmatics.measure.divergence import Divergence
from stemmatics.measure.divergence.estimate import BEYOND, UNDETERMINED, WITHIN
from stemmatics.measure.divergence.needs import pair_facts
from stemmatics.measure.divergence.settings import DivergenceSettings

NUM_DOCUMENTS, NUM_TOKENS = 60, 50
SUBJECT = {"base": "base", "descendant": "tuned", "corpus": "text"}


class Made:
    """A pair on one corpus: KL by token and comparison; everything else follows."""

    def __init__(self, kl=0.05, *, controls=(1e-5, 1e-3, 1e-5), damage=(), refusal="", failure="", seed=0):
        self.study = pinned({"base": None, "tuned": "base"}, {"text": "text"})
        self.settings = DivergenceSettings()
        ((_, _, _, self.fact),) = pair_facts(self.study, self.settings)
        rng = np.random.default_rng(seed)
        spread = rng.lognormal(0, 0.5, (NUM_DOCUMENTS, NUM_TOKENS))
        self.kl_DT = kl * spread / spread.mean()
        rows = {PAIR: self.kl_DT, ON_FLOOR: self.kl_DT[:20]}
        for name, mean in zip((ITSELF, HALF_PRECISION, ATTENTION), controls, strict=False):
            rows[name] = mean * spread[:10]
        for draw, mean in enumerate(damage, start=1):
            rows[damage_name(draw)] = mean * spread[:20] / spread[:20].mean()
        sums = (
            []
            if refusal
            else [self._row(name, i, row) for name, of in rows.items() for i, row in enumerate(of)]
        )
        model = {
            "refusal": refusal,
            "noise_scales": [0.1 * (1 + draw) for draw in range(len(damage))],
            "noise_failure": failure or ("" if damage else "the descendant did not lose"),
        }
        self.tables = {
            "divergence_sums": sums,
            "divergence_bins": [] if refusal else [self._bins(i, row) for i, row in enumerate(self.kl_DT)],
            "divergence_parts": [] if refusal else self._parts(),
            "divergence_model": [model],
        }

    @staticmethod
    def _row(comparison, index, kl_T):
        return {
            "index": index,
            "comparison": comparison,
            "kl": float(kl_T.sum()),
            "kl_reverse": float(1.1 * kl_T.sum()),
            "js": float(0.2 * kl_T.sum()),
            "delta_logp": -0.01 * len(kl_T),
            "delta_p_squared": 0.04 * len(kl_T),
            "delta_entropy": 0.02 * len(kl_T),
            "same_top1": 0.9 * len(kl_T),
            "top1_in_top5": 0.99 * len(kl_T),
            "num_tokens": len(kl_T),
            "num_outside_support": 0,
            "num_set_to_zero": 0,
            "kl_max": float(kl_T.max()),
        }

    @staticmethod
    def _bins(index, kl_T):
        bins, counts = np.unique(bin_of(kl_T), return_counts=True)
        return {"index": index, "bins": bins.tolist(), "counts": counts.tolist()}

    def _parts(self):
        halves = {"word_start": slice(0, 20), "number": slice(20, None)}
        return [
            {
                "index": index,
                "axis": "token_class",
                "bin": name,
                "kl": float(kl_T[part].sum()),
                "same_top1": 0.5 * len(kl_T[part]),
                "num_tokens": len(kl_T[part]),
            }
            for index, kl_T in enumerate(self.kl_DT)
            for name, part in halves.items()
        ]

    def has(self, _fact):
        return True

    def read(self, fact, table):
        if table == "documents":
            rows = [
                {
                    **dict.fromkeys(DOCUMENTS.names),
                    "index": index,
                    "doc_id": doc_id(index),
                    "register": "prose" if index % 2 else "code",
                    "group": f"group {index}",
                }
                for index in range(NUM_DOCUMENTS)
            ]
            return pa.Table.from_pylist(rows, schema=DOCUMENTS)
        assert fact.key == self.fact.key
        schema = DIVERGENCE.tables[table]
        rows = [{**dict.fromkeys(schema.names), **row} for row in self.tables[table]]
        return pa.Table.from_pylist(rows, schema=schema)

    def results(self):
        rng = np.random.default_rng(1)
        return Results(Divergence().estimate(self.study, self.settings, self, rng))

    def text(self):
        results = self.results()
        findings = Divergence().findings(self.study, self.settings, results)
        return " ".join(sentence.plain(results) for sentence in findings.sentences)


def test_one_fact_per_pair_and_corpus():
    study = pinned(
        {"base": None, "a": "base", "b": "base"}, {"one": "text", "two": "text", "training": "data"}
    )
    facts = Divergence().needs(study, DivergenceSettings())
    assert [fact.label for fact in facts] == [
        f"base and {name} on {corpus}" for corpus in ("one", "two") for name in ("a", "b")
    ]
    assert len(Divergence().needs(study, DivergenceSettings(corpora=["two"]))) == 2
    only_b = Divergence().needs(study, DivergenceSettings(descendants=["b"]))
    assert [fact.label for fact in only_b] == ["base and b on one", "base and b on two"]
    with pytest.raises(UserError, match="checkpoint 'c'"):
        Divergence().needs(study, DivergenceSettings(descendants=["c"]))
    assert {fact.params["control_tokens"] for fact in facts} == {512}
    assert {(fact.params["floor_tokens"], fact.params["draws"]) for fact in facts} == {(1024, 3)}


def test_means_are_sums_over_tokens_by_register():
    made = Made()
    results = made.results()
    for register, rows in (("all", slice(None)), ("prose", slice(1, None, 2)), ("code", slice(0, None, 2))):
        for quantity, factor in (("kl", 1.0), ("kl_reverse", 1.1), ("js", 0.2)):
            estimate = results.only(f"divergence.{quantity}", register=register, **SUBJECT)
            assert estimate.value == pytest.approx(factor * made.kl_DT[rows].mean(), rel=1e-12)
            assert estimate.lo < estimate.value < estimate.hi
            assert (estimate.units, estimate.unit) == ("nats/token", "document")
            assert estimate.n == len(made.kl_DT[rows])
        same = results.only("divergence.same_top1", register=register, **SUBJECT)
        assert (same.value, same.units) == (pytest.approx(0.9), "share of tokens")
        rms = results.only("divergence.rms_delta_p", register=register, **SUBJECT)
        assert rms.value == pytest.approx(0.2)
        assert rms.lo == pytest.approx(0.2)


def test_the_root_of_a_mean_square_keeps_its_limits_and_its_smallest_effect():
    made = Made()
    rng = np.random.default_rng(2)
    squares = rng.uniform(0.01, 0.09, NUM_DOCUMENTS)
    for row, square in zip(made.tables["divergence_sums"], squares, strict=False):
        row["delta_p_squared"] = square * NUM_TOKENS
    rms = made.results().only("divergence.rms_delta_p", register="all", **SUBJECT)
    assert rms.value == pytest.approx(math.sqrt(squares.mean()), rel=1e-12)
    error = squares.std(ddof=1) / math.sqrt(NUM_DOCUMENTS)
    half = (rms.hi**2 - rms.lo**2) / 2
    assert half == pytest.approx(2 * error, rel=0.1)
    assert rms.smallest_effect == pytest.approx(2.85 * error / (2 * rms.value), rel=0.1)


def test_quantiles_and_the_maximum_are_those_of_all_tokens():
    made = Made()
    results = made.results()
    values = np.sort(made.kl_DT.ravel())
    for name, probability in (("kl_p50", 0.5), ("kl_p90", 0.9), ("kl_p99", 0.99)):
        estimate = results.only(f"divergence.{name}", register="all", **SUBJECT)
        exact = values[math.ceil(probability * values.size) - 1]
        assert estimate.value == pytest.approx(exact, rel=0.01)
    # 3,000 tokens have 3 beyond the last
    assert not results.only("divergence.kl_p999", register="all", **SUBJECT).is_known
    maximum = results.only("divergence.kl_max", register="all", **SUBJECT)
    assert (maximum.value, maximum.n, maximum.unit) == (values[-1], values.size, "token")
    prose = results.only("divergence.kl_max", register="prose", **SUBJECT)
    assert prose.value == made.kl_DT[1::2].max()


def test_parts_are_means_over_the_tokens_of_a_bin():
    made = Made()
    results = made.results()
    for name, part in (("word_start", slice(0, 20)), ("number", slice(20, None))):
        subject = {**SUBJECT, "axis": "token_class", "bin": name}
        assert results.only("divergence.where", **subject).value == pytest.approx(made.kl_DT[:, part].mean())
        assert results.only("divergence.where_same_top1", **subject).value == pytest.approx(0.5)


# the numerical floor


def test_a_divergence_above_every_control_is_beyond_precision():
    made = Made(0.05)
    assert made.results().category("divergence.verdict", register="all", **SUBJECT).value == BEYOND
    assert "more than precision or attention change base alone (at most 0.00" in made.text()


def test_a_divergence_below_a_control_is_within_precision():
    made = Made(1e-5, controls=(0.0, 1e-2, 0.0))
    assert made.results().category("divergence.verdict", register="all", **SUBJECT).value == WITHIN
    assert "less than precision" in made.text()
    assert "more than precision" not in made.text()


def test_a_divergence_near_a_control_has_no_verdict():
    made = Made(1e-3, controls=(0.0, 0.9e-3, 0.0))
    assert made.results().category("divergence.verdict", register="all", **SUBJECT).value == UNDETERMINED
    assert "than precision" not in made.text()


def test_without_controls_nothing_is_said_of_precision():
    made = Made(controls=())
    verdict = made.results().category("divergence.verdict", register="all", **SUBJECT)
    assert (verdict.value, verdict.reason) == (UNDETERMINED, "no numerical control was measured")
    assert "than precision" not in made.text()


@pytest.mark.parametrize(
    ("mean", "controls"), [(0.05, (0.0, 0.03, 0.0)), (1e-4, (0.0, 2e-4, 0.0)), (0.05, ())]
)
def test_fewer_documents_never_add_a_verdict(mean, controls):
    """Leaving out documents at the same estimates widens the interval; a verdict can only be lost."""
    made = Made(mean, controls=controls)
    full = made.results().category("divergence.verdict", register="all", **SUBJECT).value
    # every document the same but for two opposite ones: the mean stays, the spread grows
    wide = Made(mean, controls=controls)
    for row in wide.tables["divergence_sums"]:
        if row["comparison"] == PAIR:
            row["kl"] = made.kl_DT.sum() / NUM_DOCUMENTS * (1.9 if row["index"] % 2 else 0.1)
    widened = wide.results().category("divergence.verdict", register="all", **SUBJECT).value
    assert widened in {full, UNDETERMINED}


# the floor of random damage


def test_the_ratio_to_random_damage_is_of_the_same_documents():
    made = Made(0.05, damage=(0.02, 0.03))
    results = made.results()
    ratio = results.only("divergence.against_damage", **SUBJECT)
    assert ratio.value == pytest.approx(made.kl_DT[:20].mean() / 0.025, rel=1e-9)
    assert results.only("divergence.floor", **SUBJECT).value == pytest.approx(0.025)
    assert results.only("divergence.on_floor", **SUBJECT).value == pytest.approx(made.kl_DT[:20].mean())
    assert results.only("divergence.floor_lowest", **SUBJECT).value == pytest.approx(0.02)
    assert results.only("divergence.floor_highest", **SUBJECT).value == pytest.approx(0.03)
    assert "more than random damage with the same loss increase" in made.text()


def test_less_than_random_damage_is_said_so():
    assert "less than random damage" in Made(0.01, damage=(0.02, 0.03)).text()


def test_nothing_is_said_where_the_ratio_is_not_clear_of_one():
    made = Made(0.05, damage=(0.05, 0.05))
    for row in made.tables["divergence_sums"]:
        if row["comparison"] == ON_FLOOR:
            row["kl"] *= 1.6 if row["index"] % 2 else 0.5
    ratio = made.results().only("divergence.against_damage", **SUBJECT)
    assert ratio.lo < 1 < ratio.hi
    assert "random damage" not in made.text()


def test_without_damage_there_is_a_reason_and_no_ratio():
    made = Made(failure="the descendant did not lose on these documents")
    results = made.results()
    assert results.refusal("divergence.floor", **SUBJECT).reason.startswith("the descendant did not lose")
    assert results.find("divergence.against_damage", **SUBJECT) is None
    assert "random damage" not in made.text()


def test_a_pair_with_other_tokens_is_refused_with_the_reason():
    made = Made(refusal="the tokenizers differ")
    results = made.results()
    assert results.refusal("divergence.kl", **SUBJECT).reason == "the tokenizers differ"
    assert results.find("divergence.kl", **SUBJECT) is None
    text = made.text()
    assert "cannot be compared by token: the tokenizers differ" in text
    assert "nats/token" not in text


def test_every_number_of_the_findings_is_a_result():
    made = Made(0.05, damage=(0.02, 0.03))
    results = made.results()
    findings = Divergence().findings(made.study, made.settings, results)
    names = [table.name for table in findings.tables]
    assert names == [
        f"divergence/{name}/text" for name in ("summary", "quantiles", "by-register", "where", "floors")
    ]
    claims = [
        cell for table in findings.tables for row in table.rows for cell in row if hasattr(cell, "result")
    ]
    assert claims
    assert {claim.result for claim in claims} <= set(results)
    assert len(findings.draw()) == 2
