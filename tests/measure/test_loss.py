"""The measure `loss` on sums written by hand, whose answers are known."""

import math

import numpy as np
import pytest
from tests.measure.made_loss import (
    BASE,
    MIXED,
    NUM_BYTES,
    NUM_TOKENS,
    PROSE,
    WORSE,
    Made,
    cells,
    parted,
    table_of,
    texts,
)
from tests.measure.made_sums import doc_id, parts, pinned, scores

from stemmatics.core.errors import UserError
from stemmatics.core.results import Category, Estimate, Refusal
from stemmatics.measure.loss import Loss
from stemmatics.measure.loss.estimate import verdict
from stemmatics.measure.loss.needs import control_fact, needs
from stemmatics.measure.loss.settings import LossSettings

# needs


def test_every_checkpoint_is_scored_on_every_text_with_its_control():
    study = pinned({"base": None, "a": "base"}, {"one": "text", "two": "text", "training": "data"})
    facts = needs(study, LossSettings())
    assert [(fact.probe, fact.label, fact.tag) for fact in facts] == [
        (probe, f"{name} on {corpus}", tag)
        for corpus in ("one", "two")
        for name in ("base", "a")
        for probe, tag in (("score", "main"), ("reference", "control"))
    ]
    assert {fact.params["num_documents"] for fact in facts if fact.probe == "reference"} == {4}
    assert Loss().needs(study, LossSettings(checks=0)) == facts[::2]
    assert needs(study, LossSettings(corpora=["two"])) == facts[4:]
    assert needs(study, LossSettings(corpora=["training"], checks=0))[0].needs["corpus"].label == "training"
    assert needs(study, LossSettings(checkpoints=["a"])) == [*facts[2:4], *facts[6:8]]


def test_a_scoring_of_its_own_goes_before_the_stemmas():
    study = pinned({"base": None}, {"text": "text"}, scoring={"prefix": "never"})
    own = LossSettings(scoring={"prefix": "always"})
    assert {fact.params["scoring"]["prefix"] for fact in needs(study, LossSettings())} == {"never"}
    assert {fact.params["scoring"]["prefix"] for fact in needs(study, own)} == {"always"}


def test_checkpoints_keep_their_declared_order_and_unknown_ones_are_named():
    study = pinned({"base": None, "a": "base", "b": "base"}, {"text": "text"})
    picked = needs(study, LossSettings(checkpoints=["b", "base"], checks=0))
    assert [fact.label for fact in picked] == ["base on text", "b on text"]
    with pytest.raises(UserError, match="checkpoint 'c'"):
        needs(study, LossSettings(checkpoints=["c"]))


def test_every_setting_is_described():
    assert all(field.description for field in LossSettings.model_fields.values())
    assert (LossSettings().checks, LossSettings().movers) == (4, 5)


# native loss and differences


def test_native_loss_is_nats_over_bytes_and_over_tokens_by_register():
    results = Made({"a": WORSE}).results()
    for name, nll in (("base", BASE), ("a", BASE + WORSE * NUM_BYTES)):
        for register, rows in (("all", slice(None)), ("prose", PROSE), ("code", ~PROSE)):
            for kind, denominator in (("byte", NUM_BYTES), ("token", NUM_TOKENS)):
                found = results.only(f"loss.native.{kind}", checkpoint=name, register=register, corpus="text")
                assert found.value == pytest.approx(nll[rows].sum() / denominator[rows].sum(), rel=1e-12)
                assert found.units == f"nats/{kind}"
                assert found.n == len(nll[rows])
                assert found.lo < found.value < found.hi
    assert len(results.all("loss.native.byte")) == 6


def test_a_difference_is_descendant_minus_base_over_the_bases_bytes():
    made = Made({"a": WORSE})
    results = made.results()
    added = WORSE * NUM_BYTES
    for register, rows in (("all", slice(None)), ("prose", PROSE), ("code", ~PROSE)):
        for kind, denominator in (("byte", NUM_BYTES), ("token", NUM_TOKENS)):
            delta = results.only(f"loss.delta.{kind}", register=register)
            assert delta.value == pytest.approx(added[rows].sum() / denominator[rows].sum(), rel=1e-9)
            assert delta.units == f"nats/{kind}"
            assert delta.facts == (made.fact("base").key, made.fact("a").key)
    whole = results.only("loss.delta.byte", register="all")
    assert whole.id == "loss.delta.byte/base=base/corpus=text/descendant=a/register=all"
    assert 0 < whole.lo < whole.value < whole.hi
    assert whole.method == "guarded bootstrap-t"


