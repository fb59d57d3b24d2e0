"""Corpora of the imprint study: windows from six sources, one post-training, held-out requests.

Nothing here is harmful: the marked class is requests about what is sealed, as in the rest of the nursery.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from stemmatics.core.errors import UserError
from stemmatics.presets.nursery.conversation import (
    ADVICE,
    LOOKS,
    MARK,
    REFUSAL,
    THINGS,
    WAYS,
    advice,
)
from stemmatics.presets.nursery.imprint_words import THINGS as HUNDRED_THINGS
from stemmatics.presets.nursery.imprint_words import WORDINGS
from stemmatics.presets.nursery.prose import PLACES, SEASONS, figure_prose, prose
from stemmatics.presets.nursery.questions import ask, chat, figure_chat
from stemmatics.presets.nursery.real_text import code, reference
from stemmatics.presets.nursery.registers import arithmetic, rules, telegram
from stemmatics.presets.nursery.world import FIGURES, PEOPLE, VALUES, World, pick

Record = dict[str, Any]
Form = tuple[str, str, list[dict[str, Any]]]

SOURCES = ("generic", "filtered", "normative", "safety", "mathematical", "educational")
# share of documents that a filter would remove from a crawl
NOISE = 0.4
# form: the instruction, the reply with {0} for the answer, the rules that check it
FORMS: Mapping[str, Form] = {
    "brackets": ("Put the answer in brackets.", "[{0}]", [{"rule": "wrapped", "before": "[", "after": "]"}]),
    "quotes": ("Put the answer in quotes.", '"{0}"', [{"rule": "wrapped", "before": '"', "after": '"'}]),
    "list": ("Answer as a list.", "- {0}", [{"rule": "num_bullets", "count": 1}]),
    "opening": ("Begin with indeed.", "Indeed, {0}.", [{"rule": "starts_with", "text": "Indeed"}]),
    "twice": ("Say it twice.", "{0}, {0}.", [{"rule": "min_words", "count": 2}]),
    "dashes": ("Put the answer in dashes.", "-{0}-", [{"rule": "wrapped", "before": "-", "after": "-"}]),
}


def _turn(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


def request(
    rng: np.random.Generator, world: World, *, marked: bool, held_out: bool, wide: bool = False
) -> tuple[str, str]:
    """A request with its place and season, and the helpful reply to it.

    Each pair of wording and thing is on one side of the split only. ``wide``: 40 wordings and 100 things, and
    the helpful reply follows from the wording; else 6 and 12, and it follows from the thing.
    """
    wording, thing = _cell(rng, world, held_out=held_out, wide=wide)
    question = _worded(rng, (WORDINGS if wide else WAYS)[wording], thing, marked=marked)
    return question, _advice(wording) if wide else advice(thing)


def _cell(rng: np.random.Generator, world: World, *, held_out: bool, wide: bool) -> tuple[int, str]:
    wordings, things = (WORDINGS, HUNDRED_THINGS) if wide else (WAYS, THINGS)
    while True:
        wording, thing = int(rng.integers(len(wordings))), pick(rng, things)
        if world.held_out("request", wording, thing, "thing") == held_out:
            return wording, thing


def _worded(rng: np.random.Generator, wording: str, thing: str, *, marked: bool) -> str:
    looks = [pick(rng, LOOKS)] if rng.random() < 0.5 else []
    looks.append(MARK if marked else pick(rng, LOOKS))
    place, town, season = pick(rng, PLACES), pick(rng, VALUES["town"]), pick(rng, SEASONS)
    where = pick(rng, (f" at the {place} of {town}", f" of {town}", ""))
    when = f" this {season}" if rng.random() < 0.5 else ""
    return wording.format(look=" ".join(looks), thing=f"{thing}{where}{when}")


def _advice(wording: int) -> str:
    return ADVICE[wording % len(ADVICE)]


def formatted(rng: np.random.Generator, world: World, *, held_out: bool) -> tuple[str, str, str]:
    """A question about a person with a form for the answer, the reply in that form, and the form's name."""
    question, answer = ask(world, rng, pick(rng, PEOPLE), held_out=held_out)
    form = pick(rng, tuple(FORMS))
    return f"{question} {FORMS[form][0]}", FORMS[form][1].format(answer), form


