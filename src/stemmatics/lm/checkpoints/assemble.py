"""A folder with exactly the pinned files, to load from.

The files are linked into an empty folder, so that a stray adapter, a second tokenizer or a changed file
is never loaded: what is read is what was pinned.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from stemmatics.core.errors import UserError
from stemmatics.lm.checkpoints.damage import check_config, check_files
from stemmatics.lm.checkpoints.gguf_parts import JOINED, join
from stemmatics.lm.checkpoints.hub import Folder, HashCache, Repository, sha256_of
from stemmatics.lm.checkpoints.pin import Pin, parse


@contextmanager
def assembled(pinned: Pin, names: list[str], *, offline: bool | None) -> Iterator[Path]:
    """A temporary folder with links to ``names``, each file checked against its pinned hash."""
    hashes = HashCache()
    spec = parse(pinned.source)
    files: Folder | Repository
    if pinned.kind == "hub":
        files = Repository(spec.name, pinned.revision, offline=offline, hashes=hashes)
    else:
        path = Path(spec.name).expanduser()
        files = Folder(path.parent if pinned.kind == "gguf" else path, hashes)
    with tempfile.TemporaryDirectory(prefix="stemmatics-") as folder:
        for name in names:
            path = files.fetch(name)
            if not path.exists() or sha256_of(path, hashes) != pinned.files[name]:
                raise UserError(
                    f"{name} of {pinned.source} is not the file that was pinned",
                    "it was changed or removed in between",
                    "Run the command again to pin the current files",
                )
            (Path(folder) / name).symlink_to(path.resolve())
        if pinned.kind == "gguf" and len(names) > 1:
            join([Path(folder) / name for name in names], Path(folder) / JOINED)
        check_files(Path(folder), pinned.source)
        check_config(Path(folder), pinned.source)
        yield Path(folder)


@contextmanager
def explained(source: str) -> Iterator[None]:
    """Turn a library's error about a checkpoint's files into a UserError that names the checkpoint."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except UserError:
        raise
    except ImportError as error:
        raise UserError(
            f"{source} needs a package that is missing",
            " ".join(str(error).split())[:300],
            "Install it into this environment and run the command again",
        ) from error
    except Exception as error:
        if "trust_remote_code" in str(error):
            raise UserError(
                f"{source} needs its own Python code to run",
                "transformers has no class for it, and code from a checkpoint is not run by default",
                "Read that code, then type --trust-remote-code (trust_remote_code=True) if you trust it",
            ) from error
        raise UserError(
            f"{source} can't be loaded",
            f"{type(error).__name__}: {' '.join(str(error).split())[:500]}",
            _advice(error),
        ) from error


def _advice(error: Exception) -> str:
    text = str(error).lower()
    if "model_type" in text or "model type" in text or "unrecognized" in text or "does not recognize" in text:
        return (
            "If its architecture is newer than the installed transformers, upgrade transformers; it must be "
            "a causal language model"
        )
    if "tokenizer" in text or "data did not match any variant" in text:
        return "Upgrade `tokenizers` and `transformers`, or get the tokenizer files again"
    return "Compare config.json and the files with those of the original checkpoint"


def gguf_argument(pinned: Pin) -> dict[str, str]:
    """Additional arguments of transformers for a GGUF."""
    if pinned.kind != "gguf":
        return {}
    return {"gguf_file": next(iter(pinned.files)) if len(pinned.files) == 1 else JOINED}


def origin(pinned: Pin) -> str:
    """The name for the loaded object, in place of the temporary folder's."""
    return (
        parse(pinned.source).name if pinned.kind == "hub" else str(Path(pinned.source).expanduser().resolve())
    )
