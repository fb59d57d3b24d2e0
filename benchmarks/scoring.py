"""Speed of scoring documents, against lm-evaluation-harness and against the matrix products alone.

The same SmolLM2-135M-Instruct weights, the same documents of the Python language reference, the
harness's windows and prefix id. The lengths are log-uniform between 20 and 512 tokens, so that short
documents count as they do in real corpora; the harness's ratio is also printed for the documents above
and below 128 tokens. All sides take turns within one run, and a side's speed is its best round. The
limit is the time of all of the model's matrix products, with its own weights, on as many positions as there
are tokens, in the same rounds. `peak` is the limit if each shape ran as fast as in the best of many short
trials. In float32 every document must agree; in
bfloat16, where a short document's rounding noise is ten times the corpus's, the corpus must, and the
largest document is printed. The last line is JSON; the exit status is 1 if a goal is missed.

Run: python benchmarks/scoring.py

Axes: N positions, D inputs, K outputs of a product.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import pydoc_data.topics
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM

from stemmatics.core.numerics import Numerics
from stemmatics.core.scoring import Scoring, Windows
from stemmatics.lm.checkpoints.loading import Loaded, load
from stemmatics.lm.scoring.discover import discover_head
from stemmatics.lm.scoring.forward import score
from stemmatics.lm.scoring.head import CPU_BLOCK_IDS
from stemmatics.lm.scoring.sums import TokenizedDocument
from stemmatics.lm.tokens.tokenizer import TextTokenizer
from stemmatics.presets.smollm2 import weights

SHORTEST = 20
WINDOW = 512
SHORT = 128
NUM_TOKENS = 8000
ROUNDS = 3
PRODUCT_POSITIONS = 1024
GOALS = {"harness_fp32": 2.2, "harness_bf16": 4.0, "share_of_limit_fp32": 0.75}
BOUNDS = {"fp32_against_harness": 1e-4, "bf16_against_fp32": 1e-3, "bf16_against_loop": 2e-4}


@dataclass
class Side:
    """One way of scoring: seconds of each round, and the nats of each document."""

    run: Callable[[], list[float]]
    seconds: list[float] = field(default_factory=list)
    nats: list[float] = field(default_factory=list)

    def take_turn(self) -> None:
        """One timed round."""
        start = time.perf_counter()
        self.nats = self.run()
        self.seconds.append(time.perf_counter() - start)


def texts(tokenizer: TextTokenizer) -> list[str]:
    """Beginnings of topics of the language reference, each cut at a token's end to a random length."""
    generator = np.random.default_rng(0)
    documents, total = [], 0
    for _, topic in sorted(pydoc_data.topics.topics.items()):
        length = round(float(np.exp(generator.uniform(np.log(SHORTEST), np.log(WINDOW)))))
        ends = tokenizer.encode(topic).ends
        if len(ends) < length:
            continue
        text = topic.encode()[: ends[length - 1]].decode(errors="ignore")
        num_tokens = len(tokenizer.encode(text).ids)
        if num_tokens <= WINDOW:
            documents.append(text)
            total += num_tokens
        if total >= NUM_TOKENS:
            break
    return documents


def tokenized(tokenizer: TextTokenizer, documents: list[str]) -> list[TokenizedDocument]:
    """The documents as inputs of the engine; token classes do not matter here."""
    encodings = [tokenizer.encode(text) for text in documents]
    return [
        TokenizedDocument(i, str(i), e.ids, e.starts, e.ends, np.zeros(len(e.ids), np.int8))
        for i, e in enumerate(encodings)
    ]


def harness(model: Any, tokenizer: Any, documents: list[str]) -> tuple[Callable[[], list[float]], int]:
    """lm-evaluation-harness's own rolling loss, and its prefix id."""
    logging.disable(logging.WARNING)
    peer = HFLM(pretrained=model, tokenizer=tokenizer, max_length=WINDOW, batch_size=1, add_bos_token=False)
    requests = [Instance("loglikelihood_rolling", {}, (text,), i) for i, text in enumerate(documents)]

    def run() -> list[float]:
        # Its bars for each batch can't be switched off.
        with contextlib.redirect_stderr(io.StringIO()):
            return [-float(x) for x in peer.loglikelihood_rolling(requests, disable_tqdm=True)]

    return run, peer.prefix_token_id


