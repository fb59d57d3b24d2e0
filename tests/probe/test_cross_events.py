"""Events as facts: prompts spread over the corpus, manifests by text, private files that are checked."""

import itertools
import json
from pathlib import Path

import pytest
from tests.lm.tiny_checkpoints import make_checkpoint, make_tokenizer
from transformers import AutoTokenizer

from stemmatics.core.corpora import Corpus
from stemmatics.core.errors import UserError
from stemmatics.core.facts import Fact, closure
from stemmatics.core.numerics import Numerics
from stemmatics.lm.checkpoints.pin import pin
from stemmatics.lm.crossing.models import Uncrossable
from stemmatics.lm.text.contents import content_hash
from stemmatics.probe import events as cross_events
from stemmatics.probe.base import Context
from stemmatics.probe.corpus import CorpusProbe
from stemmatics.probe.cross import Cross
from stemmatics.probe.events import Events
from stemmatics.probe.pairs import pair_key
from stemmatics.probe.private import read_events
from stemmatics.store.cache import Cache
from stemmatics.store.ledger import Ledger

TEMPLATE = "{% for message in messages %}{{ message.role }}: {{ message.content }} {% endfor %}reply:"


@pytest.fixture
def asked(tmp_path):
    """Makes an ``events`` fact of a tiny pair on the records given, and its context."""

    def weights(name, **changes):
        tokenizer = make_tokenizer()
        tokenizer.chat_template = TEMPLATE
        folder = make_checkpoint(tmp_path / name, tokenizer=tokenizer, **changes)
        return Fact("weights", 1, pin(str(folder)).key(), label=name, where={"source": str(folder)})

    models = {"base": weights("base", seed=0), "descendant": weights("tuned", seed=1)}
    others = {"wide": weights("wide", seed=1, intermediate_size=40)}
    context = Context(Ledger(tmp_path / "run"), Cache(tmp_path / "cache"), Numerics(), 0)

    def make(records, *, supports=("first",), max_prompts=100, max_new_tokens=8, other=None, opening=None):
        path = tmp_path / "records.jsonl"
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
        corpus = Corpus(path=[str(path)], role="data" if opening is None else "text")
        params = {"content_sha256": content_hash(corpus), "num_documents": len(records), "seed": 0}
        where = corpus.model_dump(mode="json", by_alias=True)
        fact = Fact("corpus", 1, params, label="records", where=where)
        for made in CorpusProbe().run([fact], context):
            context.ledger.record(made.fact, made.tables, **made.extra)
        params = {
            "supports": list(supports),
            "max_prompts": max_prompts,
            "max_new_tokens": max_new_tokens,
            "numerics": {},
            **({} if opening is None else {"opening_tokens": opening}),
        }
        needs = {**models, "corpus": fact}
        if other is not None:
            needs["descendant"] = others[other]
        return Fact("events", 1, params, needs, label="events"), context

    return make


def run(fact, context):
    (made,) = Events().run([fact], context)
    if hasattr(made, "reason"):
        raise UserError(made.reason, "the fact failed", "see the reason")
    context.ledger.record(fact, made.tables, **made.extra)
    return made.tables["events"].to_pylist()


def test_prompts_are_spread_over_the_corpus(asked):
    records = [{"prompt": f"the copy {place}", "category": f"c{place}"} for place in range(10)]
    rows = run(*asked(records, max_prompts=4))
    assert sorted(row["index"] for row in rows) == [0, 2, 5, 7]
    assert {row["category"] for row in rows} == {"c0", "c2", "c5", "c7"}
    assert all(row["outcome"] in {"event", "agreed", "ended"} for row in rows)


def test_openings_of_a_text_are_cut_and_asked_once(asked):
    texts = ("the copy " * 200, "the copy the copy of it", "", "a fault is a fault")
    fact, context = asked([{"text": text} for text in texts], opening=4)
    rows = sorted(run(fact, context), key=lambda row: row["index"])
    assert [row["outcome"] for row in rows[1:3]] == ["duplicate", "empty"]
    for row in (rows[0], rows[3]):
        assert row["outcome"] == "event"
        assert row["prefix_length"] - row["num_new"] == 4


def test_a_prompt_without_room_is_counted_and_left_out(asked):
    rows = run(*asked([{"prompt": "the"}, {"prompt": "faults " * 80}]))
    assert {row["index"]: row["outcome"] for row in rows}[1] == "too_long"


def test_events_are_read_again_only_as_they_were_written(asked):
    fact, context = asked(
        [{"prompt": f"the text {place}"} for place in range(6)], supports=["first", "earlier"]
    )
    rows = run(fact, context)
    events = read_events(fact, context)
    assert len(events) == sum(row["outcome"] == "event" for row in rows) > 0
    for row, event in zip(rows, events, strict=False):
        assert row["prefix_length"] == len(event.prefix_ids)
        assert (row["event"], row["support"], row["num_new"]) == (event.event, event.support, event.num_new)
    (path,) = (context.ledger.root / "private").iterdir()
    path.write_text(path.read_text().replace("0", "1"))
    with pytest.raises(UserError, match="missing or was altered"):
        read_events(fact, context)


