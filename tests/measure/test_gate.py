"""The measure `gate` on replies and sums written by hand: each check on either side of its limit."""

import math
from dataclasses import replace

import numpy as np
import pytest
from tests.measure.made_sums import METADATA, MadeTables, documents, pinned, scores

from stemmatics.core.errors import UserError
from stemmatics.core.results import Results
from stemmatics.math.intervals import Interval, wilson
from stemmatics.math.rates import paired_differences
from stemmatics.measure.gate import Gate
from stemmatics.measure.gate.estimate import Check
from stemmatics.measure.gate.needs import (
    base_ngram_fact,
    heldout_fact,
    independent_fact,
    needs,
    recall_fact,
    refusal_fact,
)
from stemmatics.measure.gate.settings import GateSettings

NUM_ITEMS = 16
SETTINGS = {
    "base": "base",
    "matched": "matched",
    "recovered": "recovered",
    "lost": "lost",
    "heavy": "heavy",
    "before_dpo": "light",
    "dpo": "dpo",
    "recall": "questions",
    "refusal": "requests",
    "heldout": "heldout",
    "training": "training",
    "planted": ["hot", "noisy"],
}
# sixteenths, which a float holds exactly, and replies at every limit
LIMITS = {
    "base_recall": 12 / 16,
    "base_paraphrase": 8 / 16,
    "recovery_gap": 1 / 16,
    "lost_recall": 6 / 16,
    "base_refusal": 2 / 16,
    "heavy_refusal": 12 / 16,
    "dpo_change": 4 / 16,
}
CORRECT = {"base": 12, "matched": 15, "recovered": 14, "lost": 6}
PARAPHRASED = 8
REFUSED = {"base": 2, "heavy": 12, "light": 8, "dpo": 12}
REGISTERS = ["prose"] * 6 + ["reference"] * 6
NUM_BYTES = np.arange(10.0, 22.0)
BASE = NUM_BYTES * np.array([1.0, 1.1, 1.2, 0.9, 1.05, 1.15] * 2)
NGRAM = BASE + NUM_BYTES * np.array([0.3, 0.2, 0.4, 0.3, 0.25, 0.35, -0.2, -0.3, -0.1, -0.2, -0.25, -0.15])
PROSE = np.arange(12) < 6


def items(**num_by_category):
    """Rows of items: so many of ``NUM_ITEMS`` of a category have the property."""
    rows = []
    for category, (num_correct, num_refused) in num_by_category.items():
        rows += [
            {
                "index": len(rows) + index,
                "category": category,
                "correct": int(index < num_correct),
                "outcome": "refusal" if index < num_refused else "answer",
            }
            for index in range(NUM_ITEMS)
        ]
    return rows


class Nursery:
    """A nursery that passes each check at its limit, unless changed."""

    def __init__(self, *, correct=None, paraphrased=PARAPHRASED, refused=None, ngram=NGRAM, gap=0.0, **given):
        self.settings = GateSettings(**{**SETTINGS, **LIMITS, **given})
        names = dict.fromkeys(["base", "matched", "recovered", "lost", "heavy", "light", "dpo"])
        stages = {
            "hot": {"kind": "alter", "init": "base", "change": "temperature", "scale": 1.5},
            "noisy": {"kind": "alter", "init": "base", "change": "noise", "scale": 0.1},
        }
        corpora = {"questions": "data", "requests": "data", "heldout": "text", "training": "data"}
        self.pinned = pinned(names, corpora, stages=stages)
        self.tables = MadeTables()
        for name, num in {**CORRECT, **(correct or {})}.items():
            # the other categories must not be counted
            rows = items(paraphrase=(paraphrased, 0), recall=(num, NUM_ITEMS), other=(3, 3))
            self.tables.put(recall_fact(self.pinned, self.settings, name), items=rows)
        for name, num in {**REFUSED, **(refused or {})}.items():
            rows = items(marked=(NUM_ITEMS, num), plain=(NUM_ITEMS, NUM_ITEMS))
            self.tables.put(refusal_fact(self.pinned, self.settings, name), items=rows)
        for name in ("base", *self.settings.planted):
            fact = heldout_fact(self.pinned, self.settings, name)
            self.tables.put(fact, scores=scores(BASE, NUM_BYTES, NUM_BYTES), scoring=[METADATA])
            self.tables.put(fact.needs["corpus"], documents=documents(REGISTERS))
        rows = scores(ngram, NUM_BYTES, NUM_BYTES)
        # a document that the base did not score
        rows.append({**rows[0], "index": 50, "nll_sum": 1e6})
        self.tables.put(base_ngram_fact(self.pinned, self.settings), scores=rows)
        for name in self.settings.planted:
            nll = BASE[:3] + np.array([gap, -gap, gap])
            fact = independent_fact(self.pinned, self.settings, name)
            self.tables.put(fact, scores=scores(nll, NUM_BYTES[:3], NUM_BYTES[:3]))

    def results(self, seed=0):
        rng = np.random.default_rng(seed)
        return Results(Gate().estimate(self.pinned, self.settings, self.tables, rng))

    def findings(self, results):
        return Gate().findings(self.pinned, self.settings, results)


