import math
import time
from collections import Counter, defaultdict

import numpy as np
import pytest

from stemmatics.math.ngram import FALLBACK_DISCOUNTS, KneserNey, _discounts

PREFIX = "prefix"


class BruteForce:
    """Interpolated modified Kneser-Ney by its definition, in dictionaries and loops."""

    def __init__(self, sequences, vocab_size, order):
        self.vocab_size = vocab_size
        self.order = order
        raw = Counter()
        for sequence in sequences:
            padded = [PREFIX, *sequence]
            for end in range(1, len(padded)):
                for n in range(1, order + 1):
                    if end - n + 1 >= 0:
                        raw[tuple(padded[end - n + 1 : end + 1])] += 1
        before = defaultdict(set)
        for gram in raw:
            if len(gram) > 1:
                before[gram[1:]].add(gram[0])
        self.counts = {
            gram: count if len(gram) == order or gram[0] == PREFIX else len(before[gram])
            for gram, count in raw.items()
        }
        self.followers = defaultdict(dict)
        for gram, count in self.counts.items():
            self.followers[gram[:-1]][gram[-1]] = count
        self.discounts = {n: self._estimate(n) for n in range(1, order + 1)}

    def _estimate(self, n):
        of = Counter(count for gram, count in self.counts.items() if len(gram) == n)
        if not (of[1] and of[2] and of[3]):
            return FALLBACK_DISCOUNTS
        y = of[1] / (of[1] + 2 * of[2])
        result = (1 - 2 * y * of[2] / of[1], 2 - 3 * y * of[3] / of[2], 3 - 4 * y * of[4] / of[3])
        good = all(0 < discount <= k for k, discount in zip((1, 2, 3), result, strict=True))
        return result if good else FALLBACK_DISCOUNTS

    def probability(self, context, token):
        context = tuple(context)[-(self.order - 1) :] if self.order > 1 else ()
        lower = self.probability(context[1:], token) if context else 1 / self.vocab_size
        followers = self.followers.get(context)
        if not followers:
            return lower
        total = sum(followers.values())
        discounts = self.discounts[len(context) + 1]
        taken = sum(discounts[min(count, 3) - 1] for count in followers.values())
        count = followers.get(token, 0)
        kept = count - discounts[min(count, 3) - 1] if count else 0.0
        return kept / total + taken / total * lower

    def log_probs(self, sequence):
        return [
            math.log(self.probability([PREFIX, *sequence[:t]], token)) for t, token in enumerate(sequence)
        ]


def random_sequences(rng, vocab_size, num_sequences, longest):
    """Zipf-like ids, so that counts 1 to 4 all occur; some sequences empty or short."""
    weights = 1 / np.arange(1, vocab_size + 1)
    return [
        rng.choice(vocab_size, size=rng.integers(0, longest), p=weights / weights.sum()).tolist()
        for _ in range(num_sequences)
    ]


@pytest.mark.parametrize("order", [1, 2, 3, 5])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_equals_brute_force(order, seed):
    rng = np.random.default_rng(seed)
    known = random_sequences(rng, 9, 40, 14)
    model = KneserNey.fit(known, vocab_size=12, order=order)
    twin = BruteForce(known, 12, order)
    # Ids 9 to 11 never occur in training; they appear as targets and as context.
    for sequence in [*random_sequences(rng, 12, 20, 14), *known[:10]]:
        np.testing.assert_allclose(model.log_probs(sequence), twin.log_probs(sequence), rtol=0, atol=1e-12)


@pytest.mark.parametrize("order", [1, 3, 5])
def test_sums_to_one_in_every_context(order):
    rng = np.random.default_rng(3)
    known = random_sequences(rng, 7, 60, 12)
    model = KneserNey.fit(known, vocab_size=8, order=order)
    for context in [[], [7], [0, 7, 1], *known[:25]]:
        total = sum(math.exp(model.log_probs([*context, token])[-1]) for token in range(8))
        assert total == pytest.approx(1.0, abs=1e-12)


