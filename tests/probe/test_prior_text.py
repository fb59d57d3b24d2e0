"""How much text a correction is fitted on: a number of tokens, in whole groups."""

import numpy as np
import pytest

from stemmatics.probe.prior.states import _drawn

RNG = np.random.default_rng(0)
SPLIT = {index: ("FIT", "EVAL")[index % 2] for index in range(400)}
# two documents of a split a group; a group may have documents of either split
GROUP = {index: f"g{index // 4}" for index in range(400)}
TOKENS = {index: int(RNG.integers(5, 40)) for index in range(400)}


def tokens_of(drawn, split):
    return sum(TOKENS[index] for index in drawn if SPLIT[index] == split)


@pytest.mark.parametrize("limit", [1, 500, 2000])
def test_text_is_drawn_up_to_a_number_of_tokens_in_whole_groups(limit):
    drawn = _drawn(SPLIT, GROUP, TOKENS, {"FIT": limit, "EVAL": None}, 3)
    assert tokens_of(drawn, "EVAL") == sum(TOKENS[index] for index in SPLIT if SPLIT[index] == "EVAL")
    groups = {GROUP[index] for index in drawn if SPLIT[index] == "FIT"}
    whole = {index for index in SPLIT if SPLIT[index] == "FIT" and GROUP[index] in groups}
    assert {index for index in drawn if SPLIT[index] == "FIT"} == whole
    # up to the limit, and past it by less than a group
    assert limit <= tokens_of(drawn, "FIT") < limit + 80


def test_more_tokens_hold_all_of_fewer_and_the_seed_draws_others():
    some, more = (_drawn(SPLIT, GROUP, TOKENS, {"FIT": limit, "EVAL": limit}, 3) for limit in (300, 900))
    assert some < more
    assert _drawn(SPLIT, GROUP, TOKENS, {"FIT": 300, "EVAL": 300}, 4) != some
    # the draw is not the order of the file
    assert max(index for index in some if SPLIT[index] == "FIT") > 100


def test_the_draw_does_not_depend_on_how_long_the_text_is():
    """A stream that is read further gives the same text as long as the first groups in order are there."""
    short = {index: split for index, split in SPLIT.items() if index < 200}
    alone = _drawn(short, GROUP, TOKENS, {"FIT": 10**9, "EVAL": 10**9}, 3)
    assert alone == set(short)
    longer = _drawn(SPLIT, GROUP, TOKENS, {"FIT": 400, "EVAL": 400}, 3)
    assert tokens_of(longer, "FIT") < 480
