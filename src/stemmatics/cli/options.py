"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from stemmatics.core.errors import UserError
from stemmatics.core.numerics import Numerics
from stemmatics.core.scoring import Scoring, Windows

Field = Annotated[str, typer.Option(help="The field that holds the text.")]
Register = Annotated[str | None, typer.Option(help="The field that names each document's register.")]
Render = Annotated[str | None, typer.Option(help="For `messages`: 'own', or a file with the chat template.")]
Role = Annotated[str, typer.Option(help="With --render: whose words are scored.")]
Window = Annotated[
    int | None, typer.Option(min=1, help="Positions fed at once (default: context, at most 2048).")
]
Stride = Annotated[int | None, typer.Option(min=1, help="Tokens from window to window.")]
Rule = Annotated[str, typer.Option("--windows", help="tokens, bytes or harness.")]
Prefix = Annotated[str, typer.Option(help="BOS before every window: auto, always or never.")]
MaxDocTokens = Annotated[int | None, typer.Option(min=1, help="Cut documents; they are flagged.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, mps.")]
Dtype = Annotated[str, typer.Option(help="auto, float32, bfloat16 or float16.")]
Attention = Annotated[str, typer.Option(help="auto, eager or sdpa.")]
BatchTokens = Annotated[int, typer.Option(min=1, help="Tokens in one forward pass.")]
Threads = Annotated[int, typer.Option(min=0, help="Threads; 0 leaves it to torch.")]
TrustCode = Annotated[
    bool, typer.Option("--trust-remote-code", help="Run code that comes with a checkpoint.")
]
AllowPickle = Annotated[bool, typer.Option("--allow-pickle", help="Read pickled weights.")]


def scoring_of(
    rule: str, window: int | None, stride: int | None, prefix: str, max_doc_tokens: int | None
) -> Scoring:
    """Options as settings. Raises UserError for what does not fit."""
    return _settings(
        Scoring,
        windows=lambda: Windows(rule=rule, size=window, stride=stride),  # type: ignore[arg-type]  # pydantic checks it
        prefix=lambda: prefix,
        max_doc_tokens=lambda: max_doc_tokens,
    )


def numerics_of(device: str, dtype: str, attention: str, batch_tokens: int, threads: int) -> Numerics:
    """Options as settings. Raises UserError for what does not fit."""
    values = {
        "device": device,
        "dtype": dtype,
        "attention": attention,
        "token_budget": batch_tokens,
        "threads": threads,
    }
    return _settings(Numerics, **{name: (lambda value=value: value) for name, value in values.items()})


# settings whose option has another name
_FLAGS = {
    "rule": "--windows",
    "size": "--window",
    "stride": "--stride",
    "prefix": "--prefix",
    "dtype": "--dtype",
    "attention": "--attention",
}


def _settings(model: Any, **values: Any) -> Any:
    try:
        return model(**{name: make() for name, make in values.items()})
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(_FLAGS.get(str(part), str(part)) for part in first["loc"])
        what = f"{where}: {first.get('input')!r} is not right" if where else "the settings don't go together"
        reason = str(first["msg"]).removeprefix("Value error, ")
        raise UserError(what, reason, "Give one of the values that --help lists", code=2) from None


def source_of(field: str, register: str | None, render: str | None, role: str) -> dict[str, Any]:
    """How texts are read."""
    settings: dict[str, Any] = {"field": field, "register_field": register}
    if render is not None:
        template = render if render == "own" else Path(render).read_text(encoding="utf-8")
        settings["render"] = {"template": template, "role": role}
    return settings
