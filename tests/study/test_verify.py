"""Tampering of every kind must be found, named, and never end in ``N/N claims hold``."""

import hashlib
import json
import math
import re

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from stemmatics.store.ledger import Ledger

ALL_HOLD = re.compile(r"^(\d+)/\1 claims hold$", re.MULTILINE)


class Forger:
    """Changes a run folder as somebody would who knows how it is made."""

    def __init__(self, root):
        self.root = root

    @property
    def manifest(self):
        return json.loads((self.root / "manifest.json").read_text())

    def write_manifest(self, **changes):
        """The digest is computed again, and printed on the page in place of the old one."""
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
        found = [
            path.stem
            for path in sorted((self.root / "facts").glob("*.json"))
            if (record := json.loads(path.read_text()))["probe"] == probe and label in record["label"]
        ]
        assert len(found) == 1, (probe, label, found)
        return found[0]

    def path(self, table, key):
        return self.root / "tables" / table / f"{key}.parquet"

    def rewrite(self, table, key, change, *, mark=None):
        """Change a table's rows; mark, hashes and digest are mended, so that only the numbers tell."""
        path = self.path(table, key)
        old = pq.read_table(path)
        new = change(old).replace_schema_metadata(mark or old.schema.metadata)
        pq.write_table(new, path, compression="zstd")
        self.mend(key)

    def mend(self, key):
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

    def edit_page(self, change, *, mend):
        page = self.root / "report.html"
        new = change(page.read_text(encoding="utf-8"))
        assert new != page.read_text(encoding="utf-8")
        page.write_text(new, encoding="utf-8")
        if mend:
            self.write_manifest(page_sha256=hashlib.sha256(page.read_bytes()).hexdigest())


def with_cell(table, column, row, change):
    """``table`` with one cell changed."""
    values = table[column].to_pylist()
    values[row] = change(values[row])
    place = table.column_names.index(column)
    return table.set_column(
        place, table.schema.field(place), pa.array(values, table.schema.field(place).type)
    )


def first_longer_than(table, column, least):
    return next(row for row, value in enumerate(table[column].to_pylist()) if value and abs(value) > least)


def sum_changed(forger):
    def change(table):
        return with_cell(table, "nll_sum", 0, lambda value: value + 1.0)

    forger.rewrite("scores", forger.fact("score", "descendant"), change)
    return ["estimate loss.delta.byte/", "claim loss.native.byte/"]


def part_changed(forger):
    def change(table):
        row = first_longer_than(table, "nll_sum", 1.0)
        return with_cell(table, "nll_sum", row, lambda value: value * 1.5)

    forger.rewrite("score_parts", forger.fact("score", "descendant"), change)
    return ["estimate loss.where/"]


def bytes_changed(forger):
    def change(table):
        return with_cell(table, "num_bytes", 0, lambda value: value + 1)

    forger.rewrite("scores", forger.fact("score", "base"), change)
    return ["estimate loss.native.byte/"]


def estimate_changed(forger):
    def change(table):
        row = table["quantity"].to_pylist().index("loss.delta.byte")
        return with_cell(table, "value", row, lambda value: value - 0.5)

    forger.rewrite("estimates", forger.fact("estimate", "loss"), change)
    return ["estimate loss.delta.byte/", "the sums give"]


def estimate_that_nobody_prints_changed(forger):
    def change(table):
        row = table["quantity"].to_pylist().index("loss.count")
        return with_cell(table, "note", row, lambda _: "as expected")

    forger.rewrite("estimates", forger.fact("estimate", "loss"), change)
    return ["estimate loss.count/", "note"]


def estimate_added(forger):
    def change(table):
        extra = with_cell(table.slice(0, 1), "id", 0, lambda _: "loss.invented/x=y")
        return pa.concat_tables([table, extra])

    forger.rewrite("estimates", forger.fact("estimate", "loss"), change)
    return ["estimate loss.invented/x=y", "does not follow"]


def claim_changed(forger):
    forger.rewrite(
        "claims", forger.fact("estimate", "loss"), lambda t: with_cell(t, "text", 0, lambda _: "0.0001")
    )
    return ["claim ", "'0.0001'"]


