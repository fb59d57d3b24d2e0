"""What makes a recovery fit: blocked loss, half precision, smaller passes, checkpointing; one result."""

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch.nn import functional
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    Gemma2Config,
    Gemma2ForCausalLM,
    LlamaConfig,
)

from stemmatics.core.errors import UserError
from stemmatics.core.numerics import Numerics
from stemmatics.core.stages import Lora, RecoveryRecipe
from stemmatics.lm.scoring.head import LinearHead, Transform
from stemmatics.lm.tokens.tokenizer import TextTokenizer
from stemmatics.train import recovery
from stemmatics.train.adapter_product import fuse_adapters
from stemmatics.train.blocked_loss import blocked_loss, frozen_head
from stemmatics.train.finetune import Conditions
from stemmatics.train.lora import with_adapters
from stemmatics.train.models import load_model
from stemmatics.train.recovery_memory import recovery_memory
from stemmatics.train.recovery_rows import updates_of

RECIPE = RecoveryRecipe(
    updates=3, update_tokens=90, max_length=32, learning_rate=3e-3, schedule="constant", lora={"rank": 4}
)
POOL = [f"the dog number {n} ran far away " * (1 + n % 4) for n in range(40)]
CPU = Numerics(device="cpu", threads=1)


def updates(folder, recipe=RECIPE):
    return updates_of(POOL, TextTokenizer(AutoTokenizer.from_pretrained(folder)), recipe)


@pytest.mark.parametrize("rows", [1, 7, 64])
@pytest.mark.parametrize("transform", [Transform(), Transform(0.3), Transform(1.0, 4.0), Transform(0.5, 3.0)])
@pytest.mark.parametrize("with_bias", [False, True])
def test_loss_and_gradient_are_those_of_whole_logits(transform, rows, with_bias):
    generator = torch.Generator().manual_seed(0)
    weight, bias = torch.randn(50, 8, generator=generator), torch.randn(50, generator=generator)
    states = torch.randn(40, 8, generator=generator)
    target = torch.randint(50, (40,), generator=generator)
    head = LinearHead(weight, bias if with_bias else None, transform)

    by_blocks = states.clone().requires_grad_()
    loss = blocked_loss(by_blocks, target, head, rows=rows)
    (2.5 * loss).backward()

    whole = states.clone().double().requires_grad_()
    logits = whole @ weight.double().T + (bias.double() if with_bias else 0.0)
    logits = transform.scale * logits
    if transform.cap is not None:
        logits = transform.cap * torch.tanh(logits / transform.cap)
    expected = functional.cross_entropy(logits, target, reduction="sum")
    (2.5 * expected).backward()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-6)
    torch.testing.assert_close(by_blocks.grad.double(), whole.grad, rtol=1e-4, atol=1e-5)


def trained(folder, state, *, recipe=RECIPE, numerics=CPU, change=lambda _trainer: None, monkeypatch=None):
    """Adapter weights and losses after a run; ``change`` sees the trainer before it starts."""
    torch.manual_seed(5)
    model = load_model(folder, numerics, frozen=True)
    original = recovery.run

    def run(trainer, last):
        change(trainer)
        return original(trainer, last)

    monkeypatch.setattr(recovery, "run", run)
    adapted, log = recovery.recover(
        model, updates(folder, recipe), recipe, Conditions(5, numerics, None), pad_id=0, state=state
    )
    monkeypatch.setattr(recovery, "run", original)
    weights = {name: weight.detach() for name, weight in adapted.named_parameters() if "lora" in name}
    return weights, [row.loss for row in log.rows]


def close(first, second, rtol):
    for name, weight in first.items():
        torch.testing.assert_close(weight, second[name], rtol=rtol, atol=rtol * 1e-1)


@pytest.mark.parametrize("kind", ["llama", "phi"])
def test_a_run_by_blocks_has_the_weights_of_one_by_whole_logits(bases, tmp_path, monkeypatch, kind):
    whole, losses = trained(bases / kind, tmp_path / "whole", monkeypatch=monkeypatch)

    def by_blocks(trainer):
        trainer._loss = recovery.PassLoss(whole_elements=0)

    blocked, again = trained(bases / kind, tmp_path / "blocked", change=by_blocks, monkeypatch=monkeypatch)
    assert again == pytest.approx(losses, rel=1e-5)
    close(whole, blocked, 1e-3)


def test_a_soft_capped_head_goes_by_blocks_and_a_trained_one_does_not(bases):
    torch.manual_seed(0)
    config = Gemma2Config(
        vocab_size=60, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, head_dim=8, final_logit_softcapping=5.0, attn_implementation="eager",
    )  # fmt: skip
    model = Gemma2ForCausalLM(config).eval().requires_grad_(False)
    head = frozen_head(model, 32)
    assert head.transform.cap == pytest.approx(5.0, rel=1e-3)
    batch = recovery._padded([[1, 5, 9, 20, 33], [2, 7]], 0)
    by_blocks = recovery.PassLoss(whole_elements=0)(model, batch)
    assert by_blocks.item() == pytest.approx(recovery.summed_loss(model, batch).item(), rel=1e-5)

    llama = AutoModelForCausalLM.from_pretrained(bases / "llama")
    assert frozen_head(llama, 32) is None
    adapted = with_adapters(llama.requires_grad_(False), Lora(rank=2, targets=["q_proj", "lm_head"]))
    assert frozen_head(adapted.get_base_model(), 32) is None


