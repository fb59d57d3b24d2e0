"""`stemma compare --recover`: one pair through the fine-tune, without a config file."""

from stemmatics.commands.compare import PRIOR_TOKENS, pair_stemma
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


def test_the_correction_is_fitted_on_a_number_of_tokens_whatever_the_text(tmp_path):
    """A file and a stream from the Hub, whose size nobody knows."""
    long = tmp_path / "long.txt"
    long.write_text("word " * 100_000)
    for text in (str(long), "hf://owner/name"):
        prior = pair_stemma("a/b", "a/c", [text]).measures["prior"]
        assert prior["fit_tokens"] == prior["eval_tokens"] == PRIOR_TOKENS
