"""Workers: jobs return, failures are reported, and a killed worker fails no other job."""

import os
from pathlib import Path

import pytest

from stemmatics.scale.local import Pool

WORKER = "toy_workers:work"


@pytest.fixture(autouse=True)
def toy_path(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


@pytest.fixture
def pools():
    """Makes pools that are closed in the end."""
    made = []

    def make(num_workers, on_event=lambda _event: None):
        made.append(Pool(WORKER, num_workers, on_event))
        return made[-1]

    yield make
    for pool in made:
        pool.close()


def job(key, **more):
    return {"keys": [key], **more}


def outcome(pool):
    return {job["keys"][0]: reasons for job, reasons in pool.results()}


@pytest.mark.parametrize("num_workers", [1, 2])
def test_jobs_come_back_with_their_failures(num_workers, pools, tmp_path):
    events = []
    pool = pools(num_workers, events.append)
    log = str(tmp_path / "log")
    for key in "abcd":
        pool.submit(job(key, log=log, fail=key == "c"))
    assert outcome(pool) == {"a": {}, "b": {}, "c": {"c": "told to"}, "d": {}}
    ran = dict(line.split() for line in Path(log).read_text().splitlines())
    assert sorted(ran) == list("abcd")
    assert (str(os.getpid()) in ran.values()) == (num_workers == 1)
    if num_workers == 1:
        assert [event["key"] for event in events] == list("abcd")


@pytest.mark.parametrize("num_workers", [1, 2])
def test_jobs_may_be_added_between_results(num_workers, pools):
    pool = pools(num_workers)
    pool.submit(job("first"))
    finished = []
    for done, _ in pool.results():
        finished.append(done["keys"][0])
        if len(finished) < 4:
            pool.submit(job(f"after {finished[-1]}"))
    assert finished == ["first", "after first", "after after first", "after after after first"]


def test_only_the_killer_fails(pools, tmp_path):
    pool = pools(2)
    log = str(tmp_path / "log")
    pool.submit(job("innocent", sleep=0.5, log=log))
    pool.submit(job("killer", kill=True, log=log))
    for key in ("waiting", "failing"):
        pool.submit(job(key, log=log, fail=key == "failing"))
    result = outcome(pool)
    assert list(result["killer"]) == ["killer"]
    assert "was killed" in result["killer"]["killer"]
    assert result["innocent"] == result["waiting"] == {}
    assert result["failing"] == {"failing": "told to"}
    times = [line.split()[0] for line in Path(log).read_text().splitlines()]
    assert times.count("killer") == 2
    assert times.count("waiting") == times.count("failing") == 1
    pool.submit(job("later"))
    assert outcome(pool) == {"later": {}}


def test_a_job_that_dies_once_is_done_at_the_second_try(pools, tmp_path):
    pool = pools(2)
    pool.submit(job("unlucky", kill_once=str(tmp_path / "flag")))
    assert outcome(pool) == {"unlucky": {}}


def test_two_killers_fail_both_and_no_other(pools):
    pool = pools(2)
    for key in ("one", "two", "three"):
        pool.submit(job(key, kill=key != "three"))
    result = outcome(pool)
    assert set(result["one"]) == {"one"}
    assert set(result["two"]) == {"two"}
    assert result["three"] == {}


@pytest.mark.parametrize("num_workers", [1, 2])
def test_jobs_of_one_model_follow_one_another_on_one_worker(num_workers, pools, tmp_path):
    """With two workers each takes one model, and neither is loaded twice."""
    pool = pools(num_workers)
    log = str(tmp_path / "log")
    for key, models in (("a1", "a"), ("b1", "b"), ("a2", "a"), ("b2", "b"), ("a3", "a"), ("both", "ab")):
        pool.submit(job(key, log=log, models=list(models), sleep=0.2 * (num_workers - 1)))
    assert set(outcome(pool)) == {"a1", "a2", "a3", "b1", "b2", "both"}
    ran = [line.split() for line in Path(log).read_text().splitlines()]
    if num_workers == 1:
        assert [key for key, _ in ran] == ["a1", "a2", "a3", "both", "b1", "b2"]
    else:
        processes = {model: {process for key, process in ran if key[:-1] == model} for model in "ab"}
        assert len(processes["a"]) == len(processes["b"]) == 1
        assert processes["a"] != processes["b"]


def test_what_this_process_kept_is_let_go_with_the_pool(pools, monkeypatch):
    import toy_workers

    released = []
    monkeypatch.setattr(toy_workers, "release", lambda: released.append(1), raising=False)
    for num_workers in (1, 2):
        pool = pools(num_workers)
        pool.submit(job("a"))
        outcome(pool)
        assert len(released) == num_workers - 1
        pool.close()
        assert len(released) == 1
