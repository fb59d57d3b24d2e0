"""The one direction of imports: import-linter's contracts, and what they can't say."""

import ast
import os
from pathlib import Path

import pytest
from importlinter.cli import EXIT_STATUS_SUCCESS, lint_imports

ROOT = Path(__file__).parents[1]
MEASURES = ROOT / "src" / "stemmatics" / "measure"
SHARED = {"base", "scores"}


def test_the_contracts_hold(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    status = lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True)
    assert status == EXIT_STATUS_SUCCESS, capsys.readouterr().out


def question_of(module):
    """``loss_findings`` belongs to the question ``loss``."""
    return module.partition("_")[0]


@pytest.mark.parametrize(
    "path", sorted(MEASURES.rglob("*.py")), ids=lambda path: os.fspath(path.relative_to(MEASURES))
)
def test_a_question_imports_no_other_question(path):
    own = question_of(path.relative_to(MEASURES).parts[0].removesuffix(".py"))
    wrong = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        for name in names:
            parts = name.split(".")
            if parts[:2] == ["stemmatics", "measure"] and len(parts) > 2:
                asked = question_of(parts[2])
                wrong += [name] if asked not in {own, *SHARED} and (MEASURES / parts[2]).exists() else []
                is_file = (MEASURES / f"{parts[2]}.py").exists()
                wrong += [name] if asked not in {own, *SHARED} and is_file else []
    assert not wrong, f"{path.name} imports another question: they meet in the store"
