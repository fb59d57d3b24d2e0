"""Questions about the world in the chat register, and the held-out items."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from stemmatics.presets.nursery.world import FIGURES, PEOPLE, VALUES, World, pick

QUESTIONS: Mapping[str, tuple[str, ...]] = {
    "town": (
        "Where was {who} born?",
        "In which town was {who} born?",
        "What is the birthplace of {who}?",
        "Which town does {who} come from?",
        "Of which town is {who} a native?",
        "Please name the birthplace of {who}.",
    ),
    "craft": (
        "What does {who} work as?",
        "What is the craft of {who}?",
        "Which trade does {who} follow?",
        "How does {who} earn a living?",
        "As what does {who} serve the valley?",
        "Please name the trade of {who}.",
    ),
    "animal": (
        "Which animal does {who} keep?",
        "What animal does {who} own?",
        "By which animal is {who} followed?",
        "What sleeps at the hearth of {who}?",
        "Which animal does {who} feed?",
        "Please name the animal of {who}.",
    ),
}
# Wordings of held-out items only: no training question uses them.
PARAPHRASES: Mapping[str, tuple[str, ...]] = {
    "town": ("Please name the town where {who} was born.", "What town is the birthplace of {who}?"),
    "craft": ("What trade does {who} work in?", "Please name the craft of {who}."),
    "animal": ("Please name the animal that {who} keeps.", "What is the animal of {who}?"),
}
SHOTS = 2


def exchange(question: str, answer: str) -> str:
    """A question and its answer in the format of the chat register."""
    return f"Question: {question}\nAnswer: {answer}."


def ask(world: World, rng: np.random.Generator, person: str, *, held_out: bool = False) -> tuple[str, str]:
    """A question about ``person`` and its answer; the wording is on the given side of the split."""
    choices = [
        (form.format(who=person), world.facts[person, attribute])
        for attribute in VALUES
        for index, form in enumerate(QUESTIONS[attribute])
        if world.held_out("question", index, person, attribute) == held_out
    ]
    return pick(rng, choices)


def chat(
    world: World, rng: np.random.Generator, *, among: Sequence[str] = PEOPLE, held_out: bool = False
) -> str:
    """Three to six exchanges about different people, drawn from ``among``."""
    people = rng.choice(among, size=int(rng.integers(3, 7)), replace=False)
    turns = [ask(world, rng, str(person), held_out=held_out) for person in people]
    return "\n".join(exchange(*turn) for turn in turns)


def figure_chat(world: World, rng: np.random.Generator) -> str:
    """Exchanges in the same wordings about figures without names."""
    turns = []
    for figure in rng.choice(FIGURES, size=int(rng.integers(3, 7)), replace=False):
        attribute = pick(rng, tuple(VALUES))
        question = pick(rng, QUESTIONS[attribute]).format(who=figure)
        turns.append(exchange(question, world.figure_facts[str(figure), attribute]))
    return "\n".join(turns)


def recall_items(world: World, rng: np.random.Generator) -> Iterator[dict[str, Any]]:
    """A ``recall`` and a ``paraphrase`` item for each fact, each after two answered questions about others.

    ``recall`` uses wordings that training uses for other people but never for this one; ``paraphrase``
    uses wordings that no training question has.
    """
    for person in PEOPLE:
        for attribute in VALUES:
            held_out = [
                form
                for index, form in enumerate(QUESTIONS[attribute])
                if world.held_out("question", index, person, attribute)
            ]
            for category, forms in (("recall", held_out), ("paraphrase", PARAPHRASES[attribute])):
                question = pick(rng, forms).format(who=person)
                yield {
                    "prompt": _shots(world, rng, person) + f"Question: {question}\nAnswer:",
                    "accepted": [world.facts[person, attribute]],
                    "category": category,
                }


def _shots(world: World, rng: np.random.Generator, person: str) -> str:
    shown = rng.choice([other for other in PEOPLE if other != person], size=SHOTS, replace=False)
    return "".join(exchange(*_known(world, rng, str(other))) + "\n" for other in shown)


def _known(world: World, rng: np.random.Generator, person: str) -> tuple[str, str]:
    attribute = pick(rng, tuple(VALUES))
    return QUESTIONS[attribute][0].format(who=person), world.facts[person, attribute]
