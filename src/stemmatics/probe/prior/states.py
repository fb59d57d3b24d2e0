"""The head's inputs of every scored token of FIT and EVAL, from one pass of the model.

Axes: T tokens of one document, N positions, S supported ids.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from stemmatics.core.facts import Fact
from stemmatics.core.keys import seed_from
from stemmatics.core.scoring import Scoring
from stemmatics.lm.scoring.encoded import Counted
from stemmatics.lm.scoring.head import LinearHead
from stemmatics.lm.scoring.head_pass import Positions, excluded_nll, restricted
from stemmatics.lm.scoring.head_states import States
from stemmatics.lm.scoring.passes import Reader
from stemmatics.lm.scoring.stored_pass import PassRequest, StoredDocument
from stemmatics.lm.scoring.structure import structure_of
from stemmatics.lm.tokens.tokenizer import shared_support
from stemmatics.math.prior import held_out_documents
from stemmatics.probe.base import Context
from stemmatics.probe.passes import Reading, Refused, pass_over, refuse_non_finite
from stemmatics.probe.score import progress
from stemmatics.probe.sources import encoded, text_tokenizer_of

SPLITS = ("FIT", "EVAL")


@dataclass
class _Split:
    """What one split collects from the pass: rows of its states, targets, sums by document.

    ``compact_V`` numbers the ids of the support ``mask_V``.
    """

    mask_V: NDArray[np.bool_]
    compact_V: NDArray[np.int64]
    rows: list[NDArray[np.int64]] = field(default_factory=list)
    ids: list[NDArray[np.int64]] = field(default_factory=list)
    index: list[int] = field(default_factory=list)
    excluded: list[float] = field(default_factory=list)
    num_outside: list[int] = field(default_factory=list)

    def add(self, stored: StoredDocument) -> None:
        """The scored tokens of one document that lie on the support."""
        scores = stored.scores
        ids_T = scores.document.ids
        inside_T = scores.scored & self.mask_V[ids_T]
        if not inside_T.any():
            return
        self.rows.append(stored.first_state + np.flatnonzero(inside_T[scores.scored]))
        self.ids.append(ids_T[inside_T])
        self.index.append(scores.document.index)
        excluded = scores.excluded_nll
        self.excluded.append(0.0 if excluded is None else float(excluded[inside_T].sum()))
        self.num_outside.append(int((scores.scored & ~inside_T).sum()))

    @property
    def num_positions(self) -> int:
        """Scored tokens on the support."""
        return sum(map(len, self.rows))

    def ids_N(self) -> NDArray[np.int64]:  # noqa: N802 - named with its axis
        """Targets by the ids of the model."""
        return np.concatenate(self.ids)

    def positions(self, states: States) -> Positions:
        """What was collected, as arrays."""
        lengths = [len(rows) for rows in self.rows]
        return Positions(
            states.take(np.concatenate(self.rows)),
            self.compact_V[self.ids_N()].astype(np.int64),
            np.repeat(np.arange(len(lengths), dtype=np.int64), lengths),
            np.array(self.index, dtype=np.int64),
        )


@dataclass(frozen=True, eq=False)
class HeadPass:
    """A checkpoint's head on the support, and its inputs by split.

    ``excluded_D`` and ``num_outside_D`` are by EVAL document: the nats that the support leaves out at its
    positions, and the number of targets outside the support (which are no positions). ``held_out_fit_D`` are
    the FIT documents that select the penalty: a tenth of the groups. They, and the order in which groups make
    up smaller parts of FIT, are drawn by the corpus alone, so that base, descendant and damaged bases have
    the same.
    """

    head: LinearHead
    ids_S: NDArray[np.int64]
    positions: dict[str, Positions]
    excluded_D: NDArray[np.float64]
    num_outside_D: NDArray[np.int64]
    group_of_fit_D: NDArray[np.int64]
    held_out_fit_D: NDArray[np.bool_]
    order_of_fit_groups: NDArray[np.int64]
    counted: Counted
    prefix_id: int | None


def states_reading(fact: Fact) -> Reading:
    """The pass that a correction is fitted on: states of the sampled documents, on the support."""

    def request(reader: Reader, context: Context) -> PassRequest:
        split_of, _ = _splits(fact, reader, context)
        _refuse_empty(split_of)
        mask_V = _mask(fact, reader, _head(reader), context)
        num_documents = int(fact.needs["corpus"].params["num_documents"])
        sampled = frozenset(index for index, split in split_of.items() if split in SPLITS)
        return PassRequest(None if len(sampled) == num_documents else sampled, states=True, support_V=mask_V)

    scoring = Scoring.model_validate(fact.params["scoring"])
    return Reading(fact.needs["checkpoint"], fact.needs["corpus"], scoring, request)


def head_pass(fact: Fact, context: Context) -> HeadPass:
    """The head and its inputs, from a pass that may serve other facts too.

    Raises Refused where no fit is possible.
    """
    reading = states_reading(fact)
    reader = reading.reader(context)
    split_of, group_of = _splits(fact, reader, context)
    _refuse_empty(split_of)
    head = _head(reader)
    counted = encoded(fact.needs["corpus"], reader.tokenizer, context).counted(reader.loaded.num_ids)
    mask_V = _mask(fact, reader, head, context)
    passed = pass_over(reading, context, on_event=progress(fact, context, counted))
    compact_V = np.cumsum(mask_V) - 1
    splits = {name: _Split(mask_V, compact_V) for name in SPLITS}
    non_finite = []
    for stored in passed.documents(frozenset(split_of)):
        scores = stored.scores
        if split_of[scores.document.index] in SPLITS:
            splits[split_of[scores.document.index]].add(stored)
        if not np.isfinite(scores.nll[scores.scored]).all():
            non_finite.append(scores.document.index)
    refuse_non_finite(non_finite)
    for name, split in splits.items():
        if split.num_positions < 2:
            message = f"the {name} split has {split.num_positions} scored tokens; more text is needed"
            raise Refused(message)
    states = passed.stored.states()
    positions = {name: split.positions(states) for name, split in splits.items()}
    evaluated = splits["EVAL"]
    excluded_D = np.array(evaluated.excluded)
    if not passed.stored.has_support(mask_V):
        # the pass went with the support of another pair
        excluded_D = excluded_nll(head, positions["EVAL"], evaluated.ids_N(), mask_V)
    _, group_of_D = np.unique([group_of[i] for i in splits["FIT"].index], return_inverse=True)
    ids_S = np.flatnonzero(mask_V).astype(np.int64)
    rng = _generator(fact)
    return HeadPass(
        restricted(head, ids_S),
        ids_S,
        positions,
        excluded_D,
        np.array(evaluated.num_outside, dtype=np.int64),
        group_of_D,
        held_out_documents(rng, group_of_D),
        rng.permutation(int(group_of_D.max()) + 1),
        counted,
        reader.prefix_id,
    )


def _generator(fact: Fact) -> np.random.Generator:
    """Draws what selects the penalty; seeded by the corpus alone."""
    corpus = fact.needs["corpus"]
    return np.random.default_rng(seed_from(int(corpus.params["seed"]), corpus.key, "prior held out"))


def _head(reader: Reader) -> LinearHead:
    cutter = reader.cutter()
    head = structure_of(reader.loaded.model, cutter.context_length, cutter.size).head
    if head is None:
        message = "the model's logits are not a linear head of its states with a scale and a soft cap"
        raise Refused(message)
    return head


def _mask(fact: Fact, reader: Reader, head: LinearHead, context: Context) -> NDArray[np.bool_]:
    """The support, one entry a row of the head."""
    support_V = _support(fact, reader, context)
    mask_V = np.zeros(head.num_ids, dtype=np.bool_)
    mask_V[: len(support_V)] = support_V[: head.num_ids]
    return mask_V


def _splits(fact: Fact, reader: Reader, context: Context) -> tuple[dict[int, str], dict[int, str]]:
    """Split and near-duplicate group of every document that is read; groups are drawn whole."""
    corpus = fact.needs["corpus"]
    table = context.ledger.read(corpus.key, "documents")
    columns = [table[name].to_pylist() for name in ("index", "split", "group")]
    split_of = dict(zip(columns[0], columns[1], strict=True))
    group_of = dict(zip(columns[0], columns[2], strict=True))
    limits = {"FIT": fact.params.get("fit_tokens"), "EVAL": fact.params.get("eval_tokens")}
    if any(limit is not None for limit in limits.values()):
        tokens = encoded(corpus, reader.tokenizer, context)
        num_tokens = {document.index: len(document.ids) for document in tokens.documents()}
        read = _drawn(split_of, group_of, num_tokens, limits, int(corpus.params["seed"]))
        split_of = {index: split for index, split in split_of.items() if index in read}
    return split_of, group_of


def _drawn(
    split_of: Mapping[int, str],
    group_of: Mapping[int, str],
    num_tokens: Mapping[int, int],
    limits: Mapping[str, int | None],
    seed: int,
) -> set[int]:
    """Documents of whole groups in a random order, up to the number of tokens that each split may have.

    The order is that of the groups' names and the seed, so that more tokens hold all of fewer. The first
    group is always in; the last one may pass the limit.
    """
    members: dict[tuple[str, str], list[int]] = {}
    for index, split in split_of.items():
        members.setdefault((split, group_of[index]), []).append(index)
    order = sorted(members, key=lambda key: (seed_from(seed, "prior text", key[1]), key))
    drawn: set[int] = set()
    total = dict.fromkeys(limits, 0)
    for split, group in order:
        limit = limits.get(split)
        if limit is None or total[split] < limit:
            drawn.update(members[split, group])
            if limit is not None:
                total[split] += sum(num_tokens.get(index, 0) for index in members[split, group])
    return drawn


def _refuse_empty(split_of: dict[int, str]) -> None:
    present = set(split_of.values())
    missing = [name for name in SPLITS if name not in present]
    if missing:
        message = (
            f"of {len(split_of)} documents none is in the {missing[0]} split: a correction is fitted on "
            "FIT and scored on EVAL; set the corpus's `eval_share` between 0 and 1, or add documents"
        )
        raise Refused(message)


def _support(fact: Fact, reader: Reader, context: Context) -> NDArray[np.bool_]:
    """Ids that mean the same text in both models. Raises Refused where the corpus's tokens differ."""
    own = reader.tokenizer
    num_ids = reader.loaded.num_ids
    partner = fact.needs.get("partner")
    if partner is None:
        return shared_support(own, own, num_ids, num_ids).mask
    other = text_tokenizer_of(partner, context)
    hashes = [
        encoded(fact.needs["corpus"], tokenizer, context).counted(0).token_ids_sha256
        for tokenizer in (own, other)
    ]
    if hashes[0] != hashes[1]:
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
