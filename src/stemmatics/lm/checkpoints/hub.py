"""A checkpoint's files, in a folder or on the Hub, and their cached hashes.

Nothing here imports torch. ``huggingface_hub`` is imported where it is used, so that local
checkpoints need no network library.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any

from filelock import FileLock

from stemmatics.core.errors import UserError
from stemmatics.core.notices import notice
from stemmatics.store.cache import default_root

WEIGHTS = (("model", "safetensors"), ("pytorch_model", "bin"))
LFS_POINTER = b"version https://git-lfs.github.com/spec/"
SHARD = re.compile(r"(model|pytorch_model)-\d+-of-\d+\.(safetensors|bin)")
COMMIT = re.compile(r"[0-9a-f]{40}")


class HashCache:
    """A JSON file of values that are slow to compute, shared by all processes of this user.

    Entries of local files have the file's size, times and inode, so a file that was rewritten is
    hashed again. A damaged file counts as empty: all its values can be computed again.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.path = (folder or default_root()) / "file_hashes.json"

    def get(self, name: str) -> Any:
        """The entry, or None."""
        return self._read().get(name)

    def put(self, name: str, value: Any) -> None:
        """Write an entry; entries that other processes write at the same time are kept.

        Where it can't be written there is a notice: the value is computed again the next time.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(f"{self.path}.lock"):
                entries = self._read() | {name: value}
                part = self.path.with_name(f"{self.path.name}.part-{os.getpid()}")
                part.write_text(json.dumps(entries, indent=0, sort_keys=True), encoding="utf-8")
                part.replace(self.path)
        except (OSError, NotImplementedError) as error:  # the second where the file system has no locks
            reason = getattr(error, "strerror", None) or str(error)
            notice(
                f"hashes of files can't be kept in {self.path.parent} ({reason}), so they are computed again "
                "in each run; set STEMMATICS_CACHE to a folder that can be written"
            )

    def _read(self) -> dict[str, Any]:
        try:
            entries = json.loads(self.path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return entries if isinstance(entries, dict) else {}


def sha256_of(path: Path, hashes: HashCache) -> str:
    """SHA-256 of a file's bytes, 64 hex digits, recomputed only if the file changed.

    "Changed" is any difference in size, modification time, status-change time or inode. The
    status-change time can't be set by a program, so a rewrite that keeps the old modification
    time is noticed as well.
    """
    real = path.resolve()
    state = real.stat()
    stamp = [state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino]
    known = hashes.get(str(real))
    if isinstance(known, dict) and known.get("stamp") == stamp:
        return str(known["sha256"])
    with real.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    hashes.put(str(real), {"stamp": stamp, "sha256": digest})
    return digest


def hub_is_offline() -> bool:
    """Whether the Hub's client is set to stay offline (``HF_HUB_OFFLINE=1``)."""
    from huggingface_hub import constants

    return bool(constants.HF_HUB_OFFLINE)


