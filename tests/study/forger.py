"""Changes a finished run like an attacker who knows its format."""

import hashlib
import json

import pyarrow as pa
import pyarrow.parquet as pq

from stemmatics.store.ledger import Ledger


class Forger:
    """Changes a run folder like an attacker who knows its format."""

    def __init__(self, root):
        self.root = root

    @property
    def manifest(self):
        return json.loads((self.root / "manifest.json").read_text())

    def write_manifest(self, **changes):
        """Recompute the digest and print it on the page in place of the old one."""
        old = self.manifest["digest"]
        ledger = Ledger(self.root)
        ledger.write_manifest({**self.manifest, **changes})
        page = self.root / "report.html"
        html = page.read_text(encoding="utf-8")
        if (
            "page_sha256" not in changes
            and hashlib.sha256(html.encode()).hexdigest() == ledger.manifest()["page_sha256"]
        ):
            page.write_text(html.replace(old, self.manifest["digest"]), encoding="utf-8")
            ledger.write_manifest(
                {**self.manifest, "page_sha256": hashlib.sha256(page.read_bytes()).hexdigest()}
            )

    def record_path(self, key):
        return self.root / "facts" / f"{key}.json"

    def fact(self, probe, label=""):
        keys = [
            path.stem
            for path in sorted((self.root / "facts").glob("*.json"))
            if (record := json.loads(path.read_text()))["probe"] == probe and label in record["label"]
        ]
        assert len(keys) == 1, (probe, label, keys)
        return keys[0]

    def path(self, table, key):
        return self.root / "tables" / table / f"{key}.parquet"

    def rewrite(self, table, key, change, *, mark=None):
        """Change a table's rows and update mark, hashes and digest, so that only the numbers give it away."""
        path = self.path(table, key)
        old = pq.read_table(path)
        new = change(old).replace_schema_metadata(mark or old.schema.metadata)
        pq.write_table(new, path, compression="zstd")
        self.update_hashes(key)

    def update_hashes(self, key):
        record = json.loads(self.record_path(key).read_text())
        for name in record["files"]:
            data = (self.root / name).read_bytes()
            record["files"][name] = {
                "sha256": hashlib.sha256(data).hexdigest(),
                "num_bytes": len(data),
                "num_rows": pq.read_metadata(self.root / name).num_rows,
            }
        self.record_path(key).write_text(json.dumps(record))
        self.write_manifest()

    def edit_page(self, change, *, update_hash):
        page = self.root / "report.html"
        new = change(page.read_text(encoding="utf-8"))
        assert new != page.read_text(encoding="utf-8")
        page.write_text(new, encoding="utf-8")
        if update_hash:
            self.write_manifest(page_sha256=hashlib.sha256(page.read_bytes()).hexdigest())


def with_cell(table, column, row, change):
    """``table`` with one cell changed."""
    values = table[column].to_pylist()
    values[row] = change(values[row])
    index = table.column_names.index(column)
    return table.set_column(
        index, table.schema.field(index), pa.array(values, table.schema.field(index).type)
    )


def first_longer_than(table, column, least):
    return next(row for row, value in enumerate(table[column].to_pylist()) if value and abs(value) > least)
