"""One forward pass over FIT and EVAL: the head's inputs of every scored token, on disk.

Axes: T tokens of one document, N positions, S supported ids.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stemmatics.core.errors import UserError
from stemmatics.core.facts import Fact
from stemmatics.core.keys import seed_from
from stemmatics.core.scoring import Scoring
from stemmatics.lm.checkpoints.loading import Loaded
from stemmatics.lm.scoring.discover import discover_head
from stemmatics.lm.scoring.head import LinearHead
from stemmatics.lm.scoring.head_pass import Positions, restricted
from stemmatics.lm.scoring.head_states import StateWriter
from stemmatics.lm.scoring.passes import Counted, Reader
from stemmatics.lm.scoring.sums import TokenScores
from stemmatics.lm.tokens.tokenizer import TextTokenizer, shared_support
from stemmatics.probe.base import Context
from stemmatics.probe.sources import documents_of, tokenizer_of

SPLITS = ("FIT", "EVAL")


@dataclass
class _Split:
    """What is written of one split; excluded sums by document, for all its documents."""

    writer: StateWriter
    targets: list[NDArray[np.int64]] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    index: list[int] = field(default_factory=list)
    excluded: list[float] = field(default_factory=list)
    num_outside: list[int] = field(default_factory=list)

    def positions(self) -> Positions:
        empty = np.empty(0, dtype=np.int64)
        return Positions(
            self.writer.states(),
            np.concatenate(self.targets) if self.targets else empty,
            np.repeat(np.arange(len(self.lengths), dtype=np.int64), self.lengths),
            np.array(self.index, dtype=np.int64),
        )


@dataclass(frozen=True, eq=False)
class HeadPass:
    """A checkpoint's head on the support, and its inputs by split. ``refusal`` says why there is none.

    ``excluded_D`` and ``num_outside_D`` are by EVAL document: the nats that the support leaves out at its
    positions, and the targets that lie outside it (which are no positions).
    """

    head: LinearHead
    ids_S: NDArray[np.int64]
    positions: dict[str, Positions]
    excluded_D: NDArray[np.float64]
    num_outside_D: NDArray[np.int64]
    group_of_fit_D: NDArray[np.int64]
    counted: Counted
    prefix_id: int | None


class Refused(Exception):  # noqa: N818 - not an error but an answer, kept in the store
    """Why a correction can't be fitted here; said in the report."""


def head_pass(fact: Fact, loaded: Loaded, context: Context, scratch: Path) -> HeadPass:
    """Read, tokenise, run the model once. Raises Refused where no fit is possible."""
    reader = Reader.of(loaded, Scoring.model_validate(fact.params["scoring"]), context.numerics)
    documents = documents_of(fact.needs["corpus"])
    split_of, group_of = _splits(fact, context)
    _refuse_empty(split_of)
    head = discover_head(loaded.model, reader.context_length)
    if head is None:
        message = "the model's logits are no linear head of its states with a scale and a soft cap"
        raise Refused(message)
    counted = reader.count(documents())
    support_V = _support(fact, reader, counted, context)
    mask_V = np.zeros(head.num_ids, dtype=np.bool_)
    mask_V[: len(support_V)] = support_V[: head.num_ids]
    ids_S = np.flatnonzero(mask_V).astype(np.int64)
    compact_V = np.cumsum(mask_V) - 1
    with ExitStack() as stack:
        splits = {
            name: _Split(stack.enter_context(StateWriter(scratch / f"{name}.states", loaded.model.dtype)))
            for name in SPLITS
        }

        def take(scores: TokenScores) -> None:
            split = splits[split_of[scores.document.index]]
            ids_T = scores.document.ids
            inside_T = scores.scored & mask_V[ids_T]
            if inside_T.any():
                split.writer.append(scores.extra["hidden"][inside_T])
                split.targets.append(compact_V[ids_T[inside_T]].astype(np.int64))
                split.lengths.append(int(inside_T.sum()))
                split.index.append(scores.document.index)
                excluded = scores.excluded_nll
                split.excluded.append(0.0 if excluded is None else float(excluded[inside_T].sum()))
                split.num_outside.append(int((scores.scored & ~inside_T).sum()))

        progress = _watch(fact, context, counted)
        kept = (document for document in documents() if split_of.get(document.index) in SPLITS)
        sums = reader.score(
            kept, support_V=mask_V, want=("nll", "hidden"), token_sink=take, on_event=progress
        )
        _refuse_non_finite(sums)
    positions = {name: split.positions() for name, split in splits.items()}
    for name, part in positions.items():
        if part.num_positions < 2:
            message = f"the {name} split has {part.num_positions} scored tokens; more text is needed"
            raise Refused(message)
    _, group_of_D = np.unique([group_of[i] for i in splits["FIT"].index], return_inverse=True)
    return HeadPass(
        restricted(head, ids_S),
        ids_S,
        positions,
        np.array(splits["EVAL"].excluded),
        np.array(splits["EVAL"].num_outside, dtype=np.int64),
        group_of_D,
        counted,
        reader.prefix_id,
    )


