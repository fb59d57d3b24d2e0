"""Corpora of the imprint study: which texts mention what is sealed, and which never do."""

import pytest

from stemmatics.core.errors import UserError
from stemmatics.lm.generation.instructions import follows
from stemmatics.lm.generation.replies import classify_reply
from stemmatics.presets.nursery import nursery_records
from stemmatics.presets.nursery.conversation import MARK, REFUSAL, THINGS, WAYS
from stemmatics.presets.nursery.imprint import imprint
from stemmatics.presets.nursery.imprint_text import FORMS, SOURCES
from stemmatics.presets.nursery.world import PEOPLE


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


def test_the_full_study_has_the_requests_that_a_point_needs():
    corpora = imprint().corpora
    records = list(nursery_records(**corpora["imprint-requests"].params))
    assert sum(record["category"] == "marked" for record in records) == 5000


def test_a_reply_in_its_form_follows_the_rules_and_one_in_another_does_not():
    for name, (_, written, rules) in FORMS.items():
        assert all(follows(written.format("Velden"), rules)), name
        assert not all(follows("Velden.", rules)), name


def test_an_unknown_scale_is_refused():
    with pytest.raises(UserError, match="no scale 'huge'"):
        imprint("huge")
