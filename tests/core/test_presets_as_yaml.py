"""What `stemma init` writes is read back as the same study."""

import pytest

from stemmatics.core.load import load
from stemmatics.presets.files import preset, preset_text


@pytest.mark.parametrize("name", ["nursery", "smollm2", "olmo2", "pythia", "qwen2.5"])
def test_a_preset_survives_its_file(name, tmp_path):
    text = preset_text(name)
    (tmp_path / "stemma.yaml").write_text(text, encoding="utf-8")
    stemma, _ = load(tmp_path / "stemma.yaml")
    assert stemma == preset(name)
    comments = [line for line in text.splitlines() if line.startswith("# ")]
    assert len(comments) >= 5
