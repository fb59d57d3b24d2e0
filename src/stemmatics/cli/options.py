"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stemmatics.core.errors import UserError

if TYPE_CHECKING:
    from stemmatics.core.numerics import Numerics
    from stemmatics.core.scoring import Scoring

Field = Annotated[str, typer.Option(help="Field that holds the text.")]
Register = Annotated[str | None, typer.Option(help="Field that holds each document's register.")]
Render = Annotated[
    str | None,
    typer.Option(help="For `messages`: 'own' (the checkpoint's chat template) or a template file."),
]
Role = Annotated[str, typer.Option(help="With --render: the role whose turns are scored.")]
Window = Annotated[
    int | None, typer.Option(min=1, help="Positions in a window (default: the context length, at most 2048).")
]
Stride = Annotated[int | None, typer.Option(min=1, help="Tokens from one window's start to the next.")]
Rule = Annotated[
    str, typer.Option("--windows", help="How documents are cut into windows: tokens, bytes or harness.")
]
Prefix = Annotated[str, typer.Option(help="BOS token before each window: auto, always or never.")]
MaxDocTokens = Annotated[
    int | None, typer.Option(min=1, help="Truncate documents to this many tokens and flag them.")
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")]
Dtype = Annotated[str, typer.Option(help="auto, float32, bfloat16 or float16.")]
Attention = Annotated[str, typer.Option(help="auto, eager or sdpa.")]
BatchTokens = Annotated[int, typer.Option(min=1, help="Tokens in one forward pass.")]
Threads = Annotated[int, typer.Option(min=0, help="CPU threads; 0 is torch's default.")]
TrustCode = Annotated[
    bool, typer.Option("--trust-remote-code", help="Run code that comes with a checkpoint.")
]
Weights = Annotated[
    str | None, typer.Option(help="Weight file or index to read, where a folder has two sets.")
]
AllowPickle = Annotated[bool, typer.Option("--allow-pickle", help="Load pickled weights.")]
Texts = Annotated[list[str], typer.Option(help="File, folder or Hub dataset; can be repeated.")]
Only = Annotated[str | None, typer.Option(help="Measures to run, comma-separated: loss,prior.")]
Timings = Annotated[bool, typer.Option("--timings", help="Print the seconds that each stage took.")]


def with_weights(checkpoint: str, weights: str | None) -> str:
    """The checkpoint with the weight file that is to be read."""
    if weights is None:
        return checkpoint
    from stemmatics.core.extras import require

    require("lm", "reading a checkpoint")
    from stemmatics.commands.check import with_weights as named

    return named(checkpoint, weights)


def with_weights_of_any(checkpoints: Sequence[str], weights: str | None) -> list[str]:
    """The same of those that have such a file; UserError where none has it."""
    has_file = [weights is not None and (Path(name) / weights).is_file() for name in checkpoints]
    if weights is not None and not any(has_file):
        raise UserError(
            f"no checkpoint has weights called {weights!r}",
            f"neither {' nor '.join(checkpoints)} holds the file",
            "Give model.safetensors or the index of the shards",
            code=2,
        )
    return [
        with_weights(name, weights if chosen else None)
        for name, chosen in zip(checkpoints, has_file, strict=True)
    ]


def names_of(text: str | None) -> list[str] | None:
    """A comma-separated list of names; None where nothing is given."""
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def scoring_of(
    rule: str, window: int | None, stride: int | None, prefix: str, max_doc_tokens: int | None
) -> Scoring:
    """Options as settings. Raises UserError for invalid ones."""
    from stemmatics.core.scoring import Scoring, Windows

    windows = _settings(Windows, rule=rule, size=window, stride=stride)
    return _settings(Scoring, windows=windows, prefix=prefix, max_doc_tokens=max_doc_tokens)  # type: ignore[no-any-return]


def numerics_of(device: str, dtype: str, attention: str, batch_tokens: int, threads: int) -> Numerics:
    """Options as settings. Raises UserError for invalid ones."""
    from stemmatics.core.numerics import Numerics

    return _settings(  # type: ignore[no-any-return]
        Numerics, device=device, dtype=dtype, attention=attention, token_budget=batch_tokens, threads=threads
    )


# settings whose option has another name
_FLAGS = {"rule": "--windows", "size": "--window", "token_budget": "--batch-tokens"}


def _settings(model: Callable[..., Any], **values: Any) -> Any:
    from pydantic import ValidationError

    try:
        return model(**values)
    except ValidationError as error:
        first = error.errors()[0]
        reason = str(first["msg"]).removeprefix("Value error, ")
        what = _invalid(first["loc"], first.get("input"))
        raise UserError(what, reason, "Choose a value that --help lists", code=2) from None


def _invalid(location: Sequence[Any], value: Any) -> str:
    if not location:
        return "these options contradict one another"
    name = str(location[-1])
    return f"invalid value {value!r} for {_FLAGS.get(name, '--' + name.replace('_', '-'))}"


def source_of(field: str, register: str | None, render: str | None, role: str) -> dict[str, Any]:
    """How texts are read."""
    settings: dict[str, Any] = {"field": field, "register_field": register}
    if render is not None:
        template = render if render == "own" else _template(Path(render))
        settings["render"] = {"template": template, "role": role}
    return settings


def _template(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"the chat template {path} can't be read",
            getattr(error, "strerror", None) or str(error),
            "Give --render a UTF-8 file with a Jinja template, or --render own for the checkpoint's",
        ) from None
