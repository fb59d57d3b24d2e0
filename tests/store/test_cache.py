"""Cached artifacts are complete or absent."""

import threading
import time

import pytest

from stemmatics.store.cache import Cache

KEY = "k" * 64


@pytest.fixture
def cache(tmp_path):
    return Cache(tmp_path / "cache")


def fill(cache, key=KEY, data=b"weights"):
    with cache.scratch(key) as scratch:
        out = scratch / "checkpoint"
        (out / "deep").mkdir(parents=True)
        (out / "model.safetensors").write_bytes(data)
        (out / "deep" / "more.json").write_bytes(b"{}")
        return cache.finish(key, out, {"label": "made"})


def test_a_finished_folder_is_found_with_its_hashes(cache):
    record = fill(cache)
    assert cache.find(KEY) == cache.path(KEY)
    assert set(record["files"]) == {"model.safetensors", "deep/more.json"}
    assert cache.record(KEY)["label"] == "made"
    assert cache.entries()[0]["label"] == "made"


def test_a_folder_that_was_not_finished_is_not_found(cache):
    def crash():
        with cache.scratch(KEY) as scratch:
            (scratch / "model.safetensors").write_bytes(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        crash()
    assert cache.find(KEY) is None
    assert list((cache.root / "making").iterdir()) == []
    cache.path(KEY).mkdir(parents=True)
    (cache.path(KEY) / "model.safetensors").write_bytes(b"half")
    assert cache.find(KEY) is None


@pytest.mark.parametrize("damage", [b"weight", b"weights and more", None])
def test_a_folder_with_a_file_of_another_size_is_not_found(cache, damage):
    fill(cache)
    file = cache.path(KEY) / "model.safetensors"
    file.unlink()
    if damage is not None:
        file.write_bytes(damage)
    assert cache.find(KEY) is None


def test_finishing_again_replaces(cache):
    fill(cache)
    fill(cache, data=b"others")
    assert (cache.find(KEY) / "model.safetensors").read_bytes() == b"others"


def test_a_second_process_waits_for_the_first(cache):
    is_done = []

    def second():
        with Cache(cache.root).scratch(KEY):
            is_done.append(cache.find(KEY) is not None)

    with cache.scratch(KEY) as scratch:
        thread = threading.Thread(target=second)
        thread.start()
        time.sleep(0.2)
        assert is_done == []
        out = scratch / "checkpoint"
        out.mkdir()
        (out / "model.safetensors").write_bytes(b"weights")
        cache.finish(KEY, out, {})
    thread.join(timeout=10)
    assert is_done == [True]


def test_other_keys_do_not_wait(cache):
    with cache.scratch(KEY), cache.scratch("j" * 64):
        assert len(list((cache.root / "making").iterdir())) == 2


def test_clearing_removes_everything(cache):
    fill(cache)
    assert cache.clear() == 1
    assert cache.find(KEY) is None
    assert cache.entries() == []


def test_the_environment_sets_the_root(monkeypatch, tmp_path):
    monkeypatch.setenv("STEMMATICS_CACHE", str(tmp_path / "mine"))
    assert Cache().root == tmp_path / "mine"
