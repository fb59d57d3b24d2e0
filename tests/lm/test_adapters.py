"""Every type of adapter of the installed PEFT: PEFT's own loss, or a refusal that names it."""

import json
import warnings

import peft
import pytest
import torch
from peft.mapping import PEFT_TYPE_TO_CONFIG_MAPPING
from tests.lm.tiny_checkpoints import make_checkpoint
from transformers import AutoModelForCausalLM

from stemmatics.commands.score import score
from stemmatics.core.errors import UserError
from stemmatics.core.numerics import Numerics
from stemmatics.core.scoring import Scoring
from stemmatics.lm.checkpoints.loading import load, save

TEXTS = ["the scribe copied the text and the copy", "in 1234 and 2024, 12 34 bottles of the text copy kept"]
CPU = Numerics(device="cpu")
VIRTUAL = 5
PROMPTS = {"PROMPT_TUNING", "P_TUNING", "PREFIX_TUNING", "CPT", "CARTRIDGE"}
# types that a list of ids is not enough for, or whose output depends on what else is in the batch
REFUSED = {"MULTITASK_PROMPT_TUNING", "POLY", "SHADOW", "LILY"}
# wraps other adapters that are given as paths
WITHOUT_BASE = {"XLORA"}
SETTINGS = {
    "PROMPT_TUNING": {"num_virtual_tokens": VIRTUAL},
    "P_TUNING": {"num_virtual_tokens": VIRTUAL, "encoder_hidden_size": 16},
    "PREFIX_TUNING": {"num_virtual_tokens": VIRTUAL},
    "CARTRIDGE": {"num_virtual_tokens": VIRTUAL},
    "MULTITASK_PROMPT_TUNING": {"num_virtual_tokens": VIRTUAL, "num_tasks": 1},
    "CPT": {"cpt_token_ids": [1, 2, 3, 4, 5], "cpt_mask": [1] * 5, "cpt_tokens_type_mask": [1] * 5},
    "ADAPTION_PROMPT": {"adapter_len": 4, "adapter_layers": 2},
    "ADALORA": {"total_step": 10},
    "TRAINABLE_TOKENS": {"token_indices": [3, 4]},
    "POLY": {"n_tasks": 1},
    "VBLORA": {"vector_length": 8, "num_vectors": 16},
    "C3A": {"block_size": 8},
    "FOURIERFT": {"n_frequency": 10},
    "WAVEFT": {"n_frequency": 10},
    "MISS": {"r": 8},
    "SHIRA": {"r": 4},
    "PSOFT": {"r": 4},
    "ROAD": {"group_size": 4},
    "IA3": {"target_modules": ["k_proj", "down_proj"], "feedforward_modules": ["down_proj"]},
}
TYPES = sorted({str(getattr(kind, "value", kind)) for kind in PEFT_TYPE_TO_CONFIG_MAPPING} - WITHOUT_BASE)


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = tmp_path_factory.mktemp("adapted")
    make_checkpoint(folder / "base", hidden_size=32, intermediate_size=48, max_position_embeddings=128)
    (folder / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    return folder


def make_adapter(base, folder, name, **settings):
    """An adapter of a type, with random weights."""
    kinds = {str(getattr(kind, "value", kind)): made for kind, made in PEFT_TYPE_TO_CONFIG_MAPPING.items()}
    fields = kinds[name].__dataclass_fields__
    given = SETTINGS.get(name, {}) | settings
    if "target_modules" in fields and name not in {"ADAPTION_PROMPT", "TRAINABLE_TOKENS"}:
        given = {"target_modules": ["q_proj", "v_proj"]} | given
    with warnings.catch_warnings(), torch.random.fork_rng():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_pretrained(base / "base")
        adapted = peft.get_peft_model(model, kinds[name](task_type="CAUSAL_LM", **given))
        with torch.no_grad():
            for weight in adapted.parameters():
                if weight.requires_grad:
                    weight.add_(0.2 * torch.randn_like(weight))
        adapted.eval().save_pretrained(folder)
    return folder


def own_loss(base, adapter, ids):
    """Nats of all ids but the first under PEFT's own model, virtual positions cut off."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = AutoModelForCausalLM.from_pretrained(base / "base")
        adapted = peft.PeftModel.from_pretrained(model, adapter).eval()
    with torch.no_grad():
        logits_LV = adapted(input_ids=torch.tensor([ids])).logits[0, -len(ids) : -1].double()
    return float(-logits_LV.log_softmax(-1)[range(len(ids) - 1), ids[1:]].sum())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", TYPES)
def test_the_loss_is_that_of_peft_or_the_type_is_refused(name, base, tmp_path):
    adapter = make_adapter(base, tmp_path / "adapter", name)
    checkpoint = f"{base / 'base'}+{adapter}"
    if name in REFUSED:
        with pytest.raises(UserError, match=name):
            load(checkpoint, CPU)
        return
    scored = score(checkpoint, base / "texts.jsonl", scoring=Scoring(prefix="never"), numerics=CPU)
    assert "unexpected_adapter_tensors" not in scored.flags
    tokenizer = load(str(base / "base"), CPU).tokenizer
    for row, text in zip(scored.documents, TEXTS, strict=True):
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        assert row["nll_sum"] == pytest.approx(own_loss(base, adapter, ids), abs=1e-3)
        assert row["num_tokens"] == len(ids) - 1


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sorted(PROMPTS))
def test_a_virtual_prompt_takes_positions_and_can_not_be_merged(name, base, tmp_path):
    adapter = make_adapter(base, tmp_path / "adapter", name)
    assert load(f"{base / 'base'}+{adapter}", CPU).context_length == 128 - VIRTUAL
    with pytest.raises(UserError, match=f"can't be merged.*{name}"):
        load(f"{base / 'base'}+{adapter}", CPU, merge_adapter=True)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize(
    "settings",
    [
        {"target_modules": ["lm_head"]},
        {"target_modules": ["embed_tokens"]},
        {"target_modules": ["lm_head", "q_proj"]},
        {"target_modules": ["q_proj"], "modules_to_save": ["lm_head"]},
        {"target_modules": ["q_proj"], "modules_to_save": ["embed_tokens"]},
    ],
)
def test_a_merged_model_has_the_loss_of_the_adapted_one(settings, tied, tmp_path):
    make_checkpoint(tmp_path / "base", hidden_size=32, intermediate_size=48, tie_word_embeddings=tied)
    (tmp_path / "texts.jsonl").write_text(json.dumps({"text": TEXTS[0]}) + "\n")
    adapter = make_adapter(tmp_path, tmp_path / "adapter", "LORA", **settings)
    checkpoint = f"{tmp_path / 'base'}+{adapter}"
    merged = load(checkpoint, CPU, merge_adapter=True)
    save(merged.model, merged.tokenizer, tmp_path / "merged")
    scoring = Scoring(prefix="never")
    adapted, whole = (
        score(spec, tmp_path / "texts.jsonl", scoring=scoring, numerics=CPU).total("nll_sum")
        for spec in (checkpoint, str(tmp_path / "merged"))
    )
    assert whole == pytest.approx(adapted, rel=1e-5)
    ids = merged.tokenizer(TEXTS[0], add_special_tokens=False)["input_ids"]
    assert adapted == pytest.approx(own_loss(tmp_path, adapter, ids), abs=1e-3)