def ours(model: Any, documents: list[TokenizedDocument], prefix_id: int) -> Callable[[], list[float]]:
    """The engine with its default settings."""
    scoring = Scoring(windows=Windows(rule="harness", size=WINDOW))

    def run() -> list[float]:
        rows = score(model, documents, scoring, Numerics(), prefix_id=prefix_id, context_length=WINDOW)
        return [row.nll_sum for row in rows]

    return run


def loop(model: Any, documents: list[TokenizedDocument], prefix_id: int) -> Callable[[], list[float]]:
    """A plain loop over documents with all logits at once."""

    @torch.inference_mode()
    def run() -> list[float]:
        sums = []
        for document in documents:
            fed = torch.from_numpy(np.concatenate([[prefix_id], document.ids[:-1]]))[None]
            log_p = torch.log_softmax(model(fed, use_cache=False).logits[0].float(), dim=-1)
            target = torch.from_numpy(document.ids)[:, None]
            sums.append(-float(log_p.gather(1, target).double().sum()))
        return sums

    return run


class Products:
    """The model's matrix products with nothing between them."""

    def __init__(self, model: Any, num_tokens: int) -> None:
        head = discover_head(model, WINDOW)
        layers = model.get_decoder().layers
        linear = [module.weight for module in layers.modules() if isinstance(module, torch.nn.Linear)]
        self.weights = linear + list(head.weight.split(CPU_BLOCK_IDS))
        self.num_tokens = num_tokens
        self.seconds: list[float] = []
        self.shapes = Counter(tuple(weight_KD.shape) for weight_KD in self.weights)
        self.best = dict.fromkeys(self.shapes, float("inf"))

    @torch.inference_mode()
    def take_turn(self) -> None:
        """All products of all tokens, timed; then each shape's best short trial."""
        sizes = [PRODUCT_POSITIONS] * (self.num_tokens // PRODUCT_POSITIONS)
        sizes += [self.num_tokens % PRODUCT_POSITIONS] if self.num_tokens % PRODUCT_POSITIONS else []
        inputs = {D: torch.randn(PRODUCT_POSITIONS, D) for _, D in self.shapes}
        outputs = {K: torch.empty(PRODUCT_POSITIONS, K) for K, _ in self.shapes}
        start = time.perf_counter()
        for N in sizes:
            for weight_KD in self.weights:
                K, D = weight_KD.shape
                torch.mm(inputs[D][:N], weight_KD.t(), out=outputs[K][:N])
        self.seconds.append(time.perf_counter() - start)
        for K, D in self.shapes:
            weight_KD = torch.randn(K, D)
            for _ in range(5):
                start = time.perf_counter()
                torch.mm(inputs[D], weight_KD.t(), out=outputs[K])
                self.best[K, D] = min(self.best[K, D], time.perf_counter() - start)

    @property
    def tokens_per_second(self) -> float:
        """Positions per second of the products alone in their best round."""
        return self.num_tokens / min(self.seconds)

    @property
    def peak(self) -> float:
        """Positions per second at each shape's best short trial."""
        return PRODUCT_POSITIONS / sum(self.shapes[shape] * self.best[shape] for shape in self.shapes)


def largest_difference(first: Side, other: Side, num_bytes: list[int]) -> float:
    """Largest difference of a document's loss, in nats per byte."""
    return max(abs(a - b) / n for a, b, n in zip(first.nats, other.nats, num_bytes, strict=True))


def corpus_difference(first: Side, other: Side, num_bytes: list[int]) -> float:
    """Difference of the corpus's loss, in nats per byte."""
    return abs(sum(first.nats) - sum(other.nats)) / sum(num_bytes)


def by_length(
    loaded: Loaded, documents: list[str], tokens: list[TokenizedDocument], prefix_id: int
) -> dict[str, float]:
    """Our speed over the harness's, for short and for long documents."""
    ratios = {}
    for name, low, high in ((f"up_to_{SHORT}", 0, SHORT), (f"over_{SHORT}", SHORT, WINDOW)):
        chosen = [i for i, document in enumerate(tokens) if low < len(document.ids) <= high]
        peer, _ = harness(loaded.model, loaded.tokenizer, [documents[i] for i in chosen])
        sides = Side(peer), Side(ours(loaded.model, [tokens[i] for i in chosen], prefix_id))
        for _ in range(2):
            for side in sides:
                side.take_turn()
        ratios[name] = round(min(sides[0].seconds) / min(sides[1].seconds), 3)
    return ratios


def main() -> int:
    """Time, compare, print, and check the goals."""
    torch.manual_seed(0)
    spec = str(weights())
    loaded = load(spec, Numerics(device="cpu", dtype="float32"))
    half_model = load(spec, Numerics(device="cpu", dtype="bfloat16")).model
    tokenizer = TextTokenizer(loaded.tokenizer)
    documents = texts(tokenizer)
    tokens = tokenized(tokenizer, documents)
    peer, prefix_id = harness(loaded.model, loaded.tokenizer, documents)
    num_tokens = sum(len(document.ids) for document in tokens)
    sides = {
        "harness": Side(peer),
        "fp32": Side(ours(loaded.model, tokens, prefix_id)),
        "bf16": Side(ours(half_model, tokens, prefix_id)),
        "loop_bf16": Side(loop(half_model, tokens, prefix_id)),
    }
    products = Products(loaded.model, num_tokens)
    for _ in range(ROUNDS):
        for side in sides.values():
            side.take_turn()
        products.take_turn()
    num_bytes = [len(text.encode()) for text in documents]
    speed = {name: num_tokens / min(side.seconds) for name, side in sides.items()}
    ratios = {
        "harness_fp32": speed["fp32"] / speed["harness"],
        "harness_bf16": speed["bf16"] / speed["harness"],
        "share_of_limit_fp32": speed["fp32"] / products.tokens_per_second,
    }
    differences = {
        "fp32_against_harness": largest_difference(sides["fp32"], sides["harness"], num_bytes),
        "bf16_against_fp32": corpus_difference(sides["bf16"], sides["fp32"], num_bytes),
        "bf16_against_loop": corpus_difference(sides["bf16"], sides["loop_bf16"], num_bytes),
    }
    largest = {
        name: largest_difference(sides["bf16"], sides[name], num_bytes) for name in ("fp32", "loop_bf16")
    }
    missed = [name for name, goal in GOALS.items() if not ratios[name] >= goal]
    missed += [name for name, bound in BOUNDS.items() if not differences[name] <= bound]
    for name, side in sides.items():
        print(f"{name:10} {speed[name]:8.0f} tokens/s   rounds {[round(s, 2) for s in side.seconds]} s")
    rounds = f"rounds {[round(s, 2) for s in products.seconds]} s, peak {products.peak:.0f}"
    print(f"{'limit':10} {products.tokens_per_second:8.0f} tokens/s   {rounds}")
    report = {
        "benchmark": "scoring",
        "num_documents": len(documents),
        "num_tokens": num_tokens,
        "threads": torch.get_num_threads(),
        "tokens_per_second": {name: round(value, 1) for name, value in speed.items()},
        "limit_tokens_per_second": round(products.tokens_per_second, 1),
        "peak_tokens_per_second": round(products.peak, 1),
        "limit_over_harness": round(products.tokens_per_second / speed["harness"], 3),
        "harness_fp32_by_length": by_length(loaded, documents, tokens, prefix_id),
        "ratios": {name: round(value, 3) for name, value in ratios.items()},
        "goals": GOALS,
        "differences_nats_per_byte": differences,
        "bounds": BOUNDS,
        "bf16_largest_document_nats_per_byte": largest,
        "missed": missed,
    }
    print(json.dumps(report))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
