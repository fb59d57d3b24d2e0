"""Names of checkpoints, and pins that fix a checkpoint to the byte.

``org/name``, ``org/name@revision``, a folder, ``file.gguf``, ``BASE+ADAPTER`` with ``@revision`` on
either side, or an adapter alone. A pin holds content hashes; facts are keyed by them, so the same
weights in another folder are the same checkpoint and new weights under an old path are another.
Nothing here imports torch.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from stemmatics.core.errors import UserError
from stemmatics.core.keys import key_of
from stemmatics.lm.checkpoints.gguf_parts import parts_of
from stemmatics.lm.checkpoints.hub import (
    Folder,
    HashCache,
    Repository,
    adapter_name,
    holds_model,
    read_json,
    sha256_of,
    weight_names,
)

Kind = Literal["folder", "hub", "gguf", "adapter"]

HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
CONFIG_FILES = ("adapter_config.json", "config.json", "generation_config.json")
VOCABULARY = re.compile(r"tokenizer\.json|vocab\.(json|txt)|tekken\.json|.+\.(model|tiktoken)")
TOKENIZER = re.compile(
    rf"{VOCABULARY.pattern}|merges\.txt|tokenizer_config\.json|special_tokens_map\.json"
    r"|added_tokens\.json|chat_template\.(jinja|json)"
)
# Fields of a config with the name or path that it was made from: not content.
ORIGINS = ("_name_or_path", "base_model_name_or_path", "revision")


class CheckpointSpec(BaseModel):
    """A parsed name of a checkpoint; only the file system has been read."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Kind
    name: str
    revision: str | None = None
    weights: str | None = None
    base: CheckpointSpec | None = None
    adapter: CheckpointSpec | None = None


class Pin(BaseModel):
    """One checkpoint, fixed by the hashes of its files.

    ``revision`` is the 40-digit commit of a Hub model, None for local files; ``files`` are SHA-256
    by file name. ``parts`` of an adapted checkpoint are the base's pin and the adapter's.
    ``tokenizer_sha256`` is None if the checkpoint has no tokenizer.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Kind
    source: str
    revision: str | None
    files: dict[str, str]
    weights_sha256: str
    tokenizer_sha256: str | None
    config_sha256: str
    parts: tuple[Pin, ...] = ()
    notices: tuple[str, ...] = ()

    def key(self) -> dict[str, str | None]:
        """Hashes of the content, without paths or names, for fact keys."""
        return {
            "weights": self.weights_sha256,
            "tokenizer": self.tokenizer_sha256,
            "config": self.config_sha256,
        }


def parse(spec: str) -> CheckpointSpec:
    """Determine which form ``spec`` has. A local path takes precedence over a name on the Hub.

    Raises UserError (exit 2) if a path does not exist, if no form matches, or if ``+`` is ambiguous.
    """
    local = _local(spec)
    if local is not None:
        return local
    readings = []
    for index in (i for i, sign in enumerate(spec) if sign == "+"):
        base, adapter = _single(spec[:index]), _single(spec[index + 1 :])
        if base is not None and adapter is not None:
            readings.append((base, adapter))
    if len(readings) > 1:
        raise UserError(
            f"{spec!r} is ambiguous: it can be read in {len(readings)} ways",
            "more than one + could separate a base from an adapter",
            "Rename the folder that has a + in its name",
            code=2,
        )
    if readings:
        base, adapter = readings[0]
        return CheckpointSpec(kind="adapter", name=spec, base=base, adapter=adapter)
    single = _single(spec)
    if single is None:
        raise UserError(
            f"{spec!r} is not a checkpoint",
            "no file or folder has that name, and it is not a name that the Hub allows",
            "Give org/name, org/name@revision, a folder, file.gguf or BASE+ADAPTER",
            code=2,
        )
    return single


def _local(spec: str) -> CheckpointSpec | None:
    path = Path(spec).expanduser()
    if not spec or not path.exists():
        return None
    if path.is_file():
        if path.suffix.lower() == ".gguf":
            return CheckpointSpec(kind="gguf", name=spec)
        raise UserError(
            f"{spec} is a file but not a GGUF",
            "weights in other formats come as a folder with their config and tokenizer",
            f"Give the folder: {path.parent}",
            code=2,
        )
    return CheckpointSpec(kind="folder", name=spec)


def _single(spec: str) -> CheckpointSpec | None:
    """A folder, a file or a Hub name, with ``#FILE`` behind it if it has two sets of weights; else None."""
    local = _local(spec)
    if local is not None:
        return local
    before, sign, weights = spec.rpartition("#")
    if sign and weights.endswith((".safetensors", ".bin", ".index.json")):
        chosen = _single(before)
        return None if chosen is None else chosen.model_copy(update={"weights": weights})
    name, at, revision = spec.partition("@")
    if at and _local(name) is not None:
        raise UserError(
            f"{name} is a local path, which has no revision",
            f"{revision!r} would be a revision on the Hub",
            f"Drop the @{revision}, or run where no file or folder is called {name}",
            code=2,
        )
    if name.startswith((".", "/", "~")) or name.lower().endswith(("/", ".gguf")) or name.count("/") > 1:
        raise UserError(
            f"{name} does not exist",
            "it is written as a path",
            "Check the path; it is relative to the current folder",
            code=2,
        )
    if not HUB_NAME.fullmatch(name) or (at and not revision):
        return None
    return CheckpointSpec(kind="hub", name=name, revision=revision or None)


