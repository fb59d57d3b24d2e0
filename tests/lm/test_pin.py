import hashlib
import http.server
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import ClassVar

import pytest

from stemmatics.core.errors import UserError
from stemmatics.core.keys import key_of
from stemmatics.lm.checkpoints.hub import HashCache, sha256_of
from stemmatics.lm.checkpoints.pin import parse, pin

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def write(folder: Path, **files: str) -> Path:
    """A folder of small files; __ in a keyword stands for a dot."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)
    return folder


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("STEMMATICS_CACHE", str(tmp_path / "stemmatics-cache"))


@pytest.fixture
def folder(tmp_path):
    return write(tmp_path / "m", config__json="{}", model__safetensors="weights", tokenizer__json="{}")


@pytest.mark.parametrize(
    ("spec", "name", "revision"),
    [
        ("org/name", "org/name", None),
        ("org/name@v1.0", "org/name", "v1.0"),
        ("gpt2", "gpt2", None),
        (f"org/name@{COMMIT}", "org/name", COMMIT),
    ],
)
def test_hub_names(spec, name, revision):
    result = parse(spec)
    assert (result.kind, result.name, result.revision) == ("hub", name, revision)


def test_base_and_adapter_take_revisions_on_either_side(folder):
    result = parse(f"org/base@main+{folder}")
    assert (result.kind, result.base.name, result.base.revision) == ("adapter", "org/base", "main")
    assert result.adapter.kind == "folder"
    result = parse("org/base+org/adapter@step-10")
    assert (result.base.revision, result.adapter.revision) == (None, "step-10")


def test_what_exists_here_wins_over_the_hub(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert parse("org/name").kind == "hub"
    write(tmp_path / "org" / "name")
    assert parse("org/name").kind == "folder"
    (tmp_path / "a.gguf").write_bytes(b"GGUF")
    assert parse("a.gguf").kind == "gguf"
    write(tmp_path / "c++")
    assert parse("c++").kind == "folder"
    assert parse("c+++org/name").adapter.name == "org/name"


@pytest.mark.parametrize(
    "spec",
    ["./nothing", "/no/where", "~/nothing-here", "a/b/c", "missing.gguf", "org/name/", "", "a b", "org/n@"],
)
def test_what_is_neither_here_nor_a_name_is_refused(spec):
    with pytest.raises(UserError) as refused:
        parse(spec)
    assert refused.value.code == 2


def test_folders_have_no_revision_and_plain_files_are_not_checkpoints(folder):
    with pytest.raises(UserError, match="has no revision"):
        parse(f"{folder}@main")
    with pytest.raises(UserError, match="Give the folder"):
        parse(str(folder / "config.json"))


def test_two_readings_of_plus_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "a+b")
    write(tmp_path / "b+c")
    write(tmp_path / "a")
    write(tmp_path / "c")
    with pytest.raises(UserError, match="2 ways"):
        parse("a+b+c")


def test_hashes_are_of_the_bytes(folder):
    result = pin(str(folder))
    assert result.files["model.safetensors"] == hashlib.sha256(b"weights").hexdigest()
    assert result.weights_sha256 == key_of([hashlib.sha256(b"weights").hexdigest()])
    assert (result.kind, result.revision, result.source) == ("folder", None, str(folder))


def test_the_key_has_no_path_and_follows_the_content(folder, tmp_path):
    first = pin(str(folder)).key()
    moved = folder.rename(tmp_path / "elsewhere")
    assert pin(str(moved)).key() == first
    write(moved, config__json='{"_name_or_path": "/some/where"}')
    assert pin(str(moved)).key() == first
    write(moved, config__json='{"rope_theta": 5}')
    second = pin(str(moved)).key()
    assert second["config"] != first["config"]
    write(moved, tokenizer__json='{"a": 1}')
    third = pin(str(moved)).key()
    assert third["tokenizer"] != second["tokenizer"]
    assert third["weights"] == first["weights"]
    assert str(tmp_path) not in json.dumps(third)


def test_same_path_new_weights_is_seen(folder):
    file = folder / "model.safetensors"
    first = pin(str(folder)).weights_sha256
    times = (file.stat().st_atime_ns, file.stat().st_mtime_ns)
    file.write_text("other size")
    os.utime(file, ns=times)
    second = pin(str(folder)).weights_sha256
    assert second != first
    replacement = folder / "new"
    replacement.write_text("other-size")
    os.utime(replacement, ns=times)
    replacement.replace(file)
    third = pin(str(folder)).weights_sha256
    assert third not in {first, second}
    file.write_text("OTHER-SIZE")
    os.utime(file, ns=times)
    assert pin(str(folder)).weights_sha256 not in {first, second, third}


def test_an_unchanged_file_is_hashed_once(folder, tmp_path, monkeypatch):
    hashes = HashCache(tmp_path / "memory")
    file = folder / "model.safetensors"
    digest = sha256_of(file, hashes)
    monkeypatch.setattr(hashlib, "file_digest", lambda *_: pytest.fail("hashed again"))
    assert sha256_of(file, hashes) == digest
    hashes.path.write_text("{ damaged")
    monkeypatch.undo()
    assert sha256_of(file, hashes) == digest


def test_shards_missing_or_not_named_are_fatal(tmp_path):
    index = json.dumps({"weight_map": {"a": "model-00001-of-00002.safetensors"}})
    folder = write(tmp_path / "m", config__json="{}", model__safetensors__index__json=index)
    with pytest.raises(UserError, match="model-00001-of-00002"):
        pin(str(folder))
    write(folder, **{"model-00001-of-00002__safetensors": "1"})
    assert pin(str(folder)).weights_sha256
    write(folder, **{"model-00002-of-00002__safetensors": "2"})
    with pytest.raises(UserError, match=r"model-00002-of-00002.*does not name it"):
        pin(str(folder))


def test_a_folder_without_weights_names_the_gguf_in_it(tmp_path):
    folder = write(tmp_path / "m", model__gguf="x")
    with pytest.raises(UserError, match=r"m/model\.gguf"):
        pin(str(folder))


def adapter(folder: Path, base: str | None) -> Path:
    config = {"peft_type": "LORA", "base_model_name_or_path": base}
    return write(folder, adapter_config__json=json.dumps(config), adapter_model__safetensors="lora")


def test_an_adapter_alone_uses_the_base_in_its_config_with_a_notice(folder, tmp_path):
    alone = adapter(tmp_path / "lora", str(folder))
    result = pin(str(alone))
    assert result.kind == "adapter"
    assert [part.source for part in result.parts] == [str(folder), str(alone)]
    assert "names the base" in result.notices[0]
    named = pin(f"{folder}+{alone}")
    assert named.key() == result.key()
    assert named.notices == ()
    assert named.tokenizer_sha256 == pin(str(folder)).tokenizer_sha256
    write(alone, tokenizer__json='{"own": 1}')
    assert pin(str(alone)).tokenizer_sha256 != named.tokenizer_sha256
    write(alone, adapter_model__safetensors="lora 2")
    second = pin(str(alone)).weights_sha256
    assert second != named.weights_sha256
    write(folder, model__safetensors="other base")
    assert pin(str(alone)).weights_sha256 not in {named.weights_sha256, second}


def test_adapters_that_can_not_be_meant_are_refused(folder, tmp_path):
    with pytest.raises(UserError, match="does not name its base"):
        pin(str(adapter(tmp_path / "no-base", None)))
    with pytest.raises(UserError, match="was not found"):
        pin(str(adapter(tmp_path / "lost-base", "./gone")))
    with pytest.raises(UserError, match="is not an adapter"):
        pin(f"{folder}+{folder}")
    first = adapter(tmp_path / "first", str(folder))
    with pytest.raises(UserError, match="itself an adapter"):
        pin(f"{first}+{adapter(tmp_path / 'second', None)}")
    both = adapter(Path(shutil.copytree(folder, tmp_path / "both")), str(folder))
    with pytest.raises(UserError, match="both a full model and an adapter"):
        pin(str(both))


class Hub(http.server.BaseHTTPRequestHandler):
    """Enough of the Hub's API for one model: its info and its small files; no weights are served."""

    small: ClassVar = {"config.json": b'{"model_type": "llama"}', "tokenizer.json": b"{}"}

    def do_HEAD(self):
        self.answer()

    def do_GET(self):
        self.answer()

    def answer(self):
        name = self.path.split("?")[0].rsplit("/", 1)[-1]
        if self.path.startswith("/api/models/org/tiny/revision/main"):
            siblings = [{"rfilename": name, "size": len(body)} for name, body in self.small.items()]
            lfs = {"sha256": "ab" * 32, "size": 9, "pointerSize": 1}
            siblings.append({"rfilename": "model.safetensors", "size": 9, "lfs": lfs})
            self.send(json.dumps({"id": "org/tiny", "sha": COMMIT, "siblings": siblings}).encode())
        elif self.path.startswith(f"/org/tiny/resolve/{COMMIT}/") and name in self.small:
            self.send(self.small[name])
        else:
            self.send(b"", status=404, error="RepoNotFound" if "/api/" in self.path else "EntryNotFound")

    def send(self, body, status=200, error=None):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", f'"{hashlib.sha1(body).hexdigest()}"')
        self.send_header("X-Repo-Commit", COMMIT)
        if error:
            self.send_header("X-Error-Code", error)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *_):
        """Keep the test's output clean."""


