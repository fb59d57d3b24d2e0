from __future__ import annotations

import numpy as np

from stemmatics.lm.text.doc_ids import document_id
from stemmatics.lm.text.groups import (
    BAND_ROWS,
    NUM_PERMUTATIONS,
    GroupIndex,
    _components,
    assign_split,
    shingles,
)


def index_of(texts):
    index = GroupIndex()
    for text in texts:
        index.add(document_id(text), text)
    return index.groups()


def sentence(rng, num_words=200):
    return [f"w{word}" for word in rng.integers(0, 5_000, num_words)]


def jaccard(first_text, second_text):
    return len(set(shingles(first_text)) & set(shingles(second_text))) / len(
        set(shingles(first_text)) | set(shingles(second_text))
    )


def test_near_duplicates_share_a_group_and_others_do_not():
    rng = np.random.default_rng(0)
    for _ in range(20):
        words = sentence(rng)
        near, far, nearly = list(words), list(words), list(words)
        nearly[12:200:24] = ["changed"] * 8
        near[50] = "changed"  # 5 of 196 shingles
        far[10:200:10] = ["changed"] * 19  # half of them
        base, near_text, far_text = " ".join(words), " ".join(near), " ".join(far)
        assert jaccard(base, near_text) > 0.9
        assert jaccard(base, far_text) < 0.6
        assert 0.6 < jaccard(base, " ".join(nearly)) < 0.7
        groups = index_of([base, near_text, far_text, " ".join(nearly)])
        assert groups[document_id(base)] != groups[document_id(" ".join(nearly))]
        assert groups[document_id(base)] == groups[document_id(near_text)]
        assert groups[document_id(base)] != groups[document_id(far_text)]
        assert groups[document_id(base)] == min(document_id(base), document_id(near_text))


def test_groups_do_not_depend_on_the_order():
    rng = np.random.default_rng(1)
    texts = []
    for _ in range(30):
        words = sentence(rng, 60)
        texts.append(" ".join(words))
        for _ in range(3):  # a chain: each is near the one before it
            words = list(words)
            words[int(rng.integers(0, 60))] = "changed"
            texts.append(" ".join(words))
    first = index_of(texts)
    assert 30 <= len(set(first.values())) < 120
    for _ in range(3):
        assert index_of([texts[index] for index in rng.permutation(len(texts))]) == first


def test_every_pair_of_a_bucket_is_verified():
    rng = np.random.default_rng(3)
    signatures_NP = rng.integers(0, 2**32, (4, NUM_PERMUTATIONS)).astype(np.uint32)
    signatures_NP[1], signatures_NP[3] = signatures_NP[0], signatures_NP[2]
    signatures_NP[:, :BAND_ROWS] = 7  # all four in one bucket
    signatures_NP[3, BAND_ROWS::BAND_ROWS] += 1  # 2 and 3 meet in that bucket only: 107 of 128 agree
    labels = _components(signatures_NP)
    assert labels[0] == labels[1] != labels[2] == labels[3]


def test_text_is_normalised_and_short_texts_are_one_shingle():
    assert shingles("ﬁne  TEXT\n") == shingles("fine text") == [b"fine text"]
    assert shingles("") == [b""]
    assert len(shingles("a b c d e f")) == 2
    groups = index_of(["Hello   There", "hello there", "hello you"])
    assert len(set(groups.values())) == 2
    assert index_of([]) == {}


def test_many_copies_of_one_template_are_one_group():
    words = [f"w{i}" for i in range(100)]
    texts = [" ".join([*words[:i], "x", *words[i + 1 :]]) for i in range(100)]
    assert len(set(index_of(texts).values())) == 1


def test_splits_are_made_by_group_and_seed():
    groups = [f"{i:032x}" for i in range(4_000)]
    split = [assign_split(group, 1, 0.25) for group in groups]
    assert abs(split.count("EVAL") / 4_000 - 0.25) < 0.03
    assert split == [assign_split(group, 1, 0.25) for group in groups]
    assert split != [assign_split(group, 2, 0.25) for group in groups]
    assert {assign_split(group, 1, 1.0) for group in groups} == {"EVAL"}
    assert {assign_split(group, 1, 0.0) for group in groups} == {"FIT"}
