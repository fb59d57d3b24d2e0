"""The public surface, frozen: commands and options, names, entry points, tables and columns.

A change of it is a decision: ``python tests/test_surface.py`` writes it down.
"""

import importlib.metadata
import json
from pathlib import Path

import typer.main

import stemmatics
from stemmatics import plugin
from stemmatics.cli import main
from stemmatics.core.stemma import Stemma
from stemmatics.store.schema import SCHEMA_VERSION, schemas

GOLDEN = Path(__file__).parent / "golden" / "surface.json"


def commands():
    if not main.app.registered_commands:
        main._register()
    group = typer.main.get_command(main.app)
    return {
        name: sorted(
            "/".join(parameter.opts) if parameter.opts[0].startswith("-") else f"<{parameter.name}>"
            for parameter in command.params
        )
        for name, command in sorted(group.commands.items())
    }


def entry_points():
    distribution = importlib.metadata.distribution("stemmatics")
    groups = {}
    for entry in distribution.entry_points:
        groups.setdefault(entry.group, []).append(entry.name)
    return {group: sorted(names) for group, names in sorted(groups.items())}


def surface():
    return {
        "commands": commands(),
        "names": sorted(stemmatics.__all__),
        "plugin": sorted(plugin.__all__),
        "entry_points": entry_points(),
        "schema_version": SCHEMA_VERSION,
        "tables": {
            name: {field.name: str(field.type) for field in schema}
            for name, schema in sorted(schemas().items())
        },
        "stemma": sorted(Stemma.model_json_schema(by_alias=True)["properties"]),
    }


def test_the_public_surface_is_as_it_was_written_down():
    expected = json.loads(GOLDEN.read_text(encoding="utf-8"))
    found = surface()
    how = "if this change is meant, type `python tests/test_surface.py` and say so in CHANGELOG.md"
    for part in sorted({*expected, *found}):
        assert found.get(part) == expected.get(part), f"{part} changed: {how}"


def test_every_public_name_is_there():
    for module in (stemmatics, plugin):
        for name in module.__all__:
            assert getattr(module, name) is not None


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps(surface(), indent=1) + "\n", encoding="utf-8")
