"""Benchmarks are run by hand: what they import must exist."""

import ast
import importlib
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks"


@pytest.mark.skipif(not FOLDER.is_dir(), reason="benchmarks are not part of an installed package")
def test_every_name_that_a_benchmark_imports_exists():
    missing = []
    for path in sorted(FOLDER.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("stemmatics"):
                continue
            module = importlib.import_module(node.module)
            for name in (alias.name for alias in node.names):
                if not hasattr(module, name):
                    try:
                        importlib.import_module(f"{node.module}.{name}")
                    except ImportError:
                        missing.append(f"{path.name}: {node.module}.{name}")
    assert missing == []