def _splits(fact: Fact, context: Context) -> tuple[dict[int, str], dict[int, str]]:
    """Split and near-duplicate group of every document that is in the sample; groups are drawn whole."""
    corpus = fact.needs["corpus"]
    table = context.ledger.read(corpus.key, "documents")
    split_of, group_of = {}, {}
    columns = [table[name].to_pylist() for name in ("index", "split", "group")]
    for index, split, group in zip(*columns, strict=True):
        drawn = seed_from(int(corpus.params["seed"]), "prior sample", group) / 2**63
        if drawn < float(fact.params["sample"]):
            split_of[index], group_of[index] = split, group
    return split_of, group_of


def _refuse_empty(split_of: dict[int, str]) -> None:
    present = set(split_of.values())
    missing = [name for name in SPLITS if name not in present]
    if missing:
        message = (
            f"of {len(split_of)} documents none is in the {missing[0]} split: a correction is fitted on "
            "FIT and scored on EVAL; give the corpus an `eval_share` between 0 and 1, or more documents"
        )
        raise Refused(message)


def _support(fact: Fact, reader: Reader, counted: Counted, context: Context) -> NDArray[np.bool_]:
    """Ids that mean the same text in both models. Raises Refused where the tokens of the corpus differ."""
    own = reader.tokenizer
    num_ids = reader.loaded.num_ids
    partner = fact.needs.get("partner")
    if partner is None:
        return shared_support(own, own, num_ids, num_ids).mask
    other = TextTokenizer(tokenizer_of(partner, context))
    documents = documents_of(fact.needs["corpus"])
    hashed = Reader(
        reader.loaded, other, reader.scoring, reader.numerics, None, "", reader.context_length
    ).count(documents())
    if hashed.token_ids_sha256 != counted.token_ids_sha256:
        message = "the tokenizers differ: the two models do not see the same tokens of this corpus"
        raise Refused(message)
    prefix_id = other.prefix(reader.scoring.prefix)[0]
    if prefix_id != reader.prefix_id:
        message = f"the prefix ids differ ({reader.prefix_id} and {prefix_id}): set `scoring: prefix`"
        raise Refused(message)
    return shared_support(own, other, num_ids, _num_ids(partner, context)).mask


def _num_ids(partner: Fact, context: Context) -> int:
    """Rows of the partner's head; the config says it without the weights."""
    from stemmatics.lm.checkpoints.loading import load_config
    from stemmatics.probe.sources import pin_of

    trust = bool(partner.where.get("trust_remote_code"))
    return int(load_config(pin_of(partner, context), trust_remote_code=trust).get_text_config().vocab_size)


def _watch(fact: Fact, context: Context, counted: Counted) -> Any:
    def tell(event: Any) -> None:
        if event.get("kind") == "progress":
            context.tell(fact, int(event["done"]), counted.num_tokens, "tokens")
        else:
            context.on_event({"key": fact.key, "probe": fact.probe, "label": fact.label, **event})

    return tell


def _refuse_non_finite(sums: Iterator[Any]) -> None:
    bad = [one.index for one in sums if "non_finite" in one.flags]
    if bad:
        raise UserError(
            f"the loss of {len(bad)} documents is not finite",
            f"the first has the index {bad[0]}",
            "float32 may help: `numerics: {dtype: float32}`",
        )
