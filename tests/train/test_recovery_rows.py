"""How a pool becomes updates, and updates passes."""

import itertools

import pytest
from transformers import AutoTokenizer

from stemmatics.core.errors import UserError
from stemmatics.core.stages import RecoveryRecipe
from stemmatics.lm.tokens.tokenizer import TextTokenizer
from stemmatics.train.recovery_rows import PASS_POSITIONS, micro_batches, updates_of

TEXTS = ["the cat sat on a mat " * size for size in (1, 9, 3, 1, 20, 2, 5, 5)] + ["", "naïve ☕ the mat"]


def recipe(**changed):
    fields = {"updates": 6, "update_tokens": 40, "max_length": 24, "learning_rate": 1e-3}
    return RecoveryRecipe(**fields | changed)


@pytest.fixture(scope="module")
def tokenizer(bases):
    return TextTokenizer(AutoTokenizer.from_pretrained(bases / "llama"))


def test_every_text_token_is_there_once_and_in_order(tokenizer):
    pool = TEXTS * 5
    updates = updates_of(pool, tokenizer, recipe())
    flat = [token for update in updates for row in update.rows for token in row[1:]]
    stream = [int(token) for text in pool for token in tokenizer.encode(text).ids]
    assert flat == stream[: 6 * 40]
    assert [update.num_tokens for update in updates] == [40] * 6


def test_a_row_has_one_document_after_the_prefix_and_fits(tokenizer):
    updates = updates_of(TEXTS * 5, tokenizer, recipe())
    pieces = {tuple(int(index) for index in tokenizer.encode(text).ids) for text in TEXTS}
    prefix, _ = tokenizer.prefix("always")
    for row in itertools.chain.from_iterable(update.rows for update in updates):
        assert row[0] == prefix
        assert len(row) <= 24
        body = tuple(row[1:])
        assert any(body == whole[at : at + len(body)] for whole in pieces for at in range(len(whole)))


def test_bytes_and_documents_are_those_that_were_read(tokenizer):
    texts = ["naïve ☕ the mat", "a cat"]
    num_tokens = sum(len(tokenizer.encode(text).ids) for text in texts)
    (update,) = updates_of(texts, tokenizer, recipe(updates=1, update_tokens=num_tokens, max_length=8))
    assert update.num_bytes == sum(len(text.encode()) for text in texts)
    assert update.num_begun == 2
    assert len(update.rows) > 2


def test_a_pool_that_is_too_small_is_refused(tokenizer):
    with pytest.raises(UserError, match=r"the pool has \d+ tokens, the recipe reads 240.*larger pool"):
        updates_of(["the cat"], tokenizer, recipe())


def cost(lengths, batches):
    return sum(len(batch) * max(lengths[index] for index in batch) + PASS_POSITIONS for batch in batches)


def every_cut(order):
    for size in range(len(order)):
        for cuts in itertools.combinations(range(1, len(order)), size):
            edges = [0, *cuts, len(order)]
            yield [order[start:end] for start, end in itertools.pairwise(edges)]


@pytest.mark.parametrize("lengths", [[5], [100, 20, 30, 90, 25, 400, 7], [50] * 6, [1, 300, 2, 299, 3]])
def test_passes_are_the_cheapest_cut_of_the_sorted_rows(lengths):
    batches = micro_batches(lengths, 500)
    assert sorted(itertools.chain.from_iterable(batches)) == list(range(len(lengths)))
    order = sorted(range(len(lengths)), key=lambda index: (-lengths[index], index))
    allowed = [
        cut
        for cut in every_cut(order)
        if all(len(batch) == 1 or len(batch) * lengths[batch[0]] <= 500 for batch in cut)
    ]
    assert cost(lengths, batches) == min(cost(lengths, cut) for cut in allowed)


def test_a_row_over_the_budget_is_a_pass_of_its_own():
    assert micro_batches([700, 10, 10], 100) == [[0], [1, 2]]