def claim_added(forger):
    def change(table):
        return pa.concat_tables([table, with_cell(table.slice(0, 1), "id", 0, lambda _: "extra#value")])

    forger.rewrite("claims", forger.fact("estimate", "loss"), change)
    return ["claim extra#value"]


def claim_removed(forger):
    forger.rewrite("claims", forger.fact("estimate", "loss"), lambda table: table.slice(1))
    return ["claim ", "printed None"]


def page_number(html):
    """One more in the last digit of a printed number."""
    found = re.search(r'(data-claim="loss\.native[^>]*>[\d.+-]*)(\d)<', html)
    return html.replace(found[0], f"{found[1]}{(int(found[2]) + 1) % 10}<", 1)


def page_changed(forger):
    forger.edit_page(page_number, mend=False)
    return ["report.html", "claim loss.native"]


def page_changed_and_hash_mended(forger):
    forger.edit_page(page_number, mend=True)
    return ["report.html", "claim loss.native"]


def page_text(old, new):
    def tamper(forger):
        forger.edit_page(lambda html: html.replace(old, new, 1), mend=True)
        return ["report.html"]

    return tamper


def chart_number(html):
    found = re.search(r'("value": ?-?0\.\d*)(\d)', html)
    return html.replace(found[0], f"{found[1]}{(int(found[2]) + 5) % 10}", 1)


def chart_changed(forger):
    forger.edit_page(chart_number, mend=False)
    return ["report.html"]


def chart_changed_and_hash_mended(forger):
    forger.edit_page(chart_number, mend=True)
    return ["report.html"]


def program_added(forger):
    lie = "<script>document.querySelector('[data-claim]').textContent = '-9.9'</script></body>"
    forger.edit_page(lambda html: html.replace("</body>", lie, 1), mend=True)
    return ["report.html"]


def style_changed(forger):
    forger.edit_page(lambda html: html.replace("</style>", "td span{display:none}</style>", 1), mend=True)
    return ["report.html"]


def document_dropped(forger):
    forger.rewrite("scores", forger.fact("score", "descendant"), lambda table: table.slice(1))
    return ["scores", "1 documents of the corpus are missing"]


def document_dropped_everywhere(forger):
    """From the corpus and from all that was scored on it."""
    for probe, label in (("score", "descendant"), ("score", "base"), ("reference", "descendant")):
        forger.rewrite("scores", forger.fact(probe, label), lambda table: table.slice(1))
    forger.rewrite("scores", forger.fact("reference", "base"), lambda table: table.slice(1))
    forger.rewrite("documents", forger.fact("corpus"), lambda table: table.slice(1))
    return ["estimate loss."]


def document_twice(forger):
    def change(table):
        return pa.concat_tables([table, table.slice(0, 1)])

    forger.rewrite("scores", forger.fact("score", "base"), change)
    return ["a document appears twice"]


def document_foreign(forger):
    def change(table):
        return with_cell(table, "doc_id", 0, lambda _: "f" * 64)

    forger.rewrite("scores", forger.fact("score", "base"), change)
    return ["1 documents of the corpus are missing, 1 are not in it"]


def models_swapped(forger):
    first, second = (forger.path("scores", forger.fact("score", name)) for name in ("base", "descendant"))
    ours, theirs = first.read_bytes(), second.read_bytes()
    first.write_bytes(theirs)
    second.write_bytes(ours)
    return ["tables/scores/"]


def models_swapped_and_hashes_mended(forger):
    models_swapped(forger)
    for name in ("base", "descendant"):
        forger.mend(forger.fact("score", name))
    return ["holds another fact's rows"]


def models_swapped_and_marks_rewritten(forger):
    keys = [forger.fact("score", name) for name in ("base", "descendant")]
    for table in ("scores", "score_parts", "scoring"):
        ours, theirs = (pq.read_table(forger.path(table, key)) for key in keys)
        forger.rewrite(table, keys[0], lambda _, rows=theirs: rows, mark=ours.schema.metadata)
        forger.rewrite(table, keys[1], lambda _, rows=ours: rows, mark=theirs.schema.metadata)
    return ["estimate loss.delta.byte/"]


