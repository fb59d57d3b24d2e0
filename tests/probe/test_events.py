"""Events as facts: prompts spread over the corpus, manifests by text, private files that are checked."""

import itertools
from dataclasses import replace

import pytest
from tests.probe.tiny_pairs import TinyPairs
from transformers import AutoTokenizer

from stemmatics.core.errors import UserError
from stemmatics.core.facts import closure
from stemmatics.probe import events as events_probe
from stemmatics.probe.pairs import pair_key
from stemmatics.probe.private import read_events


@pytest.fixture
def pairs(tmp_path):
    return TinyPairs(tmp_path)


def test_prompts_are_spread_over_the_corpus(pairs):
    records = [{"prompt": f"the copy {number}", "category": f"c{number}"} for number in range(10)]
    rows = pairs.run_events(pairs.events(records, max_prompts=4))
    assert sorted(row["index"] for row in rows) == [0, 2, 5, 7]
    assert {row["category"] for row in rows} == {"c0", "c2", "c5", "c7"}
    assert all(row["outcome"] in {"event", "agreed", "ended"} for row in rows)


def test_openings_of_a_text_are_cut_and_used_once(pairs):
    texts = ("the copy " * 200, "the copy the copy of it", "", "a fault is a fault")
    fact = pairs.events([{"text": text} for text in texts], opening=4)
    rows = sorted(pairs.run_events(fact), key=lambda row: row["index"])
    assert [row["outcome"] for row in rows[1:3]] == ["duplicate", "empty"]
    for row in (rows[0], rows[3]):
        assert row["outcome"] == "event"
        assert row["prefix_length"] - row["num_new"] == 4


def test_a_prompt_without_room_is_counted_and_left_out(pairs):
    rows = pairs.run_events(pairs.events([{"prompt": "the"}, {"prompt": "faults " * 80}]))
    assert {row["index"]: row["outcome"] for row in rows}[1] == "too_long"


def test_events_are_read_again_only_as_they_were_written(pairs):
    fact = pairs.events(
        [{"prompt": f"the text {number}"} for number in range(6)], supports=["first", "earlier"]
    )
    rows = pairs.run_events(fact)
    events = read_events(fact, pairs.context)
    assert len(events) == sum(row["outcome"] == "event" for row in rows) > 0
    for row, event in zip(rows, events, strict=False):
        assert row["prefix_length"] == len(event.prefix_ids)
        assert (row["event"], row["support"], row["num_new"]) == (event.event, event.support, event.num_new)
    (path,) = (pairs.context.ledger.root / "private").iterdir()
    path.write_text(path.read_text().replace("0", "1"))
    with pytest.raises(UserError, match="missing or was altered"):
        read_events(fact, pairs.context)


def test_a_manifest_by_text_names_first_tokens(pairs):
    record = {"prompt": "the scribe", "base_text": " copied", "descendant_text": " kept the faults"}
    fact = pairs.events([record], supports=["manifest"])
    pairs.run_events(fact)
    (event,) = read_events(fact, pairs.context)
    tokenizer = AutoTokenizer.from_pretrained(fact.needs["base"].where["source"])
    assert list(event.prefix_ids) == tokenizer.encode("the scribe")
    assert event.base_id == tokenizer.encode("the scribe copied")[len(event.prefix_ids)]
    assert event.descendant_id == tokenizer.encode("the scribe kept")[len(event.prefix_ids)]


def test_a_manifest_by_messages_follows_the_template(pairs):
    record = {
        "messages": [{"role": "user", "content": "the text"}],
        "base_text": "copied",
        "descendant_text": "[kept]",
    }
    fact = pairs.events([record], supports=["manifest"])
    pairs.run_events(fact)
    (event,) = read_events(fact, pairs.context)
    tokenizer = AutoTokenizer.from_pretrained(fact.needs["base"].where["source"])
    assert list(event.prefix_ids) == tokenizer.encode("user: the text reply:")
    assert event.base_id == tokenizer.encode("copied")[0]
    assert event.descendant_id == tokenizer.encode("[kept]")[0]


BROKEN = [
    ({"prompt": "the"}, "KeyError: 'base_text'"),
    ({"prefix_ids": [3], "base_id": 1}, "KeyError: 'descendant_id'"),
    ({"prefix_ids": ["x"], "base_id": 1, "descendant_id": 2}, "ValueError"),
    ({"prefix_ids": [3], "base_id": 1, "descendant_id": 9999}, "an unknown token id"),
    ({"prefix_ids": [3], "base_id": 1, "descendant_id": -2}, "an unknown token id"),
    ({"prefix_ids": [], "base_id": 1, "descendant_id": 2}, "no prefix"),
    ({"prompt": "the scri", "base_text": "be", "descendant_text": " x"}, "a token of its own"),
]


@pytest.mark.parametrize(("record", "why"), BROKEN)
def test_an_invalid_manifest_is_refused(pairs, record, why):
    with pytest.raises(UserError, match=why):
        pairs.run_events(pairs.events([record], supports=["manifest"]))


def test_a_record_without_a_prompt_is_refused(pairs):
    with pytest.raises(UserError, match="record 0 has no prompt"):
        pairs.run_events(pairs.events([{"question": "why"}]))


def test_facts_of_one_pair_share_a_load(pairs):
    first, second = (pairs.events([{"prompt": prompt}]) for prompt in ("the", "a"))
    assert first.key != second.key
    assert pair_key(first) == pair_key(second)
    assert first.key in closure([first])


def test_ids_that_differ_are_an_error_for_prompts_and_a_refusal_for_a_text(pairs, monkeypatch):
    """Tokenizers that agree in every earlier check, and not here."""
    count = itertools.count()
    monkeypatch.setattr(events_probe, "encode_prompt", lambda *_: [3, 4, next(count)])
    with pytest.raises(UserError, match="different token ids"):
        pairs.run_events(pairs.events([{"prompt": "the"}]))
    fact = pairs.events([{"text": "the"}], opening=4)
    assert [row["outcome"] for row in pairs.run_events(fact)] == ["refused"]
    assert "different token ids" in pairs.context.ledger.fact_record(fact.key)["refusal"]


def test_openings_of_records_are_refused(pairs):
    fact = pairs.events([{"prompt": "the"}])
    params = {**fact.params, "opening_tokens": 4}
    with pytest.raises(UserError, match="'records' is not a text"):
        pairs.run_events(replace(fact, params=params))
