"""Stages end to end: contents of the folder, exactness, and errors."""

import math
import random

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from stemmatics.core.errors import UserError
from stemmatics.core.numerics import Numerics

RECIPE = {"steps": 6, "batch_size": 4, "max_length": 32}
DOCUMENTS = [{"text": f"the dog number {n} ran far away from the cat on the mat " * 3} for n in range(30)]


def chat(*contents):
    roles = ("user", "assistant")
    return {"messages": [{"role": roles[n % 2], "content": text} for n, text in enumerate(contents)]}


CHATS = [chat(f"say {n}", f"{n} it is") for n in range(12)]
PAIRS = [
    {
        "prompt": row["messages"][:1],
        "chosen": row["messages"][1:],
        "rejected": [{"role": "assistant", "content": "no"}],
    }
    for row in CHATS
]


def weights(folder):
    return load_file(folder / "model.safetensors")


def same(first, second):
    a, b = weights(first), weights(second)
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def furthest(first, second):
    a, b = weights(first), weights(second)
    return max((a[name] - b[name]).abs().max().item() for name in a)


def legacy_numpy_state():
    # Trainer seeds numpy's process-wide generator, which is what is to be put back.
    return np.random.get_state()[1].tolist()  # noqa: NPY002 -- see above


@pytest.mark.parametrize(("kind", "bias", "tied"), [("llama", False, True), ("phi", True, False)])
def test_a_pretrained_folder_loads_with_plain_transformers(bases, kind, bias, tied):
    model = AutoModelForCausalLM.from_pretrained(bases / kind)
    tokenizer = AutoTokenizer.from_pretrained(bases / kind)
    assert (model.lm_head.bias is not None) == bias
    assert (model.lm_head.weight is model.get_input_embeddings().weight) == tied
    assert model.dtype == torch.float32
    assert model.config.vocab_size == len(tokenizer)
    assert tokenizer.chat_template is not None
    text = "naïve café ☕  !\r\n"
    assert tokenizer.decode(tokenizer(text)["input_ids"], skip_special_tokens=True) == text
    assert tokenizer("the")["input_ids"][0] == tokenizer.bos_token_id


def test_the_tied_head_survives_saving(bases):
    saved = weights(bases / "llama")
    assert "lm_head.weight" not in saved
    model = AutoModelForCausalLM.from_pretrained(bases / "llama")
    assert torch.equal(model.lm_head.weight, saved["model.embed_tokens.weight"])


def test_the_same_seed_gives_the_same_weights_and_another_seed_others(shop):
    for name, seed in (("one", 5), ("two", 5), ("three", 6)):
        shop.make(name, "sft", CHATS, init="llama", seed=seed, recipe=RECIPE)
    assert same(shop.root / "one", shop.root / "two")
    assert not same(shop.root / "one", shop.root / "three")


def test_ten_steps_are_five_and_five(shop):
    recipe = {**RECIPE, "steps": 10}
    shop.pretrain("whole", recipe=recipe)
    first = shop.pretrain("first", recipe={**recipe, "stop_at": 5})
    second = shop.pretrain("second", recipe=recipe, resume="first", resumes="first", seed=99)
    assert same(shop.root / "whole", shop.root / "second")
    assert not same(shop.root / "whole", shop.root / "first")
    assert [row.step for row in first.rows] == [1, 2, 3, 4, 5]
    assert [row.step for row in second.rows] == [6, 7, 8, 9, 10]
    assert second.rows[-1].num_tokens == 10 * 4 * 32
    assert not (shop.root / "second" / "trainer_state").exists()


@pytest.mark.parametrize(
    ("changed", "what"), [({"learning_rate": 1e-2}, "recipe"), ({"batch_size": 2}, "recipe")]
)
def test_another_recipe_does_not_resume(shop, changed, what):
    shop.pretrain("first", recipe={**RECIPE, "stop_at": 3})
    with pytest.raises(UserError, match=f"the {what} differ"):
        shop.pretrain("second", recipe={**RECIPE, **changed}, resume="first", resumes="first")


def test_other_documents_do_not_resume(shop):
    shop.pretrain("first", recipe={**RECIPE, "stop_at": 3})
    with pytest.raises(UserError, match="first documents differ"):
        shop.make("second", "pretrain", DOCUMENTS, resume="first", resumes="first", recipe=RECIPE)


def test_a_run_without_state_does_not_resume(shop):
    with pytest.raises(UserError, match="no state to resume from"):
        shop.pretrain("second", resume="llama", resumes="llama")


@pytest.mark.parametrize(("kind", "records"), [("sft", CHATS), ("cpt", DOCUMENTS), ("dpo", PAIRS)])
def test_one_batch_of_four_is_four_of_one(shop, kind, records):
    # Rows of unlike lengths: a mean of micro-batch means would weigh them wrongly.
    records = [*records, chat("say all", "all of them, one after the other")] if kind == "sft" else records
    for name, budget in (("whole", 4096), ("pieces", 32)):
        numerics = Numerics(device="cpu", threads=1, token_budget=budget)
        shop.make(name, kind, records, init="llama", numerics=numerics, recipe={**RECIPE, "steps": 2})
    assert furthest(shop.root / "whole", shop.root / "pieces") < 1e-6


def test_continued_pretraining_reads_documents_in_their_order(shop):
    for name, seed in (("one", 1), ("two", 2)):
        shop.make(name, "cpt", DOCUMENTS, init="llama", seed=seed, recipe=RECIPE)
    shop.make("turned", "cpt", DOCUMENTS[::-1], init="llama", recipe=RECIPE)
    assert same(shop.root / "one", shop.root / "two")
    assert not same(shop.root / "one", shop.root / "turned")


