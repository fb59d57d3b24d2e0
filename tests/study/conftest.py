"""Fixtures of the tests of whole studies."""

import pytest
from ruamel.yaml import YAML
from tests.study import prior_runs

from stemmatics.store.ledger import Ledger


@pytest.fixture(scope="session")
def prior_folder(tiny, tmp_path_factory):
    """Texts, and a base that has learned them. Tests must not change it."""
    root = tmp_path_factory.mktemp("prior")
    prior_runs.learn(tiny, root)
    return root


@pytest.fixture(scope="session")
def prior_done(prior_folder, stemma_command):
    """A finished run on it."""
    return prior_runs.run(stemma_command, prior_folder, prior_folder / "run")


@pytest.fixture
def study(tiny, tmp_path, stemma_command):
    """Writes a stemma and runs it in ``tmp_path / name``."""

    def run(name, *options, checkpoints=("base",), corpora=("a",), code=0, **settings):
        declared = {
            "name": "tiny",
            "checkpoints": {
                checkpoint: {
                    "source": str(tiny / checkpoint),
                    **({} if checkpoint == "base" else {"base": "base"}),
                }
                for checkpoint in checkpoints
            },
            "corpora": {corpus: {"path": str(tiny / f"{corpus}.jsonl")} for corpus in corpora},
            "measures": {"loss": {"checks": 2, "movers": 1}},
            **settings,
        }
        path = tmp_path / "stemma.yaml"
        YAML().dump(declared, path)
        ran = stemma_command("run", path, "--out", tmp_path / name, *options)
        assert ran.code == code, ran.err
        return ran

    return run


@pytest.fixture
def made(monkeypatch):
    """Facts that were computed, in order, without estimates."""
    recorded = []
    record = Ledger.record

    def watched(self, fact, tables, **extra):
        record(self, fact, tables, **extra)
        if fact.probe != "estimate":
            recorded.append(f"{fact.probe} {fact.label}")

    monkeypatch.setattr(Ledger, "record", watched)
    return recorded
