"""Our sums against sums from the models' own logits.

`python -m tests.lm.parity` prints the table of docs/parity.md.

Axes: L positions of a row, V vocabulary.
"""

from __future__ import annotations

import inspect
import sys
from dataclasses import dataclass

import numpy as np
import torch
import transformers
from tests.lm.architectures import ARCHITECTURES, CONTEXT, VOCABULARY, Architecture
from tests.lm.oracles import BOS, as_document, sums_of

from stemmatics.lm.scoring.discover import discover_head

# Close lengths share a padded batch, the longest fills the context, the empty one has no row.
LENGTHS = (40, 39, 37, CONTEXT, 0, 1, 5, 5)


@dataclass(frozen=True)
class Parity:
    """Largest difference from the model's own logits over the documents, in tolerances and in nats."""

    alone: float
    mixed: float
    right: float
    left: float
    nats: float
    sums: tuple[float, ...]


def texts() -> list[list[int]]:
    generator = np.random.default_rng(0)
    return [generator.integers(3, VOCABULARY, length).tolist() for length in LENGTHS]


def own_sum(model: torch.nn.Module, ids: list[int], *, left: int = 0, right: int = 0) -> float:
    """Nats of the ids from the model's own logits, softmax in float64."""
    if not ids:
        return 0.0
    fed = [BOS, *ids[:-1]]
    row_L = [0] * left + fed + [0] * right
    arguments = {}
    if left or right:
        mask_L = [0] * left + [1] * len(fed) + [0] * right
        arguments["attention_mask"] = torch.tensor([mask_L])
        if "position_ids" in inspect.signature(model.forward).parameters:
            position_L = [0] * left + list(range(len(fed))) + [0] * right
            arguments["position_ids"] = torch.tensor([position_L])
    with torch.inference_mode():
        logits_LV = model(torch.tensor([row_L]), **arguments).logits[0]
    log_p_LV = torch.log_softmax(logits_LV.double(), dim=-1)
    return -float(log_p_LV[range(left, left + len(fed)), ids].sum())


def compare(model: torch.nn.Module) -> Parity:
    """Score every text alone and in one mixed batch; check against unpadded and padded own logits."""
    ids = texts()
    documents = [as_document(i, text) for i, text in enumerate(ids)]
    mixed = [row.nll_sum for row in sums_of(model, documents, context_length=CONTEXT)]
    alone = [row.nll_sum for row in sums_of(model, documents, context_length=CONTEXT, token_budget=1)]
    own = [own_sum(model, text) for text in ids]
    # Padding must fit the context too, and learned positions end there.
    short = [i for i, text in enumerate(ids) if len(text) <= CONTEXT - 3]

    def worst(ours: list[float], theirs: list[float]) -> float:
        return max(abs(a - b) / max(1e-4, 1e-6 * b) for a, b in zip(ours, theirs, strict=True))

    ours_short = [mixed[i] for i in short]
    return Parity(
        alone=worst(alone, own),
        mixed=worst(mixed, own),
        right=worst(ours_short, [own_sum(model, ids[i], right=3) for i in short]),
        left=worst(ours_short, [own_sum(model, ids[i], left=3) for i in short]),
        nats=max(abs(a - b) for a, b in zip(mixed, own, strict=True)),
        sums=tuple(own),
    )


def _describe(model: torch.nn.Module, architecture: Architecture) -> str:
    head = discover_head(model, CONTEXT)
    config = model.config
    words = [
        "tied" if model.get_output_embeddings().weight is model.get_input_embeddings().weight else "untied"
    ]
    words += ["bias"] if head.bias is not None else []
    words += [f"scale {head.transform.scale:g}"] if architecture.scale != 1 else []
    words += [f"cap {head.transform.cap:g}"] if architecture.cap else []
    words += ["sliding window"] if getattr(config, "sliding_window", None) else []
    words += ["experts"] if getattr(config, "output_router_logits", False) else []
    return ", ".join(words)


def _row(architecture: Architecture) -> str:
    result = {name: compare(architecture.build(name)) for name in architecture.attentions}
    parities = list(result.values())
    between = "n/a"
    if len(parities) == 2:
        between = f"{max(abs(a - b) for a, b in zip(parities[0].sums, parities[1].sums, strict=True)):.0e}"
    worst = [max(getattr(p, name) for p in parities) for name in ("alone", "mixed", "right", "left")]
    cells = [
        architecture.name,
        _describe(architecture.build(), architecture),
        ", ".join(result),
        f"{max(p.nats for p in parities):.0e}",
        *(f"{value:.2f}" for value in worst),
        between,
    ]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    lines = [
        f"transformers {transformers.__version__}, torch {torch.__version__}",
        "",
        "| architecture | head | back ends | nats | alone | mixed | right | left | eager - sdpa |",
        f"|{' --- |' * 9}",
        *map(_row, ARCHITECTURES),
    ]
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
