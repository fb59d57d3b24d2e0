"""Families of released checkpoints, by their names on the Hub."""

from __future__ import annotations

from stemmatics.core.corpora import Corpus
from stemmatics.core.presets import preset
from stemmatics.core.scoring import Scoring
from stemmatics.core.stemma import Source, Stemma


def _heldout() -> dict[str, Corpus]:
    """Text that every machine with Python has; replace it with your own."""
    return {"heldout": Corpus(generator="python", params={"part": "heldout"}, register_field="register")}


def _stemma(name: str, checkpoints: dict[str, Source]) -> Stemma:
    return Stemma(
        name=name,
        checkpoints=checkpoints,
        corpora=_heldout(),
        scoring=Scoring(prefix="always"),
        measures={"loss": {}},
    )


@preset("smollm2", "SmolLM2-135M and its instruction-tuned release")
def smollm2() -> Stemma:
    """SmolLM2-135M and its instruction-tuned release."""
    source = "HuggingFaceTB/SmolLM2-135M"
    lab = {"family": "smollm2", "lab": "huggingface"}
    return _stemma(
        "smollm2",
        {
            "base": Source(source=source, regime="base", **lab),
            "instruct": Source(
                source=f"{source}-Instruct", base="base", regime="dpo", pipeline="smoltalk", **lab
            ),
        },
    )


@preset("olmo2", "OLMo-2 1B and its SFT, DPO and instruct releases")
def olmo2() -> Stemma:
    """OLMo-2 1B and its released stages."""
    source = "allenai/OLMo-2-0425-1B"
    lab = {"family": "olmo2", "lab": "ai2", "pipeline": "tulu3"}
    return _stemma(
        "olmo2",
        {
            "base": Source(source=source, regime="base", family="olmo2", lab="ai2"),
            "sft": Source(source=f"{source}-SFT", base="base", regime="sft", **lab),
            "dpo": Source(source=f"{source}-DPO", base="base", regime="dpo", **lab),
            "instruct": Source(source=f"{source}-Instruct", base="base", regime="rlvr", **lab),
        },
    )


@preset("pythia", "Pythia-160M at three steps of its pretraining")
def pythia() -> Stemma:
    """Pythia-160M at three steps of its pretraining."""
    source = "EleutherAI/pythia-160m"
    steps = ("step1000", "step16000", "step143000")
    return _stemma(
        "pythia",
        {
            step: Source(source=source, revision=step, regime="base", family="pythia", lab="eleutherai")
            for step in steps
        },
    )


@preset("qwen2.5", "Qwen2.5-0.5B, its instruction-tuned and its coder release")
def qwen25() -> Stemma:
    """Qwen2.5-0.5B, its instruction-tuned and its coder release."""
    lab = {"family": "qwen2.5", "lab": "qwen"}
    return _stemma(
        "qwen2.5",
        {
            "base": Source(source="Qwen/Qwen2.5-0.5B", regime="base", **lab),
            "instruct": Source(source="Qwen/Qwen2.5-0.5B-Instruct", base="base", regime="dpo", **lab),
            "coder": Source(source="Qwen/Qwen2.5-Coder-0.5B", base="base", regime="cpt", **lab),
        },
    )