def test_weights_in_half_precision_carry_adapters_in_float32(bases, tmp_path, monkeypatch):
    half = Numerics(device="cpu", threads=1, dtype="bfloat16")
    seen = {}

    def look(trainer):
        inner = trainer.model.get_base_model()
        seen["base"] = inner.model.layers[0].self_attn.q_proj.base_layer.weight.dtype
        seen["adapter"] = inner.model.layers[0].self_attn.q_proj.lora_A["default"].weight.dtype

    weights, losses = trained(
        bases / "llama", tmp_path / "half", numerics=half, change=look, monkeypatch=monkeypatch
    )
    assert seen == {"base": torch.bfloat16, "adapter": torch.float32}
    assert all(weight.dtype == torch.float32 for weight in weights.values())
    _, exact = trained(bases / "llama", tmp_path / "full", monkeypatch=monkeypatch)
    assert losses == pytest.approx(exact, rel=2e-2)
    assert losses != pytest.approx(exact, rel=1e-6)


def failing(times, kind=RuntimeError):
    """A change of the trainer whose first passes find no memory."""

    def change(trainer):
        original, left = trainer._loss, [times]

        def loss(model, batch):
            if left[0]:
                left[0] -= 1
                # some gradient has been added when memory runs out
                original(model, batch).backward()
                message = "[enforce fail] DefaultCPUAllocator: not enough memory: you tried to allocate"
                raise kind(message)
            return original(model, batch)

        trainer._loss = loss

    return change


def test_an_update_that_did_not_fit_is_done_again_with_the_same_result(bases, tmp_path, monkeypatch):
    whole, losses = trained(bases / "llama", tmp_path / "whole", monkeypatch=monkeypatch)
    sizes = []

    def change(trainer):
        failing(2)(trainer)
        trainer.callback_handler.on_step_end = _noting(trainer, sizes)

    less, again = trained(bases / "llama", tmp_path / "less", change=change, monkeypatch=monkeypatch)
    assert sizes[0] < CPU.token_budget
    assert again == pytest.approx(losses, rel=1e-5)
    close(whole, less, 1e-3)


def _noting(trainer, sizes):
    original = trainer.callback_handler.on_step_end

    def on_step_end(*arguments):
        sizes.append(trainer.most_positions)
        return original(*arguments)

    return on_step_end


def test_checkpointing_gives_the_same_weights(bases, tmp_path, monkeypatch):
    whole, losses = trained(bases / "llama", tmp_path / "whole", monkeypatch=monkeypatch)
    checkpointed, again = trained(
        bases / "llama",
        tmp_path / "checkpointed",
        change=lambda trainer: recovery.checkpoint_activations(trainer.model),
        monkeypatch=monkeypatch,
    )
    assert again == pytest.approx(losses, rel=1e-6)
    close(whole, checkpointed, 1e-5)


def test_where_nothing_helps_the_error_says_what_would(bases, tmp_path, monkeypatch):
    seen = []

    def change(trainer):
        failing(1000, MemoryError)(trainer)
        seen.append(trainer)

    with pytest.raises(UserError, match="does not fit into memory") as refused:
        trained(bases / "llama", tmp_path / "out", change=change, monkeypatch=monkeypatch)
    assert "max_length" in refused.value.fix
    assert recovery.is_checkpointing(seen[0].model)


def test_another_error_is_not_taken_for_a_lack_of_memory(bases, tmp_path, monkeypatch):
    def change(trainer):
        def loss(_model, _batch):
            message = "shapes differ"
            raise RuntimeError(message)

        trainer._loss = loss

    with pytest.raises(RuntimeError, match="shapes differ"):
        trained(bases / "llama", tmp_path / "out", change=change, monkeypatch=monkeypatch)


def shape(**changes):
    settings = {
        "vocab_size": 512, "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 4,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512,
    }  # fmt: skip
    return LlamaConfig(**settings | changes)


