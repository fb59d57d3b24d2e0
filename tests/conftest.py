"""Two tiny checkpoints, a command that runs in this process, and one finished run that tests copy."""

import contextlib
import io
import json
import os
import random
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

WORDS = ("the", "a", "cat", "dog", "sees", "red blue", "house,", "12", "7", "runs.", "naïve", "café")
NUM_DOCUMENTS = 14


@dataclass(frozen=True)
class Ran:
    """What a command left: its exit status and what it printed."""

    code: int
    out: str
    err: str

    def json(self):
        return json.loads(self.out)


def run_command(*args):
    """``stemma ARGS`` in this process."""
    from stemmatics.cli.main import main

    out, err = io.StringIO(), io.StringIO()
    before = sys.argv
    sys.argv = ["stemma", *map(str, args)]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main()
    except SystemExit as left:
        code = 0 if left.code is None else int(left.code)
    finally:
        sys.argv = before
    return Ran(code, out.getvalue(), err.getvalue())


@pytest.fixture(scope="session")
def stemma_command():
    return run_command


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory):
    """No test uses the user's cache or queries the Hub."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STEMMATICS_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("HF_HUB_OFFLINE", "1")
        yield Path(os.environ["STEMMATICS_CACHE"])


def write_texts(path, *, seed, num_documents=NUM_DOCUMENTS):
    """Generated documents: one is empty, one appears twice."""
    draw = random.Random(seed)
    texts = [" ".join(draw.choices(WORDS, k=draw.randint(5, 60))) for _ in range(num_documents)]
    texts[3] = ""
    texts[5] = texts[4]
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
    return texts


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """``base``, ``tuned`` and ``other``: Llamas of 30,000 parameters with one tokenizer; three texts."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("tiny")
    texts = [write_texts(folder / f"{name}.jsonl", seed=seed) for seed, name in enumerate(("a", "b", "c"))]
    byte_level = Tokenizer(models.BPE())
    byte_level.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    byte_level.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<bos>", "<eos>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    byte_level.train_from_iterator(texts[0], trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=byte_level, bos_token="<bos>", eos_token="<eos>")
    config = LlamaConfig(
        vocab_size=300,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=64,
        initializer_range=0.3,
    )
    torch.manual_seed(0)
    model = LlamaForCausalLM(config)
    for name in ("base", "tuned", "other"):
        model.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.03 * torch.randn_like(parameter))
    return folder


@pytest.fixture(scope="session")
def finished_run(tiny, tmp_path_factory):
    """A finished comparison. Tests must not change it: they take ``run_copy``."""
    root = tmp_path_factory.mktemp("runs") / "pair"
    ran = run_command(
        "compare", tiny / "base", tiny / "tuned", "--text", tiny / "a.jsonl", "--out", root, "--json"
    )
    assert ran.code == 0, ran.err
    return root


@pytest.fixture
def run_copy(finished_run, tmp_path):
    return Path(shutil.copytree(finished_run, tmp_path / "pair"))
