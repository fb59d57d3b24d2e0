"""Documents with stable ids, from files, the Hub or a generator, as a stream."""

from __future__ import annotations

import inspect
import itertools
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Literal

from stemmatics.core.corpora import Corpus
from stemmatics.core.errors import UserError
from stemmatics.core.keys import canonical_json
from stemmatics.lm.text import files as texts
from stemmatics.lm.text.doc_ids import document_id, document_key
from stemmatics.lm.text.files import Record, without_marks
from stemmatics.lm.text.rendering import CONVERSATIONS, MESSAGES, Renderer, messages_of, render

GENERATORS = "stemmatics.generators"
NO_REGISTER = "all"
_HUB_NAME = re.compile(
    r"(?P<dataset>[\w.-]+/[\w.-]+)(/(?P<config>[\w.-]+))?(:(?P<split>[^@]+))?(@(?P<revision>[\w./-]+))?"
)
_TEXT_LIKE_FIELDS = ("text", "content", "body", "document", "article", "completion", "story")


@dataclass(frozen=True, slots=True)
class Document:
    """One record's text.

    ``index`` counts all documents of the corpus in input order; duplicates share a ``doc_id`` and
    differ in ``index``. ``row`` counts lines (JSON lines) or rows from 0 within ``source``.
    ``scored`` holds UTF-8 byte spans of a rendered conversation; empty means the whole text.
    """

    index: int
    text: str
    doc_id: str
    register: str
    source: str
    row: int
    flags: frozenset[str]
    scored: tuple[tuple[int, int], ...] = ()


def text_source(argument: str, **settings: Any) -> Corpus:
    """The corpus that a TEXT on the command line stands for: an existing path, else a Hub dataset.

    A Hub dataset is ``org/name[/config][:split][@revision]``.
    """
    looks_local = Path(argument).expanduser().exists() or texts.ending(argument)
    match = None if looks_local else _HUB_NAME.fullmatch(argument)
    if match is None:
        return Corpus(path=[argument], **settings)
    named = {
        "dataset_config": match["config"],
        "dataset_split": match["split"],
        "revision": match["revision"],
    }
    named_parts = {name: value for name, value in named.items() if value}
    return Corpus(dataset=match["dataset"], **named_parts, **settings)


def records(source: Corpus, *, errors: Literal["refuse", "replace"] = "refuse") -> Iterator[Record]:
    """The raw records of a corpus in input order, at most ``max_documents``; also of training data.

    Raises UserError for a corpus without any record, and for what can't be read.
    """
    if source.path:
        stream = itertools.chain.from_iterable(_from_path(source, path, errors) for path in source.path)
    elif source.dataset:
        stream = _from_hub(source)
    else:
        stream = _from_generator(source)
    return _not_empty(itertools.islice(stream, source.max_documents), source)


def _not_empty(stream: Iterator[Record], source: Corpus) -> Iterator[Record]:
    is_empty = True
    for record in stream:
        is_empty = False
        yield record
    if is_empty:
        name = ", ".join(source.path or []) or source.dataset or source.generator
        raise UserError(
            f"{name} has no documents",
            "there is no record in it",
            "give at least one document, or name another text",
        )


def read(
    source: Corpus,
    *,
    key: bytes | None = None,
    errors: Literal["refuse", "replace"] = "refuse",
    own_template: Renderer | None = None,
    special_tokens: Mapping[str, str] | None = None,
) -> Iterator[Document]:
    """The documents of a corpus, one per record, including empty ones and duplicates.

    A record of training data (``role: data``) becomes canonical JSON.

    Args:
        source: the declaration.
        key: the key of private ids, by default ``document_key()``.
        errors: how bytes that are not UTF-8 and lone surrogates are handled: ``refuse`` raises with
            the record's location; ``replace`` puts U+FFFD and flags the document ``replaced``.
        own_template: renders ``messages`` where ``render.template`` is ``own``.
        special_tokens: variables of another template, such as ``eos_token``; those of one tokenizer.

    Raises:
        UserError: with file, line and fix.
    """
    if source.private and key is None:
        key = document_key()
    for index, record in enumerate(records(source, errors=errors)):
        if source.role == "data":
            text, scored, flags = _data_text(record), (), record.flags
        elif source.render and _has_conversation(record, source):
            messages = messages_of(record.values, record.location)
            text, scored = render(messages, source.render, record.location, own_template, special_tokens)
            flags = record.flags | {"rendered"}
        else:
            text, scored, flags = _field_of(record, source), (), record.flags
        text, flags = _without_surrogates(text, record, flags, replace=errors == "replace")
        register = source.register_name or NO_REGISTER
        if source.register_field:
            register = _register_of(record, source.register_field)
            register, _ = _without_surrogates(register, record, flags, replace=errors == "replace")
        doc_id = document_id(text, key if source.private else None)
        yield Document(index, text, doc_id, register, record.source, record.row, flags, scored)