def names_swapped(forger):
    """The manifest says that the base is the descendant."""
    stemma, pins = forger.manifest["stemma"], forger.manifest["pins"]
    base, descendant = pins["checkpoints"]["base"], pins["checkpoints"]["descendant"]
    pins["checkpoints"] = {"base": descendant, "descendant": base}
    forger.write_manifest(stemma=stemma, pins=pins)
    return ["made from other facts", "estimate loss.delta.byte/"]


def source_renamed(forger):
    """The page must not say that the numbers belong to another model."""
    stemma = forger.manifest["stemma"]
    stemma["checkpoints"]["base"]["source"] = "org/a-better-model"
    forger.write_manifest(stemma=stemma)
    return ["report.html", "a-better-model"]


def truncated(forger):
    path = forger.path("scores", forger.fact("score", "base"))
    path.write_bytes(path.read_bytes()[:-100])
    return [path.name, "truncated or altered"]


def truncated_and_hash_mended(forger):
    key = forger.fact("score", "base")
    path = forger.path("scores", key)
    data = path.read_bytes()[:-100]
    path.write_bytes(data)
    record = json.loads(forger.record_path(key).read_text())
    name = f"tables/scores/{key}.parquet"
    record["files"][name] |= {"sha256": hashlib.sha256(data).hexdigest(), "num_bytes": len(data)}
    forger.record_path(key).write_text(json.dumps(record))
    forger.write_manifest()
    return [key[:16], "is broken"]


def not_a_number(forger):
    forger.rewrite(
        "scores", forger.fact("score", "base"), lambda t: with_cell(t, "nll_sum", 0, lambda _: math.nan)
    )
    return ["column nll_sum holds a number that is not finite"]


def infinite(forger):
    forger.rewrite(
        "scores", forger.fact("reference", "base"), lambda t: with_cell(t, "nll_sum", 0, lambda _: math.inf)
    )
    return ["column nll_sum holds a number that is not finite"]


def unknown(forger):
    forger.rewrite(
        "scores", forger.fact("score", "base"), lambda t: with_cell(t, "nll_sum", 0, lambda _: None)
    )
    return ["estimate loss.native.byte/"]


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


def record_missing_and_digest_mended(forger):
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
    return ["is asked for, but not in the manifest"]


def fact_listed_for_nothing(forger):
    forger.write_manifest(facts=[*forger.manifest["facts"], "0" * 64])
    return ["is in the manifest, but nothing asks for it"]


TAMPERINGS = [
    sum_changed,
    part_changed,
    bytes_changed,
    estimate_changed,
    estimate_that_nobody_prints_changed,
    estimate_added,
    claim_changed,
    claim_added,
    claim_removed,
    page_changed,
    page_changed_and_hash_mended,
    pytest.param(page_text("can&#39;t be told", "can be told"), id="a word"),
    pytest.param(page_text("lost", "gained"), id="lost is gained"),
    chart_changed,
    chart_changed_and_hash_mended,
    program_added,
    style_changed,
    document_dropped,
    document_dropped_everywhere,
    document_twice,
    document_foreign,
    models_swapped,
    models_swapped_and_hashes_mended,
    models_swapped_and_marks_rewritten,
    names_swapped,
    source_renamed,
    truncated,
    truncated_and_hash_mended,
    not_a_number,
    infinite,
    unknown,
    a_column_missing,
    file_missing,
    record_missing,
    record_missing_and_digest_mended,
    record_of_estimates_missing,
    record_describes_another_fact,
    record_of_estimates_describes_another,
    record_without_files,
    record_that_hides_a_file,
    record_no_json,
    record_a_list,
    page_missing,
    digest_edited,
    another_seed,
    another_setting,
    another_scoring,
    another_precision,
    settings_edited_without_the_digest,
    versions_edited,
    measure_hidden,
    estimates_hidden,
    fact_not_listed,
    fact_listed_for_nothing,
]


