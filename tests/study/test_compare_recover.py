"""`stemma compare --recover`: one pair through the fine-tune, without a config file."""

from stemmatics.commands.compare import PRIOR_BYTES, pair_stemma
from stemmatics.core.recipes import RECIPES
from stemmatics.core.scoring import Scoring, Windows
from stemmatics.study import run as study

RECIPE = {
    "updates": 4,
    "update_tokens": 64,
    "max_length": 48,
    "learning_rate": 3e-3,
    "lora": {"rank": 4},
}


def compare(stemma_command, tiny, out, *options):
    pool = ["--pool", tiny / "b.jsonl", "--pool", tiny / "c.jsonl"]
    pair = [tiny / "base", tiny / "tuned", "--text", tiny / "a.jsonl"]
    return stemma_command("compare", *pair, "--recover", *pool, "--out", out, *options)


def test_compare_recovers_where_it_is_asked_to(tiny, tmp_path, monkeypatch):
    monkeypatch.setitem(RECIPES, "small", RECIPE)
    texts, pool = [tiny / "a.jsonl"], [tiny / "b.jsonl", tiny / "c.jsonl"]
    scoring = Scoring(windows=Windows(rule="bytes", size=24))
    stemma = pair_stemma(
        str(tiny / "base"), str(tiny / "tuned"), texts, scoring=scoring, recover="small", pool=pool
    )
    outcome = study.run(stemma, tmp_path / "pair", only=["recovery"])
    assert not outcome.failures
    (residual,) = [one for one in outcome.content.results.values() if one.quantity == "recovery.residual"]
    assert residual.subject == {"base": "base", "descendant": "descendant", "corpus": "text"}
    assert "run" in residual.unit


def test_compare_names_the_recipes_there_are(tiny, tmp_path, stemma_command):
    ran = compare(stemma_command, tiny, tmp_path / "pair", "--recipe", "tiny")
    assert ran.code == 2
    assert "unknown recipe 'tiny'" in ran.err
    assert "Choose S1, small, nano" in ran.err
    assert not (tmp_path / "pair").exists()


def test_a_long_text_is_sampled_for_the_correction(tmp_path):
    short, long = tmp_path / "short.txt", tmp_path / "long.txt"
    short.write_text("word " * 10)
    long.write_text("word " * (4 * PRIOR_BYTES // 5))
    samples = [pair_stemma("a/b", "a/c", [text]).measures["prior"]["sample"] for text in (short, long)]
    assert samples == [1.0, 0.25]
