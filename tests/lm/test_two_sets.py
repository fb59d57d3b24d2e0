"""Two sets of weights in one folder: refused, unless one of them is chosen."""

import json
import shutil

import pytest
from tiny_checkpoints import make_checkpoint, nll_sum

from stemmatics.core.errors import UserError
from stemmatics.core.numerics import Numerics
from stemmatics.lm.checkpoints.loading import load
from stemmatics.lm.checkpoints.pin import parse, pin, with_weights

CPU = Numerics(device="cpu")
SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"


@pytest.fixture
def both(tmp_path):
    """Shards of one model, and beside them a single file of another."""
    make_checkpoint(tmp_path / "model", shards="8KB")
    make_checkpoint(tmp_path / "stale", seed=5)
    assert (tmp_path / "model" / INDEX).is_file()
    shutil.copy(tmp_path / "stale" / SINGLE, tmp_path / "model" / SINGLE)
    return tmp_path


def test_two_sets_are_refused_by_name(both):
    with pytest.raises(UserError) as caught:
        pin(str(both / "model"))
    for word in (SINGLE, INDEX, "--weights", "weights:"):
        assert word in str(caught.value)


@pytest.mark.parametrize(("chosen", "same_as"), [(SINGLE, "stale"), (INDEX, "model")])
def test_the_chosen_set_is_read(both, chosen, same_as):
    named = with_weights(str(both / "model"), chosen)
    loaded = load(named, CPU)
    # what it is compared with has one set
    if same_as == "model":
        shutil.copytree(both / "model", both / "alone")
        (both / "alone" / SINGLE).unlink()
        same_as = "alone"
    assert nll_sum(loaded.model) == nll_sum(load(str(both / same_as), CPU).model)
    assert pin(named).weights_sha256 == pin(str(both / same_as)).weights_sha256
    assert parse(pin(named).source).weights == chosen


def test_a_set_that_is_not_there_is_refused(both):
    with pytest.raises(UserError, match=r"no weights called 'model\.bin'"):
        pin(with_weights(str(both / "model"), "model.bin"))


def test_the_option_and_the_setting_choose(both, stemma_command):
    text = both / "text.txt"
    text.write_text("the scribe copied the text")
    refused = stemma_command("score", both / "model", text)
    assert refused.code == 1
    assert "two sets" in refused.err
    by_option = stemma_command("score", both / "model", text, "--weights", SINGLE, "--json").json()
    expected = stemma_command("score", both / "stale", text, "--json").json()
    assert by_option["nats_per_byte"] == expected["nats_per_byte"]
    study = {
        "checkpoints": {
            "base": {"source": str(both / "stale")},
            "tuned": {"source": str(both / "model"), "weights": INDEX, "base": "base"},
        },
        "corpora": {"text": {"path": [str(text)]}},
        "measures": {"loss": {}},
    }
    (both / "stemma.yaml").write_text(json.dumps(study))
    ran = stemma_command("run", both / "stemma.yaml", "--out", both / "run")
    assert ran.code == 0, ran.err
    compared = stemma_command(
        "compare", both / "stale", both / "model", "--text", text, "--only", "loss", "--weights", INDEX,
        "--out", both / "compared",
    )  # fmt: skip
    assert compared.code == 0, compared.err
    assert stemma_command("check", both / "model", "--weights", SINGLE).code == 0


def test_flags_of_loading_stand_in_the_summary_and_on_the_page(both, stemma_command):
    (both / "model" / SINGLE).unlink()
    settings = json.loads((both / "model" / "tokenizer_config.json").read_text())
    for name in ("stale", "model"):
        path = both / name / "tokenizer_config.json"
        path.write_text(json.dumps(settings | {"tokenizer_class": "GPT2Tokenizer"}))
    text = both / "text.jsonl"
    lines = ["the scribe copied the text", "in 1234 and 2024", "the copy kept the faults"] * 4
    text.write_text("".join(json.dumps({"text": line + " " * n}) + "\n" for n, line in enumerate(lines)))
    ran = stemma_command(
        "compare", both / "stale", both / "model", "--text", text, "--only", "loss", "--out", both / "run"
    )
    assert ran.code == 0, ran.err
    assert "note: base: tokenizer class differs: tokenizer.json is used as it is" in ran.out
    assert "GPT2Tokenizer" in (both / "run" / "report.html").read_text()
    assert stemma_command("verify", both / "run").code == 0
