"""Training on rewards: what is rewarded, what is refused, what a stage must name."""

import pytest
import torch
from pydantic import TypeAdapter, ValidationError
from safetensors.torch import load_file

from stemmatics.core.errors import UserError
from stemmatics.core.numerics import Numerics
from stemmatics.core.stages import Stage
from stemmatics.train.rewards import check_items, reward

RECIPE = {"steps": 4, "batch_size": 8, "max_length": 48, "learning_rate": 2e-3, "warmup": 0.0}
MODE = {"loss_type": "dapo", "scale_rewards": "group", "max_new_tokens": 8}


def item(content, **requirements):
    return {"messages": [{"role": "user", "content": content}], **requirements}


# an untrained model says some letter in about half of its replies
SHORT = [
    item(f"say {n}", instructions=[{"rule": "omits", "terms": ["e"]}, {"rule": "no_commas"}])
    for n in range(9)
]


def weights(folder):
    return load_file(folder / "model.safetensors")


def same(first, second):
    return all(torch.equal(first[name], second[name]) for name in first)


def test_a_reward_is_1_if_all_requirements_are_met():
    asks = item("Which town?", accepted=["Velden"], instructions=[{"rule": "max_words", "count": 1}])
    assert reward("Velden.", asks) == 1.0
    assert reward("Velden it is.", asks) == 0.0
    assert reward("Harrow.", asks) == 0.0
    assert reward("", asks) == 0.0
    assert reward("I can't help with that.", item("?", accepted=["I can't help with that"])) == 0.0
    assert reward("anything", item("?", instructions=[{"rule": "lower_case"}])) == 1.0


def test_items_that_no_rule_can_judge_are_refused():
    with pytest.raises(UserError, match="item 1 has neither"):
        check_items([item("a", accepted=["b"]), item("c")])
    with pytest.raises(UserError, match="no rule 'rhymes'"):
        check_items([item("a", instructions=[{"rule": "rhymes"}])])
    with pytest.raises(UserError, match="no items"):
        check_items([])


def test_grpo_moves_the_weights_reproducibly_and_counts_tokens(shop):
    for name in ("one", "two"):
        log = shop.make(name, "grpo", SHORT, init="llama", recipe=RECIPE, **MODE)
    before, first, second = (weights(shop.root / name) for name in ("llama", "one", "two"))
    assert same(first, second)
    assert not same(before, first)
    assert [row.step for row in log.rows] == [1, 2, 3, 4]
    # eight replies a step, each after a prompt of at least four tokens
    assert all(b.num_tokens - a.num_tokens >= 8 * 5 for a, b in zip(log.rows, log.rows[1:], strict=False))


def test_the_normalisation_changes_the_result_and_must_be_named(shop):
    # an untrained model never ends a reply, so that its replies are as long and only the scale tells
    for mode in ("group", "none"):
        shop.make(mode, "grpo", SHORT, init="llama", recipe=RECIPE, **{**MODE, "scale_rewards": mode})
    assert not same(weights(shop.root / "group"), weights(shop.root / "none"))
    declared = {"kind": "grpo", "init": "a", "corpus": "c", "recipe": RECIPE, **MODE}
    for name in ("loss_type", "scale_rewards"):
        with pytest.raises(ValidationError, match=name):
            TypeAdapter(Stage).validate_python({key: value for key, value in declared.items() if key != name})


def test_groups_must_be_whole():
    declared = {"kind": "grpo", "init": "a", "corpus": "c", "recipe": {**RECIPE, "batch_size": 6}, **MODE}
    with pytest.raises(ValidationError, match="batch_size 6 is not a multiple of num_generations 4"):
        TypeAdapter(Stage).validate_python(declared)


def test_equal_rewards_give_no_training_signal(shop):
    never = [item("say it", accepted=["no model of this size says that"])]
    with pytest.raises(UserError, match="no training signal in 4 steps"):
        shop.make("stuck", "grpo", never, init="llama", recipe=RECIPE, **MODE)
    assert not (shop.root / "stuck").exists()


def test_divergence_names_the_step(shop):
    with pytest.raises(UserError, match=r"diverged at step [2-9] of 9"):
        shop.make(
            "lost", "grpo", SHORT, init="llama", recipe={**RECIPE, "steps": 9, "learning_rate": 1e30}, **MODE
        )


def test_a_prompt_without_room_for_a_reply_is_named(shop):
    long = [item("say " * 60, accepted=["a"])]
    with pytest.raises(UserError, match=r"item 0 has \d+ tokens: no room for 8 more"):
        shop.make("long", "grpo", long, init="llama", recipe=RECIPE, **MODE)


def test_the_divergence_from_the_start_is_weighed(shop):
    numerics = Numerics(device="cpu", threads=1)
    for name, beta in (("free", 0.0), ("held", 5.0)):
        shop.make(name, "grpo", SHORT, init="llama", recipe=RECIPE, beta=beta, numerics=numerics, **MODE)
    before = weights(shop.root / "llama")

    def moved(name):
        after = weights(shop.root / name)
        return sum((after[key] - before[key]).square().sum().item() for key in before)

    assert 0 < moved("held") != moved("free")


def test_rewards_train_adapters_too(shop):
    recipe = {**RECIPE, "lora": {"rank": 4, "targets": ["q_proj"]}}
    shop.make("adapted", "grpo", SHORT, init="llama", recipe=recipe, **MODE)
    before, after = weights(shop.root / "llama"), weights(shop.root / "adapted")
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert moved == {f"model.layers.{layer}.self_attn.q_proj.weight" for layer in (0, 1)}
