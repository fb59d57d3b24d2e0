"""The planted cases of recovery on seeds that nothing was tuned on: what their verdicts read."""

import pytest

from stemmatics.presets.files import preset
from stemmatics.presets.nursery.verdicts import LOST, SHIFT
from stemmatics.study.run import run

# some ten minutes a seed
pytestmark = [pytest.mark.known, pytest.mark.long]
# The recipe and the share of the gap were looked at on 0 and 1, lost facts were planted on 2. The base of 4
# is no test bed: it recalls .73 as trained, under the gate of the nursery.
SEEDS = (3, 5)
BASE_RECALL = 0.8


@pytest.mark.parametrize("seed", SEEDS)
def test_a_register_shift_reads_register_and_lost_facts_forgetting_where_they_are_told(seed, tmp_path):
    outcome = run(preset("verdicts", seed=seed), tmp_path / "run")
    assert outcome.failures == {}
    results = outcome.content.results
    base = results.all("recovery.recall", arm="native base")[0]
    assert base.value >= BASE_RECALL, "no test bed"
    whole = {each.subject["descendant"]: each for each in results.categories("recovery.verdict")}
    prose = {
        each.subject["descendant"]: each
        for each in results.categories("recovery.verdict.register", register="prose")
    }
    assert whole[SHIFT].value == "register", whole[SHIFT].reason
    assert prose[LOST].value == "forgetting", prose[LOST].reason
    # and neither is ever taken for the other
    assert whole[LOST].value in {"forgetting", "undetermined"}, whole[LOST].reason
    assert prose[SHIFT].value in {"register", "undetermined"}, prose[SHIFT].reason
