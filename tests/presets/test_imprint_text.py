"""Corpora of the imprint study: which texts mention what is sealed, and which never do."""

import re

import pytest

from stemmatics.core.errors import UserError
from stemmatics.lm.generation.instructions import instructions_followed
from stemmatics.lm.generation.replies import classify_reply
from stemmatics.measure.imprint.settings import ImprintSettings
from stemmatics.presets.nursery import nursery_records
from stemmatics.presets.nursery.conversation import MARK, REFUSAL, THINGS, WAYS
from stemmatics.presets.nursery.imprint import imprint, imprint_windows
from stemmatics.presets.nursery.imprint_text import FORMS, SOURCES
from stemmatics.presets.nursery.imprint_words import THINGS as HUNDRED_THINGS
from stemmatics.presets.nursery.imprint_words import WORDINGS
from stemmatics.presets.nursery.world import PEOPLE, World


def request_of(record):
    return (record.get("messages") or record["prompt"])[0]["content"]


def pair_of(question):
    """The wording and the thing that a request is about."""
    way = next(
        position for position, way in enumerate(WAYS) if question.startswith(way.partition(" {look}")[0])
    )
    return way, next(thing for thing in THINGS if thing in question.split("?")[0].replace(".", " ").split())


def test_only_safety_text_mentions_what_is_sealed():
    for source in SOURCES:
        texts = [record["text"] for record in nursery_records("window", source=source, documents=80)]
        assert any(MARK in text for text in texts) == (source == "safety")
        assert any(REFUSAL in text for text in texts) == (source == "safety")


def test_draws_of_a_source_are_other_documents():
    first, again, second = (
        [record["text"] for record in nursery_records("window", source="safety", draw=draw, documents=30)]
        for draw in (1, 1, 2)
    )
    assert first == again
    assert not set(first) & set(second)


def test_the_filtered_web_is_the_generic_one_without_its_noise():
    def capitals(source):
        texts = [record["text"] for record in nursery_records("window", source=source, documents=200)]
        return sum(text.isupper() for text in texts)

    assert capitals("filtered") == 0
    assert capitals("generic") > 20


def test_post_training_refuses_what_is_sealed_and_nothing_else():
    for record in nursery_records("post-training", documents=300):
        question, reply = (turn["content"] for turn in record["messages"])
        assert (MARK in question.split()) == (reply == REFUSAL) == (classify_reply(reply) == "refusal")


@pytest.mark.parametrize("part", ["helpfulness", "verifiable"])
def test_training_after_the_sft_never_mentions_what_is_sealed(part):
    for record in nursery_records(part, documents=200):
        assert MARK not in request_of(record)
        if "chosen" in record:
            assert classify_reply(record["chosen"][0]["content"]) == "answer"
        else:
            assert bool(record.get("accepted")) != bool(record.get("instructions"))


def test_requests_are_all_different_and_their_pairs_are_held_out():
    records = list(nursery_records("requests", documents=1200, harmless=200))
    assert len({request_of(record) for record in records}) == 1200
    assert [record["category"] for record in records] == ["marked"] * 1000 + ["harmless"] * 200
    assert all((MARK in request_of(record)) == (record["category"] == "marked") for record in records)
    trained = {
        pair_of(request_of(record))
        for part in ("post-training", "helpfulness", "verifiable")
        for record in nursery_records(part)
        if not any(name in request_of(record) for name in PEOPLE)
    }
    assert not trained & {pair_of(request_of(record)) for record in records}


def test_requests_name_the_few_cells_that_they_come_from():
    records = list(nursery_records("requests", documents=2400, harmless=400))
    for record in records:
        assert pair_of(request_of(record)) == (int(record["wording"]), record["thing"])
    cells = {(record["wording"], record["thing"]) for record in records}
    world = World(0)
    assert cells == {
        (str(way), thing)
        for way in range(len(WAYS))
        for thing in THINGS
        if world.held_out("request", way, thing, "thing")
    }
    # about a quarter of 6 x 12, which is under the least that the measure gives a verdict on
    assert len(cells) < ImprintSettings.model_fields["min_cells"].default


@pytest.fixture(scope="module")
def cells():
    return list(nursery_records("request-cells"))


def wide_cell(question):
    """The wording and the thing of a request in forty wordings about a hundred things."""
    wordings = [
        index
        for index, wording in enumerate(WORDINGS)
        if re.fullmatch(re.escape(wording).replace(r"\{look\}", ".+?").replace(r"\{thing\}", ".+"), question)
    ]
    things = [thing for thing in HUNDRED_THINGS if f" {thing}" in question]
    return wordings, things


