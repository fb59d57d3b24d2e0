"""Conversations as text, with an explicit template and scored role."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import jinja2
from jinja2 import meta

from stemmatics.core.corpora import Render
from stemmatics.core.errors import UserError

_SPECIAL = frozenset(f"{name}_token" for name in ("bos", "eos", "unk", "sep", "pad", "cls", "mask"))
MESSAGES, CONVERSATIONS = "messages", "conversations"
# how ShareGPT calls the speakers; other names are taken as they are
_SPEAKERS = {
    "human": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "bing": "assistant",
    "bard": "assistant",
    "function_call": "assistant",
    "function_response": "tool",
    "observation": "tool",
}
# (messages, add_generation_prompt) → text
Renderer = Callable[[Sequence[dict[str, Any]], bool], str]


@lru_cache(maxsize=8)
def template_renderer(template: str, special_tokens: tuple[tuple[str, str], ...] = ()) -> Renderer:
    """A renderer from the text of a Jinja chat template: that of transformers, extensions included.

    Args:
        template: its text.
        special_tokens: the variables that a tokenizer gives to its template, such as ``eos_token``.

    Raises:
        UserError: the template is no Jinja, or names a special token that is not given.
    """
    # its Jinja with loop controls, JSON without escapes, and {% generation %}
    from transformers.utils.chat_template_utils import _compile_jinja_template, render_jinja_template

    try:
        environment = _compile_jinja_template(template).environment
        named = meta.find_undeclared_variables(environment.parse(template))
    except jinja2.TemplateError as error:
        raise UserError(
            "the chat template can't be read",
            str(error),
            "give the text of a Jinja chat template, or 'own' for the checkpoint's",
            code=2,
        ) from error
    tokens = dict(special_tokens)
    if absent := sorted((_SPECIAL & named) - set(tokens)):
        raise UserError(
            f"the chat template uses {', '.join(absent)}, which no tokenizer gives it here",
            "it would be left out of the text",
            "write the token's text into the template, or score one checkpoint that has such a token",
            code=2,
        )

    def apply(messages: Sequence[dict[str, Any]], add_generation_prompt: bool) -> str:
        rendered, _ = render_jinja_template(
            [list(messages)], chat_template=template, add_generation_prompt=add_generation_prompt, **tokens
        )
        return str(rendered[0])

    return apply


def messages_of(values: Mapping[str, Any], location: str) -> Any:
    """The messages of a record: ``messages``, else ShareGPT's ``conversations`` as role and content.

    Turns with ``role`` and ``content`` under ``conversations`` are taken as they are. Raises UserError for
    turns of another form.
    """
    if values.get(MESSAGES) is not None:
        return values[MESSAGES]
    turns = values.get(CONVERSATIONS)
    if isinstance(turns, list | tuple) and all(isinstance(turn, dict) and "role" in turn for turn in turns):
        return turns
    is_valid = isinstance(turns, list | tuple) and all(
        isinstance(turn, dict) and isinstance(turn.get("from"), str) and isinstance(turn.get("value"), str)
        for turn in turns
    )
    if not is_valid:
        raise UserError(
            f"the conversations of {location} can't be read",
            "each turn must have a `from` and a `value`, both text",
            'write [{"from": "human", "value": "..."}, {"from": "gpt", "value": "..."}]',
        )
    return [{"role": _SPEAKERS.get(turn["from"], turn["from"]), "content": turn["value"]} for turn in turns]


def render(
    messages: Any,
    settings: Render,
    location: str,
    renderer: Renderer | None,
    special_tokens: Mapping[str, str] | None = None,
) -> tuple[str, tuple[tuple[int, int], ...]]:
    """The conversation's text and the UTF-8 byte spans of the scored role's messages.

    An assistant's span begins after the generation prompt, another role's where its content does;
    it ends with the message, its end token included.

    Raises:
        UserError: there is no such role, the template refuses the messages, or it renders earlier
            messages differently when later ones follow, so that spans are undefined.
    """
    apply = renderer if settings.template == "own" else _given(settings.template, special_tokens)
    if apply is None:
        raise UserError(
            f"{location} can't be rendered",
            "'own' means a checkpoint's chat template, and there is none here",
            "give a template: --render FILE, in a corpus its text under `render: {template: ..., role: ...}`",
            code=2,
        )
    _check_messages(messages, location)
    try:
        whole = apply(messages, False)
        spans = [
            _span(apply, messages, position, whole, location)
            for position, message in enumerate(messages)
            if message["role"] == settings.role
        ]
    except (jinja2.TemplateError, TypeError, ValueError) as error:
        raise UserError(
            f"{location} can't be rendered",
            f"the chat template refuses it: {error}",
            "fix the record or name another template",
        ) from error
    if not spans:
        roles = ", ".join(sorted({message["role"] for message in messages})) or "none"
        raise UserError(
            f"{location} has no message of the role {settings.role!r}",
            f"its roles: {roles}",
            "name one of them: --role ROLE, or in a corpus `render: {template: ..., role: ROLE}`",
        )
    return whole, tuple(spans)


def _given(template: str, special_tokens: Mapping[str, str] | None) -> Renderer:
    return template_renderer(template, tuple(sorted((special_tokens or {}).items())))


def _span(apply: Renderer, messages: list[Any], position: int, whole: str, location: str) -> tuple[int, int]:
    """Byte span of one message in the whole conversation."""
    until = apply(messages[: position + 1], False)
    if messages[position]["role"] == "assistant":
        before: str | None = apply(messages[:position], True)
    else:
        earlier = apply(messages[:position], False) if position else ""
        begin = until.find(messages[position]["content"].strip(), len(earlier))
        before = until[:begin] if begin >= 0 and until.startswith(earlier) else None
    if before is None or not (until.startswith(before) and whole.startswith(until)):
        raise UserError(
            f"the scored part of {location} is ambiguous",
            "the chat template changes earlier text when later messages are added",
            "use a template that only adds text at the end",
        )
    # Lone surrogates are handled after rendering; until then each counts as the bytes of its replacement.
    begin, end = (
        len(part.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode())
        for part in (before, until)
    )
    return begin, end


def _check_messages(messages: Any, location: str) -> None:
    is_valid = isinstance(messages, list) and all(
        isinstance(message, dict)
        and isinstance(message.get("role"), str)
        and isinstance(message.get("content"), str)
        for message in messages
    )
    if not is_valid:
        raise UserError(
            f"the messages of {location} can't be read",
            "each must have a role and a content, both text",
            'write [{"role": "user", "content": "..."}, ...]',
        )
