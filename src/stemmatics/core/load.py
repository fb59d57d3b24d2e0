"""Reading stemma.yaml: every error names the line and how to fix it."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from stemmatics.core.errors import UserError
from stemmatics.core.stemma import Stemma

Model = TypeVar("Model", bound=BaseModel)


def load(path: Path) -> tuple[Stemma, Any]:
    """A validated Stemma and the YAML tree with its line numbers. Raises UserError."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise UserError(
            f"{path} does not exist",
            "a study is declared in a YAML file",
            "Write one with `stemma init`",
            code=2,
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"{path} can't be read",
            getattr(error, "strerror", None) or str(error),
            "Give a UTF-8 text file such as `stemma init` writes",
            code=2,
        ) from None
    tree = parse(text, str(path))
    stemma = validate(Stemma, tree, (), str(path), tree)
    return resolve_paths(stemma, path.parent), tree


def parse(text: str, name: str) -> Any:
    """YAML text to a tree that knows its lines."""
    try:
        tree = YAML(typ="rt").load(text)
    except MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise UserError(
            f"{name}, line {line}: not valid YAML",
            str(error.problem or error),
            "Fix that line; `stemma init` writes a valid file to compare with",
            code=2,
        ) from None
    except (YAMLError, ValueError, RecursionError, AttributeError) as error:
        # control characters, impossible dates, endless nesting: the parser has no line for them
        reason = " ".join(str(error).split()) or type(error).__name__
        raise UserError(
            f"{name}: not valid YAML",
            reason,
            "Remove or quote that value; `stemma init` writes a valid file to compare with",
            code=2,
        ) from None
    if not isinstance(tree, CommentedMap):
        raise UserError(
            f"{name}, line 1: not a stemma",
            "the file must be a mapping with keys such as checkpoints and corpora",
            "Start from a file that `stemma init` writes",
            code=2,
        )
    return tree


def validate(model: type[Model], value: Any, location: tuple[str, ...], name: str, tree: Any) -> Model:
    """``value`` as ``model``. Raises UserError with the line of the first error."""
    try:
        return model.model_validate(_plain(value))
    except ValidationError as error:
        first = error.errors()[0]
        path = (*location, *first["loc"], *first.get("ctx", {}).get("at", ()))
        line = line_of(tree, path)
        what, fix = _explain(model, first, tree, path)
        raise UserError(f"{name}, line {line}: {what}", _reason(first), fix, code=2) from None


def line_of(tree: Any, path: Sequence[Any]) -> int:
    """The line, counted from 1, of the deepest part of ``path`` that is in the file."""
    node, line = tree, 1
    for part in path:
        if isinstance(node, CommentedMap) and part in node:
            line = node.lc.key(part)[0] + 1
            node = node[part]
        elif isinstance(node, CommentedSeq) and isinstance(part, int) and part < len(node):
            line = node.lc.item(part)[0] + 1
            node = node[part]
        # pydantic puts the tag of a union into the path; it is not in the file
    return line


def _reason(error: Mapping[str, Any]) -> str:
    reason = str(error["msg"]).removeprefix("Value error, ")
    return "no such key here" if error["type"] == "extra_forbidden" else reason


def _explain(
    model: type[BaseModel], error: Mapping[str, Any], tree: Any, path: tuple[Any, ...]
) -> tuple[str, str]:
    if error["type"] == "field_error":
        return f"invalid value of {'.'.join(path)}", error["ctx"]["fix"]
    if error["loc"][-1:] == ("[key]",):
        where = ".".join(map(str, error["loc"][:-2])) or "the file"
        spelled = _yaml(error.get("input"))
        return f"the name {spelled} under {where} is not text", f'Write it in quotes: "{spelled}"'
    spelled = ".".join(str(part) for part in path if not _is_tag(tree, part)) or "the file"
    if error["type"] == "extra_forbidden":
        known = _fields_at(model, error["loc"][:-1])
        close = difflib.get_close_matches(str(error["loc"][-1]), known, n=1)
        fix = f"Did you mean {close[0]!r}?" if close else f"Known keys are {', '.join(known)}"
        return f"unknown key {path[-1]!r} in {spelled.rpartition('.')[0] or 'the file'}", fix
    if error["type"] == "missing":
        return f"{spelled} is missing", f"Add the key {path[-1]!r}"
    if error["type"] == "string_type" and isinstance(error.get("input"), bool | int | float | date):
        return f"invalid value of {spelled}", f'Write it in quotes: "{_yaml(error["input"])}"'
    return f"invalid value of {spelled}", "Fix it; `stemma init` writes a valid file to compare with"


def _yaml(value: Any) -> str:
    """A scalar as YAML spells it."""
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _is_tag(tree: Any, part: Any) -> bool:
    return part in {"pretrain", "cpt", "sft", "dpo", "grpo", "alter", "recovery"} and not _holds(tree, part)


def _holds(node: Any, key: Any) -> bool:
    if isinstance(node, Mapping):
        return key in node or any(_holds(item, key) for item in node.values())
    return False


def _fields_at(model: type[BaseModel], loc: Sequence[Any]) -> list[str]:
    """Field names of the model that ``loc`` leads to, by way of the JSON schema."""
    schema = model.model_json_schema(by_alias=True)
    node: Mapping[str, Any] = schema
    for part in loc:
        node = _deref(schema, node)
        tagged = node.get("discriminator", {}).get("mapping", {})
        if part in tagged:
            node = {"$ref": tagged[part]}
        elif part in node.get("properties", {}):
            node = node["properties"][part]
        elif isinstance(node.get("additionalProperties"), Mapping):
            node = node["additionalProperties"]
        elif isinstance(node.get("items"), Mapping):
            node = node["items"]
    return sorted(_deref(schema, node).get("properties", {}))


def _deref(schema: Mapping[str, Any], node: Mapping[str, Any]) -> Mapping[str, Any]:
    for option in node.get("anyOf", []):
        if "$ref" in option or "properties" in option:
            node = option
    while "$ref" in node:
        node = schema["$defs"][node["$ref"].rsplit("/", 1)[-1]]
    return node


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def resolve_paths(stemma: Stemma, folder: Path) -> Stemma:
    """Relative paths in a file are relative to that file."""
    corpora = {
        name: corpus
        if corpus.path is None
        else corpus.model_copy(update={"path": [str(folder / part) for part in corpus.path]})
        for name, corpus in stemma.corpora.items()
    }
    checkpoints = {
        name: source.model_copy(update={"source": str(folder / source.source)})
        if source.source.startswith(("./", "../"))
        else source
        for name, source in stemma.checkpoints.items()
    }
    return stemma.model_copy(update={"corpora": corpora, "checkpoints": checkpoints})
