"""A stored pass gives what the scoring engine gives, to everyone who wants something of it."""

import json

import numpy as np
import pytest
import torch
from tests.lm.tiny_checkpoints import make_checkpoint, make_model

from stemmatics.core.corpora import Corpus
from stemmatics.core.numerics import Numerics
from stemmatics.core.scoring import Scoring, Windows
from stemmatics.lm.checkpoints.loading import load
from stemmatics.lm.scoring import structure as structure_module
from stemmatics.lm.scoring.head_pass import Positions, excluded_nll
from stemmatics.lm.scoring.passes import Reader
from stemmatics.lm.scoring.stored_pass import PassRequest, StoredPass
from stemmatics.lm.scoring.structure import structure_of
from stemmatics.lm.text.corpus import read

TEXTS = ["the scribe copied the text and kept the faults of it " * 3, "", "x", "in 1234 and 99 bottles"]
NUM_IDS = 320


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("stored")
    make_checkpoint(root / "model")
    (root / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS * 2))
    return root


@pytest.fixture(scope="module")
def loaded(folder):
    return load(str(folder / "model"), Numerics())


@pytest.fixture
def documents(folder):
    return list(read(Corpus(path=[str(folder / "texts.jsonl")])))


@pytest.fixture(params=["always", "never"])
def reader(loaded, request):
    scoring = Scoring(windows=Windows(size=16), prefix=request.param, max_doc_tokens=40)
    return Reader.of(loaded, scoring, Numerics())


def support(seed):
    return np.random.default_rng(seed).random(NUM_IDS) < 0.7


def test_sums_are_those_of_the_engine(reader, documents, tmp_path):
    corpus = reader.encode(documents)
    frequencies_V = corpus.counted(NUM_IDS).frequencies_V
    stored = StoredPass.run(reader, corpus, [PassRequest()], tmp_path)
    sums = list(stored.sums(corpus, reader.prefix_id, frequencies_V=frequencies_V))
    assert sums == list(reader.score(documents, frequencies_V=frequencies_V))
    assert any("cut" in one.flags for one in sums)
    assert stored.num_scored == sum(one.num_tokens for one in sums)


def test_a_pass_with_a_support_serves_sums_over_all_ids_too(reader, documents, tmp_path):
    corpus, mask_V = reader.encode(documents), support(0)
    stored = StoredPass.run(reader, corpus, [PassRequest(), PassRequest(support_V=mask_V)], tmp_path)
    with_support = list(stored.sums(corpus, reader.prefix_id, support_V=mask_V))
    assert with_support == list(reader.score(documents, support_V=mask_V))
    assert any(one.num_outside_support for one in with_support)
    assert list(stored.sums(corpus, reader.prefix_id)) == list(reader.score(documents))


def test_states_of_the_documents_that_want_them(reader, documents, tmp_path):
    corpus = reader.encode(documents)
    wanted = frozenset({0, 3, 4})
    stored = StoredPass.run(reader, corpus, [PassRequest(), PassRequest(wanted, states=True)], tmp_path)
    expected = {}
    for _ in reader.score(
        documents,
        want=("nll", "hidden"),
        token_sink=lambda scores: expected.update({scores.document.index: scores}),
    ):
        pass
    found = {one.scores.document.index: one for one in stored.documents(corpus, reader.prefix_id)}
    assert list(found) == list(range(len(documents)))
    assert {index for index, one in found.items() if one.first_state >= 0} == wanted
    for index in wanted:
        scores, first = expected[index], found[index].first_state
        hidden = scores.extra["hidden"][scores.scored]
        np.testing.assert_array_equal(stored.states().rows(first, first + len(hidden)).numpy(), hidden)
        np.testing.assert_array_equal(found[index].scores.nll, scores.nll)


def test_some_documents_only(reader, documents, tmp_path):
    corpus = reader.encode(documents)
    wanted = frozenset({2, 3, 7})
    stored = StoredPass.run(reader, corpus, [PassRequest(wanted)], tmp_path)
    expected = list(reader.score([one for one in documents if one.index in wanted]))
    assert list(stored.sums(corpus, reader.prefix_id)) == expected
    one = list(stored.sums(corpus, reader.prefix_id, documents=frozenset({7})))
    assert one == [sums for sums in expected if sums.index == 7]


def test_what_a_pass_serves(reader, documents, tmp_path):
    corpus, mask_V = reader.encode(documents), support(0)
    some, more = frozenset({0, 3}), frozenset({0, 3, 4})

    def served(*wanted):
        stored = StoredPass.run(reader, corpus, wanted, tmp_path)
        requests = {
            "all": PassRequest(),
            "some": PassRequest(some),
            "more": PassRequest(more),
            "states of some": PassRequest(some, states=True),
            "states of all": PassRequest(states=True),
            "support": PassRequest(some, support_V=mask_V),
            "other support": PassRequest(some, support_V=~mask_V),
            "other support with states": PassRequest(some, states=True, support_V=~mask_V),
        }
        return [name for name, request in requests.items() if stored.serves(request)]

    assert served(PassRequest()) == ["all", "some", "more"]
    assert served(PassRequest(some)) == ["some"]
    assert served(PassRequest(some), PassRequest(frozenset({4}))) == ["some", "more"]
    assert served(PassRequest(), PassRequest(some, states=True, support_V=mask_V)) == [
        "all",
        "some",
        "more",
        "states of some",
        "support",
        "other support with states",
    ]


def test_another_supports_share_follows_from_the_states(loaded, documents, tmp_path):
    reader = Reader.of(loaded, Scoring(windows=Windows(size=16), prefix="always"), Numerics())
    corpus, mask_V = reader.encode(documents), support(1)
    stored = StoredPass.run(reader, corpus, [PassRequest(states=True, support_V=support(2))], tmp_path)
    scores = [one.scores for one in stored.documents(corpus, reader.prefix_id)]
    lengths = [int(one.scored.sum()) for one in scores]
    ids_N = np.concatenate([one.document.ids[one.scored] for one in scores])
    document_N = np.repeat(np.arange(len(scores)), lengths)
    positions = Positions(stored.states(), ids_N, document_N, np.arange(len(scores)))
    head = structure_of(loaded.model, reader.context_length, 16).head
    expected = [one.excluded_nll_sum for one in reader.score(documents, support_V=mask_V)]
    np.testing.assert_allclose(excluded_nll(head, positions, ids_N, mask_V), expected, rtol=1e-6)
    assert max(expected) > 1


def test_a_model_is_asked_once_what_it_is(monkeypatch):
    model, calls = make_model(), []
    discover = structure_module.discover_head
    monkeypatch.setattr(
        structure_module, "discover_head", lambda *args: calls.append(args) or discover(*args)
    )
    first = structure_of(model, 64, 16)
    with torch.no_grad():
        model.model.layers[0].mlp.up_proj.weight.mul_(0.5)
    assert structure_of(model, 64, 16) is first
    assert len(calls) == 1
    assert structure_of(model, 64, 32) is not first
    model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone() * 2)
    again = structure_of(model, 64, 16)
    assert len(calls) == 3
    assert torch.equal(again.head.weight, model.lm_head.weight)
