"""Paths as facts: prompts through the descendant's template, rows by prompt, private events, refusals."""

import pytest
from tests.probe.tiny_pairs import TinyPairs
from transformers import AutoTokenizer

from stemmatics.probe import paths as paths_probe
from stemmatics.probe.private import read_events

TURN = {"messages": [{"role": "user", "content": "the text"}], "prompt": "the text", "category": "some"}
RENDERED = "user: the text reply:"


@pytest.fixture
def pairs(tmp_path):
    return TinyPairs(tmp_path)


def prefix_of(pairs, fact):
    """The ids of the first event before anything was generated."""
    event = read_events(fact, pairs.context)[0]
    return list(event.prefix_ids[: len(event.prefix_ids) - event.num_new])


def encode(pairs, text):
    return AutoTokenizer.from_pretrained(pairs.models["descendant"].where["source"]).encode(text)


def test_messages_are_rendered_once_by_the_template_of_the_descendant(pairs):
    """A base without a template reads the same ids."""
    pairs.without_template("base")
    fact, tables = pairs.run_paths(pairs.events([TURN]))
    assert tables["path_summary"][0]["num_rendered"] == 1
    assert prefix_of(pairs, fact) == encode(pairs, RENDERED)
    # first disagreements too
    events = pairs.events([TURN])
    assert [row["outcome"] for row in pairs.run_events(events)] == ["event"]
    assert prefix_of(pairs, events) == encode(pairs, RENDERED)


def test_without_a_template_the_plain_prompt_is_read(pairs):
    pairs.without_template("tuned")
    fact, tables = pairs.run_paths(pairs.events([TURN]))
    assert tables["path_summary"][0]["num_rendered"] == 0
    assert prefix_of(pairs, fact) == encode(pairs, "the text")


def test_raw_prompts_are_read_as_they_are(pairs):
    fact, tables = pairs.run_paths(pairs.events([{"prompt": "the text"}]))
    assert tables["path_summary"][0]["num_rendered"] == 0
    assert prefix_of(pairs, fact) == encode(pairs, "the text")


def test_every_prompt_has_a_row_and_every_event_its_margins(pairs):
    records = [{"prompt": f"the text {number}", "category": "some"} for number in range(4)]
    records.append({"prompt": "the text and " * 400})
    fact, tables = pairs.run_paths(pairs.events(records))
    rows = tables["paths"]
    assert [row["index"] for row in rows] == list(range(5))
    assert rows[-1]["outcome"] == "too_long"
    assert rows[-1]["num_tokens"] is None
    with_event = [row["index"] for row in rows if row["outcome"] == "event"]
    assert with_event
    for row in rows[:-1]:
        assert 0 < row["num_tokens"] <= 8
        assert row["nll_base_base"] > 0
        assert row["sum_by_sum"] > 0
    cells = [row for row in tables["path_cells"] if row["support"] == "three_cells"]
    assert [(row["index"], row["readout"]) for row in cells] == [
        (index, readout) for index in with_event for readout in ("descendant", "base")
    ]
    events = read_events(fact, pairs.context)
    assert [(event.event, event.prompt) for event in events] == list(enumerate(with_event))
    assert {event.support for event in events} == {"three_cells"}


def test_the_base_decodes_once_for_all_its_pairs(pairs, monkeypatch):
    decoded = []
    plain = paths_probe.greedy_paths

    def counted(base, prompts, *rest):
        decoded.append(len(prompts))
        return plain(base, prompts, *rest)

    monkeypatch.setattr(paths_probe, "greedy_paths", counted)
    events = pairs.events([{"prompt": f"the text {number}"} for number in range(3)])
    pairs.run_paths(events)
    pairs.run_paths(events)
    assert decoded == [3]


def test_a_pair_that_cannot_be_crossed_is_refused(pairs):
    _, tables = pairs.run_paths(pairs.events([{"prompt": "the"}], wide=True))
    assert tables["paths"] == tables["path_cells"] == []
    assert tables["path_summary"][0]["refusal"].startswith("architecture differs")