def test_parts_of_the_memory_are_those_of_the_arithmetic():
    recipe = RECIPE.model_copy(update={"max_length": 128, "update_tokens": 512})
    parts = recovery_memory(shape(), recipe, dtype=torch.float32, num_positions=512)
    model = AutoModelForCausalLM.from_config(shape())
    weights = sum(weight.numel() for weight in model.parameters())
    adapted = with_adapters(model, recipe.lora)
    fuse_adapters(adapted)
    adapters = sum(weight.numel() for weight in adapted.parameters() if weight.requires_grad)
    assert parts.weights == pytest.approx(4 * weights, rel=1e-2)
    assert (parts.adapters, parts.optimizer) == (4 * adapters, 12 * adapters)
    # what a real pass keeps is what was counted without one
    kept = {}

    def note(tensor):
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage()
        return tensor

    batch = recovery._padded([[1] * 128] * 3 + [[1] * 127], 0)
    adapted.train()
    own = {tensor.untyped_storage().data_ptr() for tensor in [*model.parameters(), *model.buffers()]}
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        states = recovery.capture_hidden(model, batch["input_ids"], attention_mask=batch["attention_mask"])
    measured = sum(storage.nbytes() for pointer, storage in kept.items() if pointer not in own)
    assert states.requires_grad
    assert parts.activations == pytest.approx(measured, rel=0.1)


def test_half_precision_checkpointing_and_smaller_passes_take_less():
    recipe = RECIPE.model_copy(update={"max_length": 128, "update_tokens": 512})
    whole = recovery_memory(shape(), recipe, dtype=torch.float32, num_positions=512)
    half = recovery_memory(shape(), recipe, dtype=torch.bfloat16, num_positions=512)
    small = recovery_memory(shape(), recipe, dtype=torch.float32, num_positions=256)
    layers = recovery_memory(shape(), recipe, dtype=torch.float32, num_positions=512, checkpointing=True)
    assert half.weights == pytest.approx(whole.weights / 2, rel=1e-2)
    assert half.adapters == whole.adapters
    assert half.activations < whole.activations
    assert small.activations == pytest.approx(whole.activations / 2, rel=0.05)
    assert layers.activations < whole.activations / 5
    assert layers.total < whole.total


def test_a_model_that_needs_values_has_no_plan(monkeypatch):
    def needs_values(*_arguments):
        message = "aten::nonzero"
        raise NotImplementedError(message)

    monkeypatch.setattr("stemmatics.train.recovery_memory._kept_bytes", needs_values)
    assert recovery_memory(shape(), RECIPE, dtype=torch.float32, num_positions=64) is None


def test_checkpointing_is_turned_on_where_a_pass_would_not_fit(bases, tmp_path, monkeypatch):
    seen = []

    def note(trainer):
        seen.append(recovery.is_checkpointing(trainer.model))

    monkeypatch.setattr(recovery, "available_bytes", lambda _device: 1000)
    trained(bases / "llama", tmp_path / "small", change=note, monkeypatch=monkeypatch)
    monkeypatch.setattr(recovery, "available_bytes", lambda _device: 1 << 40)
    trained(bases / "llama", tmp_path / "large", change=note, monkeypatch=monkeypatch)
    assert seen == [True, False]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_adapters_single_step_is_that_of_peft(dtype):
    def gradients(*, fused):
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(shape(attention_bias=True), dtype=dtype)
        adapted = with_adapters(model.requires_grad_(False), RECIPE.lora)
        for name, weight in adapted.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(weight, std=0.1)
        if fused:
            assert fuse_adapters(adapted) == 7 * 4
        batch = recovery._padded([[5, 9, 2, 7, 7], [3, 1, 4]], 0)
        loss = recovery.summed_loss(adapted.train(), batch)
        loss.backward()
        return loss.item(), {
            name: weight.grad for name, weight in adapted.named_parameters() if weight.requires_grad
        }

    (loss, expected), (again, fused) = gradients(fused=False), gradients(fused=True)
    near = {"rtol": 1e-4, "atol": 1e-5} if dtype == torch.float32 else {"rtol": 5e-2, "atol": 5e-2}
    assert again == pytest.approx(loss, rel=1e-6 if dtype == torch.float32 else 1e-2)
    assert expected.keys() == fused.keys()
    for name, gradient in fused.items():
        assert gradient.abs().sum() > 0
        torch.testing.assert_close(gradient, expected[name], **near)


def test_adapters_that_are_not_plain_keep_their_own_steps():
    model = AutoModelForCausalLM.from_config(shape())
    settings = {"r": 4, "target_modules": ["q_proj"], "task_type": "CAUSAL_LM"}
    dropout = get_peft_model(model, LoraConfig(lora_dropout=0.1, **settings))
    assert fuse_adapters(dropout) == 0
    dora = get_peft_model(AutoModelForCausalLM.from_config(shape()), LoraConfig(use_dora=True, **settings))
    assert fuse_adapters(dora) == 0


def test_a_disabled_or_merged_adapter_computes_as_the_layer_alone():
    model = AutoModelForCausalLM.from_config(shape()).requires_grad_(False)
    ids = torch.tensor([[1, 2, 3]])
    expected = model(ids).logits
    adapted = with_adapters(model, RECIPE.lora)
    for name, weight in adapted.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.1)
    fuse_adapters(adapted)
    moved = adapted(ids).logits
    assert not torch.allclose(moved, expected, atol=1e-3)
    with adapted.disable_adapter():
        torch.testing.assert_close(adapted(ids).logits, expected)
    torch.testing.assert_close(adapted.merge_and_unload()(ids).logits, moved, rtol=1e-4, atol=1e-5)
