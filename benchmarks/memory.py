"""Memory of scoring: the head at a large vocabulary, and a corpus twenty times larger.

Each measurement runs in its own process, whose resident size is read every few milliseconds.
Bounds: 8,192 tokens at a vocabulary of 262,144 take at most 1 GiB above the weights; 200 MB of text
take at most 200 MB more than 10 MB of it. The last line is JSON; the exit status is 1 if a bound is
exceeded.

Run: python benchmarks/memory.py
"""

from __future__ import annotations

import json
import multiprocessing
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil

MIB = 1 << 20
VOCABULARY = 262_144
NUM_TOKENS = 8192
SMALL_MB, LARGE_MB = 10, 200
HEAD_BOUND, GROWTH_BOUND = 1024 * MIB, 200_000_000
# Long words keep the number of tokens, and so the time, small; documents of 200 words.
NUM_WORDS, WORD_BYTES, DOCUMENT_WORDS = 500, 40, 200


class Peak:
    """Resident bytes at the start, and the maximum since then."""

    def __init__(self) -> None:
        self.process = psutil.Process()
        self.before = self.most = self.process.memory_info().rss
        self.done = threading.Event()

    def watch(self) -> None:
        """Read the resident size until stopped."""
        while not self.done.wait(0.005):
            self.most = max(self.most, self.process.memory_info().rss)

    @property
    def added(self) -> int:
        """Peak bytes above the start."""
        return self.most - self.before


@contextmanager
def watched() -> Iterator[Peak]:
    """Watch this process's memory."""
    peak = Peak()
    thread = threading.Thread(target=peak.watch)
    thread.start()
    try:
        yield peak
    finally:
        peak.done.set()
        thread.join()


def tiny_model(num_ids: int, width: int, context: int) -> Any:
    """A Llama of one layer."""
    import transformers

    config = transformers.LlamaConfig(
        vocab_size=num_ids,
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=context,
        tie_word_embeddings=True,
    )
    return transformers.LlamaForCausalLM(config).eval()


def head_memory() -> dict[str, float]:
    """Score 8,192 tokens at a vocabulary of 262,144."""
    from stemmatics.core.numerics import Numerics
    from stemmatics.core.scoring import Scoring
    from stemmatics.lm.scoring.forward import score
    from stemmatics.lm.scoring.sums import TokenizedDocument

    model = tiny_model(VOCABULARY, width=256, context=2048)
    length = 2048
    positions = np.arange(length)
    ids = np.random.default_rng(0).integers(0, VOCABULARY, (NUM_TOKENS // length, length))
    documents = [
        TokenizedDocument(i, str(i), row, positions, positions + 1, np.zeros(length, np.int8))
        for i, row in enumerate(ids)
    ]
    start = time.perf_counter()
    with watched() as peak:
        numerics = Numerics(token_budget=NUM_TOKENS)
        rows = list(score(model, documents, Scoring(), numerics, prefix_id=0, context_length=length))
    seconds = time.perf_counter() - start
    assert sum(row.num_tokens for row in rows) == NUM_TOKENS
    return {"added": peak.added, "seconds": seconds, "all_logits": 4 * NUM_TOKENS * VOCABULARY}


def write_corpus(path: Path, megabytes: int) -> list[str]:
    """JSON lines of about this size; returns the words."""
    generator = np.random.default_rng(0)
    words = ["".join(row) for row in generator.choice(list("abcdefghijklmnop"), (NUM_WORDS, WORD_BYTES))]
    size = 0
    with path.open("w") as file:
        while size < megabytes * 1_000_000:
            size += file.write(json.dumps({"text": " ".join(generator.choice(words, DOCUMENT_WORDS))}) + "\n")
    return words


def corpus_memory(megabytes: int) -> dict[str, float]:
    """Read, tokenise and score a file of this size with a model of a few thousand parameters."""
    import tokenizers
    import transformers

    from stemmatics.core.numerics import Numerics
    from stemmatics.core.scoring import Scoring
    from stemmatics.lm.scoring.encoded import tokenized
    from stemmatics.lm.scoring.forward import score
    from stemmatics.lm.text.corpus import read, text_source
    from stemmatics.lm.tokens.tokenizer import TextTokenizer

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "corpus.jsonl"
        words = write_corpus(path, megabytes)
        vocabulary = {word: i for i, word in enumerate(words)}
        backend = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, words[0]))
        backend.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
        tokenizer = TextTokenizer(transformers.PreTrainedTokenizerFast(tokenizer_object=backend))
        model = tiny_model(len(vocabulary), width=8, context=256)
        start = time.perf_counter()
        num_tokens = num_bytes = 0
        with watched() as peak:
            documents = tokenized(tokenizer, read(text_source(str(path))))
            for row in score(model, documents, Scoring(), Numerics(), prefix_id=0, context_length=256):
                num_tokens += row.num_tokens
                num_bytes += row.num_bytes
        seconds = time.perf_counter() - start
    return {"peak": peak.most, "seconds": seconds, "num_tokens": num_tokens, "num_bytes": num_bytes}


def in_own_process(function: Any, *arguments: Any) -> dict[str, float]:
    """Run in a process of its own, so that nothing else has used its memory."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def main() -> int:
    """Measure, print and compare with the goals."""
    head = in_own_process(head_memory)
    print(
        f"head: {head['added'] / MIB:.0f} MiB over the weights (all logits: {head['all_logits'] / MIB:.0f})"
    )
    small, large = (in_own_process(corpus_memory, size) for size in (SMALL_MB, LARGE_MB))
    growth = large["peak"] - small["peak"]
    for name, run in (("small", small), ("large", large)):
        megabytes, seconds = run["num_bytes"] / 1e6, run["seconds"]
        print(f"{name}: peak {run['peak'] / MIB:.0f} MiB, {megabytes:.0f} MB of text in {seconds:.0f} s")
    missed = []
    if head["added"] > HEAD_BOUND:
        missed.append("head")
    if growth > GROWTH_BOUND:
        missed.append("growth")
    report = {
        "benchmark": "memory",
        "head": head,
        "small": small,
        "large": large,
        "ratios": {"head_to_bound": head["added"] / HEAD_BOUND, "growth_to_bound": growth / GROWTH_BOUND},
        "missed": missed,
    }
    print(json.dumps(report))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
