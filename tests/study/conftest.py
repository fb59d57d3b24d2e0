"""What the tests of whole studies share."""

import pytest


@pytest.fixture(autouse=True)
def no_still_pictures(monkeypatch):
    """Drawing takes half of a study's time here; tests/report looks at the drawings."""
    monkeypatch.setattr("vl_convert.vegalite_to_svg", lambda *_args, **_settings: "<svg/>")
