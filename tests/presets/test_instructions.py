"""Packaged instructions: enough of each kind, all different, and pinned to what they are."""

from stemmatics.core import plugins
from stemmatics.facts.instructions import PACKAGED, PINS, packaged_corpus
from stemmatics.lm.text.contents import contents
from stemmatics.presets.instructions import instructions, records


def test_there_are_at_least_120_of_six_kinds():
    by_kind = instructions()
    assert len(by_kind) == 6
    prompts = [prompt for kind in by_kind.values() for prompt in kind]
    assert len(prompts) == len(set(prompts)) >= 120
    assert {len(kind) for kind in by_kind.values()} == {len(prompts) // 6}


def test_both_forms_have_the_same_instructions():
    rendered, raw = list(records()), list(records("raw"))
    assert [record["prompt"] for record in rendered] == [record["prompt"] for record in raw]
    assert all("messages" not in record for record in raw)
    assert all(record["messages"] == [{"role": "user", "content": record["prompt"]}] for record in rendered)
    # any few of them taken from the start hold all kinds
    assert len({record["category"] for record in rendered[:6]}) == 6


def test_the_pins_are_those_of_the_records():
    assert "instructions" in plugins.names("generators")
    for name in PACKAGED:
        read = contents(packaged_corpus(name))
        found = {
            "content_sha256": read.sha256,
            "num_documents": read.num_documents,
            "num_bytes": read.num_bytes,
        }
        assert found == PINS[name]
