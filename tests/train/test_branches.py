"""Branches of one run share their seed; a stage may give its checkpoint a chat template."""

import pytest
from transformers import AutoTokenizer

from stemmatics.core.errors import UserError
from stemmatics.core.stemma import Stemma
from stemmatics.facts.pinned import Pinned, Pins
from stemmatics.probe.adapters import training_seed

TEMPLATE = (
    "{% for message in messages %}{{ message['role'] + ': ' + message['content'] }}"
    "{% if message['role'] == 'assistant' %}{{ eos_token }}{% endif %}{{ '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"
)
CHATS = [
    {"messages": [{"role": "user", "content": f"say {n}"}, {"role": "assistant", "content": f"{n} it is"}]}
    for n in range(6)
]
RECIPE = {"steps": 1, "batch_size": 2, "max_length": 60}


def fact_of(name, **declared):
    stages = {
        "fork": {"kind": "pretrain", "corpus": "web"},
        "one": {"kind": "cpt", "init": "fork", "corpus": "web"},
        "two": {"kind": "cpt", "init": "fork", "corpus": "rules"},
        "one-sft": {"kind": "sft", "init": "one", "corpus": "chats", **declared},
        "two-sft": {"kind": "sft", "init": "two", "corpus": "chats", **declared},
    }
    corpora = {corpus: {"path": corpus, "role": "data"} for corpus in ("web", "rules", "chats")}
    stemma = Stemma.model_validate({"stages": stages, "corpora": corpora})
    pins = Pins(
        corpora={corpus: {"content_sha256": corpus, "num_documents": 1, "num_bytes": 1} for corpus in corpora}
    )
    return Pinned(stemma, pins).checkpoint(name)


def test_stages_of_one_run_share_their_seed_and_keep_their_own_keys():
    first, second = (fact_of(name, run=1) for name in ("one-sft", "two-sft"))
    assert first.key != second.key
    assert training_seed(first, 0) == training_seed(second, 0)
    assert training_seed(first, 0) != training_seed(fact_of("one-sft", run=2), 0)
    assert training_seed(first, 0) != training_seed(first, 1)


def test_without_a_run_every_stage_draws_its_own_seed_as_before():
    first, second = (fact_of(name) for name in ("one-sft", "two-sft"))
    assert training_seed(first, 0) == first.seed(0) != training_seed(second, 0)
    assert not {"run", "chat_template"} & set(first.params)


def test_a_base_without_a_template_gets_the_stages_own(shop):
    bare = shop.root / "bare"
    bare.mkdir()
    for file in (shop.root / "llama").iterdir():
        if file.name != "chat_template.jinja":
            (bare / file.name).write_bytes(file.read_bytes())
    with pytest.raises(UserError, match="no chat template"):
        shop.make("refused", "sft", CHATS, init="bare", recipe=RECIPE)
    shop.make("tuned", "sft", CHATS, init="bare", recipe=RECIPE, chat_template=TEMPLATE)
    tokenizer = AutoTokenizer.from_pretrained(shop.root / "tuned")
    assert tokenizer.chat_template == TEMPLATE
    text = tokenizer.apply_chat_template(CHATS[0]["messages"], tokenize=False)
    assert text == f"user: say 0\nassistant: 0 it is{tokenizer.eos_token}\n"
