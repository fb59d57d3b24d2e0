"""Our losses beside those of other programs, on the same GGUF file and the same token ids.

llama.cpp reads the quantised file itself, so its losses differ from float32's by its own rounding;
lm-evaluation-harness runs the same float32 model, so its losses must be ours. The text is this
project's licence. The last line is JSON; the exit status is 1 where a bound is passed.

Run: pip install llama-cpp-python (a source build), then python benchmarks/peers.py
"""

from __future__ import annotations

import json
import logging
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM
from scipy.special import log_softmax

from stemmatics.core.errors import UserError
from stemmatics.core.numerics import Numerics
from stemmatics.core.scoring import Scoring, Windows
from stemmatics.lm.checkpoint import load
from stemmatics.lm.forward import score
from stemmatics.lm.sums import TokenizedDocument
from stemmatics.lm.tokens import TextTokenizer
from stemmatics.presets.smollm2 import weights

TEXT = Path(__file__).parent.parent / "LICENSE"
NUM_IDS = 1024
# llama.cpp multiplies in 8-bit blocks: about 0.001 nats a token on this text.
BOUNDS = {"llama_cpp_nats_per_token": 0.005, "harness_nats_per_byte": 1e-4}


def llama_cpp_loss(path: Path, ids: list[int]) -> tuple[float, float]:
    """Mean nats a token of all ids but the first by llama.cpp, and its tokens per second."""
    try:
        from llama_cpp import Llama
    except ImportError as error:
        raise UserError(
            "llama.cpp's Python package is not installed",
            "it is a source build and no part of the environment",
            "pip install llama-cpp-python",
        ) from error
    model = Llama(str(path), n_ctx=NUM_IDS, n_batch=512, logits_all=True, verbose=False)
    start = time.perf_counter()
    model.eval(ids)
    seconds = time.perf_counter() - start
    log_p = log_softmax(np.asarray(model.scores[: len(ids)], dtype=np.float64), axis=1)
    return -float(log_p[np.arange(len(ids) - 1), ids[1:]].mean()), len(ids) / seconds


def our_sums(
    model: Any, document: TokenizedDocument, windows: Windows, prefix_id: int | None
) -> tuple[float, int, int, float]:
    """Nats, tokens, bytes, and tokens per second."""
    start = time.perf_counter()
    (row,) = score(
        model,
        [document],
        Scoring(windows=windows),
        Numerics(),
        prefix_id=prefix_id,
        context_length=NUM_IDS,
    )
    return row.nll_sum, row.num_tokens, row.num_bytes, row.num_tokens / (time.perf_counter() - start)


def main() -> int:
    """Score, compare, print, judge."""
    logging.disable(logging.WARNING)
    path = weights()
    loaded = load(str(path), Numerics(device="cpu", dtype="float32"))
    tokenizer = TextTokenizer(loaded.tokenizer)
    text = TEXT.read_text()
    encoding = tokenizer.encode(text)
    arrays = (encoding.ids, encoding.starts, encoding.ends, np.zeros(len(encoding.ids), np.int8))
    whole = TokenizedDocument(0, "licence", *arrays)
    ids = encoding.ids[:NUM_IDS].tolist()
    nats, num_tokens, _, our_speed = our_sums(
        loaded.model, whole.first_tokens(NUM_IDS), Windows(size=NUM_IDS, stride=NUM_IDS - 1), None
    )
    theirs, their_speed = llama_cpp_loss(path, ids)
    harness = HFLM(pretrained=loaded.model, tokenizer=loaded.tokenizer, max_length=512, add_bos_token=False)
    rolling = Windows(rule="harness", size=512)
    our_nats, _, num_bytes, _ = our_sums(loaded.model, whole, rolling, harness.prefix_token_id)
    request = Instance("loglikelihood_rolling", {}, (text,), 0)
    harness_nats = -float(harness.loglikelihood_rolling([request], disable_tqdm=True)[0])
    differences = {
        "llama_cpp_nats_per_token": abs(nats / num_tokens - theirs),
        "harness_nats_per_byte": abs(our_nats - harness_nats) / num_bytes,
    }
    print(f"first {NUM_IDS} ids: ours {nats / num_tokens:.4f}, llama.cpp {theirs:.4f} nats/token")
    print(f"whole text: ours {our_nats / num_bytes:.6f}, harness {harness_nats / num_bytes:.6f} nats/byte")
    missed = [name for name, bound in BOUNDS.items() if not differences[name] <= bound]
    report = {
        "benchmark": "peers",
        "differences": differences,
        "bounds": BOUNDS,
        "ratios": {"speed_to_llama_cpp": our_speed / their_speed},
        "missed": missed,
    }
    print(json.dumps(report))
    return 1 if missed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except UserError as error:
        sys.exit(f"error: {error}")
