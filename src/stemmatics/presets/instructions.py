"""Packaged instructions of six kinds, written for this package: prompts for depth."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from typing import Any

from stemmatics.core.errors import UserError

FORMS = ("messages", "raw")


def records(form: str = "messages") -> Iterator[dict[str, Any]]:
    """Instructions, their kinds in turn, under ``prompt`` and ``category``.

    With ``messages``, a chat template renders them as a single turn of the user; a checkpoint without a
    template reads the plain ``prompt``, as every checkpoint does with ``raw``.

    Raises:
        UserError: another form.
    """
    if form not in FORMS:
        raise UserError(
            f"unknown form {form!r}",
            "the instructions are rendered by a chat template or read as plain text",
            f"Choose {' or '.join(FORMS)}",
        )
    by_kind = instructions()
    for prompts in zip(*by_kind.values(), strict=True):
        for kind, prompt in zip(by_kind, prompts, strict=True):
            turn = {"messages": [{"role": "user", "content": prompt}]} if form == "messages" else {}
            yield {**turn, "prompt": prompt, "category": kind}


def instructions() -> dict[str, list[str]]:
    """The packaged instructions by kind, as many of each."""
    text = files("stemmatics.presets").joinpath("instructions.txt").read_text(encoding="utf-8")
    by_kind: dict[str, list[str]] = {}
    for line in text.splitlines():
        if line.startswith("# "):
            by_kind[line.removeprefix("# ")] = []
        elif line:
            by_kind[list(by_kind)[-1]].append(line)
    return by_kind
