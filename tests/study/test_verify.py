"""Tampering of every kind must be found, named, and never end in ``N/N claims hold``."""

import json
import re

import pyarrow.compute as pc
import pytest
from tests.study import tamper_numbers, tamper_records
from tests.study.forger import Forger

ALL_HOLD = re.compile(r"^(\d+)/\1 claims hold$", re.MULTILINE)

TAMPERINGS = [
    tamper_numbers.sum_changed,
    tamper_numbers.part_changed,
    tamper_numbers.bytes_changed,
    tamper_numbers.estimate_changed,
    tamper_numbers.estimate_that_is_not_printed_changed,
    tamper_numbers.estimate_added,
    tamper_numbers.claim_changed,
    tamper_numbers.claim_added,
    tamper_numbers.claim_removed,
    tamper_numbers.page_changed,
    tamper_numbers.page_changed_and_hash_updated,
    tamper_numbers.word_of_a_sentence_changed,
    tamper_numbers.word_of_a_table_changed,
    tamper_numbers.alternative_text_changed,
    tamper_numbers.chart_changed,
    tamper_numbers.chart_changed_and_hash_updated,
    tamper_numbers.program_added,
    tamper_numbers.style_changed,
    tamper_numbers.document_dropped,
    tamper_numbers.document_dropped_everywhere,
    tamper_numbers.document_twice,
    tamper_numbers.document_foreign,
    tamper_numbers.models_swapped,
    tamper_numbers.models_swapped_and_hashes_updated,
    tamper_numbers.models_swapped_and_marks_rewritten,
    tamper_numbers.names_swapped,
    tamper_numbers.source_renamed,
    tamper_numbers.truncated,
    tamper_numbers.truncated_and_hash_updated,
    tamper_numbers.not_a_number,
    tamper_numbers.infinite,
    tamper_numbers.unknown,
    tamper_records.a_column_missing,
    tamper_records.file_missing,
    tamper_records.record_missing,
    tamper_records.record_missing_and_digest_updated,
    tamper_records.record_of_estimates_missing,
    tamper_records.record_describes_another_fact,
    tamper_records.record_of_estimates_describes_another,
    tamper_records.record_without_files,
    tamper_records.record_that_hides_a_file,
    tamper_records.record_edited_behind_a_forged_index,
    tamper_records.record_no_json,
    tamper_records.record_a_list,
    tamper_records.page_missing,
    tamper_records.digest_edited,
    tamper_records.another_seed,
    tamper_records.another_setting,
    tamper_records.another_scoring,
    tamper_records.another_precision,
    tamper_records.settings_edited_without_the_digest,
    tamper_records.versions_edited,
    tamper_records.measure_hidden,
    tamper_records.estimates_hidden,
    tamper_records.fact_not_listed,
    tamper_records.unneeded_fact_listed,
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
    result = re.fullmatch(r"(\d+)/(\d+) claims hold", last)
    assert result, last
    assert result[1] == result[2]
    assert int(result[1]) > 20
    assert "does not prove that the sums came from the named models" in ran.out


def test_another_digest_is_refused(finished_run, stemma_command):
    ran = stemma_command("verify", finished_run, "--digest", "0" * 64)
    assert ran.code == 1
    assert "the expected digest is 0000" in ran.err
    assert not ALL_HOLD.search(ran.out)


def test_a_consistent_forgery_has_another_digest(run_copy, finished_run, stemma_command):
    """Sums changed and all else recomputed from them: only the published digest can tell."""
    from stemmatics.study.plan import Plan
    from stemmatics.study.read import open_run
    from stemmatics.study.request import all_facts
    from stemmatics.study.run import finish

    forger = Forger(run_copy)
    tamper_numbers.sum_changed(forger)
    run = open_run(run_copy)
    finish(run.ledger, run.pinned, run.requests, Plan(all_facts(run.requests), {}, {}))
    assert stemma_command("verify", run_copy).code == 0
    digest = json.loads((finished_run / "manifest.json").read_text())["digest"]
    ran = stemma_command("verify", run_copy, "--digest", digest)
    assert ran.code == 1
    assert "the expected digest" in ran.err


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
    result = stemma_command("verify", finished_run, "--json").json()
    assert result["claims"] == result["hold"] > 20
    assert result["problems"] == []
    tamper_numbers.sum_changed(Forger(run_copy))
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
