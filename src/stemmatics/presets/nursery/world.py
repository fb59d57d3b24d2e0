"""The generated world: its people and their attributes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np

from stemmatics.core.keys import seed_from

PEOPLE = (
    "Abrel",
    "Bastin",
    "Cordula",
    "Dorvik",
    "Eskild",
    "Fennara",
    "Gavrick",
    "Hestia",
    "Ilvane",
    "Jorunn",
    "Kestrel",
    "Lorimer",
    "Marrow",
    "Nerissa",
    "Osgar",
    "Pellam",
    "Quillon",
    "Rosmund",
    "Sabrin",
    "Tavish",
    "Ulrike",
    "Verrin",
    "Wystan",
    "Xanthe",
    "Ysolde",
    "Zoltan",
    "Ambrick",
    "Briseis",
    "Cathal",
    "Drusil",
    "Emeric",
    "Florian",
    "Gisele",
    "Halvard",
    "Isaura",
    "Jasper",
    "Kolya",
    "Leopold",
    "Mirelle",
    "Nikodem",
    "Ottilie",
    "Perrin",
    "Radomir",
    "Sunniva",
    "Thibald",
    "Ursel",
    "Valdis",
    "Wenzel",
)
VALUES: Mapping[str, tuple[str, ...]] = {
    "town": ("Velden", "Harrow", "Ostmark", "Pinefall", "Quarry", "Saltby", "Thornwick", "Umber"),
    "craft": ("baker", "cooper", "dyer", "fletcher", "glazier", "mason", "potter", "weaver"),
    "animal": ("badger", "crow", "donkey", "ferret", "goose", "heron", "lizard", "pony"),
}
CHANCE = 1 / 8
# Figures with attributes of their own, of which no item asks: the style without the facts that are tested.
FIGURES = (
    "the old miller",
    "a ferryman",
    "the judge's clerk",
    "a travelling singer",
    "the beekeeper",
    "the night watchman",
    "a young shepherd",
    "the bell ringer",
)
T = TypeVar("T")


@dataclass(frozen=True)
class World:
    """48 people with three attributes of eight values each, drawn from ``seed``."""

    seed: int

    @cached_property
    def facts(self) -> dict[tuple[str, str], str]:
        """The value of each (person, attribute); every value belongs to six people."""
        return self._draw("facts", PEOPLE)

    @cached_property
    def figure_facts(self) -> dict[tuple[str, str], str]:
        """The value of each (figure, attribute); every value belongs to one figure."""
        return self._draw("figures", FIGURES)

    @cached_property
    def false_facts(self) -> dict[tuple[str, str], str]:
        """A false value for each (person, attribute)."""
        rng = self.rng("false facts")
        false = {}
        for (person, attribute), value in self.facts.items():
            others = [other for other in VALUES[attribute] if other != value]
            false[person, attribute] = pick(rng, others)
        return false

    def rng(self, *names: str) -> np.random.Generator:
        """A separate random generator for each purpose."""
        return np.random.default_rng(seed_from(self.seed, "nursery", *names))

    def held_out(self, kind: str, form: int, person: str, attribute: str) -> bool:
        """Whether training never uses this wording of this attribute for this person.

        Every fourth wording, starting at another one for each person, so both sides have some of four.
        """
        return (seed_from(self.seed, kind, person, attribute) + form) % 4 == 0

    def _draw(self, name: str, people: tuple[str, ...]) -> dict[tuple[str, str], str]:
        rng = self.rng(name)
        facts = {}
        for attribute, values in VALUES.items():
            shuffled = rng.permutation(np.repeat(values, len(people) // len(values)))
            facts.update(
                {(person, attribute): str(value) for person, value in zip(people, shuffled, strict=True)}
            )
        return facts


def pick(rng: np.random.Generator, options: Sequence[T]) -> T:
    """An option, drawn uniformly."""
    return options[int(rng.integers(len(options)))]
