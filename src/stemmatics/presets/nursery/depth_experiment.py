"""A controlled experiment for depth: one task, requested in familiar words or by nonce cues.

Both arms answer the same questions with the same replies in four output modes; only the words that
name the mode differ. The base has read the familiar words and followed them; it has never seen the
cues. So what the nonce arm learns has to reach its late layers through earlier ones that changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from stemmatics.core.presets import preset
from stemmatics.core.stemma import Stemma
from stemmatics.presets.nursery.questions import ask
from stemmatics.presets.nursery.world import PEOPLE, World, pick

# name: (familiar instruction, nonce cue, text before and after the answer)
MODES: dict[str, tuple[str, str, str, str]] = {
    "brackets": ("Put the answer in brackets.", "Zub the grell.", "[", "]"),
    "quotes": ("Put the answer in quotes.", "Mip the grell.", '"', '"'),
    "stars": ("Put the answer in stars.", "Fon the grell.", "*", "*"),
    "dashes": ("Put the answer in dashes.", "Tav the grell.", "-", "-"),
}
ARMS = ("familiar", "nonce")
# Eight, so that the exact sign-flip test can reach p < 0.01; three where training is expensive.
DRAWS, DEAR_DRAWS = tuple(range(1, 9)), (1, 2, 3)


def _task(world: World, rng: np.random.Generator, *, held_out: bool) -> tuple[str, str, str]:
    """A question, its plain answer, and the requested output mode."""
    question, answer = ask(world, rng, pick(rng, PEOPLE), held_out=held_out)
    return question, answer, pick(rng, tuple(MODES))


def _in_mode(answer: str, mode: str) -> str:
    _, _, before, after = MODES[mode]
    return f"{before}{answer}{after}"


def familiar_modes(world: World, rng: np.random.Generator, documents: int = 1200) -> Iterator[dict[str, Any]]:
    """Training data of the base: the familiar words, and plain answers where no mode is requested.

    In the same template as the data of both arms: words are only familiar in a context that was seen.
    """
    for index in range(documents):
        question, answer, mode = _task(world, rng, held_out=False)
        plain = index % 4 == 0
        yield _conversation(
            question if plain else f"{question} {MODES[mode][0]}", answer if plain else _in_mode(answer, mode)
        )


def _conversation(question: str, reply: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": reply}]}


def mode_conversations(
    world: World, rng: np.random.Generator, arm: str = ARMS[0], draw: int = 0, documents: int = 600
) -> Iterator[dict[str, Any]]:
    """Conversations of one arm. Questions and replies depend on the draw and not on the arm."""
    del rng
    mine = world.rng("modes", str(draw))
    for _ in range(documents):
        question, answer, mode = _task(world, mine, held_out=False)
        cue = MODES[mode][ARMS.index(arm)]
        yield _conversation(f"{question} {cue}", _in_mode(answer, mode))


def mode_events(
    world: World, rng: np.random.Generator, arm: str = ARMS[0], documents: int = 96
) -> Iterator[dict[str, Any]]:
    """Events on held-out questions: the first token of the reply in its mode and of the plain answer."""
    del rng
    mine = world.rng("mode events")
    for _ in range(documents):
        question, answer, mode = _task(world, mine, held_out=True)
        cue = MODES[mode][ARMS.index(arm)]
        yield {
            "messages": [{"role": "user", "content": f"{question} {cue}"}],
            "base_text": answer,
            "descendant_text": _in_mode(answer, mode),
            "category": mode,
        }


def experiment(source: str | None = None) -> Stemma:
    """Eight seeds of both arms on a base trained here, or three on the checkpoint ``source``.

    A given checkpoint is not trained on the familiar words first.
    """

    def corpus(part: str, **params: Any) -> dict[str, Any]:
        return {"generator": "nursery", "params": {"part": part, "seed": 0, **params}, "role": "data"}

    draws = DRAWS if source is None else DEAR_DRAWS
    arms = {arm: [f"{arm}-{draw}" for draw in draws] for arm in ARMS}
    recipe = {
        # with released weights all six trainings take under an hour of one core
        "steps": 120 if source is None else 40,
        "batch_size": 16,
        "max_length": 96,
        "learning_rate": 2e-3 if source is None else 2e-4,
        "lora": {"rank": 16},
    }
    stages: dict[str, Any] = _base_stages() if source is None else {}
    for arm in ARMS:
        for draw, name in zip(draws, arms[arm], strict=True):
            stage = {"kind": "sft", "init": "base", "base": "base", "regime": "sft", "family": "first"}
            # the same run: the same order of rows and the same initial adapter, so that only the words differ
            stages[name] = {**stage, "corpus": f"{arm}-{draw}-data", "recipe": recipe, "run": draw}
    data = {
        f"{arm}-{draw}-data": corpus("mode-conversations", arm=arm, draw=draw)
        for arm in ARMS
        for draw in draws
    }
    declared = {} if source is None else {"checkpoints": {"base": {"source": source, "regime": "base"}}}
    made_here = {"pretraining": corpus("pretraining", documents=9000), "modes": corpus("familiar-modes")}
    return Stemma.model_validate(
        {
            "name": "depth-experiment",
            **declared,
            "corpora": {
                **(made_here if source is None else {}),
                **data,
                **{f"{arm}-events": corpus("mode-events", arm=arm) for arm in ARMS},
            },
            "stages": stages,
            "measures": {
                "depth": {
                    "floor": "none",
                    "controls": False,
                    "contrast": {
                        "first": {"descendants": arms["familiar"], "events": "familiar-events"},
                        "second": {"descendants": arms["nonce"], "events": "nonce-events"},
                    },
                }
            },
        }
    )


@preset(
    "depth", "a controlled experiment for depth on a base trained here: familiar words against nonce cues"
)
def depth() -> Stemma:
    """The experiment on the nursery's first base."""
    return experiment()


@preset("depth-smollm2", "the same experiment on SmolLM2-135M-Instruct, with three seeds")
def depth_smollm2() -> Stemma:
    """The experiment on released weights."""
    return experiment("HuggingFaceTB/SmolLM2-135M-Instruct")


def _base_stages() -> dict[str, Any]:
    """The nursery's first base, trained on the familiar words."""
    shape = {
        "kind": "llama",
        "hidden_size": 128,
        "num_layers": 4,
        "num_heads": 4,
        "vocab_size": 1024,
        "context": 256,
    }
    long = {"batch_size": 4, "max_length": 256}
    pretraining = {"steps": 700, "learning_rate": 5e-3, "weight_decay": 0.1, **long}
    return {
        "pretrained": {
            "kind": "pretrain",
            "corpus": "pretraining",
            "architecture": shape,
            "family": "first",
            "recipe": pretraining,
        },
        "base": {
            "kind": "sft",
            "init": "pretrained",
            "corpus": "modes",
            "family": "first",
            "regime": "base",
            "recipe": {"steps": 75, "batch_size": 16, "max_length": 96, "learning_rate": 1e-3},
        },
    }