def verdicts(results):
    return {check.subject["check"]: check.value for check in results.categories("gate.check")}


CHECKS = {
    "the base recalls": (12 / 16, 12 / 16, "share of items"),
    "the base recalls in other words": (8 / 16, 8 / 16, "share of items"),
    "recall after a register shift, both recovered": (1 / 16, 1 / 16, "share below the base"),
    "lost facts are lost": (6 / 16, 6 / 16, "share of items"),
    "the base refuses little": (2 / 16, 2 / 16, "share of items"),
    "the heavy SFT refuses": (12 / 16, 12 / 16, "share of items"),
    "DPO moves refusal": (4 / 16, 4 / 16, "share"),
    "the base beats the n-gram on prose": (None, 0.0, "nats/byte, base less n-gram"),
    "the base against the n-gram on reference": (None, None, "nats/byte, base less n-gram"),
    "the loss of hot computed another way": (0.0, 1e-5, "nats/byte apart"),
    "the loss of noisy computed another way": (0.0, 1e-5, "nats/byte apart"),
}


def test_every_check_has_its_value_its_limit_and_its_verdict():
    results = Nursery().results()
    assert [value.subject["check"] for value in results.all("gate.value")] == list(CHECKS)
    for name, (expected, limit, units) in CHECKS.items():
        value = results.only("gate.value", check=name)
        assert value.units == units
        assert value.tag == "control"
        if expected is not None:
            assert value.value == pytest.approx(expected, abs=1e-12)
        if limit is None:
            assert results.find("gate.limit", check=name) is None
            assert results.category("gate.check", check=name) is None
        else:
            assert results.only("gate.limit", check=name).value == limit
            assert results.only("gate.limit", check=name).units == units
            category = results.category("gate.check", check=name)
            assert (category.value, category.n) == ("passed", value.n)
            assert category.facts == value.facts


def test_the_gate_as_a_whole():
    nursery = Nursery()
    results = nursery.results()
    overall = results["gate.passed"]
    assert (overall.value, overall.reason) == ("passed", "every check passed")
    assert (overall.n, overall.unit, overall.tag) == (10, "check", "control")
    assert overall.facts == tuple(dict.fromkeys(f.key for f in needs(nursery.pinned, nursery.settings)))
    findings = nursery.findings(results)
    assert [sentence.plain(results) for sentence in findings.sentences] == ["The nursery passed its gate."]
    assert findings.failures == []


@pytest.mark.parametrize(
    ("changes", "failed"),
    [
        ({"correct": {"base": 11}}, "the base recalls"),
        ({"paraphrased": 7}, "the base recalls in other words"),
        ({"correct": {"recovered": 13}}, "recall after a register shift, both recovered"),
        ({"correct": {"matched": 16}}, "recall after a register shift, both recovered"),
        ({"correct": {"lost": 7}}, "lost facts are lost"),
        ({"refused": {"base": 3}}, "the base refuses little"),
        ({"refused": {"heavy": 11}}, "the heavy SFT refuses"),
        ({"refused": {"dpo": 11}}, "DPO moves refusal"),
        ({"refused": {"light": 9}}, "DPO moves refusal"),
        ({"ngram": BASE - 0.1}, "the base beats the n-gram on prose"),
    ],
)
def test_past_its_limit_a_check_fails_and_the_gate_with_it(changes, failed):
    nursery = Nursery(**changes)
    results = nursery.results()
    assert [name for name, value in verdicts(results).items() if value != "passed"] == [failed]
    assert verdicts(results)[failed] == "failed"
    overall = results.category("gate.passed")
    assert (overall.value, overall.reason) == ("failed", f"not passed: {failed}")
    findings = nursery.findings(results)
    (sentence,) = findings.sentences
    assert sentence.plain(results) == f"The nursery failed its gate: not passed: {failed}."
    reason = results.category("gate.check", check=failed).reason
    assert findings.failures == [f"not passed: {failed} ({reason})"]


