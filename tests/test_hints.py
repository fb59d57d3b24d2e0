"""Every hint of the code base: the options, commands, keys and extras that it names are there."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import click
import pytest
import typer

import stemmatics
from stemmatics.cli.main import _register, app
from stemmatics.core import plugins
from stemmatics.core.corpora import Corpus
from stemmatics.core.stemma import Stemma

ROOT = Path(__file__).parent.parent
SOURCE = Path(stemmatics.__file__).parent
# calls whose texts a user reads as advice
CALLS = {"UserError", "Mismatch", "field_error", "refusal", "notice", "lfs_error"}
# other programs, whose options are theirs
OTHERS = ("hf", "git", "zstd", "iconv", "pip", "chmod")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
COMMAND = re.compile(r"`stemma ([a-z]+)([^`]*)`")
QUOTED = re.compile(r"`([^`]*)`")
EXTRA = re.compile(r"stemmatics\[([^\]]+)\]")
# a dotted key of a stemma, such as scoring.windows.size
KEY = re.compile(r"\bset ([a-z_]+(?:\.[a-z_]+)+)")


def literals(node):
    """The text of a string expression, with a mark for what is filled in."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(value.value if isinstance(value, ast.Constant) else "{}" for value in node.values)
    if isinstance(node, ast.BinOp):
        return literals(node.left) + literals(node.right)
    return " ".join(literals(child) for child in ast.iter_child_nodes(node))


def hints():
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            if name in CALLS:
                arguments = [*node.args, *(word.value for word in node.keywords)]
                texts = (" ".join(literals(argument).split()) for argument in arguments)
                found += [(f"{path.relative_to(SOURCE)}:{node.lineno}", text) for text in texts if text]
    return found


HINTS = hints()


@pytest.fixture(scope="module")
def commands():
    """The options of every command."""
    if not app.registered_commands:
        _register()
    group = typer.main.get_command(app)
    context = click.Context(group)
    return {
        name: {option for parameter in group.get_command(context, name).params for option in parameter.opts}
        for name in group.list_commands(context)
    }


def of_others(text):
    return any(re.search(rf"`{program} [^`]*`|\b{program} (install|download)", text) for program in OTHERS)


def test_there_are_hints_to_look_at():
    assert len(HINTS) > 400
    assert sum(bool(OPTION.search(text)) for _, text in HINTS) > 15


def test_every_option_that_a_hint_names_is_one(commands):
    known = {option for options in commands.values() for option in options} | {"--help"}
    for place, text in HINTS:
        for option in OPTION.findall(QUOTED.sub(lambda q: "" if of_others(q[0]) else q[0], text)):
            assert option in known, f"{place}: {text}"


def test_every_command_that_a_hint_names_takes_its_options(commands):
    seen = set()
    for place, text in HINTS:
        for name, rest in COMMAND.findall(text):
            seen.add(name)
            assert name in commands, f"{place}: {text}"
            for option in OPTION.findall(rest):
                assert option in commands[name], f"{place}: {text}"
    assert {"run", "init", "show", "score"} <= seen


def test_every_extra_that_a_hint_names_is_declared():
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extras = set(declared["project"]["optional-dependencies"])
    for place, text in HINTS:
        for extra in EXTRA.findall(text):
            assert extra in extras or extra == "{}", f"{place}: {text}"


def fields(schema, node, prefix=()):
    """Every dotted path of a JSON schema."""
    while "$ref" in node:
        node = schema["$defs"][node["$ref"].rsplit("/", 1)[-1]]
    for option in [*node.get("anyOf", ()), *node.get("oneOf", ())]:
        yield from fields(schema, option, prefix)
    for name, inner in node.get("properties", {}).items():
        yield (*prefix, name)
        yield from fields(schema, inner, (*prefix, name))
    if isinstance(node.get("additionalProperties"), dict):
        yield from fields(schema, node["additionalProperties"], (*prefix, "NAME"))


def known_keys():
    schema = Stemma.model_json_schema(by_alias=True)
    paths = set(fields(schema, schema))
    corpus = Corpus.model_json_schema(by_alias=True)
    paths |= set(fields(corpus, corpus))
    for name in plugins.names("measures"):
        measure = plugins.find("measures", name)
        settings = measure.Settings.model_json_schema(by_alias=True)
        paths |= {(name, *path) for path in fields(settings, settings)}
        paths |= set(fields(settings, settings))
    return {".".join(part for part in path if part != "NAME") for path in paths}


def test_every_key_that_a_hint_sets_is_in_a_stemma():
    known = known_keys()
    assert {"scoring.windows.size", "numerics.dtype", "render.template"} <= known
    count = 0
    for place, text in HINTS:
        for key in KEY.findall(text):
            count += 1
            assert any(path == key or path.endswith(f".{key}") for path in known), f"{place}: {text}"
    assert count >= 5


def test_every_stemma_in_backticks_is_one():
    """`floor: none`, `numerics: {dtype: float32}`: the outermost key is one of a stemma or of a measure."""
    known = {path.split(".")[-1] for path in known_keys()} | set(plugins.names("measures")) | {"measures"}
    for place, text in HINTS:
        for quoted in QUOTED.findall(text):
            key = re.match(r"([a-z_]+):( |$)", quoted)
            if key:
                assert key[1] in known, f"{place}: {text}"
