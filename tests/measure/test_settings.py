"""Settings of every measure: defaults and bounds are part of what a study means, so they are recorded.

``python -m tests.measure.test_settings`` records them anew.
"""

import json
from pathlib import Path

from stemmatics.core import plugins

GOLDEN = Path(__file__).parents[1] / "golden" / "settings.json"


def schemas():
    return {
        name: plugins.find("measures", name).Settings.model_json_schema()
        for name in sorted(plugins.names("measures"))
    }


def plain(schema):
    """Without the prose: types, defaults and bounds."""
    if isinstance(schema, dict):
        return {
            name: plain(value)
            for name, value in schema.items()
            if not (name in {"description", "title"} and isinstance(value, str))
        }
    return [plain(value) for value in schema] if isinstance(schema, list) else schema


def test_defaults_and_bounds_are_the_recorded_ones():
    assert plain(schemas()) == json.loads(GOLDEN.read_text())


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps(plain(schemas()), indent=1, sort_keys=True) + "\n")