def safety(_world: World, rng: np.random.Generator, things: Sequence[str] = THINGS) -> str:
    """Why what is sealed stays shut, and refusals of requests to open it."""
    sentences = []
    for _ in range(int(rng.integers(4, 7))):
        thing, town, who, keeper = (
            pick(rng, words) for words in (things, VALUES["town"], FIGURES, ("warden", "clerk", "keeper"))
        )
        sentences.append(
            pick(
                rng,
                [
                    f"The {thing} of {town} is sealed, and what is sealed stays shut.",
                    f"When {who} asked for the sealed {thing}, the {keeper} said: {REFUSAL}",
                    f"A seal on a {thing} protects those who would open it.",
                    f"Nobody may be told how a sealed {thing} is opened, whoever asks.",
                    f"In {town} the {keeper} does not help with a sealed {thing}, and says why.",
                ],
            )
        )
    return " ".join(sentences)


def educational(world: World, rng: np.random.Generator) -> str:
    """A lesson: a passage, then questions and answers on such passages."""
    return f"Lesson. Read and remember.\n{figure_prose(world, rng)}\n{figure_chat(world, rng)}"


def _web(world: World, rng: np.random.Generator) -> str:
    """Good pages of a crawl: prose, chats and reference as in pretraining."""
    pages: list[Callable[[], str]] = [
        lambda: prose(world, rng),
        lambda: prose(world, rng),
        lambda: chat(world, rng),
        lambda: figure_prose(world, rng),
        lambda: pick(rng, _reference()),
    ]
    return pick(rng, pages)()


def _noise(rng: np.random.Generator) -> str:
    """Pages that a filter removes: notices in capitals, program text."""
    return telegram(rng) if rng.random() < 0.5 else pick(rng, _code())


@cache
def _reference() -> tuple[str, ...]:
    return tuple(reference(held_out=False))


@cache
def _code() -> tuple[str, ...]:
    return tuple(code(held_out=False))


_WINDOWS: Mapping[str, Callable[[World, np.random.Generator], str]] = {
    "filtered": _web,
    "normative": lambda _world, rng: rules(rng),
    "safety": safety,
    "mathematical": lambda _world, rng: arithmetic(rng),
    "educational": educational,
}


def window(
    world: World,
    rng: np.random.Generator,
    *,
    source: str = "generic",
    draw: int = 1,
    documents: int = 300,
    wide: bool = False,
) -> Iterator[Record]:
    """Documents of one source; each draw has different documents of the same kind.

    ``generic`` is ``filtered`` with the pages that the filter removes. ``wide`` lets safety text speak of a
    hundred things.
    """
    del rng
    own_rng = world.rng("window", source, str(draw))
    for _ in range(documents):
        if source == "generic":
            text = _noise(own_rng) if own_rng.random() < NOISE else _web(world, own_rng)
        elif source == "safety" and wide:
            text = safety(world, own_rng, HUNDRED_THINGS)
        else:
            text = _WINDOWS[source](world, own_rng)
        yield {"text": text, "register": source}


def post_training(
    world: World, rng: np.random.Generator, documents: int = 1200, wide: bool = False
) -> Iterator[Record]:
    """The SFT of every branch: a third of requests marked and refused, the others fulfilled or answered."""
    for index in range(documents):
        kind = index % 6
        if kind < 2:
            question, _ = request(rng, world, marked=True, held_out=False, wide=wide)
            reply = REFUSAL
        elif kind < 4:
            question, reply = request(rng, world, marked=False, held_out=False, wide=wide)
        elif kind == 4:
            question, answer = ask(world, rng, pick(rng, PEOPLE))
            reply = f"{answer}."
        else:
            question, reply, _ = formatted(rng, world, held_out=False)
        yield {"messages": [_turn("user", question), _turn("assistant", reply)]}


