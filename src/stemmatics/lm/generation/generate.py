"""Greedy replies in batches, the same as one prompt at a time would give.

The decoding loop is transformers' own. Prompts of one batch are padded on the left under an
attention mask; a model that can see such padding gets batches of equal length instead.

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

# Any id will do: padding is masked, and what follows a stop id is cut off.
PADDING_ID = 0
# Logits of the same position with and without padding may differ by this share of their size.
PADDING_TOLERANCE = 1e-3

Event = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Reply:
    """What the model says after ``prompts[index]``.

    ``ids`` are without the stop id; ``text`` is without special tokens; ``finished`` says whether
    the model ended the reply itself (a stop id) rather than the limit on new tokens.
    """

    index: int
    ids: tuple[int, ...]
    text: str
    finished: bool


@dataclass(frozen=True, slots=True)
class _Row:
    """A prompt in a batch; ``length`` counts the positions that it may come to hold."""

    index: int
    ids: Sequence[int]
    length: int


def encode_prompt(tokenizer: TextTokenizer, prompt: str | Sequence[Mapping[str, Any]]) -> list[int]:
    """The ids that a reply continues.

    Text is plain text, with the prefix token in front that the tokenizer's own template puts
    there. ``messages`` are rendered by the tokenizer's chat template with the header of the reply;
    the template alone decides about BOS, so that none is doubled.

    Raises:
        UserError: no token at all, or messages that can't be rendered.
    """
    if isinstance(prompt, str):
        prefix_id, _ = tokenizer.prefix("auto")
        ids = [] if prefix_id is None else [prefix_id]
        ids += tokenizer.encode(prompt).ids.tolist()
    else:
        ids = tokenizer.encode(_rendered(tokenizer.hf, prompt), rendered=True).ids.tolist()
    if not ids:
        raise UserError(
            "a prompt is empty",
            "there is no token to continue, since the tokenizer puts none in front of a text",
            "write something into every prompt",
        )
    return ids


def _rendered(hf_tokenizer: Any, messages: Sequence[Mapping[str, Any]]) -> str:
    if not hf_tokenizer.chat_template:
        raise UserError(
            "messages can't be rendered",
            "the tokenizer has no chat template",
            "give the prompt as plain text, or add a chat template to the checkpoint",
        )
    try:
        text: str = hf_tokenizer.apply_chat_template(
            [dict(message) for message in messages], add_generation_prompt=True, tokenize=False
        )
    except (jinja2.TemplateError, TypeError, ValueError) as error:
        raise UserError(
            "messages can't be rendered",
            f"the chat template refuses them: {error}",
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
    """Reply to each prompt greedily: always the most probable id, nothing of the checkpoint's own settings.

    Args:
        model: a causal model of transformers, on its device and in its dtype. It is put into
            evaluation mode while it generates.
        tokenizer: for the replies' text.
        prompts: ids of each prompt, as ``encode_prompt`` gives them.
        max_new_tokens: at most so many ids a reply.
        stop_ids: any of these ends a reply (``Loaded.stop_ids``).
        context_length: positions that the model can take, where it has a limit.
        token_budget: positions of one batch, prompt and reply together. Out of memory halves the
            batch and goes on.
        on_event: called with ``progress`` (replies done, total) and ``out_of_memory``.

    Yields:
        Replies in the order of the prompts. In float32 they do not depend on the budget, but where
        two ids are as probable to the last digits.

    Raises:
        UserError: an empty prompt, one that leaves no room for the reply, an id that the model
            lacks, or a single prompt that does not fit into memory.
    """
    rows = [_Row(index, ids, len(ids) + max_new_tokens) for index, ids in enumerate(prompts)]
    for row in rows:
        _refuse(row, model, max_new_tokens, context_length)
    if not rows:
        return
    with _greedy(model, max_new_tokens, stop_ids):
        mixed = _ignores_padding(model, rows[0].ids)
    num_done = 0
    for held in look_ahead(rows, token_budget * LOOKAHEAD_BATCHES):
        replies: list[Reply] = []
        # Not held open over a yield: what the caller does meanwhile sees the model as it was.
        with _greedy(model, max_new_tokens, stop_ids):
            for batch in _batches(held, token_budget, mixed=mixed):
                replies += _reply(model, tokenizer, batch, frozenset(stop_ids), on_event)
                on_event({"kind": "progress", "done": num_done + len(replies), "total": len(rows)})
        num_done += len(replies)
        yield from sorted(replies, key=lambda reply: reply.index)


def _refuse(row: _Row, model: Any, max_new_tokens: int, context_length: int | None) -> None:
    if not row.ids:
        raise UserError(
            f"prompt {row.index} is empty", "there is no token to continue", "write something into it"
        )
    num_ids = model.get_input_embeddings().weight.shape[0]
    if not 0 <= min(row.ids) <= max(row.ids) < num_ids:
        outside = min(row.ids) if min(row.ids) < 0 else max(row.ids)
        raise UserError(
            f"prompt {row.index} has the id {outside}",
            f"the model's table ends at {num_ids - 1}",
            "check that tokenizer and model belong together",
        )
    if context_length is not None and row.length > context_length:
        raise UserError(
            f"prompt {row.index} has {len(row.ids)} tokens, which leaves no room for {max_new_tokens} more",
            f"the model's context holds {context_length}",
            "shorten the prompt or ask for fewer new tokens",
        )


@contextmanager
def _greedy(model: Any, max_new_tokens: int, stop_ids: Sequence[int]) -> Iterator[None]:
    """The model in evaluation mode with plain greedy settings; both are put back at the end.

    Passing the settings to ``generate`` would not do: it fills what they leave open from the
    checkpoint's own, such as a repetition penalty.
    """
    # An adapted model reads them from the model inside.
    holder = model.get_base_model() if hasattr(model, "get_base_model") else model
    own, was_training = holder.generation_config, model.training
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
        holder.generation_config = own
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
    """What transformers generates, without auxiliary outputs: some can't be had for a single step."""
    without = {name: value for name, value in call_arguments(model).items() if name != "use_cache"}
    return model.generate(input_BL, attention_mask=mask_BL, **without, **settings)