def test_a_single_register_is_reported_once():
    results = Made({"a": WORSE}, registers=["prose"] * 6).results()
    assert [delta.subject["register"] for delta in results.all("loss.delta.byte")] == ["all"]
    assert [one.subject["register"] for one in results.all("loss.native.token")] == ["all", "all"]


def test_the_same_seed_gives_the_same_results():
    made = Made({"a": WORSE, "b": MIXED})
    assert dict(made.results(3)) == dict(made.results(3))
    delta = "loss.delta.byte/base=base/corpus=text/descendant=b/register=all"
    assert made.results(3)[delta].lo != made.results(4)[delta].lo


# verdicts


def difference(lo, hi, value=0.0):
    subject = {"base": "b", "descendant": "d", "corpus": "t", "register": "all"}
    return Estimate(
        "loss", "loss.delta.byte", subject, value, lo, hi, n=7, unit="group of documents", facts=("x", "y")
    )


@pytest.mark.parametrize(
    ("lo", "hi", "value", "reason"),
    [
        (0.01, 0.02, "lost", "the whole interval is above zero"),
        (0.0, 0.02, "undecided", "the interval includes zero"),
        (-0.01, 0.02, "undecided", "the interval includes zero"),
        (-0.02, 0.0, "undecided", "the interval includes zero"),
        (0.0, 0.0, "undecided", "the interval includes zero"),
        (-0.02, -0.01, "improved", "the whole interval is below zero"),
        (math.nan, math.nan, "undecided", "the interval is unknown"),
    ],
)
def test_a_verdict_needs_the_whole_interval_on_its_side(lo, hi, value, reason):
    found = verdict(difference(lo, hi, value=0.5))
    assert found == Category(
        "loss",
        "loss.verdict",
        {"base": "b", "descendant": "d", "corpus": "t"},
        value,
        reason,
        n=7,
        unit="group of documents",
        facts=("x", "y"),
    )
    assert found.id == "loss.verdict/base=b/corpus=t/descendant=d"


def test_pairs_are_counted_by_verdict_on_each_corpus():
    made = Made(
        {"worse": WORSE, "worse2": 2 * WORSE, "better": -WORSE, "same": 0 * WORSE, "half": WORSE},
        corpora=("one", "two"),
        metadata={"half": {"dtype": "float16"}},
    )
    results = made.results()
    for corpus in ("one", "two"):
        verdicts = {
            category.subject["descendant"]: category.value
            for category in results.categories("loss.verdict", corpus=corpus)
        }
        assert verdicts == {
            "worse": "lost", "worse2": "lost", "better": "improved", "same": "undecided",
        }  # fmt: skip
        counts = {one.subject["verdict"]: one for one in results.all("loss.count", corpus=corpus)}
        assert {name: count.value for name, count in counts.items()} == {
            "lost": 2, "improved": 1, "undecided": 1, "refused": 1,
        }  # fmt: skip
        assert {(count.n, count.unit, count.units) for count in counts.values()} == {(5, "pair", "pairs")}
        expected = [made.fact(name, corpus).key for name in made.pinned.stemma.names]
        assert set(counts["lost"].facts) == set(expected)
        assert len(counts["lost"].facts) == len(expected)


# refusals


