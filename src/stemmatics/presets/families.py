"""Families of released checkpoints, by their names on the Hub.

``num_parameters`` are those of the releases: with them a study is planned without a network.
"""

from __future__ import annotations

import itertools
from typing import Literal

from stemmatics.core.corpora import Corpus
from stemmatics.core.presets import preset
from stemmatics.core.scoring import Scoring
from stemmatics.core.stemma import Source, Stemma
from stemmatics.presets.pairs import pair_measures

# the fine-tune of both arms, as `stemma compare --recover` has it: S1 is for GPUs and for tables that compare
RECIPE = "small"


def _corpora(*, recovered: bool) -> dict[str, Corpus]:
    """Text that every machine with Python has; replace it with your own.

    A correction is fitted on one half of the held-out documents and scored on the other.
    """
    heldout = Corpus(
        generator="python", params={"part": "heldout"}, register_field="register", eval_share=0.5
    )
    pool = Corpus(generator="python", params={"part": "training"}, role="data")
    return {"heldout": heldout, **({"pool": pool} if recovered else {})}


def _stemma(
    name: str, checkpoints: dict[str, Source], *, prefix: Literal["auto", "always"], recovered: bool = True
) -> Stemma:
    """A family with every measure that fits a pair; ``recovered``: also the recovery fine-tune.

    With the prefix ``always`` the first byte is scored too; where base and descendant name other tokens for
    the start of a text, only ``auto`` gives both the same tokens.
    """
    measures = pair_measures("heldout")
    if recovered:
        measures["recovery"] = {"pool": "pool", "recipe": RECIPE}
    return Stemma(
        name=name,
        checkpoints=checkpoints,
        corpora=_corpora(recovered=recovered),
        scoring=Scoring(prefix=prefix),
        measures=measures,
    )


@preset("smollm2", "SmolLM2-135M and its instruction-tuned release")
def smollm2() -> Stemma:
    """SmolLM2-135M and its instruction-tuned release."""
    source = "HuggingFaceTB/SmolLM2-135M"
    lab = {"family": "smollm2", "lab": "huggingface", "num_parameters": 134_515_008}
    return _stemma(
        "smollm2",
        {
            "base": Source(source=source, regime="base", **lab),
            "instruct": Source(
                source=f"{source}-Instruct", base="base", regime="dpo", pipeline="smoltalk", **lab
            ),
        },
        prefix="auto",
    )


@preset("olmo2", "OLMo-2 1B and its SFT, DPO and instruct releases")
def olmo2() -> Stemma:
    """OLMo-2 1B and its released stages."""
    source = "allenai/OLMo-2-0425-1B"
    family = {"family": "olmo2", "lab": "ai2", "num_parameters": 1_484_916_736}
    lab = {**family, "pipeline": "tulu3"}
    return _stemma(
        "olmo2",
        {
            "base": Source(source=source, regime="base", **family),
            "sft": Source(source=f"{source}-SFT", base="base", regime="sft", **lab),
            "dpo": Source(source=f"{source}-DPO", base="base", regime="dpo", **lab),
            "instruct": Source(source=f"{source}-Instruct", base="base", regime="rlvr", **lab),
        },
        prefix="always",
    )


@preset("pythia", "Pythia-160M at three steps of its pretraining")
def pythia() -> Stemma:
    """Pythia-160M at three steps of its pretraining, each step's base the one before."""
    family = {"family": "pythia", "lab": "eleutherai", "num_parameters": 162_322_944}
    source = "EleutherAI/pythia-160m"
    first, *later = ("step1000", "step16000", "step143000")
    checkpoints = {first: Source(source=source, revision=first, regime="base", **family)}
    for before, step in itertools.pairwise((first, *later)):
        checkpoints[step] = Source(source=source, revision=step, base=before, regime="cpt", **family)
    # nothing was trained over the pretraining that a fine-tune could take back
    return _stemma("pythia", checkpoints, prefix="always", recovered=False)


@preset("qwen2.5", "Qwen2.5-0.5B, its instruction-tuned and its coder release")
def qwen25() -> Stemma:
    """Qwen2.5-0.5B, its instruction-tuned and its coder release."""
    lab = {"family": "qwen2.5", "lab": "qwen", "num_parameters": 494_032_768}
    return _stemma(
        "qwen2.5",
        {
            "base": Source(source="Qwen/Qwen2.5-0.5B", regime="base", **lab),
            "instruct": Source(source="Qwen/Qwen2.5-0.5B-Instruct", base="base", regime="dpo", **lab),
            "coder": Source(source="Qwen/Qwen2.5-Coder-0.5B", base="base", regime="cpt", **lab),
        },
        prefix="auto",
    )