def test_lora_changes_the_targets_only_and_is_merged(shop):
    recipe = {**RECIPE, "lora": {"rank": 4, "targets": ["q_proj"]}}
    log = shop.make("adapted", "cpt", DOCUMENTS, init="llama", recipe=recipe)
    before, after = weights(shop.root / "llama"), weights(shop.root / "adapted")
    assert before.keys() == after.keys()
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert moved == {f"model.layers.{layer}.self_attn.q_proj.weight" for layer in (0, 1)}
    assert len(log.rows) == 6


def test_lora_targets_that_match_nothing_are_refused(shop):
    recipe = {**RECIPE, "lora": {"targets": ["q_proj", "query"]}}
    with pytest.raises(UserError, match=r"'query' matches no layer.*q_proj"):
        shop.make("adapted", "cpt", DOCUMENTS, init="llama", recipe=recipe)


def test_direct_preference_optimisation_starts_at_ln_2_and_falls(shop):
    log = shop.make(
        "preferred", "dpo", PAIRS, init="llama", beta=0.5, recipe={**RECIPE, "learning_rate": 1e-2}
    )
    assert log.rows[0].loss == pytest.approx(math.log(2), abs=1e-6)
    assert log.rows[-1].loss < 0.5
    assert not same(shop.root / "llama", shop.root / "preferred")


def test_preferences_train_adapters_too(shop):
    log = shop.make("preferred", "dpo", PAIRS, init="llama", recipe={**RECIPE, "lora": {"rank": 4}})
    assert log.rows[0].loss == pytest.approx(math.log(2), abs=1e-6)
    assert weights(shop.root / "preferred").keys() == weights(shop.root / "llama").keys()


def test_divergence_names_the_step_and_leaves_no_folder(shop):
    with pytest.raises(UserError, match=r"diverged at step [2-6] of 6, .*gradient (nan|inf)"):
        shop.make("lost", "cpt", DOCUMENTS, init="llama", recipe={**RECIPE, "learning_rate": 1e30})
    assert sorted(path.name for path in shop.root.iterdir()) == ["llama", "phi"]
    shop.make("sibling", "cpt", DOCUMENTS, init="llama", recipe=RECIPE)
    assert (shop.root / "sibling" / "config.json").is_file()


def test_a_divergence_of_the_last_update_is_seen_in_the_weights(shop):
    recipe = {**RECIPE, "steps": 1, "learning_rate": 1e39, "warmup": 0.0, "schedule": "constant"}
    with pytest.raises(UserError, match="not finite"):
        shop.make("lost", "cpt", DOCUMENTS, init="llama", recipe=recipe)


def test_a_checkpoint_is_never_written_over(shop):
    shop.make("altered", "alter", init="llama", change="noise", scale=0.1)
    with pytest.raises(UserError, match="already exists"):
        shop.make("altered", "alter", init="llama", change="noise", scale=0.2)


def test_the_generators_and_threads_of_the_process_are_put_back(shop):
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    # Not the seeds that the stages of other tests leave.
    torch.manual_seed(3)
    random.seed(3)
    np.random.seed(3)  # noqa: NPY002 -- see above
    before = (
        torch.get_rng_state(),
        random.getstate(),
        legacy_numpy_state(),
    )
    shop.make("tuned", "sft", CHATS, init="llama", recipe=RECIPE)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]
    assert legacy_numpy_state() == before[2]
    assert torch.get_num_threads() == threads + 1
    torch.set_num_threads(threads)


def test_progress_is_reported_step_by_step(shop):
    from stemmatics.core.stages import Recipe, Sft
    from stemmatics.train import train_stage

    events = []
    log = train_stage(
        Sft(kind="sft", init="llama", corpus="chats", recipe=Recipe(**RECIPE)),
        init=shop.root / "llama",
        records=lambda: CHATS,
        out=shop.root / "tuned",
        seed=0,
        numerics=Numerics(device="cpu", threads=1),
        on_event=events.append,
    )
    assert [event["step"] for event in events] == [1, 2, 3, 4, 5, 6]
    assert {event["steps"] for event in events} == {6}
    assert [event["loss"] for event in events] == [row.loss for row in log.rows]
    assert all(a.num_tokens < b.num_tokens for a, b in zip(log.rows, log.rows[1:], strict=False))


def test_training_prints_nothing(shop, capfd):
    shop.make("tuned", "sft", CHATS, init="llama", recipe=RECIPE)
    shop.make("preferred", "dpo", PAIRS, init="llama", recipe=RECIPE)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("kind", "records", "recipe", "message"),
    [
        ("cpt", CHATS, {}, "no 'text'"),
        ("sft", DOCUMENTS, {}, "no 'messages'"),
        ("dpo", CHATS, {}, "no 'prompt'"),
        ("cpt", [], {}, "no documents"),
        ("dpo", [], {}, "no pairs"),
        ("sft", [], {}, "no token is supervised"),
        ("cpt", [{"text": "short"}], {}, "fewer than one block"),
        ("sft", [chat("say", "a " * 200)], {}, "more than max_length"),
        ("cpt", DOCUMENTS, {"max_length": 128}, "longer than the model's context of 64"),
        ("cpt", DOCUMENTS, {"stop_at": 7}, "after the last of 6 steps"),
        ("cpt", None, {}, "has no corpus"),
    ],
)
def test_a_corpus_or_recipe_that_does_not_fit_is_refused(shop, kind, records, recipe, message):
    with pytest.raises(UserError, match=message):
        shop.make("tuned", kind, records, init="llama", recipe={**RECIPE, **recipe})


def test_heads_of_odd_size_are_refused(shop):
    with pytest.raises(UserError, match="even heads"):
        shop.make(
            "odd", "pretrain", DOCUMENTS, architecture={"hidden_size": 30, "num_heads": 4, "vocab_size": 300}
        )
