"""Tamperings with files, records and the manifest. Each returns what must be named."""

import json

import pyarrow as pa
import pyarrow.parquet as pq

from stemmatics.store import index
from stemmatics.store.ledger import Ledger


def a_column_missing(forger):
    forger.rewrite("scores", forger.fact("score", "base"), lambda table: table.drop_columns(["nll_sum"]))
    return ["nll_sum"]


def file_missing(forger):
    path = forger.path("scores", forger.fact("score", "base"))
    path.unlink()
    return [path.name, "missing"]


def record_missing(forger):
    key = forger.fact("score", "base")
    forger.record_path(key).unlink()
    return [key[:16], "missing from the run"]


def record_missing_and_digest_updated(forger):
    named = record_missing(forger)
    forger.write_manifest()
    return named


def record_of_estimates_missing(forger):
    forger.record_path(forger.fact("estimate", "loss")).unlink()
    return ["estimates of loss", "missing from the run"]


def record_describes_another_fact(forger):
    key = forger.fact("score", "base")
    record = json.loads(forger.record_path(key).read_text())
    record["params"]["numerics"]["dtype"] = "bfloat16"
    forger.record_path(key).write_text(json.dumps(record))
    forger.write_manifest()
    return [key[:16], "describes another fact"]


def record_of_estimates_describes_another(forger):
    key = forger.fact("estimate", "loss")
    record = json.loads(forger.record_path(key).read_text())
    record["params"]["seed"] = 5
    forger.record_path(key).write_text(json.dumps(record))
    forger.write_manifest()
    return [key[:16], "describes another fact"]


def record_without_files(forger):
    key = forger.fact("score", "base")
    record = json.loads(forger.record_path(key).read_text())
    forger.record_path(key).write_text(json.dumps({**record, "files": {}}))
    forger.write_manifest()
    return [key[:16]]


def record_that_hides_a_file(forger):
    """A file that no record names is not hashed into the digest."""
    key = forger.fact("score", "base")
    record = json.loads(forger.record_path(key).read_text())
    del record["files"][f"tables/scores/{key}.parquet"]
    forger.record_path(key).write_text(json.dumps(record))
    forger.write_manifest()
    return [key[:16], "was added"]


def record_edited_behind_a_forged_index(forger):
    """The index says what the record said before it was edited, for the file as it is now."""
    key = forger.fact("score", "base")
    path = forger.record_path(key)
    old = path.read_text()
    record = json.loads(old)
    for file in record["files"].values():
        file["sha256"] = "0" * 64
    path.write_text(json.dumps(record))
    status = path.stat()
    row = {
        "key": key,
        "size": status.st_size,
        "modified_ns": status.st_mtime_ns,
        "changed_ns": status.st_ctime_ns,
        "record": old,
    }
    schema = index._SCHEMA
    pq.write_table(pa.Table.from_pylist([row], schema=schema), forger.root / index.INDEX)
    assert Ledger(forger.root).fact_record(key) == json.loads(old)
    return [key[:16], "altered since it was written"]


def record_no_json(forger):
    key = forger.fact("score", "base")
    forger.record_path(key).write_text("{")
    return [key]


def record_a_list(forger):
    key = forger.fact("score", "base")
    forger.record_path(key).write_text("[]")
    return [key]


def page_missing(forger):
    (forger.root / "report.html").unlink()
    return ["report.html is missing"]


def digest_edited(forger):
    manifest = forger.manifest
    (forger.root / "manifest.json").write_text(json.dumps({**manifest, "digest": "0" * 64}))
    return ["manifest.json: its digest is 0000"]


def another_seed(forger):
    forger.write_manifest(stemma={**forger.manifest["stemma"], "seed": 7})
    return ["fact "]


def another_setting(forger):
    stemma = forger.manifest["stemma"]
    stemma["measures"] = {**stemma["measures"], "loss": {"movers": 3}}
    forger.write_manifest(stemma=stemma)
    return ["made from other facts"]


def another_scoring(forger):
    forger.write_manifest(stemma={**forger.manifest["stemma"], "scoring": {"prefix": "never"}})
    return ["fact "]


def another_precision(forger):
    forger.write_manifest(stemma={**forger.manifest["stemma"], "numerics": {"dtype": "bfloat16"}})
    return ["fact "]


def settings_edited_without_the_digest(forger):
    manifest = forger.manifest
    manifest["stemma"]["name"] = "another"
    (forger.root / "manifest.json").write_text(json.dumps(manifest))
    return ["manifest.json: its digest"]


def versions_edited(forger):
    forger.write_manifest(versions={**forger.manifest["versions"], "torch": "99.0"})
    return ["report.html", "99.0"]


def measure_hidden(forger):
    forger.write_manifest(measures=[])
    return ["manifest.json"]


def estimates_hidden(forger):
    forger.write_manifest(estimates={})
    return ["loss: no estimates are stored"]


def fact_not_listed(forger):
    facts = [key for key in forger.manifest["facts"] if key != forger.fact("score", "base")]
    forger.write_manifest(facts=facts)
    return ["is needed, but not in the manifest"]


def unneeded_fact_listed(forger):
    forger.write_manifest(facts=[*forger.manifest["facts"], "0" * 64])
    return ["is in the manifest, but not needed"]
