"""The probe `divergence` on tiny models: sums against whole logits, controls, damage, refusals."""

import json

import numpy as np
import pytest
import torch
from tests.facts.tiny_study import pinned_study
from tests.lm.tiny_checkpoints import make_checkpoint, make_tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer

from stemmatics.core.facts import closure
from stemmatics.core.scoring import Scoring, Windows
from stemmatics.core.stemma import Stemma
from stemmatics.facts.divergence import (
    ATTENTION,
    HALF_PRECISION,
    ITSELF,
    ON_FLOOR,
    PAIR,
    DivergenceParams,
    damage_name,
    divergence_fact,
)
from stemmatics.facts.pinned import Pinned
from stemmatics.math.divergence import bin_of
from stemmatics.store.cache import Cache
from stemmatics.store.ledger import Ledger
from stemmatics.study.execute import execute
from stemmatics.study.pins import pin_sources
from stemmatics.study.plan import make_plan

SCORING = Scoring(windows=Windows(size=128), prefix="always")


def tables_of(folder, pinned, base, descendant, **params):
    """The tables of one fact."""
    params = {"control_tokens": 60, "floor_tokens": 120, "draws": 2, **params}
    numerics = pinned.stemma.numerics
    fact = divergence_fact(
        DivergenceParams(scoring=SCORING.key(), numerics=numerics.key(), **params),
        pinned.checkpoint(base),
        pinned.checkpoint(descendant),
        pinned.corpus("heldout"),
    )
    ledger = Ledger(folder / "run")
    plan = make_plan(closure([fact]).values(), ledger, Cache(folder / "cache"))
    threads = torch.get_num_threads()
    try:
        failed = execute(
            plan, ledger, Cache(folder / "cache"), numerics=numerics, seed=1, on_event=lambda _event: None
        )
    finally:
        torch.set_num_threads(threads)
    assert not failed, failed
    return {
        name: ledger.read(fact.key, f"divergence_{name}").to_pylist()
        for name in ("sums", "bins", "parts", "model")
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("divergence")


@pytest.fixture(scope="module")
def tables(folder):
    # of two untrained models the first loses less on this text
    pinned_study(folder)
    return tables_of(folder, _sources(folder, "tuned", "base"), "base", "tuned")


def sums_of(tables, comparison):
    return {row["index"]: row for row in tables["sums"] if row["comparison"] == comparison}


@torch.no_grad()
def whole_logits(folder):
    """By document: log-softmax of both models over the ids that count, and the columns of the targets."""
    tokenizer = AutoTokenizer.from_pretrained(folder / "base")
    models = [
        AutoModelForCausalLM.from_pretrained(folder / name, attn_implementation="eager").double()
        for name in ("tuned", "base")
    ]
    num_ids = models[0].config.vocab_size
    known = set(tokenizer.get_vocab().values()) - set(tokenizer.all_special_ids)
    ids_S = torch.tensor([number for number in range(num_ids) if number in known])
    lines = (folder / "heldout.jsonl").read_text().splitlines()
    for index, text in enumerate(json.loads(line)["text"] for line in lines):
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        if not ids:
            continue
        start = tokenizer.bos_token_id
        inputs = torch.tensor([[tokenizer.eos_token_id if start is None else start, *ids]])
        both = [torch.log_softmax(model(inputs).logits[0, :-1][:, ids_S], 1) for model in models]
        yield index, *both, torch.searchsorted(ids_S, torch.tensor(ids))


def test_sums_are_those_of_the_models_own_whole_logits(folder, tables):
    found = sums_of(tables, PAIR)
    expected = {}
    for index, log_p, log_q, target in whole_logits(folder):
        rows = torch.arange(len(target))
        kl = (log_p.exp() * (log_p - log_q)).sum(1)
        expected[index] = {
            "kl": kl.sum(),
            "kl_reverse": (log_q.exp() * (log_q - log_p)).sum(),
            "delta_logp": (log_q - log_p)[rows, target].sum(),
            "delta_p_squared": ((log_q.exp() - log_p.exp())[rows, target] ** 2).sum(),
            "delta_entropy": (log_p.exp() * log_p).sum() - (log_q.exp() * log_q).sum(),
            "same_top1": (log_p.argmax(1) == log_q.argmax(1)).sum(),
            "kl_max": kl.max(),
            "num_tokens": len(target),
        }
    assert found.keys() == expected.keys()
    for index, values in expected.items():
        for name, value in values.items():
            assert found[index][name] == pytest.approx(float(value), rel=1e-5, abs=1e-5), (index, name)


def test_counts_and_parts_are_of_the_same_tokens(folder, tables):
    counts = {row["index"]: dict(zip(row["bins"], row["counts"], strict=True)) for row in tables["bins"]}
    pair = sums_of(tables, PAIR)
    for index, log_p, log_q, _ in whole_logits(folder):
        kl = (log_p.exp() * (log_p - log_q)).sum(1).numpy()
        bins, numbers = np.unique(bin_of(kl), return_counts=True)
        # a value at the edge of a bin may fall on either side of it
        assert sum(abs(counts[index].get(b, 0) - n) for b, n in zip(bins, numbers, strict=True)) <= 2
        assert sum(counts[index].values()) == len(kl)
        for axis in ("token_class", "position", "base_entropy"):
            rows = [row for row in tables["parts"] if row["index"] == index and row["axis"] == axis]
            assert sum(row["num_tokens"] for row in rows) == len(kl)
            assert sum(row["kl"] for row in rows) == pytest.approx(pair[index]["kl"], rel=1e-12)


def test_the_base_differs_from_itself_by_its_precision_only(tables):
    controls = {name: sums_of(tables, name) for name in (ITSELF, HALF_PRECISION, ATTENTION)}
    pair = sums_of(tables, PAIR)
    for name, rows in controls.items():
        assert rows, name
        tokens = sum(row["num_tokens"] for row in rows.values())
        mean = sum(row["kl"] for row in rows.values()) / tokens
        if name == HALF_PRECISION:
            of_pair = sum(pair[index]["kl"] for index in rows) / tokens
            assert 1e-6 < mean < of_pair / 10
        else:
            assert mean <= 1e-8


def test_the_damage_costs_what_the_descendant_lost_on_the_same_documents(tables):
    (model,) = tables["model"]
    assert model["noise_failure"] == ""
    assert len(model["noise_scales"]) == 2
    pair = sums_of(tables, ON_FLOOR)
    lost = -sum(row["delta_logp"] for row in pair.values())
    assert lost > 0
    for draw in (1, 2):
        damage = sums_of(tables, damage_name(draw))
        assert damage.keys() == pair.keys()
        assert -sum(row["delta_logp"] for row in damage.values()) == pytest.approx(lost, rel=0.011)


def test_a_descendant_that_did_not_lose_has_no_floor(folder):
    tables = tables_of(folder, pinned_study(folder), "base", "tuned")
    (model,) = tables["model"]
    assert "did not lose" in model["noise_failure"]
    assert not sums_of(tables, damage_name(1))
    assert sums_of(tables, PAIR)


def test_no_floor_and_no_control_where_none_is_requested(folder):
    tables = tables_of(folder, pinned_study(folder), "base", "tuned", control_tokens=0, floor_tokens=0)
    assert {row["comparison"] for row in tables["sums"]} == {PAIR}


def test_other_tokens_are_refused_with_the_reason(folder):
    make_checkpoint(folder / "other", tokenizer=make_tokenizer(290), seed=2, max_position_embeddings=256)
    tables = tables_of(folder, _sources(folder, "base", "other"), "base", "tuned")
    (model,) = tables["model"]
    assert "the tokenizers differ" in model["refusal"]
    assert tables["sums"] == []


def _sources(folder, base, descendant):
    """The study on other folders of checkpoints."""
    declared = pinned_study(folder).stemma.model_dump(by_alias=True)
    declared["checkpoints"]["base"]["source"] = str(folder / base)
    declared["checkpoints"]["tuned"]["source"] = str(folder / descendant)
    declared["stages"] = {}
    stemma = Stemma.model_validate(declared)
    return Pinned(stemma, pin_sources(stemma))
