"""The planned memory of a recovery's update against what the process takes, at four sizes.

Limit: the planned bytes, by part, as ``stemma run --plan`` gives them. Measured: the peak of the resident
memory of a process that makes a random model, its adapters and two updates, less what it had before. Goal:
within 15%. The last line is JSON; exit status 1 where a size is further off.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

GOAL = 0.15
# width, layers, positions, row length, rank, precision, checkpointing
SIZES = [
    (256, 4, 2048, 512, 16, "float32", False),
    (512, 8, 2048, 512, 64, "float32", False),
    (768, 12, 4096, 1024, 64, "bfloat16", False),
    (512, 8, 2048, 512, 64, "float32", True),
]


def measured(index: int) -> dict[str, Any]:
    """One size, in this process."""
    import torch
    from transformers import AutoModelForCausalLM, LlamaConfig

    from stemmatics.core.stages import RecoveryRecipe
    from stemmatics.train import recovery
    from stemmatics.train.adapter_product import fuse_adapters
    from stemmatics.train.lora import with_adapters
    from stemmatics.train.recovery_memory import checkpoint_activations, recovery_memory

    width, layers, positions, length, rank, precision, checkpointing = SIZES[index]
    dtype = getattr(torch, precision)
    config = LlamaConfig(
        vocab_size=32768,
        hidden_size=width,
        intermediate_size=4 * width,
        num_hidden_layers=layers,
        num_attention_heads=8,
        num_key_value_heads=4,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
    )
    recipe = RecoveryRecipe.model_validate(
        {
            "updates": 2,
            "update_tokens": positions,
            "max_length": length,
            "learning_rate": 1e-4,
            "schedule": "constant",
            "lora": {"rank": rank},
        }
    )
    planned = recovery_memory(
        config, recipe, dtype=dtype, num_positions=positions, checkpointing=checkpointing
    )
    # what libraries set up at the first pass is not the recovery's
    small = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    warm = AutoModelForCausalLM.from_config(LlamaConfig(vocab_size=100, **small))
    warm(torch.zeros((1, 4), dtype=torch.long)).logits.sum().backward()
    del warm
    gc.collect()
    before = status("VmRSS")
    model = AutoModelForCausalLM.from_config(config, dtype=dtype)
    model.requires_grad_(requires_grad=False)
    adapted = with_adapters(model, recipe.lora)
    fuse_adapters(adapted)
    adapted.train()
    if checkpointing:
        checkpoint_activations(adapted)
    optimizer = torch.optim.AdamW([weight for weight in adapted.parameters() if weight.requires_grad])
    loss = recovery.PassLoss(whole_elements=0)
    batch = recovery._padded([[1] * length] * (positions // length), 0)  # noqa: SLF001 - a whole pass
    Path("/proc/self/clear_refs").write_text("5")
    for _ in range(2):
        loss(adapted, batch).backward()
        optimizer.step()
        optimizer.zero_grad()
    peak = status("VmHWM") - before
    assert planned is not None
    return {"size": SIZES[index], "planned": planned.total, "peak": peak, "parts": asdict(planned)}


def status(name: str) -> int:
    """Bytes of a line of the process's status."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1]) * 1024


def main() -> None:
    """Each size in a process of its own, whose allocator gives freed memory back at once."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int)
    given = parser.parse_args()
    if given.size is not None:
        print(json.dumps(measured(given.size)))
        return
    rows = []
    for index, size in enumerate(SIZES):
        environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "OMP_NUM_THREADS": "2"}
        command = [sys.executable, __file__, "--size", str(index)]
        ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        row = json.loads(ran.stdout.splitlines()[-1])
        row["ratio"] = row["planned"] / row["peak"]
        rows.append(row)
        megabytes = {name: f"{value / 1e6:.0f}" for name, value in row["parts"].items()}
        print(
            f"{size}: planned {row['planned'] / 1e6:.0f} MB, peak {row['peak'] / 1e6:.0f} MB, "
            f"ratio {row['ratio']:.3f}; {megabytes}",
            flush=True,
        )
    print(json.dumps({"rows": rows, "goal": GOAL}))
    sys.exit(any(abs(row["ratio"] - 1) > GOAL for row in rows))


if __name__ == "__main__":
    main()
