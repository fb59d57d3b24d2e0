"""Greedy replies in batches, identical to those generated one prompt at a time.

The decoding loop is that of transformers. Prompts of a batch are padded on the left under an
attention mask; a model whose logits change under such padding gets batches of equal length.

Axes: B rows, L positions of a prompt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import jinja2
import torch
from accelerate.utils.memory import should_reduce_batch_size
from torch import Tensor
from transformers import GenerationConfig

from stemmatics.core.errors import UserError
from stemmatics.lm.scoring.batches import LOOKAHEAD_BATCHES, look_ahead, make_batches
from stemmatics.lm.scoring.discover import call_arguments
from stemmatics.lm.tokens.tokenizer import TextTokenizer

# Any id: padding is masked, and ids after a stop id are dropped.
PADDING_ID = 0
# Largest relative difference of the same logits with and without padding.
PADDING_TOLERANCE = 1e-3

Event = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Reply:
    """The reply to ``prompts[index]``.

    ``ids`` exclude the stop id and ``text`` excludes special tokens. ``finished``: the model ended the
    reply with a stop id, before the limit on new tokens.
    """

    index: int
    ids: tuple[int, ...]
    text: str
    finished: bool


@dataclass(frozen=True, slots=True)
class _Row:
    """A prompt in a batch; ``length`` counts the positions of the prompt and the longest reply."""

    index: int
    ids: Sequence[int]
    length: int


def encode_prompt(tokenizer: TextTokenizer, prompt: str | Sequence[Mapping[str, Any]]) -> list[int]:
    """The ids of a prompt.

    A string is encoded as plain text after the prefix token that the tokenizer's own template adds.
    Messages are rendered by the tokenizer's chat template with the header of the reply; only the
    template adds a BOS token, so that it is never doubled.

    Raises:
        UserError: no token at all, or messages that cannot be rendered.
    """
    if isinstance(prompt, str):
        prefix_id, _ = tokenizer.prefix("auto")
        ids = [] if prefix_id is None else [prefix_id]
        ids += tokenizer.encode(prompt).ids.tolist()
    else:
        ids = tokenizer.encode(rendered_prompt(tokenizer, prompt), rendered=True).ids.tolist()
    if not ids:
        raise UserError(
            "a prompt is empty",
            "there is no token to continue, since the tokenizer adds no prefix token",
            "add text to every prompt",
        )
    return ids


def rendered_prompt(tokenizer: TextTokenizer, messages: Sequence[Mapping[str, Any]]) -> str:
    """Messages as text by the tokenizer's chat template, with the header of the reply.

    Raises:
        UserError: no template, or one that rejects them.
    """
    hf_tokenizer = tokenizer.hf
    if not hf_tokenizer.chat_template:
        raise UserError(
            "messages cannot be rendered",
            "the tokenizer has no chat template",
            "give the prompt as plain text, or add a chat template to the checkpoint",
        )
    try:
        text: str = hf_tokenizer.apply_chat_template(
            [dict(message) for message in messages], add_generation_prompt=True, tokenize=False
        )
    except (jinja2.TemplateError, TypeError, ValueError) as error:
        raise UserError(
            "messages cannot be rendered",
            f"the chat template rejects them: {error}",
            'write [{"role": "user", "content": "..."}, ...]',
        ) from error
    return text


def generate(
    model: Any,
    tokenizer: TextTokenizer,
    prompts: Sequence[Sequence[int]],
    *,
    max_new_tokens: int,
    stop_ids: Sequence[int],
    context_length: int | None = None,
    token_budget: int = 8192,
    on_event: Callable[[Event], None] = lambda _event: None,
) -> Iterator[Reply]:
    """Greedy replies: always the most probable id, whatever generation settings the checkpoint has.

    Args:
        model: a causal model of transformers, on its device and in its dtype. It is in evaluation
            mode while it generates.
        tokenizer: decodes the replies.
        prompts: ids of each prompt, as ``encode_prompt`` gives them.
        max_new_tokens: the longest reply, in ids.
        stop_ids: any of these ends a reply (``Loaded.stop_ids``).
        context_length: the number of positions of the model, if it has a limit.
        token_budget: positions in a batch, of prompts and replies. A batch that is out of memory is
            halved and tried again.
        on_event: called with ``progress`` (replies done, total) and ``out_of_memory``.

    Yields:
        Replies in the order of the prompts. In float32 they do not depend on the budget, except where
        two ids are equally probable up to rounding.

    Raises:
        UserError: an empty prompt, one that leaves no room for the reply, an id outside the model's
            vocabulary, or a single prompt that does not fit in memory.
    """
    rows = [_Row(index, ids, len(ids) + max_new_tokens) for index, ids in enumerate(prompts)]
    for row in rows:
        _check_row(row, model, max_new_tokens, context_length)
    if not rows:
        return
    with _greedy(model, max_new_tokens, stop_ids):
        mixed = _ignores_padding(model, rows[0].ids)
    num_done = 0
    for buffered in look_ahead(rows, token_budget * LOOKAHEAD_BATCHES):
        replies: list[Reply] = []
        # Closed before a yield, so that the caller sees the model as it was.
        with _greedy(model, max_new_tokens, stop_ids):
            for batch in _batches(buffered, token_budget, mixed=mixed):
                replies += _reply(model, tokenizer, batch, frozenset(stop_ids), on_event)
                on_event({"kind": "progress", "done": num_done + len(replies), "total": len(rows)})
        num_done += len(replies)
        yield from sorted(replies, key=lambda reply: reply.index)


def _check_row(row: _Row, model: Any, max_new_tokens: int, context_length: int | None) -> None:
    if not row.ids:
        raise UserError(f"prompt {row.index} is empty", "there is no token to continue", "add text to it")
    num_ids = model.get_input_embeddings().weight.shape[0]
    if not 0 <= min(row.ids) <= max(row.ids) < num_ids:
        outside = min(row.ids) if min(row.ids) < 0 else max(row.ids)
        raise UserError(
            f"prompt {row.index} has the id {outside}",
            f"the model's embedding has ids up to {num_ids - 1}",
            "check that tokenizer and model belong together",
        )
    if context_length is not None and row.length > context_length:
        raise UserError(
            f"prompt {row.index} has {len(row.ids)} tokens, which leaves no room for {max_new_tokens} more",
            f"the model's context length is {context_length}",
            "shorten the prompt or ask for fewer new tokens",
        )


@contextmanager
def _greedy(model: Any, max_new_tokens: int, stop_ids: Sequence[int]) -> Iterator[None]:
    """The model in evaluation mode with plain greedy settings; mode and settings are restored at the end.

    Passing the settings to ``generate`` is not enough: it fills unset values from the checkpoint's
    own, such as a repetition penalty.
    """
    # A PEFT model reads the settings of its base model.
    holder = model.get_base_model() if hasattr(model, "get_base_model") else model
    previous, was_training = holder.generation_config, model.training
    holder.generation_config = GenerationConfig(
        do_sample=False,
        num_beams=1,
        max_new_tokens=max_new_tokens,
        eos_token_id=list(stop_ids) or None,
        pad_token_id=PADDING_ID,
    )
    model.eval()
    try:
        yield
    finally:
        holder.generation_config = previous
        model.train(was_training)


def _padded(rows: Sequence[Sequence[int]], length: int, device: Any) -> tuple[Tensor, Tensor]:
    """``input_BL`` and ``mask_BL``, padded on the left."""
    input_BL = torch.full((len(rows), length), PADDING_ID, dtype=torch.long)
    mask_BL = torch.zeros_like(input_BL)
    for i, ids in enumerate(rows):
        input_BL[i, length - len(ids) :] = torch.as_tensor(ids)
        mask_BL[i, length - len(ids) :] = 1
    return input_BL.to(device), mask_BL.to(device)


def _continued(model: Any, input_BL: Tensor, mask_BL: Tensor, **settings: Any) -> Any:
    """What transformers generates, without auxiliary outputs: some are unavailable for a single step."""
    without = {name: value for name, value in call_arguments(model).items() if name != "use_cache"}
    return model.generate(input_BL, attention_mask=mask_BL, **without, **settings)


def _ignores_padding(model: Any, ids: Sequence[int]) -> bool:
    """Whether the next id's logits are unchanged by padding on the left (recurrent models may differ)."""
    ids = ids[-16:]
    logits = []
    for num_padding in (0, 3):
        input_BL, mask_BL = _padded([ids], len(ids) + num_padding, model.device)
        step = _continued(
            model, input_BL, mask_BL, max_new_tokens=1, output_logits=True, return_dict_in_generate=True
        )
        logits.append(step.logits[0].float())
    difference = (logits[0] - logits[1]).abs().max()
    return bool(difference <= PADDING_TOLERANCE * logits[0].abs().max())


