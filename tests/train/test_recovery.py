"""The recovery fine-tune: the same loss however it is split, resumable, merged or not."""

import json

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from stemmatics.core.errors import UserError
from stemmatics.core.numerics import Numerics
from stemmatics.core.stages import RecoveryRecipe
from stemmatics.lm.checkpoints.loading import load
from stemmatics.lm.tokens.tokenizer import TextTokenizer
from stemmatics.train import recovery
from stemmatics.train.finetune import Conditions
from stemmatics.train.lora import with_adapters
from stemmatics.train.recovery_rows import micro_batches, updates_of

RECIPE = {
    "updates": 4,
    "update_tokens": 60,
    "max_length": 32,
    "learning_rate": 3e-3,
    "schedule": "constant",
    "lora": {"rank": 4},
}
POOL = [{"text": f"the dog number {n} ran far away " * (1 + n % 4)} for n in range(40)]


def adapter(folder):
    return load_file(folder / "adapter_model.safetensors")


def same(first, second):
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


@pytest.fixture
def arm(shop):
    def make(name="arm", *, init="llama", seed=1, numerics=None, **recipe):
        return shop.make(
            name, "recovery", POOL, init=init, seed=seed, numerics=numerics, recipe=RECIPE | recipe
        )

    return make


def test_an_arm_is_an_adapter_alone(arm, shop):
    log = arm()
    folder = shop.root / "arm"
    assert sorted(path.name for path in folder.iterdir()) == [
        "adapter_config.json",
        "adapter_model.safetensors",
    ]
    config = json.loads((folder / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] is None
    assert config["r"] == 4
    assert [row.num_tokens for row in log.rows] == [60, 120, 180, 240]
    assert log.rows[-1].loss < log.rows[0].loss
    assert 0 < log.num_bytes <= sum(len(record["text"]) for record in POOL)


def test_the_same_seed_gives_the_same_adapter_and_another_another(arm, shop):
    arm("one")
    arm("two")
    arm("three", seed=2)
    assert same(adapter(shop.root / "one"), adapter(shop.root / "two"))
    assert not same(adapter(shop.root / "one"), adapter(shop.root / "three"))


def test_every_linear_layer_has_an_adapter_but_the_head(arm, shop):
    arm()
    layers = {name.rsplit(".lora_", 1)[0].rsplit(".", 1)[1] for name in adapter(shop.root / "arm")}
    assert layers == {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}


@pytest.mark.parametrize("budget", [16, 64, 4096])
def test_an_update_has_one_gradient_however_it_is_cut(bases, budget):
    model = AutoModelForCausalLM.from_pretrained(bases / "llama")
    tokenizer = TextTokenizer(AutoTokenizer.from_pretrained(bases / "llama"))
    (update, *_) = updates_of((r["text"] for r in POOL), tokenizer, RecoveryRecipe(**RECIPE))
    model.zero_grad()
    for indices in micro_batches([len(row) for row in update.rows], budget):
        batch = recovery._padded([update.rows[index] for index in indices], 0)
        (recovery.summed_loss(model, batch) / update.num_tokens).backward()
    gradients = {name: weight.grad.clone() for name, weight in model.named_parameters()}

    # by brute force: each row alone, without padding, the model's own logits
    model.zero_grad()
    total = 0.0
    for row in update.rows:
        ids = torch.tensor([row])
        logits = model(input_ids=ids).logits[0, :-1]
        total = total - logits.log_softmax(-1).gather(1, ids[0, 1:, None]).sum()
    (total / update.num_tokens).backward()
    for name, weight in model.named_parameters():
        torch.testing.assert_close(gradients[name], weight.grad, rtol=1e-4, atol=1e-6)


def test_a_run_that_was_stopped_goes_on_as_if_it_had_not(bases, tmp_path, monkeypatch):
    tokenizer = TextTokenizer(AutoTokenizer.from_pretrained(bases / "llama"))
    recipe = RecoveryRecipe(**RECIPE | {"schedule": "cosine"})
    updates = updates_of((r["text"] for r in POOL), tokenizer, recipe)

    def trained(state, on_event=None):
        torch.manual_seed(5)
        model = AutoModelForCausalLM.from_pretrained(bases / "llama")
        conditions = Conditions(5, Numerics(device="cpu", threads=1), on_event)
        adapted, log = recovery.recover(
            model, updates, recipe, conditions, pad_id=0, state=state, saved_every=0.0
        )
        weights = {name: weight.clone() for name, weight in adapted.named_parameters() if "lora" in name}
        return weights, log

    whole, log = trained(tmp_path / "whole")
    assert not (tmp_path / "whole").exists()

    def crash(event):
        if event["step"] == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path / "state", crash)
    saved = sorted(path.name for path in (tmp_path / "state").glob("checkpoint-*"))
    assert saved
    # a state that the crash cut short is passed over
    (tmp_path / "state" / "checkpoint-9").mkdir()
    steps = []
    resumed, again = trained(tmp_path / "state", lambda event: steps.append(event["step"]))
    assert steps[0] > 1
    assert same(whole, resumed)
    assert [row.loss for row in again.rows] == pytest.approx([row.loss for row in log.rows], abs=1e-7)


def test_merged_and_adapter_scoring_give_the_same_sums(arm, shop):
    arm()
    spec = f"{shop.root / 'llama'}+{shop.root / 'arm'}"
    numerics = Numerics(device="cpu", threads=1)
    plain, merged = (load(spec, numerics, merge_adapter=merge) for merge in (False, True))
    base = load(str(shop.root / "llama"), numerics)
    ids = torch.tensor([plain.tokenizer("the dog number 7 ran far away from the cat")["input_ids"]])

    def nll(loaded):
        logits = loaded.model(input_ids=ids).logits[0, :-1].double()
        return -logits.log_softmax(-1).gather(1, ids[0, 1:, None]).sum().item()

    assert nll(plain) == pytest.approx(nll(merged), rel=1e-6)
    assert abs(nll(plain) - nll(base)) > 1e-2


def test_an_adapter_of_an_adapted_checkpoint_is_kept_whole(shop):
    shop.make("arm", "recovery", POOL, init="llama", recipe=RECIPE)
    from stemmatics.core.stages import Recovery
    from stemmatics.train import train_stage

    stage = Recovery(kind="recovery", init="llama", corpus="pool", recipe=RECIPE)
    train_stage(
        stage,
        init=shop.root / "llama",
        records=lambda: iter(POOL),
        out=shop.root / "whole",
        seed=1,
        numerics=Numerics(device="cpu", threads=1),
        merge=True,
    )
    whole = load(str(shop.root / "whole"), Numerics(device="cpu", threads=1))
    put_on = load(f"{shop.root / 'llama'}+{shop.root / 'arm'}", Numerics(device="cpu"), merge_adapter=True)
    for name, weight in whole.model.named_parameters():
        assert torch.equal(weight, dict(put_on.model.named_parameters())[name])


def test_a_row_longer_than_the_context_is_refused(arm):
    with pytest.raises(UserError, match="max_length 128 is longer than the model's context of 64"):
        arm(max_length=128)


def test_adapters_go_on_all_linear_layers(bases):
    model = AutoModelForCausalLM.from_pretrained(bases / "phi")
    adapted = with_adapters(model, RecoveryRecipe(**RECIPE).lora)
    trained = {name for name, weight in adapted.named_parameters() if weight.requires_grad}
    assert trained
    assert all("lora_" in name for name in trained)
