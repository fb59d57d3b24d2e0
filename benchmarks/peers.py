"""Our losses compared with those of other programs, on the same weights and the same token ids.

llama.cpp reads the GGUF file twice: as it is, with activations rounded to 8 bits and a cache in half
precision, and with all tensors and the cache widened to float32, where its losses must equal ours: the
difference in the first case is then its rounding. lm-evaluation-harness runs the same float32 model. The
ids of llama.cpp's own tokenizer are compared with ours, and the first difference is printed. The text is
this project's licence. The last line is JSON; the exit status is 1 if a bound is exceeded.

Run: pip install llama-cpp-python (a source build), then python benchmarks/peers.py
"""

from __future__ import annotations

import json
import logging
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFReader, GGUFValueType, GGUFWriter
from gguf.quants import dequantize
from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM
from scipy.special import log_softmax

from stemmatics.core.errors import UserError
from stemmatics.core.numerics import Numerics
from stemmatics.core.scoring import Scoring, Windows
from stemmatics.lm.checkpoints.loading import load
from stemmatics.lm.scoring.forward import score
from stemmatics.lm.scoring.sums import TokenizedDocument
from stemmatics.lm.tokens.tokenizer import TextTokenizer
from stemmatics.presets.smollm2 import weights

TEXT = Path(__file__).parent.parent / "LICENSE"
NUM_IDS = 1024
BOUNDS = {
    # 8-bit activations and a half-precision cache; a larger difference would be something else
    "llama_cpp_quantised_nats_per_token": 0.01,
    "llama_cpp_float32_nats_per_token": 1e-4,
    "harness_nats_per_byte": 1e-4,
}
# GGML_TYPE_F32
FLOAT32 = 0


def widened(path: Path, out: Path) -> Path:
    """The same GGUF with its tensors in float32."""
    reader = GGUFReader(path)
    writer = GGUFWriter(out, reader.get_field("general.architecture").contents())
    for name, field in reader.fields.items():
        own = name.startswith("GGUF.")
        if not own and name not in (
            "general.architecture",
            "general.file_type",
            "general.quantization_version",
        ):
            kind = field.types[0]
            inner = field.types[-1] if kind == GGUFValueType.ARRAY else None
            writer.add_key_value(name, field.contents(), kind, sub_type=inner)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, np.asarray(dequantize(tensor.data, tensor.tensor_type), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return out


@dataclass(frozen=True)
class Theirs:
    """Mean nats per token of all ids but the first by llama.cpp, its tokens per second, its own ids."""

    loss: float
    speed: float
    ids: list[int]


def llama_cpp(path: Path, ids: list[int], text: str, **settings: int) -> Theirs:
    """Evaluate the ids by llama.cpp."""
    try:
        from llama_cpp import Llama
    except ImportError as error:
        raise UserError(
            "llama.cpp's Python package is not installed",
            "it is a source build and no part of the environment",
            "pip install llama-cpp-python",
        ) from error
    model = Llama(str(path), n_ctx=NUM_IDS, n_batch=512, logits_all=True, verbose=False, **settings)
    start = time.perf_counter()
    model.eval(ids)
    seconds = time.perf_counter() - start
    log_p = log_softmax(np.asarray(model.scores[: len(ids)], dtype=np.float64), axis=1)
    loss = -float(log_p[np.arange(len(ids) - 1), ids[1:]].mean())
    return Theirs(loss, len(ids) / seconds, model.tokenize(text.encode(), add_bos=False, special=False))


def first_difference(ours: list[int], theirs: list[int]) -> str:
    """Where two lists of ids differ, with the ids there."""
    for i, (our_id, their_id) in enumerate(zip(ours, theirs, strict=False)):
        if our_id != their_id:
            return f"differ from position {i}: ours {ours[i : i + 6]}, llama.cpp {theirs[i : i + 6]}"
    if len(ours) != len(theirs):
        return f"one list ends first: ours {len(ours)}, llama.cpp {len(theirs)}"
    return f"are the same {len(ours)}"


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
    """Score, compare, print, and check the goals."""
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
    quantised = llama_cpp(path, ids, text)
    with tempfile.TemporaryDirectory() as folder:
        exact = llama_cpp(
            widened(path, Path(folder) / "float32.gguf"), ids, text, type_k=FLOAT32, type_v=FLOAT32
        )
    harness = HFLM(pretrained=loaded.model, tokenizer=loaded.tokenizer, max_length=512, add_bos_token=False)
    rolling = Windows(rule="harness", size=512)
    our_nats, _, num_bytes, _ = our_sums(loaded.model, whole, rolling, harness.prefix_token_id)
    request = Instance("loglikelihood_rolling", {}, (text,), 0)
    harness_nats = -float(harness.loglikelihood_rolling([request], disable_tqdm=True)[0])
    differences = {
        "llama_cpp_quantised_nats_per_token": abs(nats / num_tokens - quantised.loss),
        "llama_cpp_float32_nats_per_token": abs(nats / num_tokens - exact.loss),
        "harness_nats_per_byte": abs(our_nats - harness_nats) / num_bytes,
    }
    print(f"first {NUM_IDS} ids, nats/token: ours {nats / num_tokens:.6f}")
    print(f"llama.cpp {quantised.loss:.6f} as the file is, {exact.loss:.6f} in float32")
    print(f"token ids of the whole text {first_difference(encoding.ids.tolist(), quantised.ids)}")
    print(f"whole text: ours {our_nats / num_bytes:.6f}, harness {harness_nats / num_bytes:.6f} nats/byte")
    missed = [name for name, bound in BOUNDS.items() if not differences[name] <= bound]
    report = {
        "benchmark": "peers",
        "differences": differences,
        "bounds": BOUNDS,
        "ratios": {"speed_to_llama_cpp": our_speed / quantised.speed},
        "missed": missed,
    }
    print(json.dumps(report))
    return 1 if missed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except UserError as error:
        sys.exit(f"error: {error}")
