"""stemma init: a commented stemma.yaml that runs as it is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stemmatics.cli.output import JSON_HELP, print_json
from stemmatics.core.errors import UserError


def init(
    folder: Annotated[Path, typer.Argument(metavar="[DIR]", help="Where to write stemma.yaml.")] = Path(),
    preset: Annotated[
        str, typer.Option(help="nursery, ladder, recovery, depth, smollm2, olmo2, pythia, qwen2.5.")
    ] = "nursery",
    as_json: Annotated[bool, typer.Option("--json", help=JSON_HELP)] = False,
) -> int:
    """Write a commented stemma.yaml that runs as it is."""
    from stemmatics.presets.files import preset_text

    text = preset_text(preset)
    path = folder / "stemma.yaml"
    if path.exists():
        raise UserError(
            f"{path} is there already",
            "it is not overwritten",
            "Choose another folder, or remove the file",
            code=2,
        )
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    if as_json:
        print_json({"wrote": str(path)})
        return 0
    print(f"wrote {path}")
    print(f"next: stemma check {path}   and   stemma run {path}")
    return 0


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command()(init)