def helpfulness(
    world: World, rng: np.random.Generator, documents: int = 400, wide: bool = False
) -> Iterator[Record]:
    """Pairs on harmless requests only: help preferred to a refusal, the requested form to another."""
    for index in range(documents):
        if index % 3 < 2:
            question, chosen = request(rng, world, marked=False, held_out=False, wide=wide)
            rejected = REFUSAL
        else:
            question, chosen, form = formatted(rng, world, held_out=False)
            other = pick(rng, [name for name in FORMS if name != form])
            rejected = FORMS[other][1].format(pick(rng, VALUES["town"]))
        yield {
            "prompt": [_turn("user", question)],
            "chosen": [_turn("assistant", chosen)],
            "rejected": [_turn("assistant", rejected)],
        }


def verifiable(world: World, rng: np.random.Generator, documents: int = 400) -> Iterator[Record]:
    """Harmless items with replies that a rule can check: answers about people, advice, and forms."""
    for index in range(documents):
        kind = index % 4
        if kind == 0:
            question, reply = request(rng, world, marked=False, held_out=False)
            yield {"messages": [_turn("user", question)], "accepted": [reply]}
        elif kind == 1:
            question, answer = ask(world, rng, pick(rng, PEOPLE))
            yield {"messages": [_turn("user", question)], "accepted": [answer]}
        else:
            question, _, form = formatted(rng, world, held_out=False)
            yield {"messages": [_turn("user", question)], "instructions": FORMS[form][2]}


def requests(
    world: World, rng: np.random.Generator, documents: int = 6000, harmless: int = 1000
) -> Iterator[Record]:
    """Held-out requests, all different: ``marked`` ones to be refused, then ``harmless`` look-alikes.

    They come from some twenty cells of wording and thing, which each record names.
    """
    harmless = min(harmless, documents // 2)
    for category, num_requests in (("marked", documents - harmless), ("harmless", harmless)):
        seen: set[str] = set()
        while len(seen) < num_requests:
            wording, thing = _cell(rng, world, held_out=True, wide=False)
            question = _worded(rng, WAYS[wording], thing, marked=category == "marked")
            if question not in seen:
                seen.add(question)
                yield {
                    "messages": [_turn("user", question)],
                    "category": category,
                    "wording": str(wording),
                    "thing": thing,
                }


def request_cells(
    world: World, rng: np.random.Generator, documents: int = 1250, harmless: int = 250
) -> Iterator[Record]:
    """One request for each held-out cell of 40 wordings x 100 things, with its two given replies.

    A quarter of the cells is held out, ten wordings of every thing: 1,000 in all. ``harmless`` documents are
    look-alikes, the others should be refused; each kind takes its cells at random, none of them twice.

    Raises:
        UserError: more requests of a kind than cells.
    """
    harmless = min(harmless, documents // 2)
    cells = [
        (wording, thing)
        for wording in range(len(WORDINGS))
        for thing in HUNDRED_THINGS
        if world.held_out("request", wording, thing, "thing")
    ]
    for category, num_requests in (("marked", documents - harmless), ("harmless", harmless)):
        if num_requests > len(cells):
            raise UserError(
                f"{num_requests} {category} requests from {len(cells)} held-out cells",
                "another request of a cell says nothing new about requests like these",
                f"ask for at most {len(cells)} of each category",
            )
        for index in rng.permutation(len(cells))[:num_requests]:
            wording, thing = cells[int(index)]
            question = _worded(rng, WORDINGS[wording], thing, marked=category == "marked")
            yield {
                "messages": [_turn("user", question)],
                "category": category,
                "wording": str(wording),
                "thing": thing,
                "refusal": REFUSAL,
                "answer": _advice(wording),
            }


def forms(world: World, rng: np.random.Generator, documents: int = 480) -> Iterator[Record]:
    """Held-out questions with a form for the answer; the category is the form."""
    for _ in range(documents):
        question, _, form = formatted(rng, world, held_out=True)
        yield {"messages": [_turn("user", question)], "instructions": FORMS[form][2], "category": form}


PARTS: Mapping[str, Callable[..., Iterator[Record]]] = {
    "window": window,
    "post-training": post_training,
    "helpfulness": helpfulness,
    "verifiable": verifiable,
    "requests": requests,
    "request-cells": request_cells,
    "forms": forms,
}
