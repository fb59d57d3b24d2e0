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
# of a pool: rows of a fine-tune hold up to 512 tokens and more
POOL_PIECE = 2_000
# enough for 256,000 tokens of up to seven bytes
POOL_BYTES = 1_800_000


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


def pool_reference() -> list[str]:
    """The reference's training side in pieces for a fine-tune."""
    return list(dict.fromkeys(_side(topics, held_out=False, size=POOL_PIECE)))


def pool_code(num_bytes: int) -> list[str]:
    """Sources of the standard library's top-level modules, evenly over them: about so many bytes.

    Modules and paragraphs of the held-out side are left out.

    Raises:
        UserError: this Python comes without sources.
    """
    folder = Path(sysconfig.get_path("stdlib"))
    # made at installation, with the paths of one machine
    files = [path for path in sorted(folder.glob("*.py")) if not path.name.startswith("_sysconfigdata")]
    sources = {path.stem: path.read_text(encoding="utf-8", errors="replace") for path in files}
    if not sources:
        raise UserError(
            "this Python has no sources of its standard library",
            "the default pool of a recovery fine-tune is made of them",
            "Give a pool of your own (--pool), or use a Python with .py files",
        )
    held_out = {part for name, text in sources.items() if _held_out(name) for part in text.split("\n\n")}
    training = {
        name: "\n\n".join(part for part in text.split("\n\n") if part not in held_out)
        for name, text in sources.items()
        if not _held_out(name)
    }
    pieces = list(dict.fromkeys(_side(training, held_out=False, size=POOL_PIECE)))
    share = num_bytes / max(1, sum(len(piece.encode()) for piece in pieces))
    # pieces at equal distances, so that no module is preferred
    return [
        piece
        for index, piece in enumerate(pieces)
        if share >= 1 or int((index + 1) * share) > int(index * share)
    ]


def _side(texts: Mapping[str, str], *, held_out: bool, size: int = PIECE) -> Iterator[str]:
    """One side of the split, in order; paragraphs on both sides are left out of the held-out side."""
    paragraphs = {name: texts[name].split("\n\n") for name in sorted(texts)}
    training = {part for name, parts in paragraphs.items() if not _held_out(name) for part in parts}
    for name, parts in paragraphs.items():
        if _held_out(name) == held_out:
            yield from _pieces((part for part in parts if not (held_out and part in training)), size)


def _held_out(name: str) -> bool:
    return zlib.crc32(name.encode()) % 5 == 0


def _source(module: str) -> Path | None:
    spec = importlib.util.find_spec(module)
    path = Path(spec.origin) if spec is not None and spec.origin else None
    return path if path is not None and path.suffix == ".py" and path.is_file() else None


def _pieces(paragraphs: Iterable[str], size: int) -> Iterator[str]:
    """Paragraphs joined to about ``size`` characters; longer paragraphs are cut at lines."""
    piece = ""
    for part in _short(paragraphs, size):
        if piece and len(piece) + len(part) > size:
            yield piece
            piece = ""
        piece = f"{piece}\n\n{part}" if piece else part
    if piece.strip():
        yield piece


def _short(paragraphs: Iterable[str], size: int) -> Iterator[str]:
    for paragraph in paragraphs:
        lines: list[str] = []
        for line in paragraph.split("\n"):
            if lines and sum(map(len, lines)) + len(line) > size:
                yield "\n".join(lines)
                lines = []
            lines.append(line)
        yield "\n".join(lines)
