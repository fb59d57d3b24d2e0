"""A Hub dataset and a compressed file are sampled by tokens like any other text."""

import json

import pyarrow as pa
import pytest

from stemmatics.commands.compare import pair_stemma
from stemmatics.study import run as study

FIT_TOKENS, EVAL_TOKENS = 150, 100


@pytest.fixture
def sources(tiny, tmp_path, monkeypatch):
    """One text as JSON lines, compressed, and as a dataset on the Hub."""
    data = (tiny / "a.jsonl").read_bytes()
    packed = tmp_path / "a.jsonl.zst"
    with pa.CompressedOutputStream(str(packed), "zstd") as stream:
        stream.write(data)
    rows = [json.loads(line) for line in data.splitlines()]
    monkeypatch.setattr("datasets.load_dataset", lambda *_args, **_settings: iter(rows))
    return {"lines": str(tiny / "a.jsonl"), "compressed": str(packed), "hub": "org/texts"}


def test_the_sample_is_a_number_of_tokens_whatever_holds_the_text(sources, tiny, tmp_path):
    sampled = {}
    for kind, text in sources.items():
        stemma = pair_stemma(str(tiny / "base"), str(tiny / "tuned"), [text])
        assert (stemma.corpora["text"].dataset is not None) == (kind == "hub")
        stemma.measures["prior"] |= {"fit_tokens": FIT_TOKENS, "eval_tokens": EVAL_TOKENS}
        outcome = study.run(stemma, tmp_path / kind, only=["prior"])
        assert not outcome.failures
        results = outcome.content.results
        sampled[kind] = {
            estimate.id: (estimate.value, estimate.lo, estimate.hi, estimate.n)
            for quantity in ("prior.fit.tokens", "prior.delta")
            for estimate in results.all(quantity)
        }
        fitted = {estimate.value for estimate in results.all("prior.fit.tokens")}
        # whole documents: the last one may pass the limit; a penalty is chosen on a part of them
        assert FIT_TOKENS <= max(fitted) < FIT_TOKENS + 80
    assert sampled["lines"]
    assert sampled["compressed"] == sampled["lines"]
    assert sampled["hub"] == sampled["lines"]
