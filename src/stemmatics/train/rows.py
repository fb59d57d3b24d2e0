"""Corpus records as token rows: packed blocks, supervised replies, preference pairs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any

from transformers import PreTrainedTokenizerBase

from stemmatics.core.errors import UserError
from stemmatics.lm.text.rendering import CONVERSATIONS, MESSAGES, messages_of

IGNORED = -100
Records = Callable[[], Iterable[Mapping[str, Any]]]
Row = dict[str, list[int]]


def texts(records: Records) -> Iterator[str]:
    """The ``text`` of each record.

    Raises:
        UserError: a record has no text, or no record has any.
    """
    empty = True
    for index, record in enumerate(records()):
        yield _field(record, "text", index)
        empty = False
    if empty:
        raise UserError(
            "the corpus has no documents", "there is nothing to train on", "check its path or generator"
        )


def packed_blocks(
    documents: Iterable[str], tokenizer: PreTrainedTokenizerBase, length: int, num_blocks: int
) -> list[Row]:
    """At most ``num_blocks`` blocks of exactly ``length`` tokens from the documents in their order.

    Each document is [BOS] tokens [EOS]; documents follow each other without padding and a block
    may begin within one. All tokens are supervised. Tokens after the last complete block are dropped.
    """
    stream = chain.from_iterable(_with_ends(tokenizer, document) for document in documents)
    blocks: list[Row] = []
    while len(blocks) < num_blocks and len(block := list(islice(stream, length))) == length:
        blocks.append({"input_ids": block, "attention_mask": [1] * length, "labels": block})
    if not blocks:
        raise UserError(
            f"the corpus has {len(block)} tokens, fewer than one block of {length}",
            "training uses complete blocks only",
            "give it more text or a smaller max_length",
        )
    return blocks


def supervised_row(
    messages: Sequence[Mapping[str, str]], tokenizer: PreTrainedTokenizerBase, *, first: int = 0
) -> Row:
    """A conversation as one row whose labels are the replies and their end tokens, else -100.

    Replies before turn ``first`` are not supervised.

    Raises:
        UserError: no template, or one that rewrites earlier turns so that replies can't be found.
    """
    whole = _render(tokenizer, messages, generation=False)
    spans = []
    for index, message in enumerate(messages):
        if index < first or message["role"] != "assistant":
            continue
        before = _render(tokenizer, messages[:index], generation=True)
        after = _render(tokenizer, messages[: index + 1], generation=False)
        if not (after.startswith(before) and whole.startswith(after)):
            raise UserError(
                f"the chat template writes turn {index + 1} differently when more turns follow",
                "the reply's tokens can't be distinguished from the prompt's",
                "train on conversations with one reply, or fix the template",
            )
        # White space after the end token belongs to the next turn.
        spans.append((len(before), len(after.rstrip())))
    encoded = tokenizer(whole, add_special_tokens=False, return_offsets_mapping=True)
    labels = [
        token if any(start >= lo and end <= hi and end > start for lo, hi in spans) else IGNORED
        for token, (start, end) in zip(encoded["input_ids"], encoded["offset_mapping"], strict=True)
    ]
    bos = _missing_bos(tokenizer, encoded["input_ids"])
    ids = bos + encoded["input_ids"]
    return {
        "input_ids": ids,
        "attention_mask": [1] * len(ids),
        "labels": [IGNORED] * len(bos) + labels,
    }


def supervised_rows(records: Records, tokenizer: PreTrainedTokenizerBase, max_length: int) -> list[Row]:
    """Rows of all conversations; one longer than ``max_length`` is an error, not cut.

    Raises:
        UserError: as above, or if no token is supervised.
    """
    rows = []
    for index, record in enumerate(records()):
        named = MESSAGES not in record and CONVERSATIONS in record
        messages = messages_of(record, f"record {index}") if named else _field(record, MESSAGES, index)
        row = supervised_row(messages, tokenizer)
        _fits(len(row["input_ids"]), max_length, index)
        rows.append(row)
    if all(label == IGNORED for row in rows for label in row["labels"]):
        raise UserError(
            "no token is supervised",
            "only replies of the role 'assistant' are, and there are none",
            "check the roles in `messages`",
        )
    return rows


def preference_rows(records: Records, tokenizer: PreTrainedTokenizerBase, max_length: int) -> list[Row]:
    """``prompt_ids``, ``chosen_ids``, ``rejected_ids`` of each pair, as TRL's collator takes them.

    Prompts and answers are both messages, rendered by the chat template, or both plain text. Answers
    are encoded separately from the prompt, so that no token has bytes of both; they end with EOS.
    """
    rows = []
    for index, record in enumerate(records()):
        prompt, chosen, rejected = (_field(record, name, index) for name in ("prompt", "chosen", "rejected"))
        if isinstance(prompt, str):
            row = {
                "prompt_ids": tokenizer(prompt)["input_ids"],
                "chosen_ids": _completion_ids(tokenizer, chosen),
                "rejected_ids": _completion_ids(tokenizer, rejected),
            }
        else:
            good, bad = (
                supervised_row([*prompt, *completion], tokenizer, first=len(prompt))
                for completion in (chosen, rejected)
            )
            size = _prompt_size(good)
            if good["input_ids"][:size] != bad["input_ids"][: _prompt_size(bad)]:
                raise UserError(
                    f"pair {index} has two different prompts once rendered",
                    "the preference would compare prompts, not answers",
                    "check the chat template",
                )
            row = {
                "prompt_ids": good["input_ids"][:size],
                "chosen_ids": _reply(good),
                "rejected_ids": _reply(bad),
            }
        longest = len(row["prompt_ids"]) + max(len(row["chosen_ids"]), len(row["rejected_ids"]))
        _fits(longest, max_length, index)
        rows.append(row)
    if not rows:
        raise UserError("the corpus has no pairs", "there is nothing to train on", "check its source")
    return rows


def _field(record: Mapping[str, Any], name: str, index: int) -> Any:
    if name not in record:
        raise UserError(
            f"record {index} has no {name!r}; it has {', '.join(sorted(record)) or 'nothing'}",
            "this stage reads that field",
            "give the stage a corpus of the right kind",
        )
    return record[name]


def _fits(size: int, max_length: int, index: int) -> None:
    if size > max_length:
        raise UserError(
            f"record {index} has {size} tokens, more than max_length {max_length}",
            "cutting it could remove the reply's end",
            "raise the recipe's max_length or leave the record out",
        )


def _with_ends(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    bos = [] if tokenizer.bos_token_id is None else [tokenizer.bos_token_id]
    return [*bos, *ids, tokenizer.eos_token_id]


def _completion_ids(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    return [*tokenizer(text, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]


def _render(
    tokenizer: PreTrainedTokenizerBase, messages: Sequence[Mapping[str, str]], *, generation: bool
) -> str:
    if tokenizer.chat_template is None:
        raise UserError(
            "the tokenizer has no chat template",
            "`messages` can't be written as text without one",
            "start from a checkpoint that has a template",
        )
    rendered = tokenizer.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=generation)
    return str(rendered)


def _missing_bos(tokenizer: PreTrainedTokenizerBase, ids: list[int]) -> list[int]:
    """[BOS] if the tokenizer puts it before a text and the template did not."""
    bos = tokenizer.bos_token_id
    adds = bos is not None and tokenizer("")["input_ids"][:1] == [bos]
    return [bos] if adds and ids[:1] != [bos] else []


def _prompt_size(row: Row) -> int:
    return next(
        (position for position, label in enumerate(row["labels"]) if label != IGNORED), len(row["labels"])
    )


def _reply(row: Row) -> list[int]:
    return [label for label in row["labels"] if label != IGNORED]
