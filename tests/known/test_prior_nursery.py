"""Planted changes of the nursery: each part of the loss increase leads on its own case, with its interval."""

import pytest

from stemmatics.presets.files import preset
from stemmatics.study.run import run

pytestmark = pytest.mark.known
LEADS = {"temperature": "temperature", "second-bias": "bias", "noise": "rest"}


def test_bias_temperature_and_damage_each_lead_on_their_own_case(tmp_path):
    outcome = run(preset("nursery"), tmp_path / "run", only=["prior"])
    assert outcome.failures == {}
    leads = {
        (lead.subject["descendant"], lead.subject["part"], lead.subject["over"]): lead
        for lead in outcome.content.results.values()
        if lead.quantity == "prior.lead"
    }
    for name, part in LEADS.items():
        for other in {"temperature", "bias", "rest"} - {part}:
            assert leads[name, part, other].lo > 0, (name, part, other)
