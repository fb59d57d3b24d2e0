"""Tamperings with sums, estimates, claims and the page. Each returns what must be named."""

import hashlib
import json
import math
import re

import pyarrow as pa
import pyarrow.parquet as pq
from tests.study.forger import first_longer_than, with_cell


def sum_changed(forger):
    def change(table):
        return with_cell(table, "nll_sum", 0, lambda value: value + 1.0)

    forger.rewrite("scores", forger.fact("score", "descendant"), change)
    return ["result loss.delta.byte/", "claim loss.native.byte/"]


def part_changed(forger):
    def change(table):
        row = first_longer_than(table, "nll_sum", 1.0)
        return with_cell(table, "nll_sum", row, lambda value: value * 1.5)

    forger.rewrite("score_parts", forger.fact("score", "descendant"), change)
    return ["result loss.where/"]


def bytes_changed(forger):
    def change(table):
        return with_cell(table, "num_bytes", 0, lambda value: value + 1)

    forger.rewrite("scores", forger.fact("score", "base"), change)
    return ["result loss.native.byte/"]


def estimate_changed(forger):
    def change(table):
        row = table["quantity"].to_pylist().index("loss.delta.byte")
        return with_cell(table, "value", row, lambda value: value - 0.5)

    forger.rewrite("estimates", forger.fact("estimate", "loss"), change)
    return ["result loss.delta.byte/", "the sums give"]


def estimate_that_is_not_printed_changed(forger):
    def change(table):
        row = table["quantity"].to_pylist().index("loss.count")
        return with_cell(table, "note", row, lambda _: "as expected")

    forger.rewrite("estimates", forger.fact("estimate", "loss"), change)
    return ["result loss.count/", "note"]


def estimate_added(forger):
    def change(table):
        extra = with_cell(table.slice(0, 1), "id", 0, lambda _: "loss.invented/x=y")
        return pa.concat_tables([table, extra])

    forger.rewrite("estimates", forger.fact("estimate", "loss"), change)
    return ["result loss.invented/x=y", "An id follows from"]


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
    match = re.search(r'(data-claim="loss\.delta[^>]*>[\d.+-]*)(\d)<', html)
    return html.replace(match[0], f"{match[1]}{(int(match[2]) + 1) % 10}<", 1)


def page_changed(forger):
    forger.edit_page(page_number, update_hash=False)
    return ["report.html", "claim loss.delta"]


def page_changed_and_hash_updated(forger):
    forger.edit_page(page_number, update_hash=True)
    return ["report.html", "claim loss.delta"]


def word_of_a_sentence_changed(forger):
    """The first word of prose that stands between two numbers of the summary."""

    def change(html):
        word = re.search(r'<p class="summary">.*?</span>[^<]*?\b([a-z]{4,})\b', html, re.DOTALL)
        return html[: word.start(1)] + "hardly" + html[word.end(1) :]

    forger.edit_page(change, update_hash=True)
    return ["report.html", "hardly"]


def word_of_a_table_changed(forger):
    forger.edit_page(
        lambda html: re.sub(r"(<caption[^>]*>)\w+", r"\1Improved", html, count=1), update_hash=True
    )
    return ["report.html", "Improved"]


def alternative_text_changed(forger):
    forger.edit_page(lambda html: html.replace('aria-label="', 'aria-label="gained: ', 1), update_hash=True)
    return ["report.html", "gained: "]


def chart_number(html):
    match = re.search(r'("value": ?-?0\.\d*)(\d)', html)
    return html.replace(match[0], f"{match[1]}{(int(match[2]) + 5) % 10}", 1)


def chart_changed(forger):
    forger.edit_page(chart_number, update_hash=False)
    return ["report.html"]


def chart_changed_and_hash_updated(forger):
    forger.edit_page(chart_number, update_hash=True)
    return ["report.html"]


def program_added(forger):
    lie = "<script>document.querySelector('[data-claim]').textContent = '-9.9'</script></body>"
    forger.edit_page(lambda html: html.replace("</body>", lie, 1), update_hash=True)
    return ["report.html"]


def style_changed(forger):
    forger.edit_page(
        lambda html: html.replace("</style>", "td span{display:none}</style>", 1), update_hash=True
    )
    return ["report.html"]


def document_dropped(forger):
    forger.rewrite("scores", forger.fact("score", "descendant"), lambda table: table.slice(1))
    return ["scores", "1 documents of the corpus are missing"]


def document_dropped_everywhere(forger):
    """From the corpus and from all that was scored on it."""
    for probe, label in (("score", "descendant"), ("score", "base"), ("reference", "descendant")):
        forger.rewrite("scores", forger.fact(probe, label), lambda table: table.slice(1))
    forger.rewrite("scores", forger.fact("reference", "base"), lambda table: table.slice(1))
    forger.rewrite("documents", forger.fact("corpus", "text"), lambda table: table.slice(1))
    return ["result loss."]


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


def models_swapped_and_hashes_updated(forger):
    models_swapped(forger)
    for name in ("base", "descendant"):
        forger.update_hashes(forger.fact("score", name))
    return ["holds another fact's rows"]


def models_swapped_and_marks_rewritten(forger):
    keys = [forger.fact("score", name) for name in ("base", "descendant")]
    for table in ("scores", "score_parts", "scoring"):
        ours, theirs = (pq.read_table(forger.path(table, key)) for key in keys)
        forger.rewrite(table, keys[0], lambda _, rows=theirs: rows, mark=ours.schema.metadata)
        forger.rewrite(table, keys[1], lambda _, rows=ours: rows, mark=theirs.schema.metadata)
    return ["result loss.delta.byte/"]


def names_swapped(forger):
    """The manifest says that the base is the descendant."""
    stemma, pins = forger.manifest["stemma"], forger.manifest["pins"]
    base, descendant = pins["checkpoints"]["base"], pins["checkpoints"]["descendant"]
    pins["checkpoints"] = {"base": descendant, "descendant": base}
    forger.write_manifest(stemma=stemma, pins=pins)
    return ["made from other facts", "result loss.delta.byte/"]


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


def truncated_and_hash_updated(forger):
    key = forger.fact("score", "base")
    path = forger.path("scores", key)
    data = path.read_bytes()[:-100]
    path.write_bytes(data)
    record = json.loads(forger.record_path(key).read_text())
    name = f"tables/scores/{key}.parquet"
    record["files"][name] |= {"sha256": hashlib.sha256(data).hexdigest(), "num_bytes": len(data)}
    forger.record_path(key).write_text(json.dumps(record))
    forger.write_manifest()
    return [key[:16], "is corrupt"]


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
    return ["result loss.native.byte/"]
