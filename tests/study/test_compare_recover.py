"""`stemma compare --recover`: one pair through the fine-tune, without a config file."""

import pytest

from stemmatics.commands.compare import PRIOR_TOKENS, pair_stemma
from stemmatics.commands.recipe_choice import choose_recipe, pool_tokens
from stemmatics.core.corpora import Corpus
from stemmatics.core.errors import UserError
from stemmatics.core.recipes import RECIPES
from stemmatics.core.scoring import Scoring, Windows
from stemmatics.presets import python_text
from stemmatics.study import run as study

RECIPE = {
    "updates": 4,
    "update_tokens": 64,
    "max_length": 48,
    "learning_rate": 3e-3,
    "lora": {"rank": 4},
}

# the tiny models have a context of 64 tokens
BY_BYTES = ("--windows", "bytes", "--window", 24)


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


def test_the_largest_recipe_that_fits_is_taken():
    small, nano = ("small", "nano")
    assert choose_recipe([10**6, 10**6], None, 10, 1e12).name == "S1"
    # S1 on two models of 135M parameters would take hours at 200 GFLOP/s
    choice = choose_recipe([135 * 10**6] * 2, None, 60, 2e11)
    assert choice.name == small
    assert "S1 would take about" in choice.reason
    tokens = RECIPES[small]["updates"] * RECIPES[small]["update_tokens"]
    assert choice.seconds == pytest.approx(4 * 270e6 * tokens / 1e11)
    assert choose_recipe([135 * 10**6] * 2, tokens - 1, 60, 2e11).name == nano
    # the smallest is taken even where it takes longer
    assert choose_recipe([10**10] * 2, None, 10, 2e11).name == nano
    with pytest.raises(UserError, match="the pool has about 1,000 tokens"):
        choose_recipe([10**6], 1000, 10, 1e12)


def test_the_default_pool_has_enough_for_the_small_recipe():
    pool = Corpus(generator="python", params={"part": "pool"}, role="data")
    tokens = RECIPES["small"]["updates"] * RECIPES["small"]["update_tokens"]
    assert pool_tokens(pool) > 4 * tokens
    held_out = {row["text"] for row in python_text.records("heldout")}
    first = [row for row, _ in zip(python_text.records("pool"), range(4000), strict=False)]
    assert {row["register"] for row in first[:200]} == {"reference", "code"}
    assert held_out.isdisjoint(row["text"] for row in first)
    assert first == [row for row, _ in zip(python_text.records("pool"), range(4000), strict=False)]


def test_a_recipe_is_chosen_and_named(tiny, tmp_path, monkeypatch, stemma_command):
    for name in RECIPES:
        monkeypatch.setitem(RECIPES, name, RECIPE)
    ran = compare(stemma_command, tiny, tmp_path / "pair", "--only", "loss,recovery", *BY_BYTES, "--json")
    assert ran.code == 0, ran.out[-3000:]
    assert "recovery by recipe S1 (256 tokens, rank 4), about 1 min for all arms" in ran.err
    assert any(row["quantity"] == "recovery.residual" for row in ran.json()["estimates"])


def test_only_recovery_implies_recover(tiny, tmp_path, monkeypatch, stemma_command):
    for name in RECIPES:
        monkeypatch.setitem(RECIPES, name, RECIPE)
    pair = [tiny / "base", tiny / "tuned", "--text", tiny / "a.jsonl"]
    pool = ["--pool", tiny / "b.jsonl", "--pool", tiny / "c.jsonl"]
    words = ("--only", "recovery", "--out", tmp_path / "pair", "--json")
    ran = stemma_command("compare", *pair, *pool, *BY_BYTES, *words)
    assert ran.code == 0, ran.out[-3000:]
    assert {row["measure"] for row in ran.json()["estimates"]} == {"recovery"}


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (("--only", "loss", "--recover"), "a recovery is requested, and the only measures are loss"),
        (("--recipe", "nano"), "--recipe is given without --recover"),
        (("--time", "3"), "--time is given without --recover"),
        (("--pool", "x.txt"), "--pool is given without --recover"),
        (("--recover", "--recipe", "nano", "--time", "3"), "--recipe and --time are both given"),
    ],
)
def test_options_that_contradict_one_another_are_refused(tiny, tmp_path, stemma_command, options, what):
    pair = [tiny / "base", tiny / "tuned", "--text", tiny / "a.jsonl"]
    ran = stemma_command("compare", *pair, *options, "--out", tmp_path / "pair")
    assert ran.code == 2
    assert what in ran.err
    assert not (tmp_path / "pair").exists()


def test_a_plan_names_the_parts_of_the_memory(tiny, tmp_path, monkeypatch, stemma_command):
    monkeypatch.setitem(RECIPES, "nano", RECIPE)
    study = tmp_path / "stemma.yaml"
    study.write_text(
        f"""
checkpoints:
  base: {{source: {tiny / "base"}}}
  tuned: {{source: {tiny / "tuned"}, base: base}}
corpora:
  text: {{path: [{tiny / "a.jsonl"}]}}
  pool: {{path: [{tiny / "b.jsonl"}], role: data}}
measures:
  recovery: {{pool: pool, recipe: nano}}
"""
    )
    ran = stemma_command("run", study, "--out", tmp_path / "run", "--plan", "--json")
    assert ran.code == 0, ran.out[-3000:]
    arms = [row for row in ran.json()["facts"] if row["memory_parts"]]
    assert len(arms) == 3  # two runs of the base
    for row in arms:
        parts = row["memory_parts"]
        assert set(parts) == {"weights", "adapters", "optimizer", "activations", "work"}
        assert sum(parts.values()) == row["memory_bytes"]
        assert all(parts.values())
    shown = stemma_command("run", study, "--out", tmp_path / "run", "--plan")
    assert "of memory, for" in shown.out
    assert "activations" in shown.out