def _batches(rows: list[_Row], token_budget: int, *, mixed: bool) -> Iterator[list[_Row]]:
    """Longest first; of equal length only, unless ``mixed``."""
    if mixed:
        yield from make_batches(rows, token_budget)
        return
    rows = sorted(rows, key=lambda row: -row.length)
    for _, equal in groupby(rows, key=lambda row: row.length):
        yield from make_batches(list(equal), token_budget)


def _reply(
    model: Any,
    tokenizer: TextTokenizer,
    batch: list[_Row],
    stop_ids: frozenset[int],
    on_event: Callable[[Event], None],
) -> list[Reply]:
    """The replies of one batch; of its halves where memory does not suffice."""
    new_BL = None
    try:
        length = max(len(row.ids) for row in batch)
        input_BL, mask_BL = _padded([row.ids for row in batch], length, model.device)
        new_BL = _continued(model, input_BL, mask_BL)[:, length:].tolist()
    except RuntimeError as error:
        if not should_reduce_batch_size(error):
            raise
    # Outside the handler, where the failed pass's tensors are freed.
    if new_BL is None:
        if len(batch) == 1:
            raise UserError(
                f"prompt {batch[0].index} does not fit in memory",
                "it was tried in a batch of its own",
                "shorten it, ask for fewer new tokens, or use a machine with more memory",
            )
        half = len(batch) // 2
        on_event({"kind": "out_of_memory", "rows": half})
        parts = (batch[:half], batch[half:])
        return [reply for part in parts for reply in _reply(model, tokenizer, part, stop_ids, on_event)]
    replies = []
    for row, ids in zip(batch, new_BL, strict=True):
        end = next((position for position, token_id in enumerate(ids) if token_id in stop_ids), None)
        reply_ids = tuple(ids[:end])
        text = tokenizer.hf.decode(reply_ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        replies.append(Reply(row.index, reply_ids, text, finished=end is not None))
    return replies