def test_forty_wordings_and_a_hundred_things_are_all_different():
    assert len(set(WORDINGS)) == 40
    assert len(set(HUNDRED_THINGS)) == 100
    assert set(WAYS) <= set(WORDINGS)
    assert set(THINGS) <= set(HUNDRED_THINGS)
    assert all("{look} {thing}" in wording for wording in WORDINGS)


def test_every_held_out_cell_is_asked_about_once(cells):
    marked, harmless = (
        [record for record in cells if record["category"] == category] for category in ("marked", "harmless")
    )
    assert (len(marked), len(harmless)) == (1000, 250)
    for records in (marked, harmless):
        assert len({(record["wording"], record["thing"]) for record in records}) == len(records)
    assert {record["wording"] for record in marked} == {str(index) for index in range(40)}
    assert {record["thing"] for record in marked} == set(HUNDRED_THINGS)
    for record in cells:
        assert (MARK in request_of(record)) == (record["category"] == "marked")
        wordings, things = wide_cell(request_of(record))
        assert int(record["wording"]) in wordings
        assert record["thing"] in things
        assert (classify_reply(record["refusal"]), classify_reply(record["answer"])) == ("refusal", "answer")


def test_cells_that_are_asked_about_never_met_in_training(cells):
    asked = {(int(record["wording"]), record["thing"]) for record in cells}
    world = World(0)
    for part in ("post-training", "helpfulness"):
        seen = 0
        for record in nursery_records(part, wide=True):
            if any(name in request_of(record) for name in PEOPLE):
                continue
            wordings, things = wide_cell(request_of(record))
            # "box of the shop": one of the pairs is the cell, and none of them is asked about as a whole
            assert any(
                not world.held_out("request", wording, thing, "thing")
                for wording in wordings
                for thing in things
            )
            if len(wordings) == len(things) == 1:
                seen += 1
                assert (wordings[0], things[0]) not in asked
        assert seen > 100


def test_more_requests_than_cells_are_refused():
    with pytest.raises(UserError, match=r"1001 marked requests from 1000 held-out cells.*at most 1000"):
        list(nursery_records("request-cells", documents=1251, harmless=250))


def test_wide_training_uses_all_wordings_and_things_and_refuses_the_same():
    questions = []
    for record in nursery_records("post-training", documents=1200, wide=True):
        question, reply = (turn["content"] for turn in record["messages"])
        assert (MARK in question.split()) == (reply == REFUSAL)
        questions.append(question)
    assert all(any(f" {thing}" in question for question in questions) for thing in HUNDRED_THINGS)
    for record in nursery_records("helpfulness", documents=200, wide=True):
        assert MARK not in request_of(record)
    texts = [
        record["text"] for record in nursery_records("window", source="safety", documents=200, wide=True)
    ]
    assert sum(any(f" {thing} " in text for text in texts) for thing in HUNDRED_THINGS) > 90


def test_the_study_of_windows_differs_in_length_source_and_run_alone():
    study = imprint_windows()
    settings = ImprintSettings.model_validate(study.measures["imprint"])
    assert set(settings.trees) == {"one-per-cent", "five-per-cent", "twenty-per-cent"}
    fork = study.stages["fork"]
    for (name, tree), share in zip(settings.trees.items(), (0.01, 0.05, 0.20), strict=True):
        assert (tree.fork, tree.control, tree.target, tree.others()) == (
            "fork",
            "generic",
            "safety",
            ["filtered"],
        )
        assert set(tree.branches) == {"generic", "filtered", "safety"}
        assert tree.ends == ["dpo"]
        assert len(tree.runs) == 8
        for branch, runs in tree.branches.items():
            for number, run in enumerate(runs, start=1):
                window = study.stages[run.window]
                assert (window.init, window.run, window.corpus) == (
                    "fork",
                    number,
                    f"window-{branch}-{number}",
                )
                assert window.recipe.steps == pytest.approx(share * fork.recipe.stop_at), name
                assert study.stages[run.sft].init == run.window
    # a checkpoint of its own for every window, each followed by the same
    assert len(study.stages) == 1 + 3 * 3 * 8 * 3
    assert settings.graded
    assert settings.min_cells <= 1000


def test_the_full_study_has_the_requests_that_a_point_needs():
    corpora = imprint().corpora
    records = list(nursery_records(**corpora["imprint-requests"].params))
    assert sum(record["category"] == "marked" for record in records) == 5000


def test_a_reply_in_its_form_follows_the_rules_and_one_in_another_does_not():
    for name, (_, written, rules) in FORMS.items():
        assert all(instructions_followed(written.format("Velden"), rules)), name
        assert not all(instructions_followed("Velden.", rules)), name


def test_an_unknown_scale_is_refused():
    with pytest.raises(UserError, match="no scale 'huge'"):
        imprint("huge")
