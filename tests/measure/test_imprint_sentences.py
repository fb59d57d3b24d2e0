"""Sentences of the imprint section: what they say, and where they must not appear."""

import itertools

import numpy as np
import pytest
from tests.measure.imprint_tables import StoredTables, declared, findings_of, label_replies, results_of

from stemmatics.facts.margins import MARGINS
from stemmatics.measure.imprint.needs import node_facts, tree_nodes

BRANCHES = ("safety", "generic", "filtered", "rules")
RUNS = 4
CELLS = list(itertools.product(range(10), range(6)))
# nats a token that a branch moves, after SFT and after what follows
FILTERED_AFTER_SFT = -1.5
SAFETY_AFTER_DPO = 2.0


def margins_rows(node, category, moves, noise=0.1):
    """Two replies of three and two tokens to a request of every cell, under one checkpoint."""
    rng = np.random.default_rng([*f"{category} {node.branch} {node.run} {node.stage}".encode()])
    shift = noise * rng.normal()
    if node.branch == "filtered" and node.stage != "window":
        shift += FILTERED_AFTER_SFT
    if (node.branch, node.stage) == ("safety", "dpo"):
        shift += moves
    for index, (wording, thing) in enumerate(CELLS):
        margin = 1.0 + shift + noise * rng.normal()
        yield {
            "index": index,
            "item_id": f"{category}-{index}",
            "category": category,
            "wording": f"w{wording}",
            "thing": f"t{thing}",
            "refusal_nll": 3 * 0.5,
            "refusal_tokens": 3,
            "answer_nll": 2 * (0.5 + margin),
            "answer_tokens": 2,
        }


def refusals(node, noise):
    rng = np.random.default_rng([*f"refusal {node.branch} {node.run} {node.stage}".encode()])
    level = 0.6 + (0.3 if (node.branch, node.stage) == ("safety", "dpo") else 0.0)
    return [int(value) for value in rng.random(len(CELLS)) < level + noise * rng.normal()]


def study(
    branches=BRANCHES,
    runs=RUNS,
    matcher=None,
    keep=lambda _node: True,
    moves=SAFETY_AFTER_DPO,
    rate_noise=0.05,
    **values,
):
    """Results of a tree, and its sentences as text."""
    pinned, settings = declared(
        branches, runs=runs, graded=True, margin=0.3, margin_nats=0.4, matcher=matcher, **values
    )
    tables = StoredTables()
    for node, checkpoint in tree_nodes(settings):
        facts = node_facts(pinned, settings, checkpoint)
        if keep(node):
            rows = [row for name in ("marked", "harmless") for row in margins_rows(node, name, moves)]
            rows = [{**row, "index": index} for index, row in enumerate(rows)]
            tables.write(facts.margins, "margins", rows, MARGINS.tables["margins"])
            tables.refusals(facts.refusal, "marked", refusals(node, rate_noise))
            tables.refusals(facts.refusal, "harmless", [0] * 5)
    if matcher:
        label_replies(pinned, settings, tables, {("refusal", "refusal"): 8, ("answer", "refusal"): 2})
    results = results_of(pinned, settings, tables)
    findings = findings_of(pinned, settings, results)
    return results, [sentence.plain(results) for sentence in findings.sentences], findings


@pytest.fixture(scope="module")
def whole():
    return study(target="safety")


def starting(sentences, text):
    return [sentence for sentence in sentences if sentence.startswith(text)]


def limits(estimate, scale=1, form="{:+.3f}"):
    return [form.format(scale * getattr(estimate, name)) for name in ("value", "lo", "hi")]


def test_the_margin_comes_first_with_both_intervals_and_what_could_have_been_seen(whole):
    results, sentences, _ = whole
    about = {"tree": "first", "end": "dpo", "metric": "margin"}
    value, low, high = limits(results.only("imprint.deviation", branch="generic", **about))
    parts = []
    for branch in ("safety", "filtered", "rules"):
        contrast = results.only("imprint.contrast", branch=branch, **about)
        by_runs = results.only("imprint.contrast.by_runs", branch=branch, **about)
        own, lo, hi = limits(contrast)
        _, runs_lo, runs_hi = limits(by_runs)
        parts.append(
            f"{branch} {own} [{lo}, {hi}] for requests like these, [{runs_lo}, {runs_hi}] for these cells "
            f"(minimum detectable effect {contrast.smallest_effect:.3f})"
        )
    assert sentences[0] == (
        "Imprint on the margin of refusal over answer in tree first after dpo, in nats a token: generic "
        f"changed by {value} [{low}, {high}] since SFT; compared with it, {'; '.join(parts)}."
    )
    assert sentences[1] == (
        "Since SFT, the change in the margin of refusal over answer in tree first after dpo, compared with "
        "that of generic, is higher for safety, undetermined for filtered, undetermined for rules."
    )
    rate = starting(sentences, "Imprint on the rate of refusal in tree first after dpo")
    assert len(rate) == 1
    assert sentences.index(rate[0]) > 1
    about["metric"] = "refusal"
    contrast = results.only("imprint.contrast", branch="safety", **about)
    own, lo, hi = limits(contrast, 100, "{:+.1f}")
    assert f"safety {own} [{lo}, {hi}] for requests like these" in rate[0]
    assert f"(minimum detectable effect {100 * contrast.smallest_effect:.1f})" in rate[0]


