"""An archive: a folder of tables with ``SHA256SUMS``, which are checked before anything is estimated.

``SHA256SUMS`` has the format of the command ``sha256sum``: for each file a line of 64 hex digits, two spaces
and the path within the folder. ``sha256sum -c SHA256SUMS`` checks the same digests.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from stemmatics.commands.analyse.prior import analyse_prior
from stemmatics.commands.analyse.table import kind_of, read_table, read_text
from stemmatics.core.errors import UserError
from stemmatics.core.keys import seed_from
from stemmatics.store.files import sha256_of, write_bytes

CHECKSUMS = "SHA256SUMS"
LINE = re.compile(r"(?P<escaped>\\?)(?P<digest>[0-9a-fA-F]{64})(?: [ *]| |\t)(?P<name>.+)")
BSD_LINE = re.compile(r"(?P<escaped>\\?)SHA256 \((?P<name>.+)\) = (?P<digest>[0-9a-fA-F]{64})")


def files_of(folder: Path) -> list[str]:
    """Paths of all files in the folder except the checksums: relative, with forward slashes, sorted."""
    names = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    return sorted(name for name in names if name != CHECKSUMS)


def write_checksums(folder: Path) -> Path:
    """Write ``SHA256SUMS`` for the files in the folder."""
    names = files_of(folder)
    if not names:
        raise UserError(
            f"{folder} has no files", "there is nothing to hash", "Put tables into the folder", code=2
        )
    lines = [f"{sha256_of(folder / name)}  {name}\n" for name in names]
    write_bytes(folder / CHECKSUMS, "".join(lines).encode())
    return folder / CHECKSUMS


def read_checksums(folder: Path) -> dict[str, str]:
    """Digest of each file by its path."""
    path = folder / CHECKSUMS
    if not path.is_file():
        raise UserError(
            f"{folder} has no {CHECKSUMS}",
            "without checksums an altered table can't be detected",
            "Get the file from the author of the archive, or write it with --write-checksums",
            code=2,
        )
    digests: dict[str, str] = {}
    for number, raw in enumerate(read_text(path).split("\n"), start=1):
        line = raw.removesuffix("\r").lstrip(" \t")
        if not line.strip() or line.startswith("#"):
            continue
        read = _read_line(line)
        if read is None or digests.get(read[0], read[1]) != read[1]:
            raise UserError(
                f"{CHECKSUMS}, line {number}: invalid line {line!r}",
                "a line is 64 hex digits, two spaces and a path inside the folder, and a file has one digest",
                "Correct the line, or write the file again with --write-checksums",
            )
        digests[read[0]] = read[1]
    return digests


def _read_line(line: str) -> tuple[str, str] | None:
    """Path and digest of a line that ``sha256sum -c`` takes; None for another line, or a path outside."""
    matched = LINE.fullmatch(line) or BSD_LINE.fullmatch(line)
    if matched is None:
        return None
    name = matched["name"]
    if matched["escaped"]:
        name = re.sub(r"\\([nr\\])", lambda mark: {"n": "\n", "r": "\r", "\\": "\\"}[mark[1]], name)
    path = PurePosixPath(name)  # drops ./ and doubled slashes
    if path.is_absolute() or ".." in path.parts:
        return None
    return path.as_posix(), matched["digest"].lower()


def analyse_archive(folder: Path, *, seed: int) -> dict[str, Any]:
    """Check every file against its digest, then estimate every table.

    ``problems`` names altered, missing and extra files, and tables that can't be read, for instance because
    a cell is not finite; they have no estimates. A table has the same estimates as when it is analysed alone.
    """
    digests = read_checksums(folder)
    digests.pop(CHECKSUMS, None)  # its own digest can't be right
    present = files_of(folder)
    problems = [f"missing: {name}" for name in digests if name not in present]
    problems += [f"extra: {name} is not in {CHECKSUMS}" for name in present if name not in digests]
    tables: dict[str, Any] = {}
    for name in present:
        if name not in digests:
            continue
        path = folder / name
        if sha256_of(path) != digests[name]:
            problems.append(f"altered: {name} has another SHA-256 than {CHECKSUMS} says")
            continue
        if kind_of(path) is None:
            continue
        try:
            rng = np.random.default_rng(seed_from(seed, "prior"))
            tables[name] = analyse_prior(read_table(path), rng=rng)
        except UserError as error:
            problems.append(f"not usable: {name}: {error.what.removeprefix(f'{path.name}: ')}")
    return {"tables": tables, "num_files": len(digests), "problems": problems}