def pin(spec: str | CheckpointSpec, *, offline: bool | None = None, hashes: HashCache | None = None) -> Pin:
    """Resolve and hash a checkpoint. Local weights are hashed once, Hub weights are not even fetched.

    ``offline``: True uses only the cache, with False an unreachable Hub is an error, None falls
    back to the cache and adds a notice (``HF_HUB_OFFLINE=1`` acts as True).

    Raises UserError for a missing checkpoint, revision or shard.
    """
    spec = parse(spec) if isinstance(spec, str) else spec
    hashes = hashes or HashCache()
    if spec.kind == "gguf":
        path = Path(spec.name).expanduser()
        files_of_parts = {part.name: sha256_of(part, hashes) for part in parts_of(path)}
        digest = next(iter(files_of_parts.values())) if len(files_of_parts) == 1 else key_of(files_of_parts)
        return Pin(
            kind="gguf",
            source=spec.name,
            revision=None,
            files=files_of_parts,
            weights_sha256=digest,
            tokenizer_sha256=digest,
            config_sha256=digest,
        )
    target = spec.adapter or spec
    files = open_files(target, offline=offline, hashes=hashes)
    if spec.adapter is not None and "adapter_config.json" not in files.names:
        raise UserError(
            f"{target.name} is not an adapter",
            "it has no adapter_config.json",
            "The form is BASE+ADAPTER",
            code=2,
        )
    if spec.adapter is None and ("adapter_config.json" not in files.names or holds_model(files)):
        return _pin_files(target, files)
    return _pin_adapted(spec, files, offline=offline, hashes=hashes)


def open_files(spec: CheckpointSpec, *, offline: bool | None, hashes: HashCache) -> Folder | Repository:
    """The files of a folder or of a Hub model."""
    if spec.kind == "hub":
        return Repository(spec.name, spec.revision, offline=offline, hashes=hashes)
    return Folder(Path(spec.name).expanduser(), hashes)