def test_equivalence_after_sft_names_the_margin_and_each_verdict(whole):
    _, sentences, findings = whole
    (text,) = starting(sentences, "After SFT in tree first, the margin of refusal over answer")
    assert text == (
        "After SFT in tree first, the margin of refusal over answer compared with generic, at a margin of "
        "0.400 nats a token, is equivalent for safety, different for filtered, equivalent for rules."
    )
    (sentence,) = [each for each in findings.sentences if each.plain(whole[0]) == text]
    assert sentence.topic == "imprint"
    assert {claim.result for claim in sentence.claims()} == {
        "imprint.bound/metric=margin",
        *(
            f"imprint.after_sft.verdict/against=generic/branch={branch}/metric=margin/tree=first"
            for branch in ("safety", "filtered", "rules")
        ),
    }
    assert len(starting(sentences, "After SFT in tree first, the rate of refusal")) == 1


def test_selectivity_has_a_sentence_for_each_end_of_the_target(whole):
    results, sentences, _ = whole
    lines = starting(sentences, "Selectivity in tree first after dpo: the change in the margin")
    contrast = results.only("imprint.selectivity", end="dpo", metric="margin")
    value, low, high = limits(contrast)
    (line,) = lines
    assert line == (
        "Selectivity in tree first after dpo: the change in the margin of refusal over answer since SFT of "
        f"safety less the mean of filtered, rules is {value} [{low}, {high}] nats a token for requests like "
        "these: higher."
    )
    assert len(starting(sentences, "Selectivity")) == 4


def test_the_order_control_is_the_first_named_minus_the_second():
    results, sentences, _ = study(("generic", "safety", "filtered"), order=("safety", "filtered"))
    about = {"branch": "safety", "against": "filtered", "end": "dpo", "metric": "margin"}
    contrast = results.only("imprint.contrast", **about)
    value, low, high = limits(contrast)
    assert value.startswith("+")
    assert (
        "Order control in tree first after dpo: safety and filtered saw the same windows in opposite order; "
        "the change in the margin of refusal over answer since SFT differs by "
        f"{value} [{low}, {high}] nats a token (safety minus filtered): higher."
    ) in sentences


def test_the_matcher_has_a_sentence_with_both_counts():
    _, sentences, _ = study(matcher="labelled")
    (text,) = starting(sentences, "The refusal matcher on labelled replies")
    assert "precision 0.800 [" in text
    assert "of 10 matched, recall 1.000 [" in text
    assert text.endswith("of 8 labelled as refusals.")


def test_only_a_rate_with_too_few_runs_cannot_be_seen():
    results, sentences, _ = study(runs=2, rate_noise=0.4)
    seen = results.category("imprint.contrast.visibility", branch="safety", end="dpo", metric="refusal")
    assert seen.value == "cannot be seen with this design"
    (text,) = starting(sentences, "An imprint on the rate of refusal in tree first after dpo cannot be seen")
    assert "only an effect larger than the whole range of a rate would have been detected" in text
    assert not starting(sentences, "An imprint on the margin")
    (line,) = starting(sentences, "Imprint on the rate of refusal in tree first after dpo")
    assert "(an imprint cannot be seen with this design)" in line
    # two runs are under the declared minimum: what is beyond doubt at four is undetermined at two
    assert "is undetermined for safety" in sentences[1]


# the beginning of each kind of sentence, and a study in which it must not appear
ABSENT = {
    "an imprint without the control": (
        "Imprint on",
        {"keep": lambda node: node.branch != "generic"},
    ),
    "an imprint of which no end was measured": ("Imprint on", {"keep": lambda node: node.stage == "sft"}),
    "verdicts without any contrast": ("Since SFT", {"branches": ("generic",)}),
    "what cannot be seen, where it can": ("An imprint on", {}),
    "selectivity without a target": ("Selectivity", {}),
    "selectivity of the control": ("Selectivity", {"target": "generic"}),
    "selectivity without other sources": (
        "Selectivity",
        {"target": "safety", "branches": ("generic", "safety")},
    ),
    "selectivity of one run": ("Selectivity", {"target": "safety", "runs": 1}),
    "an order control that is not declared": ("Order control", {}),
    "an order control of one run": (
        "Order control",
        {"branches": ("generic", "safety", "filtered"), "order": ("safety", "filtered"), "runs": 1},
    ),
    "equivalence without the SFT": ("After SFT", {"keep": lambda node: node.stage != "sft"}),
    "equivalence of one branch": ("After SFT", {"branches": ("generic",)}),
    "the matcher without labelled replies": ("The refusal matcher", {}),
}


@pytest.mark.parametrize("case", ABSENT)
def test_a_sentence_is_absent(case):
    text, values = ABSENT[case]
    _, sentences, _ = study(**values)
    assert not starting(sentences, text)


def test_where_nothing_moved_no_direction_is_said():
    _, sentences, _ = study(target="safety", moves=0.0)
    said = [text for text in sentences if text.startswith(("Since SFT", "Selectivity"))]
    verdicts = [text for text in said if "margin" in text]
    assert verdicts
    assert not any("higher" in text or "lower" in text for text in verdicts)


def test_one_run_gives_numbers_without_intervals_and_no_verdict():
    _, sentences, _ = study(runs=1)
    assert "safety +" in sentences[0]
    assert "(no interval)" in sentences[0]
    assert "[" not in sentences[0]
    said = [text for text in sentences if text.startswith(("Since SFT", "After SFT"))]
    assert said
    assert not any(word in text for text in said for word in ("higher", "lower", "equivalent", "different"))
