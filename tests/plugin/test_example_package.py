"""The package of docs/add-a-measure.md: built, installed and run as a user would."""

import ast
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import stemmatics

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "docs" / "examples" / "stemmatics-entropy"
PAGE = ROOT / "docs" / "add-a-measure.md"
PACKAGE = Path(stemmatics.__file__).parent


def hashes():
    return {
        str(path.relative_to(PACKAGE)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The example built with pip into a folder of its own; the files of this package before and after."""
    target = tmp_path_factory.mktemp("site")
    source = shutil.copytree(EXAMPLE, tmp_path_factory.mktemp("source") / "example")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "--target", str(target), str(source)], check=True, capture_output=True)
    return target


@pytest.fixture(scope="module")
def study(installed, tiny, tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    records = [json.loads(line) for line in (tiny / "a.jsonl").read_text(encoding="utf-8").splitlines()]
    short = [{"text": " ".join(record["text"].split()[:12])} for record in records]
    text = folder / "short.jsonl"
    text.write_text("".join(json.dumps(record) + "\n" for record in short), encoding="utf-8")
    declared = {
        "name": "sharper",
        "checkpoints": {
            "base": {"source": str(tiny / "base")},
            "tuned": {"source": str(tiny / "tuned"), "base": "base"},
        },
        "corpora": {"heldout": {"path": str(text)}},
        "measures": {"entropy": {"corpus": "heldout"}},
    }
    (folder / "stemma.yaml").write_text(json.dumps(declared), encoding="utf-8")  # JSON is YAML
    ours = os.environ.get("PYTHONPATH", "")
    environment = {**os.environ, "PYTHONPATH": f"{installed}{os.pathsep}{ours}"}

    def stemma(*args):
        command = [sys.executable, "-m", "stemmatics.cli.main", *map(str, args)]
        return subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False
        )

    before = hashes()
    ran = stemma("run", "stemma.yaml", "--json")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return stemma, json.loads(ran.stdout), before, [record["text"] for record in short]


def test_the_example_runs_and_its_number_is_right(study, tiny):
    _, printed, _, texts = study
    (delta,) = printed["estimates"]
    assert delta["id"] == "entropy.delta/base=base/corpus=heldout/descendant=tuned"
    assert delta["lo"] < delta["value"] < delta["hi"]
    assert delta["value"] == pytest.approx(
        _entropy(tiny / "tuned", texts) - _entropy(tiny / "base", texts), abs=2e-5
    )


def _entropy(folder, texts):
    """Mean entropy by plain transformers: every document fits one window."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    total, count = 0.0, 0
    for text in texts:
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        if len(ids) > 1:
            assert len(ids) <= 64
            with torch.no_grad():
                log_probs = model(torch.tensor([ids])).logits[0, :-1].double().log_softmax(-1)
            total -= float((log_probs.exp() * log_probs).sum())
            count += len(ids) - 1
    return total / count


def test_its_table_and_claims_are_served_and_verified(study):
    stemma, *_ = study
    shown = stemma("show", "runs/sharper", "entropy/summary/heldout", "--json")
    assert shown.returncode == 0, shown.stderr
    (row,) = json.loads(shown.stdout)
    assert (row["base"], row["descendant"]) == ("base", "tuned")
    assert "entropy_sums" in stemma("show", "runs/sharper").stdout
    verified = stemma("verify", "runs/sharper")
    assert verified.returncode == 0, verified.stdout + verified.stderr
    good, total = re.fullmatch(r"(\d+)/(\d+) claims hold", verified.stdout.splitlines()[-1]).groups()
    assert good == total
    assert int(total) >= 3


def test_no_file_of_this_package_changed(study):
    _, _, before, _ = study
    assert hashes() == before


def test_it_imports_the_plugin_module_only():
    for path in EXAMPLE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            modules = [node.module] if isinstance(node, ast.ImportFrom) else []
            modules += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            ours = [module for module in modules if module and module.split(".")[0] == "stemmatics"]
            assert set(ours) <= {"stemmatics.plugin"}, path


def test_the_page_shows_the_files_as_they_are():
    page = PAGE.read_text(encoding="utf-8")
    blocks = re.findall(r"```(?:python|toml)\n(.*?)```", page, re.DOTALL)
    files = [EXAMPLE / "src" / "stemmatics_entropy" / name for name in ("facts.py", "probe.py", "measure.py")]
    texts = [path.read_text(encoding="utf-8") for path in (*files, EXAMPLE / "pyproject.toml")]
    assert [block.strip() for block in blocks] == [text.strip() for text in texts]
