"""Every probe on a tiny fixed input: output that changes under an unchanged VERSION fails.

``python -m tests.facts.test_outputs`` records outputs, and refuses where a version was not raised.
Numbers are compared to a few parts in a thousand (another processor rounds another way), everything
else exactly; hashes of files and sources are compared by their form only.
"""

import json
import math
import re
import sys
import tempfile
from pathlib import Path

import pytest
from tests.facts.tiny_study import run_study

from stemmatics.core import plugins

GOLDEN = Path(__file__).parents[1] / "golden" / "outputs.json"
RELATIVE, ABSOLUTE = 2e-3, 2e-4
# columns that hold a machine's or a library's own: file hashes (weights, adapters, tokenizer files)
_BY_FORM = re.compile(r"(weights|tokenizer|config)_sha256$|^source$|^tokenizer$")
# values that a rounding error moves by more than itself: a certificate near 0, an optimum's free direction
_NEAR_ZERO = {"gap", "gradient_norm", "identity_error"}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return run_study(tmp_path_factory.mktemp("outputs"))


def output_of(ledger, fact):
    """A fact's tables as plain data."""
    tables = {}
    for name in ledger.tables_of(fact.key):
        rows = ledger.read(fact.key, name)
        tables[name] = {column: _plain(column, rows[column].to_pylist()) for column in rows.column_names}
    return {"version": fact.version, "tables": tables}


def _plain(column, values):
    if _BY_FORM.search(column):
        return ["given" if value else value for value in values]
    if column in _NEAR_ZERO:
        return [None if value is None else float(f"{value:.0e}") < 1e-3 for value in values]
    return [float(f"{value:.6g}") if isinstance(value, float) else value for value in values]


def difference(recorded, found):
    """The first difference between two outputs, or the empty string."""
    if set(recorded["tables"]) != set(found["tables"]):
        return f"it writes {sorted(found['tables'])} instead of {sorted(recorded['tables'])}"
    for table, columns in recorded["tables"].items():
        ours = found["tables"][table]
        if list(columns) != list(ours):
            return f"{table} has the columns {list(ours)} instead of {list(columns)}"
        for column, values in columns.items():
            if len(values) != len(ours[column]):
                return f"{table} has {len(ours[column])} rows instead of {len(values)}"
            for row, (before, now) in enumerate(zip(values, ours[column], strict=True)):
                if not _alike(before, now):
                    return f"{table}.{column}, row {row}: {now!r} instead of {before!r}"
    return ""


def _alike(before, now):
    if isinstance(before, float) and isinstance(now, float):
        return math.isclose(before, now, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
    return before == now


RECORDED = json.loads(GOLDEN.read_text(encoding="utf-8")) if GOLDEN.exists() else {}


@pytest.mark.parametrize("kind", sorted(RECORDED))
def test_output_follows_from_version(made, kind):
    ledger, facts = made
    found = json.loads(json.dumps(output_of(ledger, facts[kind])))
    how = "if that is meant, raise its version in facts/ and type `python -m tests.facts.test_outputs`"
    changed = difference(RECORDED[kind], found)
    if found["version"] == RECORDED[kind]["version"]:
        assert not changed, f"{kind} changed under version {found['version']}: {changed}; {how}"
    else:
        pytest.fail(f"{kind} has version {found['version']}, recorded is {RECORDED[kind]['version']}: {how}")


def test_every_kind_is_recorded():
    """Kinds of this package; another package's kinds are recorded there."""
    ours = {entry.name for entry in plugins.entries("facts") if entry.value.startswith("stemmatics.")}
    assert {name.split()[0] for name in RECORDED} == ours


def test_every_kind_has_a_probe_of_its_name():
    assert plugins.names("facts") == plugins.names("probes")


def test_a_changed_output_is_seen():
    recorded = {"version": 1, "tables": {"scores": {"nll_sum": [1.0, None], "doc_id": ["a", "b"]}}}

    def changed(**columns):
        return {"version": 1, "tables": {"scores": {**recorded["tables"]["scores"], **columns}}}

    assert difference(recorded, changed()) == ""
    assert difference(recorded, changed(nll_sum=[1.0001, None])) == ""
    assert "nll_sum, row 0" in difference(recorded, changed(nll_sum=[1.01, None]))
    assert "nll_sum, row 1" in difference(recorded, changed(nll_sum=[1.0, 0.0]))
    assert "doc_id, row 1" in difference(recorded, changed(doc_id=["a", "c"]))
    assert "columns" in difference(recorded, changed(num_tokens=[1, 2]))
    assert "rows" in difference(recorded, changed(nll_sum=[1.0], doc_id=["a"]))
    assert "writes" in difference(recorded, {"version": 1, "tables": {}})


def record():
    """Write the outputs down; one that changed without a new version is refused."""
    with tempfile.TemporaryDirectory() as folder:
        ledger, facts = run_study(Path(folder))
        found = {kind: json.loads(json.dumps(output_of(ledger, fact))) for kind, fact in facts.items()}
    for kind, output in found.items():
        before = RECORDED.get(kind)
        if before and before["version"] == output["version"] and difference(before, output):
            sys.exit(f"{kind} changed and still has version {output['version']}: raise VERSION first")
    GOLDEN.write_text(json.dumps(found, indent=0) + "\n", encoding="utf-8")


if __name__ == "__main__":
    record()