def _from_path(source: Corpus, path: str, errors: str) -> Iterator[Record]:
    registers = [source.register_field] if source.register_field else []
    fields = [source.field, *registers, MESSAGES, CONVERSATIONS]
    if source.role == "data":
        fields = []  # training data: every column
    for file, name in texts.files(path):
        yield from texts.records(file, name, name=source.field, fields=fields, replace=errors == "replace")


def _from_hub(source: Corpus) -> Iterator[Record]:
    try:
        import datasets
    except ImportError as error:
        raise UserError(
            f"can't read the Hub dataset {source.dataset}",
            "the datasets library is not installed",
            "run pip install 'stemmatics[lm]'",
        ) from error
    location = f"{source.dataset}:{source.dataset_split}"
    try:
        stream = datasets.load_dataset(
            source.dataset,
            source.dataset_config,
            split=source.dataset_split,
            revision=source.revision,
            streaming=True,
        )
        for row, values in enumerate(stream):
            yield without_marks(Record(values, location, row, f"{location} row {row + 1}"))
    except Exception as error:  # the library and its parsers have errors of many types
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise UserError(
            f"can't read the Hub dataset {location}",
            first,
            "check name, config, split and revision, or download it and name the files",
        ) from error


def _from_generator(source: Corpus) -> Iterator[Record]:
    known = {point.name: point for point in entry_points(group=GENERATORS)}
    if source.generator not in known:
        raise UserError(
            f"unknown generator {source.generator!r}",
            f"installed: {', '.join(sorted(known)) or 'none'}",
            f"name one of them, or install the package that provides it (entry points {GENERATORS})",
            code=2,
        )
    make = known[source.generator].load()
    try:
        inspect.signature(make).bind(**source.params)
    except TypeError as error:
        raise UserError(
            f"the generator {source.generator} can't be called",
            str(error),
            f"its params are {inspect.signature(make)}",
            code=2,
        ) from error
    for row, item in enumerate(make(**source.params)):
        values = {source.field: item} if isinstance(item, str) else item
        yield without_marks(Record(values, source.generator, row, f"{source.generator} document {row + 1}"))


def _has_conversation(record: Record, source: Corpus) -> bool:
    """Whether a record has messages and no text."""
    has_text = _lookup(record.values, source.field) is not None and source.field not in {
        MESSAGES,
        CONVERSATIONS,
    }
    return not has_text and any(record.values.get(name) is not None for name in (MESSAGES, CONVERSATIONS))


def _data_text(record: Record) -> str:
    try:
        return canonical_json(record.values)
    except (TypeError, ValueError) as error:
        raise UserError(
            f"{record.location} can't be used as training data",
            str(error),
            "write that value as text or a finite number, or remove its field",
        ) from None


def _field_of(record: Record, source: Corpus) -> str:
    if _has_conversation(record, source):
        name = MESSAGES if record.values.get(MESSAGES) is not None else CONVERSATIONS
        raise UserError(
            f"{record.location} has {name}, not text",
            "the chat template and the scored role change the loss",
            "name both: `stemma score --render own --role assistant` (or a template file), in a corpus "
            "`render: {template: TEXT OF THE TEMPLATE, role: assistant}`",
        )
    text = _value(record, source.field, "field")
    if not isinstance(text, str):
        kind = "null" if text is None else f"of the type {type(text).__name__}"
        raise UserError(
            f"{source.field!r} of {record.location} is not text",
            f"it is {kind}",
            _inside(source.field, text, "--field", "field")
            or "fix the record, or name another field with --field",
        )
    return text


