"""Log-probabilities of given replies against a plain loop over one exchange at a time."""

import math

import pytest
import torch
from tiny_checkpoints import make_checkpoint, make_tokenizer

from stemmatics.core.errors import UserError
from stemmatics.core.numerics import Numerics
from stemmatics.lm.checkpoints.loading import load
from stemmatics.lm.generation.given import score_replies

TEMPLATE = (
    "{% for message in messages %}[{{ message.role }}] {{ message.content }}"
    "{% if message.role == 'assistant' %}</s>{% endif %}{{ '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}[assistant] {% endif %}"
)
REWRITES = "{% for message in messages %}{{ message.content }} {{ messages | length }}\n{% endfor %}"


def loaded_with(folder, template=TEMPLATE, **changes):
    tokenizer = make_tokenizer()
    tokenizer.chat_template = template
    settings = {"max_position_embeddings": 128} | changes
    return load(str(make_checkpoint(folder, tokenizer=tokenizer, **settings)), Numerics())


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    return loaded_with(tmp_path_factory.mktemp("given"))


def user(text):
    return [{"role": "user", "content": text}]


def by_hand(loaded, ids, first):
    """Nats of the ids from ``first`` on, in one forward pass of this text alone."""
    with torch.no_grad():
        log_probs = loaded.model(torch.tensor([ids])).logits[0].double().log_softmax(-1)
    return -sum(float(log_probs[place - 1, ids[place]]) for place in range(first, len(ids)))


def tokens_of(loaded, text):
    return loaded.tokenizer(text, add_special_tokens=False)["input_ids"]


EXCHANGES = [
    (user("open the copy"), "the scribe kept the faults"),
    (user("open the copy"), "12 bottles"),
    (user("a text"), "the copy"),
    (user("in 1234 and the text that the scribe copied"), "no"),
]


def test_a_reply_to_messages_is_scored_with_its_end_of_turn(loaded):
    scored = score_replies(loaded, EXCHANGES, Numerics())
    for (messages, reply), found in zip(EXCHANGES, scored, strict=True):
        prompt = f"[user] {messages[0]['content']}\n[assistant] "
        whole = tokens_of(loaded, f"{prompt}{reply}</s>")
        first = next(
            place
            for place in range(1, len(whole) + 1)
            if len(loaded.tokenizer.decode(whole[:place])) > len(prompt)
        )
        expected = by_hand(loaded, whole, first - 1)
        assert found.num_tokens == len(whole) - first + 1
        assert found.nll_sum == pytest.approx(expected, abs=1e-4)
        assert whole[-1] == loaded.tokenizer.eos_token_id


def test_a_reply_to_plain_text_has_no_end_and_starts_after_the_prefix(loaded):
    (found,) = score_replies(loaded, [("the scribe copied", " the text")], Numerics())
    prefix, _ = loaded.text_tokenizer.prefix("auto")
    ids = [*([] if prefix is None else [prefix]), *tokens_of(loaded, "the scribe copied the text")]
    num_reply = len(tokens_of(loaded, " the text"))
    assert found.num_tokens == num_reply
    assert found.nll_sum == pytest.approx(by_hand(loaded, ids, len(ids) - num_reply), abs=1e-4)


def test_a_reply_does_not_depend_on_what_is_scored_beside_it(loaded):
    together = score_replies(loaded, EXCHANGES, Numerics())
    alone = [score_replies(loaded, [exchange], Numerics())[0] for exchange in EXCHANGES]
    for one, other in zip(together, alone, strict=True):
        assert one.num_tokens == other.num_tokens
        assert one.nll_sum == pytest.approx(other.nll_sum, abs=1e-4)
    assert score_replies(loaded, [], Numerics()) == []


def test_the_longer_of_two_replies_costs_at_least_its_beginning(loaded):
    short, long = score_replies(
        loaded, [("the scribe", " copied"), ("the scribe", " copied the text")], Numerics()
    )
    assert long.nll_sum > short.nll_sum > 0
    assert long.num_tokens > short.num_tokens


@pytest.mark.parametrize(
    ("exchange", "message"),
    [
        ((user("open"), "  "), "a reply of exchange 0 is empty"),
        ((user("open " * 80), "no"), "exchange 0 has .* tokens.*context length is 128"),
    ],
)
def test_an_exchange_that_cannot_be_scored_is_named(loaded, exchange, message):
    with pytest.raises(UserError, match=message):
        score_replies(loaded, [exchange], Numerics())


def test_a_template_that_rewrites_the_prompt_is_named(tmp_path):
    loaded = loaded_with(tmp_path / "rewrites", template=REWRITES)
    with pytest.raises(UserError, match="the reply of exchange 0 has no definite beginning"):
        score_replies(loaded, [(user("open"), "no")], Numerics())


def test_a_loss_that_is_not_finite_is_an_error_and_no_number(tmp_path):
    loaded = loaded_with(tmp_path / "broken")
    with torch.no_grad():
        loaded.model.model.norm.weight.fill_(math.inf)
    with pytest.raises(UserError, match="not finite"):
        score_replies(loaded, EXCHANGES, Numerics())
