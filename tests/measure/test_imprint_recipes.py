"""Recipes for a cluster: they load, and plan from declared sizes, without a network and without data."""

import json
import socket

import pytest

from stemmatics.core.load import load
from stemmatics.presets.files import preset


@pytest.fixture
def no_network(monkeypatch):
    def refuse(*_args, **_kwargs):
        raise OSError("the network is unreachable")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.mark.parametrize("name", ["imprint-olmo2", "imprint-smollm2"])
def test_a_recipe_loads_and_plans_without_a_network(name, tmp_path, stemma_command, no_network):
    assert stemma_command("init", tmp_path, "--preset", name).code == 0
    stemma, _ = load(tmp_path / "stemma.yaml")
    assert len(stemma.stages) == 8 * 3 * 4
    planned = stemma_command("run", tmp_path / "stemma.yaml", "--plan", "--json", "--out", tmp_path / "run")
    assert planned.code == 0, planned.err
    plan = json.loads(planned.out)
    facts = {row["label"]: row for row in plan["facts"] if row["probe"] == "train"}
    window = facts["safety-2"]
    assert 500e6 <= window["num_tokens"] < 502e6
    parameters = stemma.checkpoints["fork"].num_parameters
    assert window["flops"] == 6 * parameters * window["num_tokens"]
    assert plan["total"]["num_tokens"] > 24 * 500e6
    assert plan["total"]["download_bytes"] == 4 * parameters
    assert "fork is not available: planned with its declared size" in planned.err
    # what is planned so is not run so
    ran = stemma_command("run", tmp_path / "stemma.yaml", "--out", tmp_path / "run")
    assert ran.code in {1, 2}
    assert ran.err.splitlines()[-1].startswith("error: ")


def test_branches_differ_in_their_windows_alone():
    for name in ("imprint", "imprint-quick", "imprint-olmo2", "imprint-smollm2"):
        stages = preset(name).stages

        def apart(stage, *, window):
            lineage = {"init", "trained_last", "family", *(["corpus"] if window else [])}
            return json.dumps(stage.model_dump(mode="json", exclude=lineage), sort_keys=True)

        by_kind = {}
        for stage in stages.values():
            if stage.kind != "pretrain":
                by_kind.setdefault((stage.kind, stage.run), set()).add(
                    apart(stage, window=stage.kind == "cpt")
                )
        assert {len(kinds) for kinds in by_kind.values()} == {1}
        assert {run for _, run in by_kind} == {1, 2, 3}


def test_grpo_names_its_normalisation_in_the_recipe(tmp_path, stemma_command):
    assert stemma_command("init", tmp_path, "--preset", "imprint").code == 0
    text = (tmp_path / "stemma.yaml").read_text()
    assert text.count("kind: grpo") == text.count("loss_type: dapo") == text.count("scale_rewards: group") > 0


def test_what_was_trained_on_last_follows_a_branch_to_its_end():
    stemma = preset("imprint")
    assert stemma.trained_last("safety-1-dpo") == "safety text"
    assert stemma.trained_last("safety-first-3-grpo") == "generic text"
    assert stemma.trained_last("second-safety-2-sft") == "safety text"
    assert stemma.trained_last("fork") == "imprint-pretraining"
