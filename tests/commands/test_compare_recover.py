"""`stemma compare --recover`: the default pool, the choice of a recipe, contradictions and the plan."""

import json

import pytest

from stemmatics.commands import recipe_choice
from stemmatics.commands.recipe_choice import AUTO, choose_recipe
from stemmatics.core.corpora import Corpus
from stemmatics.core.errors import UserError
from stemmatics.core.numerics import Numerics
from stemmatics.core.recipes import RECIPES
from stemmatics.core.stages import RecoveryRecipe
from stemmatics.presets.python_text import records

POOL = Corpus(generator="python", params={"part": "pool"}, role="data")


def choose(tiny, monkeypatch=None, *, num_tokens=None, pool=POOL, **settings):
    """A choice; where ``num_tokens`` is given the pool is said to have so many."""
    if num_tokens is not None:
        monkeypatch.setattr(recipe_choice, "_num_tokens", lambda *_a, **_s: num_tokens)
    spec = str(tiny / "base")
    return choose_recipe([spec], {spec: 3}, pool, numerics=Numerics(device="cpu"), allow={}, **settings)


def test_the_default_pool_is_mixed_and_apart_from_the_heldout_text():
    pool = list(records("pool"))
    texts = {row["text"] for row in pool}
    assert len(texts) == len(pool)
    assert texts.isdisjoint(row["text"] for row in records("heldout"))
    for part in (pool[: len(pool) // 4], pool[-len(pool) // 4 :]):
        assert {row["register"] for row in part} == {"reference", "code"}
    assert [row["text"] for row in records("pool")] == [row["text"] for row in pool]


def test_the_default_pool_suffices_for_the_small_recipe(tiny):
    num_bytes = sum(len(row["text"].encode()) for row in records("pool"))
    small = RECIPES["small"]
    # no tokenizer in use makes tokens of seven bytes from such text
    assert num_bytes / 6.5 > small["updates"] * small["update_tokens"]
    assert choose(tiny, limit=1e9).name == "small"


@pytest.mark.parametrize(
    ("num_tokens", "limit", "name"),
    [
        (10**9, 1e12, "S1"),
        (10**9, 0.0, "nano"),
        (8_191_999, 1e12, "small"),
        (255_999, 1e12, "nano"),
        (65_536, 0.0, "nano"),
    ],
)
def test_the_largest_recipe_that_pool_and_time_allow(tiny, monkeypatch, num_tokens, limit, name):
    choice = choose(tiny, monkeypatch, num_tokens=num_tokens, limit=limit)
    assert choice.name == name
    assert choice.seconds > 0


def test_expected_time_decides_and_grows_with_fine_tunes(tiny, monkeypatch):
    from stemmatics.probe import costs

    monkeypatch.setattr(costs, "matrix_speed", lambda _numerics: 1e9)
    whole = choose(tiny, monkeypatch, num_tokens=10**9, name="small")
    assert whole.reason == "as asked for"
    assert choose(tiny, monkeypatch, num_tokens=10**9, limit=whole.seconds * 1.01).name == "small"
    below = choose(tiny, monkeypatch, num_tokens=10**9, limit=whole.seconds * 0.99)
    assert below.name == "nano"
    assert "small would take about" in below.reason


def test_the_hash_is_that_of_the_arms(tiny):
    from stemmatics.lm.text.contents import content_hash

    choice = choose(tiny, name="nano")
    assert choice.hash == RecoveryRecipe.model_validate("nano").hash(content_hash(POOL))


@pytest.mark.parametrize("name", [AUTO, "nano", "S1"])
def test_a_pool_that_is_too_small_is_refused(tiny, tmp_path, name):
    path = tmp_path / "pool.txt"
    path.write_text("too little " * 20, encoding="utf-8")
    with pytest.raises(UserError, match=r"the pool has \d+ tokens, the recipe (nano|S1) reads"):
        choose(tiny, pool=Corpus(path=[str(path)], role="data"), name=name)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--only", "loss", "--recover"], "contradict one another"),
        (["--recipe", "nano"], "--recipe is given without --recover"),
        (["--time", "3"], "--time is given without --recover"),
        (["--pool", "p.txt"], "a pool is given without --recover"),
        (["--recover", "--recipe", "nano", "--time", "3"], "--time and --recipe"),
        (["--recover", "--recipe", "huge"], "unknown recipe"),
        (["--plan", "--fail-if", "loss.delta > 0"], "A plan measures nothing"),
    ],
)
def test_contradictions_are_refused_before_anything_is_read(
    tiny, tmp_path, stemma_command, monkeypatch, args, message
):
    def read(*_args, **_settings):
        raise AssertionError("a checkpoint was read")

    monkeypatch.setattr("stemmatics.lm.checkpoints.pin.pin", read)
    out = tmp_path / "run"
    pair = (tiny / "base", tiny / "tuned", "--text", tiny / "a.jsonl", "--out", out)
    ran = stemma_command("compare", *pair, *args)
    assert ran.code == 2, ran.err
    assert message in ran.err
    assert not ran.out
    assert not out.exists()


def test_a_pool_that_is_too_small_is_refused_before_weights_are_loaded(
    tiny, tmp_path, stemma_command, monkeypatch
):
    def load(*_args, **_settings):
        raise AssertionError("weights were loaded")

    monkeypatch.setattr("stemmatics.lm.checkpoints.loading.load", load)
    pool = tmp_path / "pool.txt"
    pool.write_text("too little " * 20, encoding="utf-8")
    pair = (tiny / "base", tiny / "tuned", "--text", tiny / "a.jsonl", "--out", tmp_path / "run")
    ran = stemma_command("compare", *pair, "--recover", "--pool", pool)
    assert ran.code == 1, ran.err
    assert "the pool has" in ran.err
    assert not (tmp_path / "run").exists()


def test_only_recovery_is_enough_and_the_plan_lists_its_fine_tunes(tiny, tmp_path, stemma_command):
    pair = (tiny / "base", tiny / "tuned", "--text", tiny / "a.jsonl", "--out", tmp_path / "run")
    ran = stemma_command("compare", *pair, "--only", "recovery", "--time", "0", "--plan", "--json")
    assert ran.code == 0, ran.err
    facts = ran.json()["facts"]
    arms = [row for row in facts if row["probe"] == "train"]
    # the base twice, the descendant once
    assert len(arms) == 3
    nano = RECIPES["nano"]
    assert {row["num_tokens"] for row in arms} == {nano["updates"] * nano["update_tokens"]}
    assert ran.json()["total"]["num_tokens"] == sum(row["num_tokens"] for row in facts)
    # the choice is printed with hash and time
    (line,) = [line for line in ran.err.splitlines() if line.startswith("recovery: recipe nano")]
    assert "minutes" in line
    assert not (tmp_path / "run").exists()
    without = stemma_command("compare", *pair, "--plan")
    assert without.code == 0
    assert "facts to make" in without.out
    assert "recovery" not in without.err
    assert json.loads(ran.out)
