"""Documents with stable ids, from files, the Hub or a generator, as a stream."""

from __future__ import annotations

import inspect
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Literal

from stemmatics.core.corpora import Corpus
from stemmatics.core.errors import UserError
from stemmatics.core.keys import canonical_json
from stemmatics.lm.text import files as texts
from stemmatics.lm.text.doc_ids import document_id, document_key
from stemmatics.lm.text.files import Record
from stemmatics.lm.text.rendering import Renderer, render

GENERATORS = "stemmatics.generators"
DEFAULT_REGISTER = "all"
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
    given = {name: value for name, value in named.items() if value}
    return Corpus(dataset=match["dataset"], **given, **settings)


def records(source: Corpus, *, errors: Literal["refuse", "replace"] = "refuse") -> Iterator[Record]:
    """The raw records of a corpus in input order, at most ``max_documents``; also of training data."""
    if source.path:
        stream = itertools.chain.from_iterable(_from_path(source, path, errors) for path in source.path)
    elif source.dataset:
        stream = _from_hub(source)
    else:
        stream = _from_generator(source)
    return itertools.islice(stream, source.max_documents)


def read(
    source: Corpus,
    *,
    key: bytes | None = None,
    errors: Literal["refuse", "replace"] = "refuse",
    own_template: Renderer | None = None,
) -> Iterator[Document]:
    """The documents of a corpus, one per record, including empty ones and duplicates.

    A record of training data (``role: data``) becomes canonical JSON.

    Args:
        source: the declaration.
        key: the key of private ids, by default ``document_key()``.
        errors: how bytes that are not UTF-8 and lone surrogates are handled: ``refuse`` raises with
            the record's location; ``replace`` puts U+FFFD and flags the document ``replaced``.
        own_template: renders ``messages`` where ``render.template`` is ``own``.

    Raises:
        UserError: with file, line and fix.
    """
    if source.private and key is None:
        key = document_key()
    for index, record in enumerate(records(source, errors=errors)):
        if source.role == "data":
            text, scored, flags = canonical_json(record.values), (), record.flags
        elif record.values.get(source.field) is None and source.render and "messages" in record.values:
            text, scored = render(record.values["messages"], source.render, record.location, own_template)
            flags = record.flags | {"rendered"}
        else:
            text, scored, flags = _field_of(record, source), (), record.flags
        text, flags = _without_surrogates(text, record, flags, replace=errors == "replace")
        register = source.register_name or DEFAULT_REGISTER
        if source.register_field:
            register = str(_value(record, source.register_field, "register_field"))
        doc_id = document_id(text, key if source.private else None)
        yield Document(index, text, doc_id, register, record.source, record.row, flags, scored)


def _from_path(source: Corpus, path: str, errors: str) -> Iterator[Record]:
    wanted = [source.field, *([source.register_field] if source.register_field else []), "messages"]
    if source.role == "data":
        wanted = []  # training data: every column
    for file, name in texts.files(path):
        yield from texts.records(file, name, name=source.field, wanted=wanted, replace=errors == "replace")


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
            yield Record(values, location, row, f"{location} row {row + 1}")
    except (OSError, ValueError, RuntimeError) as error:  # the library's own errors derive from these
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
        yield Record(values, source.generator, row, f"{source.generator} document {row + 1}")


def _field_of(record: Record, source: Corpus) -> str:
    if record.values.get(source.field) is None and "messages" in record.values:
        raise UserError(
            f"{record.location} has messages, not text",
            "the chat template and the scored role change the loss",
            "name both: --render TEMPLATE:ROLE, or in the corpus render: {template: own, role: assistant}",
        )
    text = _value(record, source.field, "field")
    if not isinstance(text, str):
        raise UserError(
            f"{source.field!r} of {record.location} is not text",
            f"it is {'null' if text is None else 'of the type ' + type(text).__name__}",
            "fix the record, or name another field with --field",
        )
    return text


def _value(record: Record, name: str, setting: str) -> Any:
    if name in record.values:
        return record.values[name]
    textual = [field for field, value in record.values.items() if isinstance(value, str)]
    likely = [field for field in _TEXT_LIKE_FIELDS if field in record.values] or textual
    option = "--field" if setting == "field" else setting
    raise UserError(
        f"{record.location} has no field {name!r}",
        f"its fields: {', '.join(map(str, record.values)) or 'none'}",
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
                "fix the record, or set errors: replace, which puts U+FFFD there and flags the document",
            ) from error
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"), flags | {"replaced"}
    return text, flags
