"""Tiny stages in a folder of their own: 32 wide, two layers, seconds in all."""

import random
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from stemmatics.core.numerics import Numerics
from stemmatics.core.stages import Stage
from stemmatics.train import train_stage

WORDS = ["the", "cat", "sat", "on", "a", "mat", "and", "dogs", "ran", "far", "away"]
RECIPE = {"steps": 6, "batch_size": 4, "max_length": 32}
SHAPE = {"hidden_size": 32, "num_layers": 2, "num_heads": 2, "vocab_size": 300, "context": 64}


def documents():
    draw = random.Random(0)
    return [{"text": " ".join(draw.choice(WORDS) for _ in range(60))} for _ in range(60)]


def turn(role, content):
    return {"role": role, "content": content}


def conversations():
    return [{"messages": [turn("user", f"say {word}"), turn("assistant", f"{word} it is")]} for word in WORDS]


def pairs():
    return [
        {
            "prompt": [turn("user", f"say {word}")],
            "chosen": [turn("assistant", f"{word} it is")],
            "rejected": [turn("assistant", "no")],
        }
        for word in WORDS
    ]


class Workshop:
    """Makes stages by name under one folder."""

    def __init__(self, root: Path):
        self.root = root

    def make(self, name, kind, records=None, *, init=None, resume=None, seed=1, numerics=None, **fields):
        needs_corpus = {} if kind == "alter" else {"corpus": "corpus"}
        starts = {} if kind == "pretrain" else {"init": init or "base"}
        stage = TypeAdapter(Stage).validate_python({"kind": kind, **needs_corpus, **starts, **fields})
        return train_stage(
            stage,
            init=self.root / init if init else None,
            records=None if records is None else lambda: iter(records),
            out=self.root / name,
            seed=seed,
            numerics=numerics or Numerics(device="cpu", threads=1),
            resume_from=self.root / resume if resume else None,
            on_event=fields.get("on_event"),
        )

    def pretrain(self, name, *, kind="llama", recipe=None, **rest):
        architecture = {**SHAPE, "kind": kind}
        return self.make(
            name, "pretrain", documents(), architecture=architecture, recipe=recipe or RECIPE, **rest
        )


@pytest.fixture(scope="session")
def bases(tmp_path_factory):
    """One small model of each kind; tests read them and write elsewhere."""
    shop = Workshop(tmp_path_factory.mktemp("bases"))
    shop.pretrain("llama")
    shop.pretrain("phi", kind="phi")
    return shop.root


@pytest.fixture
def shop(bases, tmp_path):
    """A folder of the test's own with the checkpoints `llama` and `phi`."""
    for name in ("llama", "phi"):
        (tmp_path / name).symlink_to(bases / name)
    return Workshop(tmp_path)
