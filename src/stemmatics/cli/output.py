"""JSON on stdout: one document and nothing else."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Annotated, Any

import typer

JSON_HELP = "Print one JSON document on stdout and nothing else."
AsJson = Annotated[bool, typer.Option("--json", help=JSON_HELP)]


def print_json(value: Any) -> None:
    """One JSON document; NaN and infinities become null."""
    print(json.dumps(_finite(value), indent=2, ensure_ascii=False, allow_nan=False))


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def print_files(paths: list[Any], *, as_json: bool) -> None:
    """Files that a command wrote."""
    if as_json:
        print_json({"files": [str(path) for path in paths]})
    else:
        for path in paths:
            print(path)