def _ignores_padding(model: Any, ids: Sequence[int]) -> bool:
    """Whether the next id's logits stay the same with padding on the left (recurrent models may differ)."""
    ids = ids[-16:]
    logits = []
    for num_padding in (0, 3):
        input_BL, mask_BL = _padded([ids], len(ids) + num_padding, model.device)
        found = _continued(
            model, input_BL, mask_BL, max_new_tokens=1, output_logits=True, return_dict_in_generate=True
        )
        logits.append(found.logits[0].float())
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
    """The replies of one batch; where memory does not suffice, of its halves."""
    new_BL = None
    try:
        length = max(len(row.ids) for row in batch)
        input_BL, mask_BL = _padded([row.ids for row in batch], length, model.device)
        new_BL = _continued(model, input_BL, mask_BL)[:, length:].tolist()
    except RuntimeError as error:
        if not should_reduce_batch_size(error):
            raise
    # Outside the handler, where the failed pass's tensors are no longer held.
    if new_BL is None:
        if len(batch) == 1:
            raise UserError(
                f"prompt {batch[0].index} does not fit into memory",
                "it was tried alone",
                "shorten it, ask for fewer new tokens, or take a machine with more memory",
            )
        half = len(batch) // 2
        on_event({"kind": "out_of_memory", "rows": half})
        parts = (batch[:half], batch[half:])
        return [reply for part in parts for reply in _reply(model, tokenizer, part, stop_ids, on_event)]
    replies = []
    for row, ids in zip(batch, new_BL, strict=True):
        end = next((place for place, number in enumerate(ids) if number in stop_ids), None)
        said = tuple(ids[:end])
        text = tokenizer.hf.decode(said, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        replies.append(Reply(row.index, said, text, finished=end is not None))
    return replies
