"""Token rows by hand: what is supervised, what is padded, where prompts end."""

from itertools import chain

import pytest
from transformers import AutoTokenizer, DataCollatorForSeq2Seq

from stemmatics.core.errors import UserError
from stemmatics.train.rows import IGNORED, packed_blocks, preference_rows, supervised_row, supervised_rows


def turn(role, content):
    return {"role": role, "content": content}


@pytest.fixture
def tokenizer(bases):
    return AutoTokenizer.from_pretrained(bases / "llama")


def supervised_text(tokenizer, row):
    return tokenizer.decode([label for label in row["labels"] if label != IGNORED])


def test_blocks_hold_all_tokens_in_order_without_padding(tokenizer):
    texts = ["the cat sat", "on a mat", "dogs ran far away"]
    stream = []
    for text in texts:
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        stream += [tokenizer.bos_token_id, *ids, tokenizer.eos_token_id]
    blocks = packed_blocks(texts, tokenizer, 8, 100)
    assert list(chain.from_iterable(block["input_ids"] for block in blocks)) == stream[: len(stream) // 8 * 8]
    assert all(block["labels"] == block["input_ids"] for block in blocks)


def test_no_more_documents_are_read_than_blocks_need(tokenizer):
    read = []

    def documents():
        for number in range(1000):
            read.append(number)
            yield "the cat sat on a mat"

    assert len(packed_blocks(documents(), tokenizer, 16, 2)) == 2
    assert len(read) < 10


def test_only_replies_and_their_end_tokens_are_supervised(tokenizer):
    messages = [
        turn("user", "the cat"),
        turn("assistant", "sat"),
        turn("user", "a mat"),
        turn("assistant", "far away"),
    ]
    row = supervised_row(messages, tokenizer)
    assert supervised_text(tokenizer, row) == "sat<|eos|>far away<|eos|>"
    assert row["input_ids"].count(tokenizer.bos_token_id) == 1
    assert row["input_ids"][0] == tokenizer.bos_token_id
    assert all(
        label in (IGNORED, token) for token, label in zip(row["input_ids"], row["labels"], strict=True)
    )


def test_a_template_without_bos_gets_one(tokenizer):
    tokenizer.chat_template = tokenizer.chat_template.replace("{{ bos_token }}", "")
    row = supervised_row([turn("user", "the cat"), turn("assistant", "sat")], tokenizer)
    assert row["input_ids"][0] == tokenizer.bos_token_id
    assert row["input_ids"].count(tokenizer.bos_token_id) == 1
    assert len(row["labels"]) == len(row["input_ids"])


def test_white_space_after_the_end_token_is_not_supervised(tokenizer):
    tokenizer.chat_template = tokenizer.chat_template.replace("eos_token }}", "eos_token + '\n' }}")
    row = supervised_row([turn("user", "the cat"), turn("assistant", "sat")], tokenizer)
    assert supervised_text(tokenizer, row) == "sat<|eos|>"


def test_end_tokens_stay_supervised_where_pads_are_end_tokens(tokenizer):
    tokenizer.pad_token = tokenizer.eos_token
    tokenizer.padding_side = "right"
    rows = [
        {"input_ids": [5, 6, 2], "attention_mask": [1] * 3, "labels": [5, 6, 2]},
        {"input_ids": [5, 6, 7, 8, 2], "attention_mask": [1] * 5, "labels": [5, 6, 7, 8, 2]},
    ]
    batch = DataCollatorForSeq2Seq(tokenizer, label_pad_token_id=IGNORED)(rows)
    assert batch["labels"][0].tolist() == [5, 6, 2, -100, -100]
    assert batch["attention_mask"][0].tolist() == [1, 1, 1, 0, 0]


def test_nothing_supervised_is_an_error(tokenizer):
    records = [{"messages": [turn("user", "the cat"), turn("user", "sat")]}]
    with pytest.raises(UserError, match="no token is supervised"):
        supervised_rows(lambda: records, tokenizer, 64)


def test_no_template_is_an_error(tokenizer):
    tokenizer.chat_template = None
    with pytest.raises(UserError, match="no chat template"):
        supervised_row([turn("user", "the cat"), turn("assistant", "sat")], tokenizer)


def test_a_template_that_rewrites_earlier_turns_is_refused(tokenizer):
    tokenizer.chat_template = (
        "{% for message in messages %}{% if loop.last or message['role'] == 'user' %}"
        "{{ '<|' + message['role'] + '|>' + message['content'] + eos_token }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
    )
    messages = [turn("user", "a"), turn("assistant", "b"), turn("user", "c"), turn("assistant", "d")]
    with pytest.raises(UserError, match="turn 2 differently"):
        supervised_row(messages, tokenizer)


def test_preferences_cut_at_the_last_reply(tokenizer):
    prompt = [turn("user", "the cat"), turn("assistant", "sat"), turn("user", "on a mat")]
    records = [
        {"prompt": prompt, "chosen": [turn("assistant", "far")], "rejected": [turn("assistant", "no")]}
    ]
    (row,) = preference_rows(lambda: records, tokenizer, 64)
    assert tokenizer.decode(row["prompt_ids"]).endswith("on a mat<|eos|><|assistant|>")
    assert tokenizer.decode(row["chosen_ids"]) == "far<|eos|>"
    assert tokenizer.decode(row["rejected_ids"]) == "no<|eos|>"
    assert row["prompt_ids"].count(tokenizer.bos_token_id) == 1


def test_answers_do_not_merge_with_the_prompt(tokenizer):
    # " cat" is one token; a prompt that ends in " c" and an answer "at" must not become it.
    records = [{"prompt": "the c", "chosen": "at", "rejected": "ran"}]
    (row,) = preference_rows(lambda: records, tokenizer, 64)
    assert tokenizer.decode(row["chosen_ids"]) == "at<|eos|>"
    assert tokenizer.decode(row["prompt_ids"], skip_special_tokens=True) == "the c"
    assert row["prompt_ids"][0] == tokenizer.bos_token_id


def test_sharegpt_conversations_train_like_messages(tokenizer):
    messages = [turn("user", "hi"), turn("assistant", "a cat")]
    shared = [{"from": "human", "value": "hi"}, {"from": "gpt", "value": "a cat"}]
    rows = [
        supervised_rows(lambda record=record: [record], tokenizer, 64)
        for record in ({"messages": messages}, {"conversations": shared})
    ]
    assert rows[0] == rows[1]
