"""The base, damaged at random by as much as a descendant lost: a checkpoint to test a claim on."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stemmatics.commands.compare import pair_stemma
from stemmatics.core.errors import UserError
from stemmatics.core.extras import require
from stemmatics.core.facts import Fact
from stemmatics.core.numerics import Numerics
from stemmatics.core.scoring import Scoring
from stemmatics.facts.damaged_base import DamagedBaseParams, damaged_base_fact
from stemmatics.facts.pinned import Pinned
from stemmatics.facts.prior_floor import NOISE_KINDS, NoiseKind
from stemmatics.store.cache import RECORD, Cache
from stemmatics.store.files import write_json
from stemmatics.study.pins import pin_sources
from stemmatics.study.scratch import made_in_scratch


@dataclass(frozen=True)
class Floor:
    """Where it was written, the noise, and the two loss increases in nats/token on EVAL."""

    folder: Path
    sigma: float
    delta: float
    target: float
    kind: str
    seed: int

    def to_json(self) -> dict[str, Any]:
        """What is written beside the checkpoint."""
        return {name: value for name, value in self.__dict__.items() if name != "folder"}


def make_floor(
    base: str,
    descendant: str,
    texts: Sequence[str | Path],
    out: Path,
    *,
    kind: str = "centred",
    seed: int = 0,
    source: Mapping[str, Any] | None = None,
    scoring: Scoring | None = None,
    numerics: Numerics | None = None,
    allow: Mapping[str, bool] | None = None,
    on_step: Callable[[str], None] = lambda _step: None,
    on_event: Callable[[Mapping[str, Any]], None] = lambda _event: None,
) -> Floor:
    """Write the base with ``sigma * N`` added to its head, sigma matched to 1%; nothing else changes.

    The texts are split as ``stemma compare`` splits them, and the noise of a seed is that of the measure's
    floors. Raises UserError if the tokens differ, nothing was lost, or no sigma costs as much.
    """
    noise_kind = next((known for known in NOISE_KINDS if known == kind), None)
    if noise_kind is None:
        raise UserError(f"unknown noise {kind!r}", "it is centred or raw", "Choose centred or raw", code=2)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out} already exists", "nothing is overwritten", "Choose another --out")
    require("lm", "scoring")
    stemma = pair_stemma(
        base, descendant, texts, source=source, scoring=scoring, numerics=numerics, allow=allow
    )
    pinned = Pinned(stemma, pin_sources(stemma, on_step))
    fact = _fact(pinned, noise_kind, seed)
    with made_in_scratch([fact], pinned, what="the damaged base", on_event=on_event) as ledger:
        row = ledger.read(fact.key, "damaged_bases").to_pylist()[0]
    _refuse(row)
    folder = Cache().find(fact.key)
    assert folder is not None, "a damaged base that is made is in the cache"
    floor = Floor(out, row["sigma"], row["loss_increase"], row["target"], kind, seed)
    _copy(folder, floor)
    return floor


def _copy(folder: Path, floor: Floor) -> None:
    """Checkpoint and ``floor.json``, written beside their place and then renamed."""
    out = floor.folder
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{out.name}.part-", dir=out.parent) as scratch:
        part = Path(scratch) / out.name
        shutil.copytree(folder, part, ignore=shutil.ignore_patterns(RECORD))
        write_json(part / "floor.json", floor.to_json())
        part.replace(out)


def _fact(pinned: Pinned, kind: NoiseKind, seed: int) -> Fact:
    """The damaged base of the pair, matched on its first text."""
    params = DamagedBaseParams(
        scoring=pinned.stemma.scoring.model_copy(update={"support": "shared"}).key(),
        numerics=pinned.stemma.numerics.key(),
        sample=1.0,
        kind=kind,
        seed=seed,
    )
    corpus = pinned.corpus(next(iter(pinned.stemma.corpora)))
    return damaged_base_fact(params, pinned.checkpoint("base"), pinned.checkpoint("descendant"), corpus)


def _refuse(row: Mapping[str, Any]) -> None:
    """Raise UserError where the pair has no damaged base."""
    if row["refusal"]:
        raise UserError(
            "the two models can't be compared by token", row["refusal"], "Choose another pair or other texts"
        )
    if row["failure"] and not row["target"] > 0:
        raise UserError(
            "the descendant did not lose on these texts",
            f"its loss changed by {row['target']:+.5f} nats/token",
            "Choose other texts: damage can only be matched to a loss increase",
        )
    if row["failure"]:
        other = next(kind for kind in NOISE_KINDS if kind != row["kind"])
        raise UserError(
            "no noise of that kind costs as much", row["failure"], f"Try --kind {other}, or another --seed"
        )
