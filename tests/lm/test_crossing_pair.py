"""Pairs that can't be crossed are refused with the field that differs."""

import pytest
from tests.lm.tiny_checkpoints import make_checkpoint, make_tokenizer

from stemmatics.core.errors import UserError
from stemmatics.core.numerics import Numerics
from stemmatics.lm.checkpoints.loading import load
from stemmatics.lm.crossing.pair import cross, refuse_unlike


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return load(str(make_checkpoint(tmp_path_factory.mktemp("pair") / "base")), Numerics())


OTHERS = [
    ({"intermediate_size": 40}, {}, "architecture differs"),
    ({"num_hidden_layers": 3}, {}, "architecture differs"),
    ({"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}}, {}, "RoPE differs"),
    ({"vocab_size": 321}, {}, "vocabulary size differs"),
    ({"head_dim": 8}, {}, "shape of model.layers.0.self_attn.q_proj.weight differs"),
    ({"attention_bias": True}, {}, "shape of model.layers.0.self_attn.q_proj.bias differs"),
    ({}, {"digits": False}, "token ids of .* differs"),
    ({}, {"added": "<sealed>"}, "tokens of one alone differs"),
]


@pytest.mark.parametrize(("changes", "tokens", "field"), OTHERS, ids=[case[2] for case in OTHERS])
def test_a_pair_that_differs_is_refused_and_the_field_is_named(tmp_path, base, changes, tokens, field):
    tokenizer = make_tokenizer(
        digits=tokens.get("digits", True), vocab_size=319 if "added" in tokens else 320
    )
    if "added" in tokens:
        tokenizer.add_tokens([tokens["added"]])
    other = load(str(make_checkpoint(tmp_path / "other", tokenizer=tokenizer, **changes)), Numerics())
    with pytest.raises(UserError, match=field):
        cross(base, other)


def test_a_pair_of_one_shape_is_not_refused(tmp_path, base):
    untied = load(str(make_checkpoint(tmp_path / "untied", seed=4, tie_word_embeddings=False)), Numerics())
    refuse_unlike(base, untied)
    refuse_unlike(untied, base)
    first, second = cross(base, untied)
    assert first.num_layers == second.num_layers == 2
