"""The one direction of imports: import-linter's contracts, and what they can't say."""

from pathlib import Path

from importlinter.cli import EXIT_STATUS_SUCCESS, lint_imports

import stemmatics
from stemmatics.core import plugins

ROOT = Path(__file__).parents[1]
# where it is imported from: the checkout, or the installed wheel
MEASURES = Path(stemmatics.__file__).parent / "measure"
SHARED = {"__init__.py", "base.py", "inputs.py", "present.py"}


def test_the_contracts_hold(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    status = lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True)
    assert status == EXIT_STATUS_SUCCESS, capsys.readouterr().out


def test_measure_holds_one_folder_a_measure_and_three_shared_files():
    entries = {path.name for path in MEASURES.iterdir() if path.name != "__pycache__"}
    ours = {
        entry.module.split(".")[2]
        for entry in plugins.entries("measures")
        if entry.module.startswith("stemmatics.")
    }
    assert entries == ours | SHARED


def test_every_measure_is_held_apart_by_the_linter():
    declared = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    contract = declared.split("Measures meet in the store", 1)[1]
    assert all(f'"stemmatics.measure.{name}"' in contract for name in plugins.names("measures"))