def _register_of(record: Record, name: str) -> str:
    """The register of a document: text, a number or a truth value as JSON writes it.

    Null, NaN and blank text are no register. Raises UserError for an object or a list, naming the field
    inside that could be meant.
    """
    value = _value(record, name, "register_field")
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return NO_REGISTER
    if isinstance(value, dict | list | tuple | bytes):
        kind = "an object" if isinstance(value, dict) else "bytes" if isinstance(value, bytes) else "a list"
        raise UserError(
            f"{name!r} of {record.location} is {kind}, not a register",
            "a document has one register: text or a number",
            _inside(name, value, "--register", "register_field") or "name another field with --register",
        )
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))  # a column of whole numbers with gaps is read as decimals
    text = str(value)
    return register_label(text) if text.strip() else NO_REGISTER


def register_label(name: str) -> str:
    """A register's name as it is stored and shown: as given, but ``all``, which means every document.

    A register of that name is ``register all``; different names stay different.
    """
    return f"register {name}" if re.fullmatch(r"(register )*all", name) else name


def _inside(name: str, value: Any, option: str, key: str) -> str:
    """The advice to name a field inside an object or list; empty where there is none that holds text."""
    paths = sorted(_leaves(name, value), key=lambda path: path.count("."))
    return f"name the field inside it: {option} {paths[0]}, in a stemma {key}: {paths[0]}" if paths else ""


def _leaves(path: str, value: Any) -> Iterator[str]:
    if isinstance(value, str | int | float) and value is not None:
        yield path
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from _leaves(f"{path}.{name}", item)
    elif isinstance(value, list | tuple) and value:
        yield from _leaves(f"{path}.0", value[0])


_MISSING = object()


def _lookup(value: Any, path: str, default: Any = None) -> Any:
    """A field by its name, or by a dotted path through objects and lists (``meta.source``, ``tags.0``)."""
    if isinstance(value, list | tuple):
        head, _, rest = path.partition(".")
        if not head.isdecimal() or int(head) >= len(value):
            return default
        return _lookup(value[int(head)], rest, default) if rest else value[int(head)]
    if not isinstance(value, dict):
        return default
    if path in value:
        return value[path]
    parts = path.split(".")
    for end in range(len(parts) - 1, 0, -1):
        head = ".".join(parts[:end])
        if head in value:
            value_at = _lookup(value[head], ".".join(parts[end:]), _MISSING)
            if value_at is not _MISSING:
                return value_at
    return default


def _value(record: Record, name: str, setting: str) -> Any:
    value = _lookup(record.values, name, _MISSING)
    if value is not _MISSING:
        return value
    parts = name.split(".")
    outer = [".".join(parts[:end]) for end in range(1, len(parts))]
    if any(_lookup(record.values, path, _MISSING) is None for path in outer):
        return None  # what holds the field is null, and so is the field
    textual = [field for field, value in record.values.items() if isinstance(value, str)]
    likely = [field for field in _TEXT_LIKE_FIELDS if field in record.values] or textual
    option = "--field" if setting == "field" else "--register"
    fields = ", ".join(map(str, record.values)) or "none"
    inner = next((_lookup(record.values, path) for path in reversed(outer)), None)
    if isinstance(inner, dict):
        fields += f"; in {outer[-1]}: {', '.join(map(str, inner)) or 'none'}"
    raise UserError(
        f"{record.location} has no field {name!r}",
        f"its fields: {fields}",
        f"did you mean {option} {likely[0]}?" if likely else f"name one of them with {option}",
    )


def _without_surrogates(
    text: str, record: Record, flags: frozenset[str], *, replace: bool
) -> tuple[str, frozenset[str]]:
    """The text without lone surrogates, which UTF-8 can't write."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        if not replace:
            raise UserError(
                f"{record.location} is not valid Unicode",
                f"the lone surrogate U+{ord(text[error.start]):04X} at character {error.start} is invalid",
                "fix the record; `stemma score --replace` puts U+FFFD there and flags the document",
            ) from error
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"), flags | {"replaced"}
    return text, flags