def test_a_manifest_by_text_names_first_tokens(asked):
    record = {"prompt": "the scribe", "base_text": " copied", "descendant_text": " kept the faults"}
    fact, context = asked([record], supports=["manifest"])
    run(fact, context)
    (event,) = read_events(fact, context)
    tokenizer = AutoTokenizer.from_pretrained(fact.needs["base"].where["source"])
    assert list(event.prefix_ids) == tokenizer.encode("the scribe")
    assert event.base_id == tokenizer.encode("the scribe copied")[len(event.prefix_ids)]
    assert event.descendant_id == tokenizer.encode("the scribe kept")[len(event.prefix_ids)]


def test_a_manifest_by_messages_follows_the_template(asked):
    record = {
        "messages": [{"role": "user", "content": "the text"}],
        "base_text": "copied",
        "descendant_text": "[kept]",
    }
    fact, context = asked([record], supports=["manifest"])
    run(fact, context)
    (event,) = read_events(fact, context)
    tokenizer = AutoTokenizer.from_pretrained(fact.needs["base"].where["source"])
    assert list(event.prefix_ids) == tokenizer.encode("user: the text reply:")
    assert event.base_id == tokenizer.encode("copied")[0]
    assert event.descendant_id == tokenizer.encode("[kept]")[0]


BROKEN = [
    ({"prompt": "the"}, "KeyError: 'base_text'"),
    ({"prefix_ids": [3], "base_id": 1}, "KeyError: 'descendant_id'"),
    ({"prefix_ids": ["x"], "base_id": 1, "descendant_id": 2}, "ValueError"),
    ({"prefix_ids": [3], "base_id": 1, "descendant_id": 9999}, "an id that the models lack"),
    ({"prefix_ids": [], "base_id": 1, "descendant_id": 2}, "no prefix"),
    ({"prompt": "the scri", "base_text": "be", "descendant_text": " x"}, "a token of its own"),
]


@pytest.mark.parametrize(("record", "why"), BROKEN, ids=[why for _, why in BROKEN])
def test_a_manifest_that_can_not_be_read_is_refused(asked, record, why):
    with pytest.raises(UserError, match=why):
        run(*asked([record], supports=["manifest"]))


def test_a_record_without_a_prompt_is_refused(asked):
    with pytest.raises(UserError, match="prompt 0 is not there"):
        run(*asked([{"question": "why"}]))


def test_facts_of_one_pair_share_a_load(asked):
    first, _ = asked([{"prompt": "the"}])
    second, _ = asked([{"prompt": "a"}])
    assert first.key != second.key
    assert pair_key(first) == pair_key(second)
    assert first.key in closure([first])


def test_ids_that_differ_are_an_error_of_a_prompt_and_an_answer_on_a_text(asked, monkeypatch):
    """Tokenizers that agree on all that is tried before, and not here."""
    count = itertools.count()
    monkeypatch.setattr(cross_events, "encode_prompt", lambda *_: [3, 4, next(count)])
    with pytest.raises(UserError, match="other token ids"):
        run(*asked([{"prompt": "the"}]))
    fact, context = asked([{"text": "the"}], opening=4)
    assert [row["outcome"] for row in run(fact, context)] == ["refused"]
    assert "other token ids" in context.ledger.fact_record(fact.key)["refusal"]


def test_a_pair_that_can_not_be_crossed_is_an_answer_and_nobody_is_asked(asked):
    fact, context = asked([{"prompt": "the"}], other="wide")
    assert [row["outcome"] for row in run(fact, context)] == ["refused"]
    params = {"boundaries": "default", "interpolate": [], "permute": False, "numerics": {}}
    needs = {name: fact.needs[name] for name in ("base", "descendant")}
    crossed = Fact("cross", 1, params, {**needs, "events": fact}, label="cross")
    (made,) = Cross().run([crossed], context)
    assert made.tables["cells"].num_rows == 0
    (summary,) = made.tables["crossing"].to_pylist()
    assert summary["refusal"].startswith("architecture differs: it is ")
    # what differs is shown, and no place where anything lies
    assert "intermediate_size 40" in summary["refusal"]
    assert str(Path(fact.needs["base"].where["source"]).parent) not in summary["refusal"]


def test_a_cut_that_fails_where_nobody_asked_before_is_an_answer_too(asked, monkeypatch):
    """The floor of a pair that lost nothing: no events, and the models are first cut when crossed."""
    fact, context = asked([{"prompt": "the"}])
    run(fact, context)

    def refuse(*_):
        raise Uncrossable(
            "these layers can't be crossed", "they are told more", "leave them out", reason="why"
        )

    monkeypatch.setattr("stemmatics.probe.cross.cross", refuse)
    params = {"boundaries": "default", "interpolate": [], "permute": False, "numerics": {}}
    needs = {name: fact.needs[name] for name in ("base", "descendant")}
    (made,) = Cross().run([Fact("cross", 1, params, {**needs, "events": fact}, label="cross")], context)
    assert made.tables["cells"].num_rows == 0
    assert made.tables["crossing"]["refusal"].to_pylist() == ["why"]
