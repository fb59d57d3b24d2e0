"""Log-probabilities of replies that are given, not generated.

Axes: T tokens of a prompt with its reply.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from stemmatics.core.errors import UserError
from stemmatics.core.numerics import Numerics
from stemmatics.core.scoring import Scoring, Windows
from stemmatics.lm.checkpoints.loading import Loaded
from stemmatics.lm.generation.generate import rendered_prompt
from stemmatics.lm.scoring.forward import score
from stemmatics.lm.scoring.sums import TokenizedDocument
from stemmatics.lm.tokens.tokenizer import TextTokenizer

Prompt = str | Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class GivenReply:
    """Nats of a reply given its prompt, and the tokens that they are over."""

    nll_sum: float
    num_tokens: int


def score_replies(
    loaded: Loaded, exchanges: Sequence[tuple[Prompt, str]], numerics: Numerics
) -> list[GivenReply]:
    """-log p(reply | prompt) of each (prompt, reply), summed over the reply's tokens.

    Prompts are encoded as for generation. After messages a reply is rendered by the chat template, its end
    of turn included, since a model that goes on has not given that reply; after plain text it has no end.
    Prompt and reply are encoded as one text, and a token belongs to the reply if it ends within it.

    Raises:
        UserError: an empty reply, a template that rewrites the prompt when a reply follows, an exchange
            longer than the context, or a loss that is not finite.
    """
    documents = [
        _document(loaded.text_tokenizer, index, prompt, reply)
        for index, (prompt, reply) in enumerate(exchanges)
    ]
    if not documents:
        return []
    longest = max(documents, key=lambda document: len(document.ids))
    size = len(longest.ids)
    if loaded.context_length is not None and size > loaded.context_length:
        raise UserError(
            f"exchange {longest.index} has {size} tokens",
            f"the model's context length is {loaded.context_length}",
            "shorten its prompt or its replies",
        )
    sums = list(
        score(
            loaded.model,
            documents,
            Scoring(windows=Windows(size=size, stride=max(size - 1, 1)), prefix="never"),
            numerics,
            prefix_id=None,
            context_length=size,
        )
    )
    for each in sums:
        if not np.isfinite(each.nll_sum):
            raise UserError(
                f"the log-probability of the reply of exchange {each.index} is not finite",
                "the model's logits overflow or are NaN",
                "score in float32: numerics: {dtype: float32}",
            )
    return [GivenReply(each.nll_sum, each.num_tokens) for each in sums]


def _document(tokenizer: TextTokenizer, index: int, prompt: Prompt, reply: str) -> TokenizedDocument:
    if not reply.strip():
        raise UserError(f"a reply of exchange {index} is empty", "it has no probability", "give its text")
    prefix: list[int] = []
    if isinstance(prompt, str):
        prefix_id, _ = tokenizer.prefix("auto")
        prefix = [] if prefix_id is None else [prefix_id]
        start, whole = len(prompt.encode()), prompt + reply
    else:
        before = rendered_prompt(tokenizer, prompt)
        whole = _rendered(tokenizer, prompt, reply).rstrip()
        if not whole.startswith(before):
            raise UserError(
                f"the reply of exchange {index} has no definite beginning",
                "the chat template renders the prompt differently when a reply follows",
                "use a template that only adds text at the end",
            )
        start = len(before.encode())
    encoding = tokenizer.encode(whole, rendered=not isinstance(prompt, str))
    ids_T = np.concatenate([np.array(prefix, dtype=np.int64), np.asarray(encoding.ids, dtype=np.int64)])
    ends_T = np.concatenate([np.zeros(len(prefix), dtype=np.int64), np.asarray(encoding.ends)])
    scored_T = ends_T > start
    if scored_T[0]:
        raise UserError(
            f"the prompt of exchange {index} is empty",
            "the first token of a text has no context to be scored in",
            "add text to the prompt",
        )
    bytes_T = np.arange(len(ids_T) + 1, dtype=np.int64)
    classes_T = np.zeros(len(ids_T), dtype=np.int8)
    return TokenizedDocument(
        index, str(index), ids_T, bytes_T[:-1], bytes_T[1:], classes_T, scored_mask=scored_T
    )


def _rendered(tokenizer: TextTokenizer, messages: Sequence[Mapping[str, Any]], reply: str) -> str:
    turns = [*(dict(message) for message in messages), {"role": "assistant", "content": reply}]
    text: str = tokenizer.hf.apply_chat_template(turns, tokenize=False)
    return text
