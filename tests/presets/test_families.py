"""Families on the Hub ask every question that fits them, and are planned without a network."""

import pytest

from stemmatics.commands.run import plan
from stemmatics.presets.files import preset, preset_text
from stemmatics.study.plan import costs

FAMILIES = ("smollm2", "olmo2", "pythia", "qwen2.5")


@pytest.mark.parametrize("name", FAMILIES)
def test_every_measure_that_fits_is_configured(name):
    stemma = preset(name)
    expected = {"loss", "divergence", "prior", "depth"}
    # steps of one pretraining have nothing to recover from
    assert set(stemma.measures) == (expected if name == "pythia" else {*expected, "recovery"})
    assert len(stemma.pairs()) == len(stemma.checkpoints) - 1
    assert all(stemma.lineage(checkpoint).num_parameters for checkpoint in stemma.checkpoints)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_is_planned_without_a_network(name, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (tmp_path / "stemma.yaml").write_text(preset_text(name), encoding="utf-8")
    rows = costs(plan(tmp_path / "stemma.yaml", tmp_path / "run"))
    pairs = len(preset(name).pairs())
    probes = [row["probe"] for row in rows]
    assert probes.count("weights") == pairs + 1
    assert probes.count("divergence") == pairs
    # the base's fine-tunes and each descendant's, where there is a recovery
    assert (probes.count("train") > pairs) == (name != "pythia")
    assert sum(row["flops"] for row in rows) > 0
    # the Hub can't be reached: sizes are the declared ones
    assert all(row["download_bytes"] > 0 for row in rows if row["probe"] == "weights")
