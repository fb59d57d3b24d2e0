"""What a pool shares with a scored text, counted by hand."""

import itertools

from stemmatics.probe.overlap import overlap

SCORED = ["One two three four five, six!", "alpha beta gamma delta", ""]


def test_runs_of_words_are_found_whatever_the_layout():
    pool = ["x ONE  two\nthree four y", "nothing here", "delta gamma beta alpha", ""]
    found = overlap(pool, SCORED, order=3)
    assert found == {
        "num_pool_documents": 4,
        "num_scored_documents": 3,
        "num_shared_documents": 0,
        "num_shared_ngrams": 2,
        "num_pool_documents_sharing": 1,
    }


def test_by_brute_force_over_all_runs():
    pool = ["three four five six alpha beta", "beta gamma delta one", "one two"]

    def runs(texts):
        found = set()
        for text in texts:
            words = "".join(letter if letter.isalnum() else " " for letter in text.lower()).split()
            found |= {tuple(words[start : start + 2]) for start in range(len(words) - 1)}
        return found

    found = overlap(pool, SCORED, order=2)
    assert found["num_shared_ngrams"] == len(runs(pool) & runs(SCORED))
    sharing = [bool(runs([text]) & runs(SCORED)) for text in pool]
    assert found["num_pool_documents_sharing"] == sum(sharing)
    assert list(itertools.compress(pool, sharing)) == pool


def test_a_document_too_short_for_a_run_is_still_the_same_document():
    found = overlap(["Alpha, beta gamma: delta"], SCORED, order=13)
    assert found["num_shared_documents"] == 1
    assert found["num_shared_ngrams"] == 0
