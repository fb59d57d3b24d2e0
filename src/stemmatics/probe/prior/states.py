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
    """What one split collects during the pass: states on disk, targets, sums by document.

    ``compact_V`` numbers the ids of the support ``mask_V``.
    """

    writer: StateWriter
    mask_V: NDArray[np.bool_]
    compact_V: NDArray[np.int64]
    targets: list[NDArray[np.int64]] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    index: list[int] = field(default_factory=list)
    excluded: list[float] = field(default_factory=list)
    num_outside: list[int] = field(default_factory=list)

    def add(self, scores: TokenScores) -> None:
        """The scored tokens of one document that lie on the support."""
        ids_T = scores.document.ids
        inside_T = scores.scored & self.mask_V[ids_T]
        if not inside_T.any():
            return
        self.writer.append(scores.extra["hidden"][inside_T])
        self.targets.append(self.compact_V[ids_T[inside_T]].astype(np.int64))
        self.lengths.append(int(inside_T.sum()))
        self.index.append(scores.document.index)
        excluded = scores.excluded_nll
        self.excluded.append(0.0 if excluded is None else float(excluded[inside_T].sum()))
        self.num_outside.append(int((scores.scored & ~inside_T).sum()))

    def positions(self) -> Positions:
        """What was collected, as arrays."""
        empty = np.empty(0, dtype=np.int64)
        return Positions(
            self.writer.states(),
            np.concatenate(self.targets) if self.targets else empty,
            np.repeat(np.arange(len(self.lengths), dtype=np.int64), self.lengths),
            np.array(self.index, dtype=np.int64),
        )


@dataclass(frozen=True, eq=False)
class HeadPass:
    """A checkpoint's head on the support, and its inputs by split.

    ``excluded_D`` and ``num_outside_D`` are by EVAL document: the nats that the support leaves out at its
    positions, and the number of targets outside the support (which are no positions).
    """

    head: LinearHead
    ids_S: NDArray[np.int64]
    positions: dict[str, Positions]
    excluded_D: NDArray[np.float64]
    num_outside_D: NDArray[np.int64]
    group_of_fit_D: NDArray[np.int64]
    counted: Counted
    prefix_id: int | None


class Refused(Exception):  # noqa: N818 - not an error but a result, kept in the store
    """Why no correction can be fitted here; the report gives the reason."""


def head_pass(fact: Fact, loaded: Loaded, context: Context, scratch: Path) -> HeadPass:
    """Read, tokenise, run the model once. Raises Refused where no fit is possible."""
    reader = Reader.of(loaded, Scoring.model_validate(fact.params["scoring"]), context.numerics)
    documents = documents_of(fact.needs["corpus"])
    split_of, group_of = _splits(fact, context)
    _refuse_empty(split_of)
    head = discover_head(loaded.model, reader.context_length)
    if head is None:
        message = "the model's logits are not a linear head of its states with a scale and a soft cap"
        raise Refused(message)
    counted = reader.count(documents())
    support_V = _support(fact, reader, counted, context)
    mask_V = np.zeros(head.num_ids, dtype=np.bool_)
    mask_V[: len(support_V)] = support_V[: head.num_ids]
    ids_S = np.flatnonzero(mask_V).astype(np.int64)
    compact_V = np.cumsum(mask_V) - 1
    with ExitStack() as stack:
        splits = {}
        for name in SPLITS:
            writer = stack.enter_context(StateWriter(scratch / f"{name}.states", loaded.model.dtype))
            splits[name] = _Split(writer, mask_V, compact_V)

        def collect(scores: TokenScores) -> None:
            splits[split_of[scores.document.index]].add(scores)

        sampled = (document for document in documents() if split_of.get(document.index) in SPLITS)
        sums = reader.score(
            sampled,
            support_V=mask_V,
            want=("nll", "hidden"),
            token_sink=collect,
            on_event=_progress(fact, context, counted),
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
    """Split and near-duplicate group of every sampled document; groups are drawn whole."""
    corpus = fact.needs["corpus"]
    table = context.ledger.read("documents", corpus.key)
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
            "FIT and scored on EVAL; set the corpus's `eval_share` between 0 and 1, or add documents"
        )
        raise Refused(message)


def _support(fact: Fact, reader: Reader, counted: Counted, context: Context) -> NDArray[np.bool_]:
    """Ids that mean the same text in both models. Raises Refused where the corpus's tokens differ."""
    own = reader.tokenizer
    num_ids = reader.loaded.num_ids
    partner = fact.needs.get("partner")
    if partner is None:
        return shared_support(own, own, num_ids, num_ids).mask
    other = TextTokenizer(tokenizer_of(partner, context))
    documents = documents_of(fact.needs["corpus"])
    counted_by_partner = Reader(
        reader.loaded, other, reader.scoring, reader.numerics, None, "", reader.context_length
    ).count(documents())
    if counted_by_partner.token_ids_sha256 != counted.token_ids_sha256:
        message = "the tokenizers differ: the two models do not see the same tokens of this corpus"
        raise Refused(message)
    prefix_id = other.prefix(reader.scoring.prefix)[0]
    if prefix_id != reader.prefix_id:
        message = f"the prefix ids differ ({reader.prefix_id} and {prefix_id}): set `scoring: prefix`"
        raise Refused(message)
    return shared_support(own, other, num_ids, _num_ids(partner, context)).mask


def _num_ids(partner: Fact, context: Context) -> int:
    """Rows of the partner's head, from its config: no weights are read."""
    from stemmatics.lm.checkpoints.loading import load_config
    from stemmatics.probe.sources import pin_of

    trust = bool(partner.where.get("trust_remote_code"))
    return int(load_config(pin_of(partner, context), trust_remote_code=trust).get_text_config().vocab_size)


def _progress(fact: Fact, context: Context, counted: Counted) -> Any:
    def report(event: Any) -> None:
        if event.get("kind") == "progress":
            context.tell(fact, int(event["done"]), counted.num_tokens, "tokens")
        else:
            context.on_event({"key": fact.key, "probe": fact.probe, "label": fact.label, **event})

    return report


def _refuse_non_finite(sums: Iterator[Any]) -> None:
    non_finite = [document.index for document in sums if "non_finite" in document.flags]
    if non_finite:
        raise UserError(
            f"the loss of {len(non_finite)} documents is not finite",
            f"the first has the index {non_finite[0]}",
            "float32 may help: `numerics: {dtype: float32}`",
        )