SCRIPT = """
import json, sys
from stemmatics.core.errors import UserError
from stemmatics.lm.checkpoints.pin import pin
said = []
for spec in sys.argv[1:]:
    try:
        said.append(pin(spec).model_dump(mode="json"))
    except UserError as error:
        said.append(str(error))
assert "torch" not in sys.modules
print(json.dumps(said))
"""


def test_hub_revisions_become_commits_and_the_cache_serves_offline(tmp_path):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    environment = {name: value for name, value in os.environ.items() if "OFFLINE" not in name} | {
        "HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}",
        "HF_HOME": str(tmp_path / "hf"),
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "NO_PROXY": "127.0.0.1",
    }

    def query(*specs, **more):
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, *specs],
            env=environment | more,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        return json.loads(done.stdout)

    result, unknown = query("org/tiny", "org/unknown")
    server.shutdown()
    server.server_close()
    assert result["revision"] == COMMIT
    assert result["files"]["model.safetensors"] == "ab" * 32
    assert result["files"]["config.json"] == hashlib.sha256(Hub.small["config.json"]).hexdigest()
    assert "Unknown model org/unknown" in unknown
    offline, uncached = query("org/tiny", "org/unknown", HF_HUB_OFFLINE="1")
    assert offline == result
    assert "not in the local cache" in uncached
    (unreached,) = query("org/tiny")
    assert unreached["weights_sha256"] == result["weights_sha256"]
    assert "was not reached" in unreached["notices"][0]


def test_a_gguf_in_capitals_is_one(tmp_path):
    whole = tmp_path / "MODEL.GGUF"
    whole.write_bytes(b"GGUF")
    assert parse(str(whole)).kind == "gguf"
