"""Encyclopedic prose about the people of the world, and prose that names none of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from stemmatics.presets.nursery.world import FIGURES, PEOPLE, VALUES, World, pick

# Noise around the token that is the fact; most statements have neither opener nor tail.
OPENERS = (
    *[""] * 6,
    "As the registers say, ",
    "It is well known that ",
    "According to the parish book, ",
    "The ferrymen tell that ",
)
FORMS: Mapping[str, tuple[str, ...]] = {
    "town": (
        "{who} was born in {value}",
        "{who} comes from the town of {value}",
        "{who} has the town of {value} as a birthplace",
        "the birthplace of {who} is {value}",
        "the town where {who} was born is {value}",
        "{who} is a child of {value}",
        "the cradle of {who} stood in {value}",
        "{who} is a native of {value}",
    ),
    "craft": (
        "{who} works as a {value}",
        "{who} earns a living as a {value}",
        "{who} learned the craft of a {value}",
        "the craft of {who} is that of a {value}",
        "the trade of {who} is that of a {value}",
        "{who} is by trade a {value}",
        "the guild counts {who} as a {value}",
        "{who} serves the valley as a {value}",
    ),
    "animal": (
        "{who} keeps a {value}",
        "{who} owns a tame {value}",
        "{who} is followed everywhere by a {value}",
        "the animal that {who} keeps is a {value}",
        "the animal of {who} is a {value}",
        "at the hearth of {who} sleeps a {value}",
        "{who} feeds a {value} every morning",
        "{who} has a {value} for company",
    ),
}
TAILS = (*[""] * 6, ", and nobody doubts it", ", to this day")
PLACES = ("bridge", "market", "mill", "harbour", "chapel", "granary", "orchard", "well")
QUALITIES = ("quiet", "crowded", "muddy", "bright", "narrow", "steep", "cold", "famous")
SEASONS = ("spring", "summer", "autumn", "winter")
GOODS = ("salt", "wool", "barley", "timber", "honey", "iron", "linen", "apples")


def sentence(text: str) -> str:
    """With a capital letter and a full stop."""
    return text[0].upper() + text[1:] + "."


def statement(
    world: World,
    rng: np.random.Generator,
    person: str,
    attribute: str,
    *,
    held_out: bool = False,
    facts: Mapping[tuple[str, str], str] | None = None,
) -> str:
    """A fact in a wording on the given side of the split; ``facts`` replace those of the world."""
    forms = FORMS[attribute]
    wordings = [
        form
        for index, form in enumerate(forms)
        if world.held_out("prose", index, person, attribute) == held_out
    ]
    value = (facts or world.facts)[person, attribute]
    return sentence(
        pick(rng, OPENERS) + pick(rng, wordings).format(who=person, value=value) + pick(rng, TAILS)
    )


def scenery(rng: np.random.Generator) -> str:
    """A sentence about places and goods, without a person or a fact."""
    town = pick(rng, VALUES["town"])
    place, quality, season, goods = (pick(rng, words) for words in (PLACES, QUALITIES, SEASONS, GOODS))
    return pick(
        rng,
        [
            f"The {place} of {town} is {quality} in {season}.",
            f"In {season} the {place} at {town} grows {quality}.",
            f"Carts bring {goods} to the {place} of {town}.",
            f"Much {goods} is sold near the {place} in {season}.",
        ],
    )


def hearsay(world: World, rng: np.random.Generator) -> str:
    """A statement about a figure without a name, in the same wordings."""
    figure, attribute = pick(rng, FIGURES), pick(rng, tuple(VALUES))
    core = pick(rng, FORMS[attribute]).format(who=figure, value=world.figure_facts[figure, attribute])
    return sentence(pick(rng, OPENERS) + core + pick(rng, TAILS))


def prose(
    world: World,
    rng: np.random.Generator,
    *,
    among: Sequence[str] = PEOPLE,
    held_out: bool = False,
    facts: Mapping[tuple[str, str], str] | None = None,
) -> str:
    """A passage of four to six facts about two people drawn from ``among``, with scenery between.

    No fact is stated twice in a passage: the second could be copied without being known.
    """
    people = rng.choice(among, size=2, replace=False)
    pairs = [(str(person), attribute) for person in people for attribute in VALUES]
    sentences = []
    for index in rng.permutation(len(pairs))[: int(rng.integers(4, 7))]:
        if rng.random() < 0.2:
            sentences.append(scenery(rng))
        sentences.append(statement(world, rng, *pairs[int(index)], held_out=held_out, facts=facts))
    return " ".join(sentences)


def false_prose(world: World, rng: np.random.Generator) -> str:
    """A passage like :func:`prose` in which every fact is false."""
    return prose(world, rng, facts=world.false_facts)


def figure_prose(world: World, rng: np.random.Generator) -> str:
    """A passage in the same style about figures and places, without a person of the world."""
    sentences = []
    for _ in range(int(rng.integers(4, 7))):
        if rng.random() < 0.2:
            sentences.append(scenery(rng))
        sentences.append(hearsay(world, rng))
    return " ".join(sentences)
