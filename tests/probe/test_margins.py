"""Items of the margins probe: what they must have."""

import pytest

from stemmatics.core.errors import UserError
from stemmatics.probe import margins
from stemmatics.probe.replies import cell_of


@pytest.mark.parametrize("item", [{"answer": "yes"}, {"answer": "yes", "refusal": 3}])
def test_an_item_without_a_refusal_is_named_with_what_to_do(item):
    assert margins._reply(item, 4, "answer") == "yes"
    with pytest.raises(UserError, match=r"item 4 has no `refusal`.*`imprint: \{graded: false\}`"):
        margins._reply(item, 4, "refusal")


def test_wording_and_thing_are_empty_where_an_item_has_none():
    assert cell_of({"wording": 0, "thing": "gate"}) == {"wording": "0", "thing": "gate"}
    assert cell_of({"wording": None}) == {"wording": "", "thing": ""}
