"""The base, damaged at random by as much as a descendant lost: a checkpoint to test a claim on."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stemmatics.commands.compare import pair_stemma
from stemmatics.core.errors import UserError
from stemmatics.core.extras import require
from stemmatics.core.numerics import Numerics
from stemmatics.core.scoring import Scoring
from stemmatics.facts.pinned import Pinned
from stemmatics.facts.prior_floor import NOISE_KINDS
from stemmatics.measure.prior.needs import fit_facts
from stemmatics.measure.prior.settings import PriorSettings
from stemmatics.store.cache import Cache
from stemmatics.store.files import write_json
from stemmatics.store.ledger import Ledger
from stemmatics.study.pins import pin_sources


@dataclass(frozen=True)
class Floor:
    """Where it was written, the noise, and the two loss increases in nats a token on EVAL."""

    folder: Path
    sigma: float
    delta: float
    target: float
    kind: str
    seed: int

    def to_json(self) -> dict[str, Any]:
        """What stands beside the checkpoint."""
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
    on_step: Callable[[str], None] = lambda _what: None,
    on_event: Callable[[Mapping[str, Any]], None] = lambda _event: None,
) -> Floor:
    """Write the base with ``sigma * N`` on its head, sigma matched to 1%; the rest of it is untouched.

    The texts are split as ``stemma compare`` splits them, and the noise of a seed is that of the measure's
    floors. Raises UserError where tokens differ, nothing was lost, or no sigma costs as much.
    """
    if kind not in NOISE_KINDS:
        raise UserError(
            f"there is no noise {kind!r}", "it is centred or raw", "Choose centred or raw", code=2
        )
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(
            f"{out} is there already", "nothing is overwritten", "Give another folder, or remove it"
        )
    require("lm", "scoring")
    stemma = pair_stemma(
        base, descendant, texts, source=source, scoring=scoring, numerics=numerics, allow=allow
    )
    pinned = Pinned(stemma, pin_sources(stemma, on_step))
    from stemmatics.probe.base import Context

    with tempfile.TemporaryDirectory(prefix="stemma-floor-") as scratch:
        context = Context(Ledger(Path(scratch)), Cache(), stemma.numerics, stemma.seed, on_event)
        return _make(pinned, context, out, (kind, seed), on_step)


def _make(
    pinned: Pinned, context: Any, out: Path, which: tuple[Any, int], on_step: Callable[[str], None]
) -> Floor:
    from stemmatics.lm.checkpoints.loading import save
    from stemmatics.lm.checkpoints.model_card import write_card
    from stemmatics.lm.scoring.head_damage import centred, head_noise, match
    from stemmatics.lm.scoring.head_pass import nll_sum
    from stemmatics.lm.scoring.patched_head import add_noise
    from stemmatics.probe.corpus import CorpusProbe
    from stemmatics.probe.prior.states import Refused, head_pass
    from stemmatics.probe.sources import load_checkpoint
    from stemmatics.probe.worker import prepare_torch

    prepare_torch(context.numerics)
    old, new = fit_facts(pinned, PriorSettings(), ("base", "descendant"), next(iter(pinned.stemma.corpora)))
    for made in CorpusProbe().run([old.needs["corpus"]], context):
        context.ledger.record(made.fact, made.tables)
    totals = []
    try:
        for fact in (new, old):
            on_step(f"scoring {fact.label}")
            loaded = load_checkpoint(fact.needs["checkpoint"], context)
            folder = context.ledger.root / fact.key
            folder.mkdir()
            found = head_pass(fact, loaded, context, folder)
            totals.append(nll_sum(found.head, found.positions["EVAL"]))
    except Refused as refusal:
        raise UserError(
            "the two can't be compared by token", str(refusal), "Give another pair or other texts"
        ) from None
    evaluated = found.positions["EVAL"]
    target = (totals[0] - totals[1]) / evaluated.num_positions
    if not target > 0:
        raise UserError(
            "the descendant did not lose on these texts",
            f"its loss changed by {target:+.5f} nats/token",
            "Damage can't be matched to that; take other texts",
        )
    kind, seed = which
    noise = head_noise(tuple(loaded.model.get_output_embeddings().weight.shape), seed)
    if kind == "centred":
        noise = centred(noise, found.positions["FIT"].mean_state()[0])
    on_step("matching the damage")
    damage = match(found.head, evaluated, noise[found.ids_S], target)
    if damage.failure:
        raise UserError(
            "no noise of that kind costs as much", damage.failure, "Take --kind raw, or another seed"
        )
    add_noise(loaded.model, noise, damage.sigma)
    save(loaded.model, loaded.tokenizer, out)
    name = old.needs["checkpoint"].label
    write_card(out, f"{name}, damaged", made_from=name, how="noise", trained_last=None)
    made_floor = Floor(out, damage.sigma, damage.delta, target, kind, seed)
    write_json(out / "floor.json", made_floor.to_json())
    return made_floor
