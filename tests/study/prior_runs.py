"""Runs of the measure `prior` on a tiny pair, and what is read from them."""

import json
import random

import torch
from ruamel.yaml import YAML
from transformers import AutoModelForCausalLM, AutoTokenizer

from stemmatics.commands.show import load_run

WORDS = ("the", "a", "cat", "dog", "sees", "red blue", "house,", "12", "7", "runs.", "naïve", "café")
PRIOR = {"columns": 40, "draws": 60, "refits": 4, "floors": 5, "references": ["ipf_full"]}


def write_texts(path, num=90):
    """Words whose successor is mostly the next one, so that context tells something."""
    draw = random.Random(1)
    lines = []
    for _ in range(num):
        at, words = draw.randrange(len(WORDS)), []
        for _ in range(draw.randint(15, 40)):
            at = (at + 1) % len(WORDS) if draw.random() < 0.7 else draw.randrange(len(WORDS))
            words.append(WORDS[at])
        lines.append(json.dumps({"text": " ".join(words)}))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def learn(tiny, root):
    """Write texts and a ``base`` that has learned them a little; the others of ``tiny`` have not."""
    write_texts(root / "text.jsonl")
    write_texts(root / "one.jsonl", num=1)
    model = AutoModelForCausalLM.from_pretrained(tiny / "base").train()
    tokenizer = AutoTokenizer.from_pretrained(tiny / "base")
    texts = [json.loads(line)["text"] for line in (root / "text.jsonl").read_text().splitlines()]
    optimiser = torch.optim.Adam(model.parameters(), 3e-3)
    for step in range(90):
        ids = torch.tensor([tokenizer.encode(texts[step % len(texts)])[:60]])
        loss = model(ids, labels=ids).loss
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    model.eval().save_pretrained(root / "base")
    tokenizer.save_pretrained(root / "base")


def run(stemma_command, folder, root, *, code=0, prior=None, corpus="text.jsonl", eval_share=0.5, **more):
    declared = {
        "name": "prior",
        "checkpoints": {"base": {"source": str(folder / "base")}},
        "stages": {
            "hot": {"kind": "alter", "init": "base", "base": "base", "change": "temperature", "scale": 1.5},
            "noise": {"kind": "alter", "init": "base", "base": "base", "change": "noise", "scale": 0.3},
        },
        "corpora": {"text": {"path": str(folder / corpus), "eval_share": eval_share}},
        "measures": {"prior": PRIOR if prior is None else prior},
        **more,
    }
    root.parent.mkdir(parents=True, exist_ok=True)
    path = root.with_suffix(".yaml")
    YAML().dump(declared, path)
    ran = stemma_command("run", path, "--out", root)
    assert ran.code == code, ran.err
    return load_run(root)


def of(run, quantity, **subject):
    return [
        result
        for result in run.results.values()
        if result.quantity == quantity
        and all(result.subject.get(name) == value for name, value in subject.items())
    ]


def one(run, quantity, **subject):
    (result,) = of(run, quantity, **subject)
    return result