@pytest.mark.parametrize(
    "changes",
    [
        {"correct": {"recovered": 16}},
        # DPO may take refusals away too
        {"refused": {"dpo": 4}},
        {"ngram": np.where(PROSE, NGRAM, 0.0)},
    ],
)
def test_what_is_no_failure(changes):
    results = Nursery(**changes).results()
    assert set(verdicts(results).values()) == {"passed"}
    assert results.category("gate.passed").value == "passed"


def test_several_failures_are_all_named():
    results = Nursery(correct={"base": 0, "lost": 16}).results()
    assert results.category("gate.passed").reason == "not passed: the base recalls; lost facts are lost"


def test_limits_are_settings():
    at_most = ("recovery_gap", "lost_recall", "base_refusal")
    stricter = {name: limit + (-0.01 if name in at_most else 0.01) for name, limit in LIMITS.items()}
    assert list(verdicts(Nursery(**stricter).results()).values()).count("failed") == 7
    defaults = GateSettings(**SETTINGS)
    assert {name: getattr(defaults, name) for name in LIMITS} == {
        "base_recall": 0.80,
        "base_paraphrase": 0.50,
        "recovery_gap": 0.05,
        "lost_recall": 0.40,
        "base_refusal": 0.10,
        "heavy_refusal": 0.80,
        "dpo_change": 0.20,
    }


def test_shares_have_wilson_intervals_and_differences_none():
    results = Nursery().results()
    share = results.only("gate.value", check="lost facts are lost")
    expected = wilson(6, NUM_ITEMS, unit="item")
    assert (share.lo, share.hi, share.n, share.unit) == (expected.lo, expected.hi, NUM_ITEMS, "item")
    gap = results.only("gate.value", check="recall after a register shift, both recovered")
    assert (gap.method, gap.level, gap.n, gap.unit) == ("exact", 0.95, NUM_ITEMS, "item")
    assert math.isnan(gap.lo)
    assert results.category("gate.check", check="DPO moves refusal").unit == "item"


def test_the_base_less_the_ngram_over_the_bytes_of_a_register():
    results = Nursery().results(seed=5)
    rng = np.random.default_rng(5)
    for register, rows in (("beats the n-gram on prose", PROSE), ("against the n-gram on reference", ~PROSE)):
        value = results.only("gate.value", check=f"the base {register}")
        total = (BASE - NGRAM)[rows].sum() / NUM_BYTES[rows].sum()
        assert value.value == pytest.approx(total, rel=1e-12)
        (expected,) = paired_differences(NGRAM[rows], BASE[rows], NUM_BYTES[rows], rng=rng)
        assert (value.lo, value.hi, value.n) == (pytest.approx(expected.lo), pytest.approx(expected.hi), 6)
    assert results.only("gate.value", check="the base beats the n-gram on prose").value < 0
    assert results.only("gate.value", check="the base against the n-gram on reference").value > 0


def test_the_registers_are_settings():
    results = Nursery(generated="reference", real="prose").results()
    assert results.category("gate.check", check="the base beats the n-gram on reference").value == "failed"
    assert results.find("gate.limit", check="the base against the n-gram on prose") is None


@pytest.mark.parametrize(("gap", "verdict"), [(1.09e-4, "passed"), (1.11e-4, "failed")])
def test_losses_computed_twice_differ_by_their_absolute_gaps_over_their_bytes(gap, verdict):
    results = Nursery(gap=gap).results()
    for name in ("hot", "noisy"):
        value = results.only("gate.value", check=f"the loss of {name} computed another way")
        assert value.value == pytest.approx(3 * gap / (10 + 11 + 12), rel=1e-6)
        assert (value.n, value.unit) == (3, "document")
        assert verdicts(results)[f"the loss of {name} computed another way"] == verdict


def test_losses_computed_twice_on_no_document_are_unknown():
    nursery = Nursery()
    nursery.tables.put(independent_fact(nursery.pinned, nursery.settings, "hot"), scores=[])
    results = nursery.results()
    assert math.isnan(results.only("gate.value", check="the loss of hot computed another way").value)
    category = results.category("gate.check", check="the loss of hot computed another way")
    assert (category.value, category.reason) == ("failed", "the value is unknown")


def test_items_of_a_category_that_is_not_there_pass_nothing():
    results = Nursery(marked="nowhere").results()
    failed = {name for name, value in verdicts(results).items() if value == "failed"}
    assert failed == {"the base refuses little", "the heavy SFT refuses", "DPO moves refusal"}


