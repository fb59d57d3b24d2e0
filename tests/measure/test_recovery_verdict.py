"""The verdict of a pair from its facts: what it needs, what decides it, and what the retention rests on."""

import math

import numpy as np
import pyarrow as pa
import pytest
from tests.measure.recovery_by_hand import make_study, results_of

from stemmatics.core.facts import Fact
from stemmatics.core.results import Results
from stemmatics.measure.recovery.pairs import read_pairs, run_noise
from stemmatics.measure.recovery.recall import read_recall, read_recalls, recall_estimates
from stemmatics.measure.recovery.verdict import verdict_results

PAIR = ("base", "tuned")
NUM_DOCUMENTS, NUM_ITEMS = 40, 144
RUNS = np.array([-0.001, 0.0, 0.001])
# losses of all arms: a gap of .5, of which .02 is left on either pool
SHIFTED = {"native": 1.5, "recovered": 1.02, "second": 1.01}
FORGOTTEN = {"native": 1.5, "recovered": 1.20, "second": 1.18}


def scatter(seed, size=0.004):
    """The same for every arm but one: documents make differences scatter."""
    return size * np.random.default_rng(seed).standard_normal(NUM_DOCUMENTS)


def study_of(
    losses,
    *,
    kept=NUM_ITEMS,
    items=True,
    runs=3,
    documents=NUM_DOCUMENTS,
    groups=None,
    second=True,
    copies=1,
):
    """A base at 1.0 on both pools (.99 on the second) and a descendant, with every fact."""
    study = make_study(
        {"base": {"regime": "base"}, "tuned": {"base": "base", "regime": "sft"}},
        num_bytes=[100] * documents * copies,
        registers=["prose", "code"] * (documents // 2) * copies,
        groups=groups,
        runs=runs,
        base_runs=runs,
        second_pool="second-pool" if second else None,
        items="items" if items else None,
    )

    def arm(level, seed):
        return np.tile(level + scatter(seed)[:documents], copies)

    def arms(level, seed):
        return [arm(level + shift, seed) for shift in np.resize(RUNS, runs)]

    study.add_arm("base", arms(1.0, 0), second=arm(0.99, 1))
    study.add_arm(
        "tuned",
        arms(losses["recovered"], 2),
        native=arm(losses["native"], 3),
        second=arm(losses["second"], 4),
    )
    if items:
        for run in (None, *range(runs)):
            study.add_replies("base", [1] * NUM_ITEMS, run=run)
            study.add_replies("tuned", [int(item < kept) for item in range(NUM_ITEMS)], run=run)
    return study


def results(study):
    losses = study.losses()
    pairs = read_pairs(losses, study.arms.pairs, run_noise(losses), np.random.default_rng(0))
    recalls = read_recalls(study.arms, study)
    return Results(verdict_results(losses, pairs, recalls, np.random.default_rng(0)))


def verdict_of(study):
    return results(study).category("recovery.verdict", descendant="tuned")


@pytest.mark.parametrize(
    ("losses", "kept", "word", "reason"),
    [
        (SHIFTED, NUM_ITEMS, "register", "recall is kept, and a fine-tune takes at least nine tenths"),
        (FORGOTTEN, 50, "forgetting", "recall is lost, and the residual stands on both pools"),
        (SHIFTED, 50, "both", "recall is lost, and a fine-tune takes at least nine tenths"),
        (
            FORGOTTEN | {"second": 1.07},
            50,
            "both",
            "recall is lost, and the second pool takes back more than half",
        ),
        (FORGOTTEN, NUM_ITEMS, "undetermined", "recall is kept; the residual stands on both pools"),
        (
            SHIFTED,
            130,
            "undetermined",
            "recall is neither shown to be kept nor to be lost; a fine-tune takes",
        ),
        # better than its base as released: there is no gap to take back
        (SHIFTED | {"native": 0.8}, NUM_ITEMS, "undetermined", "recall is kept; the residual is neither"),
    ],
)
def test_the_verdict_and_what_decided_it(losses, kept, word, reason):
    found = verdict_of(study_of(losses, kept=kept))
    assert found.value == word
    assert found.reason.startswith(reason)


@pytest.mark.parametrize(
    ("less", "missing"),
    [
        ({"items": False}, "recall items, of which none were asked"),
        ({"second": False}, "a fine-tune of both on a second pool"),
        ({"runs": 2}, "three different runs of base and descendant on the first pool"),
        ({"runs": 1}, "three different runs of base and descendant on the first pool"),
        ({"documents": 18}, "twenty different documents"),
    ],
)
@pytest.mark.parametrize("losses", [SHIFTED, FORGOTTEN])
def test_a_verdict_without_all_it_needs_is_undetermined_and_says_what_is_missing(less, missing, losses):
    kept = NUM_ITEMS if losses is SHIFTED else 50
    assert verdict_of(study_of(losses, kept=kept)).value != "undetermined"
    found = verdict_of(study_of(losses, kept=kept, **less))
    assert (found.value, found.reason) == ("undetermined", f"needs {missing}")


def test_a_run_that_was_not_asked_is_missing():
    study = study_of(SHIFTED)
    del study.rows["replies", "tuned recovered on pool, run 2 asked items"]
    assert verdict_of(study).reason == "needs the replies of every run"


def test_copies_of_runs_of_documents_and_of_items_are_no_evidence():
    study = study_of(SHIFTED, runs=4)
    assert verdict_of(study).value == "register"
    # the fourth run is a copy of the first, and so is the third
    for run in (2, 3):
        study.add_scores(f"tuned recovered on pool, run {run}", SHIFTED["recovered"] + RUNS[0] + scatter(2))
    assert verdict_of(study).reason == "needs three different runs of base and descendant on the first pool"
    near = study_of(SHIFTED, groups=[number % 19 for number in range(NUM_DOCUMENTS)])
    assert verdict_of(near).reason == "needs twenty different documents"
    few = study_of(SHIFTED)
    for rows in (rows["items"] for (probe, _), rows in few.rows.items() if probe == "replies"):
        for number, row in enumerate(rows):
            row["item_id"] = f"item {number % 39}"
    assert verdict_of(few).reason == "needs forty different recall items that the matched base answers"


def test_copies_of_documents_change_no_interval():
    once = results(study_of(SHIFTED))
    twice = results(study_of(SHIFTED, groups=list(range(NUM_DOCUMENTS)) * 2, copies=2))
    for statement in once.all("recovery.verdict.statement"):
        copied = twice[statement.id]
        assert (copied.value, copied.lo, copied.hi) == pytest.approx(
            (statement.value, statement.lo, statement.hi)
        )


def test_runs_that_agree_to_the_last_digit_in_a_register_say_nothing_of_others():
    study = study_of(SHIFTED)
    # all runs alike on code (odd documents), different on prose
    code = np.arange(NUM_DOCUMENTS) % 2 == 1
    for name, level, seed in (("base", 1.0, 0), ("tuned", SHIFTED["recovered"], 2)):
        for run, shift in enumerate(RUNS):
            label = f"{name} recovered on pool" + (f", run {run}" if run else "")
            study.add_scores(label, level + np.where(code, 0.0, shift) + scatter(seed))
    found = results(study)
    words = {each.subject["register"]: each.value for each in found.categories("recovery.verdict.register")}
    assert words == {"prose": "register", "code": "undetermined"}


def test_each_register_with_enough_of_it_has_a_verdict_of_its_own():
    study = study_of(SHIFTED)
    code = np.arange(NUM_DOCUMENTS) % 2 == 1
    for run, shift in enumerate(RUNS):
        label = "tuned recovered on pool" + (f", run {run}" if run else "")
        study.add_scores(label, np.where(code, 1.3, 1.02) + shift + scatter(2))
    study.add_scores("tuned recovered on second-pool", np.where(code, 1.3, 1.01) + scatter(4))
    found = results(study)
    words = {each.subject["register"]: each.value for each in found.categories("recovery.verdict.register")}
    assert words == {"prose": "register", "code": "undetermined"}
    code_reason = next(each.reason for each in found.categories("recovery.verdict.register", register="code"))
    assert code_reason.startswith("recall is kept; the residual stands on both pools")
    # the whole text's verdict is apart from those of registers
    assert len(found.categories("recovery.verdict")) == 1


def test_a_verdict_is_a_category_with_the_numbers_behind_it_and_verdicts_are_counted():
    found = results(study_of(FORGOTTEN, kept=50))
    forgot = found.category("recovery.verdict", descendant="tuned")
    assert forgot.id == "recovery.verdict/base=base/corpus=text/descendant=tuned"
    assert (forgot.n, forgot.unit) == (NUM_ITEMS, "item")
    above = found.only("recovery.verdict.statement", statement="above-first")
    assert above.value == pytest.approx(0.20 - 0.1 * 0.5, abs=0.003)
    assert 0 < above.lo < above.value < above.hi
    assert (above.level, above.unit) == (0.95, "document and run")
    kept = found.only("recovery.verdict.retention")
    assert kept.value == pytest.approx(50 / 144 - 1)
    assert kept.n == NUM_ITEMS
    counts = {each.subject["verdict"]: (each.value, each.n) for each in found.all("recovery.verdicts")}
    assert counts == {"forgetting": (1, 1), "register": (0, 1), "both": (0, 1), "undetermined": (0, 1)}


def test_what_would_settle_it_is_counted_by_kind_of_evidence():
    # recall falls by about a tenth: neither kept nor lost on so few items
    found = results(study_of(SHIFTED, kept=132))
    assert found.category("recovery.verdict").value == "undetermined"
    wanted = {each.subject["evidence"]: each.value for each in found.all("recovery.verdict.needed")}
    assert set(wanted) == {"items"}
    assert wanted["items"] > NUM_ITEMS
    assert "more recall items would about decide" in found.category("recovery.verdict").reason
    # nothing is asked for where a verdict is given, or where none would come of it
    for study in (study_of(SHIFTED), study_of(FORGOTTEN)):
        assert results(study).all("recovery.verdict.needed") == []
    assert "would not decide" in verdict_of(study_of(FORGOTTEN)).reason


class _Arms:
    """Four arms whose replies are made up; base and descendant have two runs each."""

    def __init__(self, right):
        self.right = right
        self.settings = type("S", (), {"items": "items", "categories": ["recall"], "margin": 0.05})()

    def num_runs(self, _name):
        return 2

    def replies(self, name, _items, *, run):
        return Fact("replies", 1, {"of": name, "run": run})

    def has(self, fact):
        return (fact.params["of"], fact.params["run"]) in self.right

    def read(self, fact, _table):
        right = self.right[fact.params["of"], fact.params["run"]]
        rows = [
            {"index": index, "item_id": f"i{index}", "correct": int(each), "num_accepted": 1}
            | {"category": "recall"}
            for index, each in enumerate(right)
        ]
        rows += [
            {"index": 90, "item_id": "x", "correct": 1, "num_accepted": 1, "category": "paraphrase"},
            {"index": 91, "item_id": "y", "correct": 0, "num_accepted": 0, "category": "recall"},
        ]
        return pa.Table.from_pylist(rows[::-1])


ANSWERS = {
    ("base", None): [1, 1, 1, 1, 1, 0],
    ("base", 0): [1, 1, 1, 1, 0, 0],
    ("base", 1): [0, 1, 1, 1, 0, 0],
    ("descendant", None): [0, 0, 0, 1, 1, 0],
    ("descendant", 0): [0, 0, 1, 1, 1, 0],
    ("descendant", 1): [0, 0, 0, 1, 1, 0],
}


def test_items_lost_and_gained_are_those_of_the_first_runs():
    arms = _Arms(ANSWERS)
    found = read_recall(arms, ("base", "descendant"), arms)
    assert (found.num_lost, found.num_gained, found.num_lost_between_runs) == (2, 1, 1)
    assert found.change.value == pytest.approx(-1 / 6)
    assert found.change.n == 6


def test_retention_reads_every_run_of_both_arms():
    arms = _Arms(ANSWERS)
    found = read_recall(arms, ("base", "descendant"), arms)
    # right in both: base 0 and 1 share 3; base 0 with the runs 2 and 1, base 1 with 2 and 1
    kept = found.retention([0, 1], [0, 1])
    assert kept.value == pytest.approx((2 + 1 + 2 + 1) / 4 / 3 - 1)
    assert kept.known == pytest.approx((4 + 3) / 2)
    # a run that is left out because it is a copy is no run
    assert found.retention([0], [0, 1]) is None
    assert found.retention([0, 1], [0]).value == pytest.approx((2 + 2) / 2 / 3 - 1)


def test_a_run_whose_replies_failed_is_not_counted():
    arms = _Arms({key: right for key, right in ANSWERS.items() if key != ("descendant", 1)})
    found = read_recall(arms, ("base", "descendant"), arms)
    assert found.retention([0, 1], [0, 1]).value == pytest.approx((2 + 2) / 2 / 3 - 1)
    arms = _Arms({key: right for key, right in ANSWERS.items() if key != ("base", None)})
    assert read_recall(arms, ("base", "descendant"), arms) is None


def test_the_four_arms_have_their_shares_and_needed_counts_items():
    arms = _Arms(ANSWERS)
    results = results_of(recall_estimates([read_recall(arms, ("base", "descendant"), arms)]))
    shares = {share.subject["arm"]: share.value for share in results.all("recovery.recall")}
    assert shares == pytest.approx(
        {"native base": 5 / 6, "matched base": 4 / 6, "native": 2 / 6, "recovered": 3 / 6}
    )
    numbers = {name: results.only(f"recovery.recall.{name}").value for name in ("lost", "gained")}
    assert numbers == {"lost": 2, "gained": 1}
    assert results.only("recovery.recall.lost_between_runs").value == 1
    needed = results.only("recovery.recall.needed")
    assert (needed.units, math.floor(needed.value)) == ("items", needed.value)
