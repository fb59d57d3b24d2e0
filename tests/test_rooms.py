"""The one direction of imports: import-linter's contracts, and what they can't say."""

import ast
import os
from pathlib import Path

import pytest
from importlinter.cli import EXIT_STATUS_SUCCESS, lint_imports

import stemmatics
from stemmatics.core import plugins

ROOT = Path(__file__).parents[1]
# where it is imported from: the checkout, or the installed wheel
MEASURES = Path(stemmatics.__file__).parent / "measure"
OURS = ["stemmatics", "measure"]
QUESTIONS = set(plugins.names("measures"))


def test_the_contracts_hold(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    status = lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True)
    assert status == EXIT_STATUS_SUCCESS, capsys.readouterr().out


def question_of(module):
    """``loss_findings`` belongs to the question ``loss``; what no question owns is shared by all."""
    name = module.partition("_")[0]
    return name if name in QUESTIONS else None


@pytest.mark.parametrize(
    "path", sorted(MEASURES.rglob("*.py")), ids=lambda path: os.fspath(path.relative_to(MEASURES))
)
def test_a_question_imports_no_other_question(path):
    own = question_of(path.relative_to(MEASURES).parts[0].removesuffix(".py"))
    asked = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        parts = [name.split(".") for name in names]
        asked |= {question_of(part[2]) for part in parts if part[:2] == OURS and len(part) > 2}
    assert asked <= {own, None}, f"{path.name} imports another question: they meet in the store"