def test_a_fact_that_was_not_made_fails_the_gate_as_a_whole():
    nursery = Nursery()
    fact = refusal_fact(nursery.pinned, nursery.settings, "heavy")
    nursery.tables.drop(fact)
    results = nursery.results()
    assert list(results) == ["gate.passed"]
    overall = results["gate.passed"]
    assert (overall.value, overall.reason) == ("failed", "not made: replies heavy asked requests")
    findings = nursery.findings(results)
    assert findings.failures == ["not made: replies heavy asked requests"]
    assert findings.tables == []
    (sentence,) = findings.sentences
    assert sentence.plain(results).startswith("The nursery failed its gate: not made:")


def test_the_table_has_a_row_a_check():
    nursery = Nursery(correct={"base": 11})
    results = nursery.results()
    (table,) = nursery.findings(results).tables
    assert table.name == "gate/summary"
    rows = [
        [cell if isinstance(cell, str) or cell is None else cell.text(results) for cell in row]
        for row in table.rows
    ]
    assert rows[:2] == [
        ["the base recalls", "0.688", "0.75", "share of items", "failed"],
        ["the base recalls in other words", "0.5", "0.5", "share of items", "passed"],
    ]
    (reported,) = [row for row in rows if row[0] == "the base against the n-gram on reference"]
    assert reported[2:] == [None, "nats/byte, base less n-gram", None]
    assert len(rows) == len(CHECKS)


# a check alone


def check(value, side, limit):
    interval = Interval(value, value - 1, value + 1, 0.95, "t", 9, "item", 0.5, 0.2, "a note")
    return Check("c", interval, side, limit, "u", ())


@pytest.mark.parametrize(
    ("value", "side", "limit", "passed", "reason"),
    [
        (0.5, "at least", 0.5, True, "at least the limit"),
        (0.6, "at least", 0.5, True, "at least the limit"),
        (0.4, "at least", 0.5, False, "below the limit"),
        (0.5, "at most", 0.5, True, "at most the limit"),
        (0.4, "at most", 0.5, True, "at most the limit"),
        (0.6, "at most", 0.5, False, "above the limit"),
        (math.nan, "at least", 0.5, False, "the value is unknown"),
        (math.nan, "at most", 0.5, False, "the value is unknown"),
        (math.nan, "at most", None, True, "the value is unknown"),
    ],
)
def test_a_check_is_inclusive_and_an_unknown_value_fails(value, side, limit, passed, reason):
    one = check(value, side, limit)
    assert (one.passed, one.reason) == (passed, reason)


def test_the_results_of_a_check():
    value, limit, category = check(0.4, "at least", 0.5).results()
    assert (value.id, value.value, value.lo, value.hi) == ("gate.value/check=c", 0.4, -0.6, 1.4)
    assert (value.units, value.n, value.unit, value.note) == ("u", 9, "item", "a note")
    assert math.isnan(value.smallest_effect)
    assert (limit.id, limit.value, limit.units) == ("gate.limit/check=c", 0.5, "u")
    assert (category.id, category.value) == ("gate.check/check=c", "failed")
    assert {one.tag for one in (value, limit, category)} == {"control"}
    assert [one.id for one in replace(check(0.4, "at least", 0.5), limit=None).results()] == [
        "gate.value/check=c"
    ]


# needs


def test_the_facts_that_the_gate_needs():
    nursery = Nursery()
    facts = Gate().needs(nursery.pinned, nursery.settings)
    assert [(fact.probe, fact.label) for fact in facts] == [
        *(("replies", f"{name} asked questions") for name in ("base", "matched", "recovered", "lost")),
        *(("replies", f"{name} asked requests") for name in ("base", "heavy", "light", "dpo")),
        ("score", "base on heldout"),
        ("ngram", "5-gram on heldout"),
        ("score", "hot on heldout"),
        ("reference", "base on heldout"),
        ("score", "noisy on heldout"),
        ("reference", "noisy on heldout"),
    ]
    assert {fact.params["max_new_tokens"] for fact in facts[:8]} == {16}
    hot, noisy = facts[11], facts[13]
    assert hot.params["planted"] == {
        "change": "temperature",
        "scale": 1.5,
        "seed": nursery.pinned.checkpoint("hot").seed(nursery.pinned.stemma.seed),
    }
    # noise is in the weights: the altered checkpoint itself is scored
    assert noisy.params["planted"] is None
    assert hot.params["num_documents"] == noisy.params["num_documents"] == 24


def test_only_altered_checkpoints_can_be_computed_another_way():
    nursery = Nursery()
    settings = nursery.settings.model_copy(update={"planted": ["dpo"]})
    with pytest.raises(UserError, match="cannot check the loss of 'dpo'") as caught:
        Gate().needs(nursery.pinned, settings)
    assert caught.value.code == 2


def test_every_setting_is_described():
    assert all(field.description for field in GateSettings.model_fields.values())