def test_estimated_discounts_are_used_where_they_can_be():
    counts = np.array([1] * 10 + [2] * 5 + [3] * 3 + [4] * 2)
    y = 10 / 20
    assert _discounts(counts) == pytest.approx((y, 2 - 3 * y * 3 / 5, 3 - 4 * y * 2 / 3), abs=1e-15)
    assert _discounts(np.array([1, 1, 2])) == FALLBACK_DISCOUNTS
    # Six n-grams seen three times and one twice would give a negative discount for count 2.
    assert _discounts(np.array([1] * 9 + [2] + [3] * 6 + [4])) == FALLBACK_DISCOUNTS


def test_unigram_by_hand():
    """Counts 2, 1 and none; discounts 1.0 and 0.5; the 1.5 taken is spread over 4 ids."""
    model = KneserNey.fit([[0, 0, 1]], vocab_size=4, order=1)
    expected = np.log([1 / 3 + 0.125, 0.5 / 3 + 0.125, 0.125, 0.125])
    np.testing.assert_allclose(model.log_probs([0, 1, 2, 3]), expected, atol=1e-15)


def test_first_token_is_predicted_from_the_prefix():
    """Id 1 is rare but begins every document: the prefix says so, the unigram does not."""
    model = KneserNey.fit([[1, 0, 0, 0, 2, 0, 0]] * 20, vocab_size=3, order=3)
    assert math.exp(model.log_probs([1])[0]) > 0.9
    assert math.exp(model.log_probs([0, 1])[1]) < 0.3


def test_documents_do_not_run_into_each_other():
    apart = KneserNey.fit([[0, 1]] * 10 + [[2, 3]] * 10, vocab_size=5, order=3)
    together = KneserNey.fit([[0, 1, 2, 3]] * 10, vocab_size=5, order=3)
    assert apart.log_probs([0, 1, 2])[2] < together.log_probs([0, 1, 2])[2] - 0.5


def test_documents_shorter_than_the_order():
    model = KneserNey.fit([[0], [1], [0], []], vocab_size=3, order=5)
    twin = BruteForce([[0], [1], [0], []], 3, 5)
    np.testing.assert_allclose(model.log_probs([0, 1, 2]), twin.log_probs([0, 1, 2]), atol=1e-12)


def test_empty_sequence_has_no_log_probs():
    model = KneserNey.fit([[0, 1]], vocab_size=2)
    assert model.log_probs([]).shape == (0,)
    assert model.log_probs([]).dtype == np.float64


@pytest.mark.parametrize(
    ("sequences", "vocab_size", "order", "message"),
    [
        ([[0, 5]], 5, 3, "id 5 lies outside the vocabulary of 5"),
        ([[-1]], 5, 3, "id -1 lies outside"),
        ([[]], 5, 3, "no token"),
        ([], 5, 3, "no token"),
        ([[0]], 5, 0, "order is 0"),
        ([[0.5]], 5, 3, "whole numbers"),
        ([[[0, 1]]], 5, 3, "one row"),
    ],
)
def test_refuses(sequences, vocab_size, order, message):
    with pytest.raises(ValueError, match=message):
        KneserNey.fit(sequences, vocab_size, order)


def test_refuses_to_score_an_id_outside_the_vocabulary():
    with pytest.raises(ValueError, match="id 2 lies outside"):
        KneserNey.fit([[0, 1]], vocab_size=2).log_probs([2])


def test_large_ids_do_not_overflow_and_time_stays_linear():
    """65,536 ids at order 5: five ids in one 64-bit number would not fit (80 bits)."""
    rng = np.random.default_rng(4)
    known = [rng.zipf(1.2, size=200).clip(max=65_536) - 1 for _ in range(500)]
    began = time.process_time()
    model = KneserNey.fit(known, vocab_size=65_536, order=5)
    familiar = np.concatenate([model.log_probs(sequence) for sequence in known])
    elapsed = time.process_time() - began
    new = model.log_probs(rng.permutation(known[0]))
    assert familiar.mean() > new.mean() + 1
    assert elapsed < 10
    twin = BruteForce([sequence.tolist() for sequence in known], 65_536, 5)
    np.testing.assert_allclose(model.log_probs(known[7]), twin.log_probs(known[7].tolist()), atol=1e-12)
