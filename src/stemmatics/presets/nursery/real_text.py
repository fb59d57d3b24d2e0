"""Real text that every Python carries: the language reference and the standard library's sources.

It differs between Python versions, so no golden number depends on it.
"""

from __future__ import annotations

import importlib.util
import sysconfig
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from pydoc_data.topics import topics

from stemmatics.core.errors import UserError

MODULES = [
    "argparse",
    "ast",
    "bisect",
    "calendar",
    "cmd",
    "codecs",
    "collections",
    "colorsys",
    "configparser",
    "contextlib",
    "copy",
    "csv",
    "dataclasses",
    "difflib",
    "dis",
    "enum",
    "filecmp",
    "fileinput",
    "fnmatch",
    "fractions",
    "functools",
    "getopt",
    "glob",
    "graphlib",
    "gzip",
    "heapq",
    "html",
    "inspect",
    "ipaddress",
    "json",
    "keyword",
    "linecache",
    "locale",
    "mimetypes",
    "numbers",
    "operator",
    "optparse",
    "pprint",
    "queue",
    "quopri",
    "random",
    "reprlib",
    "sched",
    "shelve",
    "shlex",
    "shutil",
    "statistics",
    "string",
    "tabnanny",
    "tempfile",
    "textwrap",
    "timeit",
    "tokenize",
    "trace",
    "traceback",
    "types",
    "uuid",
    "warnings",
    "weakref",
    "zipfile",
]
PIECE = 700


def reference(*, held_out: bool) -> Iterator[str]:
    """Pieces of the language reference; the split is by topic."""
    return _side(topics, held_out=held_out)


def code(*, held_out: bool) -> Iterator[str]:
    """Pieces of the standard library's sources; the split is by module.

    Raises:
        UserError: this Python comes without sources.
    """
    sources = {name: path.read_text(encoding="utf-8") for name in MODULES if (path := _source(name))}
    if not sources:
        raise UserError(
            "this Python has no sources of its standard library",
            "the nursery's code register is made of them",
            "Use a Python with .py files",
        )
    return _side(sources, held_out=held_out)


def library() -> Iterator[str]:
    """Pieces of the standard library's sources, without the held-out ones of ``code`` and their paragraphs.

    Some megabytes, without the library's tests; nothing where this Python comes without sources.
    """
    folder = Path(sysconfig.get_path("stdlib"))
    held_out = {name: path for name in MODULES if (path := _source(name)) and _held_out(name)}
    paragraphs = {
        part for path in held_out.values() for part in path.read_text(encoding="utf-8").split("\n\n")
    }
    for path in sorted(folder.rglob("*.py")):
        if _LEFT_OUT.isdisjoint(path.relative_to(folder).parts) and path not in held_out.values():
            text = path.read_text(encoding="utf-8", errors="replace")
            yield from _pieces(part for part in text.split("\n\n") if part not in paragraphs)


def _side(texts: Mapping[str, str], *, held_out: bool) -> Iterator[str]:
    """One side of the split, in order; paragraphs on both sides are left out of the held-out side."""
    paragraphs = {name: texts[name].split("\n\n") for name in sorted(texts)}
    training = {part for name, parts in paragraphs.items() if not _held_out(name) for part in parts}
    for name, parts in paragraphs.items():
        if _held_out(name) == held_out:
            yield from _pieces(part for part in parts if not (held_out and part in training))


# folders of the standard library that are no library: tests, and packages that were installed
_LEFT_OUT = frozenset({"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__"})


def _held_out(name: str) -> bool:
    return zlib.crc32(name.encode()) % 5 == 0


def _source(module: str) -> Path | None:
    spec = importlib.util.find_spec(module)
    path = Path(spec.origin) if spec is not None and spec.origin else None
    return path if path is not None and path.suffix == ".py" and path.is_file() else None


def _pieces(paragraphs: Iterable[str]) -> Iterator[str]:
    """Paragraphs joined to about 700 characters; longer paragraphs are cut at lines."""
    piece = ""
    for part in _short(paragraphs):
        if piece and len(piece) + len(part) > PIECE:
            yield piece
            piece = ""
        piece = f"{piece}\n\n{part}" if piece else part
    if piece.strip():
        yield piece


def _short(paragraphs: Iterable[str]) -> Iterator[str]:
    for paragraph in paragraphs:
        lines: list[str] = []
        for line in paragraph.split("\n"):
            if lines and sum(map(len, lines)) + len(line) > PIECE:
                yield "\n".join(lines)
                lines = []
            lines.append(line)
        yield "\n".join(lines)
