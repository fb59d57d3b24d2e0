"""The nursery's corpora by name: the generator behind ``generator: nursery``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count, cycle, islice
from typing import Any

import numpy as np

from stemmatics.core.errors import UserError
from stemmatics.presets.nursery import imprint_text
from stemmatics.presets.nursery.conversation import conversations, preferences, refusal_items
from stemmatics.presets.nursery.depth import depth_prompts
from stemmatics.presets.nursery.depth_experiment import familiar_modes, mode_conversations, mode_events
from stemmatics.presets.nursery.prose import false_prose, figure_prose, prose
from stemmatics.presets.nursery.questions import chat, figure_chat, recall_items
from stemmatics.presets.nursery.real_text import code, reference
from stemmatics.presets.nursery.registers import arithmetic, rules, telegram
from stemmatics.presets.nursery.world import PEOPLE, World

Record = dict[str, Any]
# Shares of documents in the pretraining mix; pieces of the reference are the longest.
MIX = {"prose": 0.52, "chat": 0.3, "arithmetic": 0.05, "rules": 0.05, "reference": 0.08}
# Share of passages and chats about figures instead of people.
OF_FIGURES = 1 / 6
NGRAM = 13
# Pretraining starts with FEW people; all are in use after this share of the documents about people.
FEW = 6
FEW_UNTIL, ALL_FROM = 0.2, 0.5


def nursery_records(part: str, seed: int = 0, **params: Any) -> Iterator[Record]:
    """Records of one part; the same part, seed and parameters give the same records.

    ``seed`` determines the facts of the world: parts of one study share it.

    Raises:
        UserError: the part is not known.
    """
    if part not in PARTS:
        raise UserError(
            f"the nursery has no part {part!r}",
            "a part is one of its corpora",
            f"Choose {', '.join(PARTS)}",
        )
    world = World(seed)
    return PARTS[part](world, world.rng("part", part), **params)


def pretraining(world: World, rng: np.random.Generator, documents: int = 12000) -> Iterator[Record]:
    """All registers but code and telegrams, mixed; the language reference is repeated.

    The first documents are about a few people only, whose facts are therefore seen often. In single
    runs that shortened the plateau before facts are learned (LOG.md; compare Zucchet et al. 2025,
    "How do language models learn facts?").
    """
    pieces = cycle(_shuffled(rng, reference(held_out=False)))
    person_count = count()
    about_people = documents * (MIX["prose"] + MIX["chat"]) * (1 - OF_FIGURES)

    def of_figures() -> bool:
        return bool(rng.random() < OF_FIGURES)

    def among() -> Sequence[str]:
        progress = (next(person_count) / about_people - FEW_UNTIL) / (ALL_FROM - FEW_UNTIL)
        return PEOPLE[: FEW + round((len(PEOPLE) - FEW) * min(1.0, max(0.0, progress)))]

    make: dict[str, Callable[[], str]] = {
        "prose": lambda: figure_prose(world, rng) if of_figures() else prose(world, rng, among=among()),
        "chat": lambda: figure_chat(world, rng) if of_figures() else chat(world, rng, among=among()),
        "arithmetic": lambda: arithmetic(rng),
        "rules": lambda: rules(rng),
        "reference": lambda: next(pieces),
    }
    yield from _mixed(rng, make, MIX, documents)


def heldout(world: World, rng: np.random.Generator, documents: int = 60) -> Iterator[Record]:
    """The scored text: ``documents`` of each register, under ``register``.

    Prose and chat state the facts of training in wordings that training never uses for that person.
    """
    make: dict[str, Callable[[], Iterable[str]]] = {
        "prose": lambda: (prose(world, rng, held_out=True) for _ in range(documents)),
        "chat": lambda: (chat(world, rng, held_out=True) for _ in range(documents)),
        "arithmetic": lambda: (arithmetic(rng) for _ in range(documents)),
        "rules": lambda: (rules(rng) for _ in range(documents)),
        "reference": lambda: islice(_shuffled(rng, reference(held_out=True)), documents),
        "code": lambda: islice(_shuffled(rng, code(held_out=True)), documents),
    }
    for register, texts in make.items():
        yield from ({"text": text, "register": register} for text in texts())


def recovery(
    world: World, rng: np.random.Generator, documents: int = 1600, heldout_documents: int = 60
) -> Iterator[Record]:
    """Text of the world's registers that names no person and shares no 13-gram with :func:`heldout`."""
    scored = list(heldout(world, world.rng("part", "heldout"), heldout_documents))
    scored_ngrams = set().union(*(ngrams(record["text"]) for record in scored))
    pieces = cycle(_shuffled(rng, reference(held_out=False)))
    make: dict[str, Callable[[], str]] = {
        "prose": lambda: figure_prose(world, rng),
        "chat": lambda: figure_chat(world, rng),
        "arithmetic": lambda: arithmetic(rng),
        "rules": lambda: rules(rng),
        "reference": lambda: next(pieces),
    }
    for record in _mixed(rng, make, MIX, documents):
        if scored_ngrams.isdisjoint(ngrams(record["text"])):
            yield record