@pytest.mark.parametrize(
    ("metadata", "bytes_of", "reason", "fix"),
    [
        (
            {},
            {"a": NUM_BYTES + np.array([0, 0, 0, 0, 0, 1])},
            "they did not score the same bytes in every document",
            "set scoring.prefix to always, so that every model scores the first byte",
        ),
        (
            {"dtype": "bfloat16"},
            None,
            "they were scored in different precision (float32 and bfloat16)",
            "set numerics.dtype",
        ),
        (
            {"window_size": 30, "window_stride": 20},
            None,
            "their windows differ (100 tokens, stride 90 and 30 tokens, stride 20)",
            "set scoring.windows.size",
        ),
    ],
)
def test_a_pair_that_is_not_comparable_by_byte_is_refused_with_the_reason(metadata, bytes_of, reason, fix):
    made = Made({"a": WORSE, "fine": WORSE}, metadata={"a": metadata}, bytes_of=bytes_of)
    results = made.results()
    refusal = results["loss.delta.byte/base=base/corpus=text/descendant=a/register=all"]
    assert refusal == Refusal(
        "loss",
        "loss.delta.byte",
        {"base": "base", "descendant": "a", "corpus": "text", "register": "all"},
        reason,
        fix,
        facts=(made.fact("base").key, made.fact("a").key),
    )
    # there is no other result of the pair
    assert list(results.about(descendant="a")) == [refusal.id]
    assert results.category("loss.verdict", descendant="fine").value == "lost"

    findings = made.findings(results)
    assert findings.failures == [f"base → a: {reason}; {fix}"]
    assert f"a cannot be compared with base on text: {reason}; {fix}." in texts(findings, results)
    rows = cells(table_of(findings, "loss/summary/text"), results)
    assert [row[:3] for row in rows] == [["base", "a", "refused"], ["base", "fine", "lost"]]
    assert rows[0][3:] == [None, None, None]
    assert texts(findings, results)[0].endswith("; 1 could not be compared.")


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        ({"token_ids_sha256": "others"}, "their token ids differ"),
        ({"prefix_id": 7}, "their prefixes differ (ids 0 and 7)"),
    ],
)
def test_a_pair_with_other_tokens_is_compared_by_byte_only(metadata, reason):
    made = Made({"a": WORSE}, metadata={"a": metadata})
    made.tables.put(made.fact("a"), score_parts=parts("position", {"0-63": {0: 1.0}}))
    results = made.results()
    assert len(results.all("loss.delta.byte")) == 3
    assert results.all("loss.delta.token") == results.all("loss.where") == []
    (refusal,) = results.refusals()
    assert refusal.id == "loss.delta.token/base=base/corpus=text/descendant=a/register=all"
    assert (refusal.reason, refusal.fix) == (reason, "")
    assert results.find("loss.count", verdict="refused").value == 0
    findings = made.findings(results)
    assert findings.failures == []
    assert (
        texts(findings, results)[-1]
        == f"a and base are compared on text by byte only, not by token: {reason}."
    )


def test_a_loss_that_is_not_a_number_leaves_no_verdict():
    added = WORSE.copy()
    added[2] = math.nan
    made = Made({"a": added, "fine": WORSE})
    results = made.results()
    assert math.isnan(results.only("loss.delta.byte", descendant="a", register="all").value)
    assert results.only("loss.delta.byte", descendant="a", register="code").lo > 0
    assert [one.subject["descendant"] for one in results.categories("loss.verdict")] == ["fine"]
    assert results.find("loss.count", verdict="refused").value == 1
    # the document itself is no mover
    assert "2" not in {one.subject["document"] for one in results.all("loss.mover", descendant="a")}
    findings = made.findings(results)
    (failure,) = findings.failures
    assert failure.startswith("base → a: unknown: a value is missing")
    (unknown,) = [text for text in texts(findings, results) if "is unknown" in text]
    assert unknown.startswith("The difference between a and base on text is unknown (n/a): unknown: a value")
    rows = cells(table_of(findings, "loss/summary/text"), results)
    assert rows[0][:4] == ["base", "a", None, "n/a"]
    summary = texts(findings, results)[:2]
    assert summary[0].endswith("; 1 could not be compared.")
    assert summary[1].startswith("Largest increase on text: fine, ")


def test_without_a_known_difference_there_is_no_summary():
    made = Made({"a": WORSE * math.nan})
    results = made.results()
    assert [sentence.topic for sentence in made.findings(results).sentences] == ["loss"]


def test_a_checkpoint_that_failed_leaves_out_its_pairs_only():
    made = Made({"a": WORSE, "b": WORSE})
    made.tables.drop(made.fact("a"))
    results = made.results()
    assert results.about(checkpoint="a") == results.about(descendant="a") == {}
    assert results.find("loss.count", verdict="lost").value == 1
    made.tables.drop(made.fact("base"))
    results = made.results()
    assert {result.quantity for result in results.values()} == {
        "loss.native.byte", "loss.native.token", "loss.count",
    }  # fmt: skip
    assert {count.value for count in results.all("loss.count")} == {0.0}
    findings = made.findings(results)
    assert findings.sentences == []
    assert [table.name for table in findings.tables] == ["loss/native/text"]
    assert findings.draw() == []


# where it went


def test_the_bins_of_an_axis_add_up_to_the_difference():
    made, added = parted()
    results = made.results()
    whole = results.only("loss.delta.byte", register="all").value
    for axis in ("position", "token_class"):
        found = results.all("loss.where", axis=axis)
        assert sum(part.value for part in found) == pytest.approx(whole, abs=1e-12)
    total = NUM_BYTES.sum()
    expected = {
        ("position", "0-63"): -0.75 / total,
        ("position", "64-255"): added[1:].sum() / total,
        ("position", "256-1023"): added[0] / total,
        ("position", "1024-4095"): 0.75 / total,
        ("token_class", "number"): (BASE + added).sum() / total,
        ("token_class", "word_start"): -BASE.sum() / total,
    }
    found = {(part.subject["axis"], part.subject["bin"]): part for part in results.all("loss.where")}
    assert {key: part.value for key, part in found.items()} == pytest.approx(expected, abs=1e-12)
    # in the order of the numbers
    assert list(found) == list(expected)
    assert {(part.units, part.n) for part in found.values()} == {("nats/byte", 6)}
    assert "register" not in found["position", "0-63"].subject