def _pin_files(spec: CheckpointSpec, files: Folder | Repository, *, adapter: bool = False) -> Pin:
    configs = {name: read_json(files, name) for name in CONFIG_FILES if name in files.names}
    if not adapter and "adapter_config.json" in configs:
        raise UserError(
            f"{spec.name} has both a full model and an adapter",
            "transformers would load the adapter silently",
            "Move adapter_config.json and its weights to their own folder and give BASE+ADAPTER",
        )
    weights = [adapter_name(files, spec.name)] if adapter else weight_names(files, spec.name, spec.weights)
    names = [*configs, *(name for name in files.names if TOKENIZER.fullmatch(name)), *weights]
    if any("auto_map" in config for config in configs.values()):
        names += [name for name in files.names if name.endswith(".py")]
    hashes = {name: files.sha256(name) for name in sorted(set(names))}
    tokenizer = {name: sha for name, sha in hashes.items() if TOKENIZER.fullmatch(name)}
    code = {name: sha for name, sha in hashes.items() if name.endswith(".py")}
    contents = {
        name: {field: value for field, value in config.items() if field not in ORIGINS}
        for name, config in configs.items()
    }
    return Pin(
        kind=spec.kind,
        source=_source(spec),
        revision=files.commit,
        files=hashes,
        weights_sha256=key_of(sorted(hashes[name] for name in weights if not name.endswith(".json"))),
        tokenizer_sha256=key_of(tokenizer) if any(VOCABULARY.fullmatch(name) for name in tokenizer) else None,
        # json.dumps and not our canonical JSON: configs may hold Infinity.
        config_sha256=hashlib.sha256(json.dumps([contents, code], sort_keys=True).encode()).hexdigest(),
        notices=() if files.notice is None else (files.notice,),
    )


def _source(spec: CheckpointSpec) -> str:
    """What :func:`parse` reads as this spec again."""
    named = spec.name if spec.revision is None else f"{spec.name}@{spec.revision}"
    return named if spec.weights is None else f"{named}#{spec.weights}"


def with_weights(spec: str, weights: str | None) -> str:
    """The spec with the weight file that is to be read; of an adapted checkpoint, the base's."""
    if weights is None:
        return spec
    parsed = parse(spec)
    if parsed.base is not None and parsed.adapter is not None:
        return f"{_source(parsed.base.model_copy(update={'weights': weights}))}+{_source(parsed.adapter)}"
    return _source(parsed.model_copy(update={"weights": weights}))


def _pin_adapted(
    spec: CheckpointSpec, files: Folder | Repository, *, offline: bool | None, hashes: HashCache
) -> Pin:
    adapter = _pin_files(spec.adapter or spec, files, adapter=True)
    notices = []
    base = spec.base
    if base is None:
        config = read_json(files, "adapter_config.json")
        named = config.get("base_model_name_or_path")
        if not named:
            raise UserError(
                f"{adapter.source} is an adapter that does not name its base",
                "adapter_config.json has no base_model_name_or_path",
                f"Name the base: BASE+{adapter.source}",
            )
        named = f"{named}@{config['revision']}" if config.get("revision") else str(named)
        try:
            base = parse(named)
        except UserError as error:
            raise UserError(
                f"The base of {adapter.source} was not found",
                error.what,
                f"Name the base: BASE+{adapter.source}",
            ) from error
        notices.append(f"{adapter.source} is an adapter: its own config names the base {named}")
    below = pin(base, offline=offline, hashes=hashes)
    if below.kind == "adapter":
        raise UserError(
            f"The base of {adapter.source} is itself an adapter",
            "an adapter needs a full model",
            "Merge the first adapter into its base, save that, and name it as the base",
        )
    return Pin(
        kind="adapter",
        source=spec.name if spec.revision is None else f"{spec.name}@{spec.revision}",
        revision=adapter.revision,
        files={f"base/{name}": sha for name, sha in below.files.items()}
        | {f"adapter/{name}": sha for name, sha in adapter.files.items()},
        weights_sha256=key_of({"base": below.weights_sha256, "adapter": adapter.weights_sha256}),
        tokenizer_sha256=adapter.tokenizer_sha256 or below.tokenizer_sha256,
        config_sha256=key_of({"base": below.config_sha256, "adapter": adapter.config_sha256}),
        parts=(below, adapter),
        notices=(*notices, *below.notices, *adapter.notices),
    )
