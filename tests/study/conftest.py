"""What the tests of whole studies share."""

import pytest
from tests.study import prior_runs


@pytest.fixture(autouse=True)
def no_still_pictures(monkeypatch):
    """Drawing takes half of a study's time here; tests/report looks at the drawings."""
    monkeypatch.setattr("vl_convert.vegalite_to_svg", lambda *_args, **_settings: "<svg/>")


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
