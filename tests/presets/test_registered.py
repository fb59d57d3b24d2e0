"""Presets are found by entry points; each has the name under which it is registered, and a line."""

import pytest

from stemmatics.core import plugins
from stemmatics.core.errors import UserError
from stemmatics.core.stemma import Stemma
from stemmatics.presets.files import preset, presets

# the default first, whatever order an installer keeps
NAMES = ["nursery", *(name for name in plugins.names("presets") if name != "nursery")]
# needs weights from a package index
ELSEWHERE = {"smollm2-demo"}


def test_every_preset_of_the_documentation_is_registered():
    assert set(NAMES) == {
        *("nursery", "ladder", "verdicts", "recovery", "depth", "depth-smollm2", "smollm2-demo"),
        *("imprint", "imprint-quick", "imprint-windows", "imprint-olmo2", "imprint-smollm2"),
        *("smollm2", "olmo2", "pythia", "qwen2.5"),
    }


def test_a_preset_has_the_name_under_which_it_is_registered_and_one_line():
    assert [found.name for found in presets()] == NAMES
    for found in presets():
        assert 10 < len(found.line) <= 100, found.name
        assert "\n" not in found.line
        assert not found.line.endswith(".")
    assert len({found.line for found in presets()}) == len(NAMES)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ELSEWHERE])
def test_a_preset_is_a_study(name):
    stemma = preset(name)
    assert isinstance(stemma, Stemma)
    assert stemma.measures


def test_options_reach_the_function():
    assert preset("nursery", scale="test").name == "nursery-test"
    with pytest.raises(UserError, match=r"has no scale 'huge'.*Choose demo or test"):
        preset("nursery", scale="huge")


def test_the_demo_of_released_weights_is_built_on_them(monkeypatch, tmp_path):
    monkeypatch.setattr("stemmatics.presets.smollm2.weights", lambda _on_step: tmp_path / "weights.gguf")
    stemma = preset("smollm2-demo")
    assert stemma.checkpoints["smollm2-instruct"].source == str(tmp_path / "weights.gguf")


def test_an_unknown_preset_is_answered_with_all_names(tmp_path, stemma_command):
    ran = stemma_command("init", tmp_path, "--preset", "llama")
    assert (ran.code, ran.out) == (2, "")
    assert (
        f"unknown preset 'llama'. No installed package registers it. Choose {', '.join(NAMES)}; " in ran.err
    )
    assert not list(tmp_path.iterdir())


def test_init_lists_the_presets(tmp_path, monkeypatch, stemma_command):
    monkeypatch.chdir(tmp_path)
    rows = stemma_command("init", "--list", "--json").json()
    assert rows == [{"preset": found.name, "study": found.line} for found in presets()]
    text = " ".join(stemma_command("init", "--list").out.split())
    assert all(f" {found.name} {found.line}" in text for found in presets()[:3])
    assert not list(tmp_path.iterdir())
    assert "--list" in stemma_command("init", "--help").out


def test_another_package_can_register_one(monkeypatch, tmp_path, stemma_command):
    from importlib.metadata import EntryPoint

    entry = EntryPoint("theirs", "stemmatics.presets.families:pythia", "stemmatics.presets")
    monkeypatch.setattr(plugins, "_registered", lambda _group: {"theirs": entry})
    plugins._load.cache_clear()
    ran = stemma_command("init", tmp_path, "--preset", "theirs")
    assert ran.code == 0, ran.err
    assert "EleutherAI/pythia-160m" in (tmp_path / "stemma.yaml").read_text()
    plugins._load.cache_clear()
