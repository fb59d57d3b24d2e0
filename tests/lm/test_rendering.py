from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tiny_checkpoints import make_checkpoint
from transformers import AutoTokenizer

from stemmatics.commands.score import score
from stemmatics.core.corpora import Corpus
from stemmatics.core.errors import UserError
from stemmatics.lm.text.corpus import read
from stemmatics.lm.text.rendering import template_renderer

TEMPLATE = (
    "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}</end>\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


CHAT = [
    {"role": "user", "content": "Où?"},
    {"role": "assistant", "content": "Là."},
    {"role": "user", "content": "Thanks"},
    {"role": "assistant", "content": "☕"},
]


def jsonl(path, *values):
    path.write_text("".join(json.dumps(value) + "\n" for value in values), encoding="utf-8")
    return Corpus(path=[str(path)])


def texts_of(source, **settings):
    return [document.text for document in read(source, **settings)]


def test_rendered_messages_score_the_named_role_only(tmp_path):
    jsonl(tmp_path / "a.jsonl", {"messages": CHAT})
    pq.write_table(pa.table({"messages": [CHAT]}), tmp_path / "b.parquet")
    for name in ("a.jsonl", "b.parquet"):
        render = {"template": TEMPLATE, "role": "assistant"}
        (document,) = read(Corpus(path=[str(tmp_path / name)], render=render))
        assert document.flags == {"rendered"}
        raw = document.text.encode()
        assert raw.startswith("<user>Où?</end>\n<assistant>Là.</end>\n".encode())
        assert [raw[a:b].decode() for a, b in document.scored] == ["Là.</end>\n", "☕</end>\n"]
        (other,) = read(Corpus(path=[str(tmp_path / name)], render={"template": TEMPLATE, "role": "user"}))
        assert [raw[a:b].decode() for a, b in other.scored] == ["Où?</end>\n", "Thanks</end>\n"]


def test_what_can_not_be_rendered_is_refused(tmp_path):
    def rendering(messages, template=TEMPLATE, role="assistant", **settings):
        source = jsonl(tmp_path / "a.jsonl", {"messages": messages})
        source = source.model_copy(
            update={"render": Corpus(path="x", render={"template": template, "role": role}).render}
        )
        return texts_of(source, **settings)

    with pytest.raises(UserError, match="no message of the role 'tool'"):
        rendering(CHAT, role="tool")
    with pytest.raises(UserError, match="'own' means a checkpoint's"):
        rendering(CHAT, template="own")
    assert rendering(
        CHAT[:2], template="own", own_template=lambda m, add: "".join(x["content"] for x in m)
    ) == ["Où?Là."]
    with pytest.raises(UserError, match="changes earlier text"):
        rendering(
            CHAT, template="{{ messages | length }}{% for m in messages %}{{ m['content'] }}{% endfor %}"
        )
    with pytest.raises(UserError, match=r"scored part .* is ambiguous"):
        rendering(CHAT[:1], template="{% for m in messages %}silence{% endfor %}", role="user")
    with pytest.raises(UserError, match="refuses it: no system"):
        rendering(CHAT, template="{{ raise_exception('no system') }}")
    with pytest.raises(UserError, match="chat template can't be read"):
        rendering(CHAT, template="{% for %}")
    with pytest.raises(UserError, match="must have a role and a content"):
        rendering(["hello"])


TEMPLATES = [
    "{{ bos_token }}{% for m in messages %}{{ m['content'] }}{{ eos_token }}{% endfor %}",
    "{% for m in messages %}{{ m['content'] | tojson }}{% endfor %}",
    "{% for m in messages %}{% generation %}{{ m['content'] }}{% endgeneration %}{% endfor %}",
    "{% for m in messages %}{% if loop.index > 9 %}{% break %}{% endif %}{{ m['content'] }}{% endfor %}",
    "{% for m in messages %}{% if m['role'] == 'x' %}{% continue %}{% endif %}{{ m['content'] }}{% endfor %}",
    "{{ strftime_now('%Y')[:2] }}{% for m in messages %}{{ m['content'] }}{% endfor %}",
]


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_template_that_is_given_renders_as_the_tokenizers_own(template, tmp_path):
    """Text and loss are those of the same template inside the tokenizer."""
    folder = make_checkpoint(tmp_path / "model", max_position_embeddings=256)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = template
    tokenizer.save_pretrained(folder)
    messages = [{"role": "user", "content": 'say "é" & <b>'}, {"role": "assistant", "content": "the cat's é"}]
    text = tmp_path / "chats.jsonl"
    text.write_text(json.dumps({"messages": messages}) + "\n")
    special = {"bos_token": "<s>", "eos_token": "</s>"}
    given = template_renderer(template, tuple(special.items()))
    assert given(messages, False) == tokenizer.apply_chat_template(messages, tokenize=False)
    losses = [
        score(str(folder), text, source={"render": {"template": chosen, "role": "assistant"}}).total(
            "nll_sum"
        )
        for chosen in (template, "own")
    ]
    assert losses[0] == losses[1] > 0


def test_a_special_token_that_nobody_gives_is_refused():
    with pytest.raises(UserError, match="eos_token"):
        template_renderer(TEMPLATES[0])
