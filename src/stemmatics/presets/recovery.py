"""Recovery of released checkpoints: a study with the recipe S1, and the web text that it fine-tunes on."""

from __future__ import annotations

from stemmatics.core.corpora import Corpus
from stemmatics.core.presets import preset
from stemmatics.core.scoring import Scoring, Windows
from stemmatics.core.stemma import Source, Stemma

DATASET = "HuggingFaceFW/fineweb-edu"
CONFIG = "sample-10BT"
COMMIT = "87f09149ef4734204d70ed1d046ddc9ca3f2b8f9"
# the first file of the configuration at that commit, with enough rows for every recipe
SHARD = "sample/10BT/000_00000.parquet"
DOCUMENTS = 20_000


def web_text() -> Corpus:
    """FineWeb-Edu at a fixed commit: the first rows of its first shard, in their order.

    The publication of S1 says only "public web text"; this choice is ours. The hash of the documents is
    part of the recipe's hash, so that other documents are another recipe.
    """
    return Corpus(
        dataset=DATASET,
        dataset_config=CONFIG,
        revision=COMMIT,
        max_documents=DOCUMENTS,
        role="data",
    )


@preset("recovery", "a ladder of small released bases and their instruct releases, recovered with S1")
def released() -> Stemma:
    """Small released bases and their instruct releases under S1, in one ladder."""
    pairs = {
        "smollm2": ("huggingface", "smoltalk", "HuggingFaceTB/SmolLM2-135M"),
        "smollm2-large": ("huggingface", "smoltalk", "HuggingFaceTB/SmolLM2-360M"),
        "qwen2.5": ("qwen", "qwen2.5-instruct", "Qwen/Qwen2.5-0.5B"),
        "olmo2": ("ai2", "tulu3", "allenai/OLMo-2-0425-1B"),
    }
    checkpoints = {}
    for family, (lab, pipeline, source) in pairs.items():
        metadata = {"family": family, "lab": lab, "generation": family.partition("-")[0]}
        checkpoints[family] = Source(source=source, regime="base", **metadata)
        checkpoints[f"{family}-instruct"] = Source(
            source=f"{source}-Instruct", base=family, regime="dpo", pipeline=pipeline, **metadata
        )
    scoring = Scoring(windows=Windows(rule="bytes"), prefix="always")
    return Stemma(
        name="recovery",
        checkpoints=checkpoints,
        corpora={
            "heldout": Corpus(generator="python", params={"part": "heldout"}, register_field="register"),
            "pool": web_text(),
        },
        scoring=scoring,
        measures={"recovery": {"pool": "pool", "recipe": "S1"}},
    )
