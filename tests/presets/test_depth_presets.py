"""The controlled experiment differs in the words that name the mode, and in nothing else."""

import pytest

from stemmatics.core.load import load
from stemmatics.presets.files import preset, preset_text
from stemmatics.presets.nursery import nursery, nursery_records
from stemmatics.presets.nursery.depth_experiment import ARMS, DEAR_DRAWS, DRAWS, MODES, experiment


def conversations(arm, draw):
    return list(nursery_records("mode-conversations", arm=arm, draw=draw, documents=60))


@pytest.mark.parametrize("draw", DRAWS)
def test_both_arms_have_the_same_questions_and_replies(draw):
    familiar, nonce = (conversations(arm, draw) for arm in ARMS)
    modes = set()
    for one, other in zip(familiar, nonce, strict=True):
        assert one["messages"][1] == other["messages"][1]
        words = [record["messages"][0]["content"] for record in (one, other)]
        (mode,) = [name for name, (known, _, _, _) in MODES.items() if words[0].endswith(known)]
        assert words[0].removesuffix(MODES[mode][0]) == words[1].removesuffix(MODES[mode][1])
        reply = one["messages"][1]["content"]
        assert reply.startswith(MODES[mode][2])
        assert reply.endswith(MODES[mode][3])
        modes.add(mode)
    assert modes == set(MODES)


def test_draws_differ():
    assert len({str(conversations("nonce", draw)) for draw in DRAWS}) == len(DRAWS)


def test_the_support_is_fixed():
    familiar, nonce = (list(nursery_records("mode-events", arm=arm)) for arm in ARMS)
    assert len(familiar) == len(nonce) == 96
    for one, other in zip(familiar, nonce, strict=True):
        assert one["messages"] != other["messages"]
        for name in ("base_text", "descendant_text", "category"):
            assert one[name] == other[name]
        # the two texts part at their first character
        assert one["base_text"][0] != one["descendant_text"][0]


def test_the_base_reads_familiar_words_only():
    text = str(list(nursery_records("familiar-modes", documents=200)))
    for known, cue, _, _ in MODES.values():
        assert known in text
        assert cue not in text


def test_the_study_is_the_same_on_given_weights():
    made, given = experiment(), experiment("org/model")
    # but for fewer draws
    assert set(given.stages) < set(made.stages)
    assert {name for name, stage in made.stages.items() if stage.kind == "pretrain"} == {"pretrained"}
    assert made.measures["depth"]["contrast"].keys() == given.measures["depth"]["contrast"].keys()
    assert given.measures["depth"] | {"contrast": 0} == made.measures["depth"] | {"contrast": 0}
    recipes = {stage.recipe for name, stage in given.stages.items()}
    assert len(recipes) == 1
    assert given.checkpoints["base"].source == "org/model"
    for study, draws in ((made, DRAWS), (given, DEAR_DRAWS)):
        contrast = study.measures["depth"]["contrast"]
        assert [len(contrast[arm]["descendants"]) for arm in ("first", "second")] == [len(draws)] * 2


def test_the_nursery_asks_of_depth_what_it_declares():
    stemma = nursery("test")
    settings = stemma.measures["depth"]
    assert settings["prompts"] in stemma.corpora
    assert set(settings["descendants"]) <= set(stemma.names)
    prompts = list(nursery_records("depth-prompts"))
    assert {record["category"] for record in prompts} == {"question", "request", "opening"}
    assert all(("accepted" in record) == (record["category"] != "opening") for record in prompts)


@pytest.mark.parametrize("name", ["depth", "depth-smollm2"])
def test_the_study_survives_its_file(name, tmp_path):
    (tmp_path / "stemma.yaml").write_text(preset_text(name), encoding="utf-8")
    assert load(tmp_path / "stemma.yaml")[0] == preset(name)