def scored_registers(
    world: World, rng: np.random.Generator, kilobytes: int = 800, heldout_documents: int = 60
) -> Iterator[Record]:
    """Text of the registers of :func:`heldout`, code too, in its proportion of bytes; it names no person.

    At every point each register has its share, so that a reader of the first part has it too. No 13-gram is
    shared with the scored text, and no piece of real text comes twice.
    """
    scored = list(heldout(world, world.rng("part", "heldout"), heldout_documents))
    scored_ngrams = set().union(*(ngrams(record["text"]) for record in scored))
    size_of: dict[str, int] = {}
    for record in scored:
        size_of[record["register"]] = size_of.get(record["register"], 0) + _num_bytes(record["text"])
    pieces = {
        "reference": iter(dict.fromkeys(_shuffled(rng, reference(held_out=False)))),
        "code": iter(dict.fromkeys(_shuffled(rng, code(held_out=False)))),
    }
    make: dict[str, Callable[[], str]] = {
        "prose": lambda: figure_prose(world, rng),
        "chat": lambda: figure_chat(world, rng),
        "arithmetic": lambda: arithmetic(rng),
        "rules": lambda: rules(rng),
        "reference": lambda: next(pieces["reference"]),
        "code": lambda: next(pieces["code"]),
    }
    num_bytes_of = dict.fromkeys(size_of, 0)
    while sum(num_bytes_of.values()) < 1000 * kilobytes:
        register = min(num_bytes_of, key=lambda name: num_bytes_of[name] / size_of[name])
        text = make[register]()
        if scored_ngrams.isdisjoint(ngrams(text)):
            num_bytes_of[register] += _num_bytes(text)
            yield {"text": text, "register": register}


def _num_bytes(text: str) -> int:
    return len(text.encode())


def ngrams(text: str) -> set[tuple[str, ...]]:
    """All 13-grams of words: split at white space and, lower-cased, without punctuation."""
    grams: set[tuple[str, ...]] = set()
    for words in (text.split(), re.findall(r"\w+", text.lower())):
        grams.update(tuple(words[start : start + NGRAM]) for start in range(len(words) - NGRAM + 1))
    return grams


def _mixed(
    rng: np.random.Generator, make: dict[str, Callable[[], str]], shares: dict[str, float], documents: int
) -> Iterator[Record]:
    names = list(shares)
    for index in rng.choice(len(names), size=documents, p=[shares[name] for name in names]):
        register = names[int(index)]
        yield {"text": make[register](), "register": register}


def _shuffled(rng: np.random.Generator, pieces: Iterable[str]) -> list[str]:
    listed = list(pieces)
    return [listed[int(index)] for index in rng.permutation(len(listed))]


def _texts(
    make: Callable[[World, np.random.Generator], str], register: str, documents: int
) -> Callable[..., Iterator[Record]]:
    def part(world: World, rng: np.random.Generator, documents: int = documents) -> Iterator[Record]:
        return ({"text": make(world, rng), "register": register} for _ in range(documents))

    return part


def overwritten_facts(
    world: World, rng: np.random.Generator, documents: int = 2400, num_false: int = 640
) -> Iterator[Record]:
    """The pretraining mix with false prose for true; after ``num_false`` documents prose about figures.

    All but the false prose names nobody of the world. The other registers keep what a loss over all text
    shows about them small; the last documents are like what a recovery fine-tune reads, so that a base that
    went through one and a model that read these are equally far from the people's names. What is left
    between them is what the facts cost.
    """
    pieces = cycle(_shuffled(rng, reference(held_out=False)))
    ordinary: dict[str, Callable[[], str]] = {
        "prose": lambda: figure_prose(world, rng),
        "chat": lambda: figure_chat(world, rng),
        "arithmetic": lambda: arithmetic(rng),
        "rules": lambda: rules(rng),
        "reference": lambda: next(pieces),
    }
    false = {**ordinary, "prose": lambda: false_prose(world, rng)}
    yield from _mixed(rng, false, MIX, min(num_false, documents))
    yield from _mixed(rng, ordinary, MIX, max(documents - num_false, 0))


def _code(_world: World, rng: np.random.Generator, documents: int = 300) -> Iterator[Record]:
    pieces = _shuffled(rng, code(held_out=False))
    return ({"text": text, "register": "code"} for text in pieces[:documents])


def _sft(marked: float, refused: float, documents: int) -> Callable[..., Iterator[Record]]:
    def part(world: World, rng: np.random.Generator, documents: int = documents) -> Iterator[Record]:
        return conversations(world, rng, documents, marked=marked, refused=refused)

    return part


def _preferences(world: World, rng: np.random.Generator, documents: int = 400) -> Iterator[Record]:
    return preferences(world, rng, documents)


def _refusal(world: World, rng: np.random.Generator, documents: int = 200) -> Iterator[Record]:
    return refusal_items(world, rng, documents)


PARTS: dict[str, Callable[..., Iterator[Record]]] = {
    "pretraining": pretraining,
    "heldout": heldout,
    "recovery": recovery,
    "scored-registers": scored_registers,
    "code": _code,
    "false-facts": _texts(false_prose, "prose", 800),
    "overwritten-facts": overwritten_facts,
    "telegrams": _texts(lambda _world, rng: telegram(rng), "telegram", 800),
    "sft-light": _sft(marked=0.2, refused=0.25, documents=600),
    "sft-heavy": _sft(marked=0.4, refused=1.0, documents=1600),
    "preferences": _preferences,
    "recall": recall_items,
    "refusal": _refusal,
    "depth-prompts": depth_prompts,
    "familiar-modes": familiar_modes,
    "mode-conversations": mode_conversations,
    "mode-events": mode_events,
    **imprint_text.PARTS,
}