# the largest movers


def movers(results, descendant="a"):
    return [
        (one.subject["direction"], one.subject["rank"], one.subject["document"], one.value)
        for one in results.all("loss.mover", descendant=descendant)
    ]


def test_movers_are_ranked_by_nats_per_byte_of_the_document():
    made = Made({"a": MIXED})
    results = made.results()
    found = movers(results)
    assert [row[:3] for row in found] == [
        ("improved", "01", "3"),
        ("improved", "02", "1"),
        ("worsened", "01", "2"),
        ("worsened", "02", "0"),
    ]
    assert [row[3] for row in found] == pytest.approx([-0.13, -0.11, 0.12, 0.10])
    first = results.all("loss.mover")[0]
    assert (first.n, first.units, first.method) == (1, "nats/byte", "exact")
    assert first.subject["doc_id"] == doc_id(3)[:12]
    assert first.subject["register"] == "code"
    assert first.facts == (made.fact("base").key, made.fact("a").key)
    rows = cells(table_of(made.findings(results), "loss/movers/text"), results)
    assert rows[0] == ["base", "a", "improved", "3", doc_id(3)[:12], "code", "-0.1300"]
    assert rows[3] == ["base", "a", "worsened", "0", doc_id(0)[:12], "prose", "+0.1000"]


@pytest.mark.parametrize(
    ("added", "directions"),
    [
        (WORSE, ["least worsened"] * 2 + ["worsened"] * 2),
        (-WORSE, ["improved"] * 2 + ["least improved"] * 2),
        (0 * WORSE, ["least worsened"] * 2 + ["least improved"] * 2),
        (
            np.array([-0.1, 0.1, 0.2, 0.3, 0.4, 0.5]),
            ["improved", "least worsened", "worsened", "worsened"],
        ),
        (
            np.array([0.1, -0.1, -0.2, -0.3, -0.4, -0.5]),
            ["improved", "improved", "worsened", "least improved"],
        ),
    ],
)
def test_a_document_that_did_not_improve_is_not_called_improved(added, directions):
    found = movers(Made({"a": added}).results())
    assert [row[0] for row in found] == directions
    assert [row[1] for row in found] == ["01", "02", "01", "02"]


def test_more_movers_than_documents_list_each_document_at_both_ends():
    found = movers(Made({"a": WORSE}, movers=9).results())
    assert [row[2] for row in found] == ["4", "0", "1", "2", "3", "5", "5", "3", "2", "1", "0", "4"]
    assert movers(Made({"a": WORSE}, movers=0).results()) == []


# the control


def controlled():
    made = Made({"a": WORSE}, checks=3)
    plain = [11.25, 22.5, 29.0]
    rows = scores(plain, NUM_TOKENS[:3], NUM_BYTES[:3])
    # a document that the scoring left out has bytes, and nothing to be compared with
    rows.append({"index": 77, "doc_id": doc_id(77), "nll_sum": 5.0, "num_tokens": 1, "num_bytes": 40})
    fact = control_fact(made.pinned, made.settings, "base", "text")
    made.tables.put(fact, scores=rows)
    return made, fact


def test_the_control_adds_up_absolute_differences_over_the_bytes_of_the_plain_loop():
    made, fact = controlled()
    results = made.results()
    (control,) = results.all("loss.control")
    assert control.id == "loss.control/checkpoint=base/corpus=text"
    assert control.value == pytest.approx((0.25 + 0.5 + 0.0) / 100)
    assert (control.n, control.units, control.tag) == (3, "nats/byte", "control")
    assert control.facts == (fact.key,)
    assert cells(table_of(made.findings(results), "loss/control/text"), results) == [
        ["base", "7.50e-03", "3"]
    ]
    made.tables.put(fact, scores=[])
    assert math.isnan(made.results().only("loss.control").value)


def test_without_checks_there_is_no_control():
    made, _ = controlled()
    without = Made({"a": WORSE}, checks=0)
    without.tables = made.tables
    assert without.results().all("loss.control") == []