class Repository:
    """One model repository of the Hub at one commit.

    ``names`` are the files at its top level, ``lfs_sha256`` the hashes that the Hub states for
    its large files. ``notice`` says where the commit comes from if the Hub was not queried.

    Raises UserError if the repository or revision does not exist, or can't be reached and is not in
    the cache.
    """

    def __init__(self, name: str, revision: str | None, *, offline: bool | None, hashes: HashCache) -> None:
        self.name = name
        self.hashes = hashes
        self.offline = hub_is_offline() if offline is None else offline
        self.notice: str | None = None
        requested = revision or "main"
        commit = requested if COMMIT.fullmatch(requested) else None
        listing = hashes.get(f"hub:{name}@{commit}") if commit else None
        if listing is None and not self.offline:
            try:
                commit, listing = self._query(requested)
            except (_http_error(), OSError) as error:
                if offline is False:
                    raise UserError(
                        f"The Hub can't be reached for {name}@{requested}",
                        _first_line(error),
                        "Check the network, or use a local folder",
                    ) from error
                self.offline = True
                self.notice = f"the Hub was not reached; {name}@{requested} is from the local cache"
        if listing is None:
            commit, listing = self._from_cache(requested)
        assert commit is not None
        self.commit = commit
        self.names: list[str] = sorted(listing)
        self.lfs_sha256: dict[str, str | None] = listing

    def _query(self, requested: str) -> tuple[str, dict[str, str | None]]:
        from huggingface_hub import HfApi
        from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError

        try:
            info = HfApi().model_info(self.name, revision=requested, files_metadata=True)
        except GatedRepoError as error:
            raise UserError(
                f"{self.name} is gated",
                "its owner gives access to logged-in users who accepted its terms",
                f"Accept them at https://huggingface.co/{self.name} and run `hf auth login`",
            ) from error
        except RepositoryNotFoundError as error:
            raise UserError(
                f"Unknown model {self.name}",
                "no file or folder here has that name, and the Hub has no such model (or it is private)",
                "Check the spelling; for a private model run `hf auth login`",
            ) from error
        except RevisionNotFoundError as error:
            raise UserError(
                f"{self.name} has no revision {requested!r}",
                "the Hub has the model but not this branch, tag or commit",
                f"See https://huggingface.co/{self.name}/commits for existing revisions",
            ) from error
        assert info.sha is not None
        listing = {
            file.rfilename: (file.lfs.sha256 if file.lfs is not None else None)
            for file in info.siblings or []
            if "/" not in file.rfilename
        }
        self.hashes.put(f"hub:{self.name}@{info.sha}", listing)
        self._remember_revision(requested, info.sha)
        return info.sha, listing

    def _folder(self) -> Path:
        from huggingface_hub import constants
        from huggingface_hub.file_download import repo_folder_name

        return Path(constants.HF_HUB_CACHE) / repo_folder_name(repo_id=self.name, repo_type="model")

    def _remember_revision(self, requested: str, commit: str) -> None:
        # Files are fetched by commit, which does not record the branch; offline, the branch is needed.
        if requested != commit:
            note = self._folder() / "refs" / requested
            try:
                note.parent.mkdir(parents=True, exist_ok=True)
                note.write_text(commit, encoding="utf-8")
            except OSError as error:
                notice(f"{self.name}@{requested} won't be found offline: {note} can't be written ({error})")

    def _from_cache(self, requested: str) -> tuple[str, dict[str, str | None]]:
        note = self._folder() / "refs" / requested
        commit = note.read_text(encoding="utf-8").strip() if note.is_file() else requested
        listing = self.hashes.get(f"hub:{self.name}@{commit}")
        snapshot = self._folder() / "snapshots" / commit
        if listing is None and snapshot.is_dir():
            listing = {path.name: None for path in snapshot.iterdir() if path.is_file()}
        if listing is None or not COMMIT.fullmatch(commit):
            raise UserError(
                f"{self.name}@{requested} is not in the local cache",
                "the Hub is offline or can't be reached",
                f"Run `hf download {self.name} --revision {requested}` where there is a network",
            )
        return commit, listing

    def fetch(self, name: str) -> Path:
        """The file in the local cache, downloaded if needed."""
        from huggingface_hub import hf_hub_download

        try:
            return Path(hf_hub_download(self.name, name, revision=self.commit, local_files_only=self.offline))
        except (_http_error(), OSError) as error:
            raise UserError(
                f"{name} of {self.name}@{self.commit} can't be downloaded",
                _first_line(error),
                "Check the network, or download the whole model first with `hf download`",
            ) from error

    def sha256(self, name: str) -> str:
        """The Hub's own hash of a large file; small files are fetched and hashed."""
        return self.lfs_sha256.get(name) or sha256_of(self.fetch(name), self.hashes)


class Folder:
    """A local folder, with the interface of ``Repository``."""

    commit = None
    notice = None

    def __init__(self, path: Path, hashes: HashCache) -> None:
        self.path = path
        self.hashes = hashes
        self.names = sorted(entry.name for entry in path.iterdir() if entry.is_file())

    def fetch(self, name: str) -> Path:
        """The file itself."""
        return self.path / name

    def sha256(self, name: str) -> str:
        """The file's hash."""
        return sha256_of(self.path / name, self.hashes)


def holds_model(files: Folder | Repository) -> bool:
    """Whether the files are those of a full model."""
    return any(
        {f"{stem}.{suffix}", f"{stem}.{suffix}.index.json"} & set(files.names) for stem, suffix in WEIGHTS
    )


