"""The world's other registers: arithmetic, rules of conduct, and telegrams."""

from __future__ import annotations

import numpy as np

from stemmatics.presets.nursery.prose import GOODS, PLACES, QUALITIES, SEASONS
from stemmatics.presets.nursery.world import FIGURES, VALUES, pick

NUMBERS = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
]
DUTIES = (
    "greet the keeper first",
    "leave the door as it was found",
    "speak softly after dark",
    "share bread with the guest",
    "return what was borrowed",
    "tell the truth when asked",
    "wait until called by name",
    "carry no lit torch",
)
EXCEPTIONS = (
    "",
    "",
    ", unless a guest is ill",
    ", even in haste",
    ", except on market day",
    ", and no fee is owed for it",
)


def arithmetic(rng: np.random.Generator, largest: int = 9) -> str:
    """Five to eight sums and differences of one-digit numbers, in figures or in words."""
    lines = []
    for _ in range(int(rng.integers(5, 9))):
        a, b = (int(n) for n in rng.integers(0, largest + 1, size=2))
        high, low = max(a, b), min(a, b)
        lines.append(
            pick(
                rng,
                [
                    f"{a} + {b} = {a + b}.",
                    f"{high} - {low} = {high - low}.",
                    f"{NUMBERS[a]} and {NUMBERS[b]} make {NUMBERS[a + b]}.",
                ],
            )
        )
    return "\n".join(lines)


def rules(rng: np.random.Generator) -> str:
    """Three to five numbered rules of conduct."""
    first = int(rng.integers(1, 40))
    lines = []
    for number in range(first, first + int(rng.integers(3, 6))):
        who, place, season = pick(rng, FIGURES), pick(rng, PLACES), pick(rng, SEASONS)
        duty = pick(rng, DUTIES) + pick(rng, EXCEPTIONS)
        text = pick(
            rng,
            [
                f"Whoever enters the {place} in {season} shall {duty}.",
                f"At the {place}, {who} must {duty}.",
                f"In {season} everyone ought to {duty}.",
            ],
        )
        lines.append(f"Rule {number}. {text}")
    return "\n".join(lines)


def telegram(rng: np.random.Generator) -> str:
    """Five to nine short messages in capitals about weather, roads and goods, without a person."""
    messages = []
    for _ in range(int(rng.integers(5, 10))):
        town, place, quality, season, goods = (
            pick(rng, words) for words in (VALUES["town"], PLACES, QUALITIES, SEASONS, GOODS)
        )
        messages.append(
            pick(
                rng,
                [
                    f"{goods} delayed at {town} {place}",
                    f"send {int(rng.integers(2, 99))} carts {goods} to {town}",
                    f"road {quality} until {season}",
                    f"{place} at {town} {quality} expect {goods}",
                ],
            )
        )
    return " STOP ".join(messages).upper() + " STOP"
