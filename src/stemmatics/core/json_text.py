"""JSON that users give: errors name the place, and a name twice in one object is an error, never a choice."""

from __future__ import annotations

import json
from typing import Any

from stemmatics.core.errors import UserError

BOM = "\ufeff"
LFS_POINTER = "version https://git-lfs.github.com/spec/"
_FIX = "correct that line; one JSON value, with each name once in an object"


class _TwiceError(ValueError):
    """A name that occurs twice in one object."""


def parse_json(text: str, location: str, *, fix: str = _FIX) -> Any:
    """One JSON value; a byte order mark in front is dropped.

    Raises:
        UserError: the text is not JSON, is nested too deeply, or an object in it has a name twice, so that
            one of the two values would be lost.
    """
    text = text.removeprefix(BOM)
    if text.startswith(LFS_POINTER):
        raise lfs_error(location)
    try:
        return json.loads(text, object_pairs_hook=_once)
    except _TwiceError as error:
        raise UserError(
            f"{location} has {error} twice in one object",
            "JSON keeps the last of the two values, and the other one would be lost",
            "remove or rename one of them",
        ) from None
    except json.JSONDecodeError as error:
        raise UserError(f"{location} is not JSON", _reason(error, text), fix) from None
    except RecursionError:
        raise UserError(f"{location} is not JSON", "it is nested too deeply", fix) from None
    except ValueError as error:  # for instance an integer of thousands of digits
        raise UserError(f"{location} is not JSON", str(error), fix) from None


def lfs_error(location: str) -> UserError:
    """The error for a file that is a pointer of Git LFS in the place of its content."""
    return UserError(
        f"{location} is a pointer of Git LFS, not the file itself",
        "the repository was cloned without its large files",
        "run `git lfs pull` in the repository, then try again",
    )


def _reason(error: json.JSONDecodeError, text: str) -> str:
    if not text.strip():
        return "it is empty"
    if error.pos >= len(text.rstrip()):
        return f"{error}: it ends too early"
    return str(error)


def _once(items: list[tuple[str, Any]]) -> dict[str, Any]:
    unique = dict(items)
    if len(unique) < len(items):
        names: set[str] = set()
        for name, _ in items:
            if name in names:
                raise _TwiceError(repr(name))
            names.add(name)
    return unique
