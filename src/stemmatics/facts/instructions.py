"""The packaged instructions as a corpus that no study has to declare."""

from __future__ import annotations

from stemmatics.core.corpora import Corpus
from stemmatics.core.facts import Fact
from stemmatics.facts.corpus import corpus_fact

# by the name in the settings of depth: the generator's form, and the pin of its records (a test reads them)
PACKAGED = {"instructions": "messages", "raw": "raw"}
PINS = {
    "instructions": {
        "content_sha256": "83ccf01634bd942463d4fc083b8331a42a0dfed1b8df57cbab715b210e6272b9",
        "num_documents": 126,
        "num_bytes": 23768,
    },
    "raw": {
        "content_sha256": "12ed2b0d17733e22075d19024a46609b3ad57dd8a74a655846eac6e6c49bf3cd",
        "num_documents": 126,
        "num_bytes": 11485,
    },
}


def packaged_corpus(name: str) -> Corpus:
    """The declaration behind a packaged corpus."""
    return Corpus(generator="instructions", params={"form": PACKAGED[name]}, role="data")


def packaged_fact(name: str, seed: int) -> Fact:
    """The documents of a packaged corpus: ``instructions`` (rendered by a template) or ``raw``."""
    return corpus_fact(name, packaged_corpus(name), PINS[name], seed)