def weight_names(files: Folder | Repository, source: str, chosen: str | None = None) -> list[str]:
    """The weight files that loading will read (index included), in transformers' order of preference.

    ``chosen`` is a weight file or an index of shards, where there are two sets.

    Raises UserError with the file's name if an index names a missing shard, if a shard exists that the
    index does not name, if there are two sets and none is chosen, or if there are no weights.
    """
    for stem, suffix in WEIGHTS:
        single, index = f"{stem}.{suffix}", f"{stem}.{suffix}.index.json"
        sets = [name for name in (single, index) if name in files.names]
        if chosen in sets:
            sets = [chosen]
        elif len(sets) > 1 and chosen is None:
            raise UserError(
                f"{source} has two sets of weights: {single} and the shards of {index}",
                "one of them is left over from another save, and they need not be equal",
                f"Choose with --weights {index} or --weights {single} (stemma.yaml: `weights: {index}`), "
                "or remove the other",
            )
        if not sets or (chosen is not None and chosen not in sets):
            continue
        if sets == [single]:
            return sets
        named = set(read_json(files, index).get("weight_map", {}).values())
        present = {name for name in files.names if SHARD.fullmatch(name) and name.endswith(suffix)}
        for wrong, why in (
            (named - set(files.names), f"{index} names it, but it does not exist"),
            (present - named, f"it exists, but {index} does not name it"),
        ):
            if wrong:
                raise UserError(
                    f"Shard {', '.join(sorted(wrong))} of {source} does not match the index",
                    why,
                    "Download or copy the complete model again",
                )
        return [index, *sorted(named)]
    if chosen is not None:
        raise UserError(
            f"{source} has no weights called {chosen!r}",
            f"its weight files are {', '.join(name for name in files.names if _is_weights(name)) or 'none'}",
            "Give model.safetensors or the index of the shards",
            code=2,
        )
    ggufs = [name for name in files.names if name.lower().endswith(".gguf")]
    raise UserError(
        f"{source} has no weights",
        "there is no model.safetensors, pytorch_model.bin or index of shards",
        f"Give the file itself: {source}/{ggufs[0]}" if ggufs else "Check the path, or finish the download",
    )


def _is_weights(name: str) -> bool:
    return any(name in {f"{stem}.{suffix}", f"{stem}.{suffix}.index.json"} for stem, suffix in WEIGHTS)


def adapter_name(files: Folder | Repository, source: str) -> str:
    """The adapter's weight file."""
    for name in ("adapter_model.safetensors", "adapter_model.bin"):
        if name in files.names:
            return name
    raise UserError(
        f"{source} has no adapter weights",
        "there is no adapter_model.safetensors and no adapter_model.bin",
        "Check the path, or finish the download",
    )


def read_json(files: Folder | Repository, name: str) -> dict[str, Any]:
    """A JSON object among the files; UserError with its name if it is something else."""
    path = files.fetch(name)
    refuse_pointer(path, name)
    try:
        value = json.loads(path.read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise UserError(
            f"{name} can't be read", f"it is not a JSON object: {error}", "Download or copy it again"
        ) from error
    if not isinstance(value, dict):
        raise UserError(
            f"{name} can't be read",
            f"it holds a {type(value).__name__}, not an object",
            "Download or copy it again",
        )
    return value


def refuse_pointer(path: Path, name: str) -> None:
    """Raise UserError for a pointer of Git LFS in place of a file."""
    with path.open("rb") as stream:
        start = stream.read(len(LFS_POINTER))
    if start == LFS_POINTER:
        raise UserError(
            f"{name} is a Git LFS pointer",
            "the repository was cloned without its large files",
            f"Type `git lfs pull` in {path.parent}",
        )


def _http_error() -> type[Exception]:
    # The Hub's client has changed its transport library more than once; this is the base of its errors.
    from huggingface_hub.errors import HfHubHTTPError

    return next(kind for kind in HfHubHTTPError.__mro__ if kind.__name__ == "HTTPError")


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def some(names: list[str], limit: int = 5) -> str:
    """The first few names and how many more there are."""
    return ", ".join(names[:limit]) + (f" and {len(names) - limit} more" if len(names) > limit else "")