@pytest.mark.parametrize("tamper", TAMPERINGS)
def test_tampering_is_found_and_named(tamper, run_copy, stemma_command):
    named = tamper(Forger(run_copy))
    ran = stemma_command("verify", run_copy)
    assert ran.code == 1, ran.out
    assert not ALL_HOLD.search(ran.out), ran.out
    for part in named:
        assert part in ran.err, ran.err[:4000]


def test_a_run_as_it_was_made_holds(finished_run, stemma_command):
    digest = json.loads((finished_run / "manifest.json").read_text())["digest"]
    ran = stemma_command("verify", finished_run, "--digest", digest)
    assert (ran.code, ran.err) == (0, "")
    last = ran.out.splitlines()[-1]
    found = re.fullmatch(r"(\d+)/(\d+) claims hold", last)
    assert found, last
    assert found[1] == found[2]
    assert int(found[1]) > 20
    assert "does not prove that the sums came from the named models" in ran.out


def test_another_digest_is_refused(finished_run, stemma_command):
    ran = stemma_command("verify", finished_run, "--digest", "0" * 64)
    assert ran.code == 1
    assert "the digest asked for is 0000" in ran.err
    assert not ALL_HOLD.search(ran.out)


def test_a_consistent_forgery_has_another_digest(run_copy, finished_run, stemma_command):
    """Sums changed and all else made again from them: only the published digest can tell."""
    from stemmatics.study.again import reread
    from stemmatics.study.asked import all_facts
    from stemmatics.study.plan import Plan
    from stemmatics.study.run import finish

    forger = Forger(run_copy)
    sum_changed(forger)
    run = reread(run_copy)
    finish(run.ledger, run.pinned, run.asked, Plan(all_facts(run.asked), {}, {}))
    assert stemma_command("verify", run_copy).code == 0
    digest = json.loads((finished_run / "manifest.json").read_text())["digest"]
    ran = stemma_command("verify", run_copy, "--digest", digest)
    assert ran.code == 1
    assert "the digest asked for" in ran.err


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "5", "null", '{"schema_version": 1}', '{"schema_version": 2}']
)
def test_a_broken_manifest_is_named(text, run_copy, stemma_command):
    (run_copy / "manifest.json").write_text(text)
    ran = stemma_command("verify", run_copy)
    assert ran.code == 1
    assert ran.out == ""
    assert ran.err.startswith("error: ")
    assert "manifest.json" in ran.err or "schema version" in ran.err
    assert len(ran.err.splitlines()) == 1


@pytest.mark.parametrize("name", ["stemma", "pins", "measures", "facts", "estimates", "versions", "digest"])
def test_a_manifest_with_a_part_of_another_kind_is_named(name, run_copy, stemma_command):
    manifest = json.loads((run_copy / "manifest.json").read_text())
    (run_copy / "manifest.json").write_text(json.dumps({**manifest, name: 5}))
    ran = stemma_command("verify", run_copy)
    assert ran.code == 1
    assert ran.out == ""
    assert f"'{name}'" in ran.err
    assert len(ran.err.splitlines()) == 1


def test_verify_as_json(finished_run, run_copy, stemma_command):
    found = stemma_command("verify", finished_run, "--json").json()
    assert found["claims"] == found["hold"] > 20
    assert found["problems"] == []
    sum_changed(Forger(run_copy))
    ran = stemma_command("verify", run_copy, "--json")
    assert ran.code == 1
    assert ran.json()["hold"] < ran.json()["claims"]
    assert ran.json()["problems"]


def test_verify_scores_documents_again(tiny, finished_run, run_copy, stemma_command):
    ran = stemma_command("verify", finished_run, "--rescore", 3, "--text", tiny / "a.jsonl")
    assert ran.code == 0, ran.err
    assert "6 documents scored again" in ran.out
    forger = Forger(run_copy)

    def change(table):
        whole = pc.multiply(table["nll_sum"], 1.01)
        return table.set_column(table.column_names.index("nll_sum"), "nll_sum", whole)

    forger.rewrite("scores", forger.fact("score", "descendant"), change)
    ran = stemma_command("verify", run_copy, "--rescore", 50, "--text", tiny / "a.jsonl")
    assert ran.code == 1
    assert "stored" in ran.err
    assert not ALL_HOLD.search(ran.out)
