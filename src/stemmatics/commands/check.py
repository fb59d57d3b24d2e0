"""Check checkpoints before a study: what they are, what differs within each pair, and the consequence."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from stemmatics.core.errors import UserError
from stemmatics.core.extras import require
from stemmatics.core.load import load
from stemmatics.core.numerics import Numerics
from stemmatics.study.pins import pin_sources
from stemmatics.study.request import resolve_requests


def with_weights(spec: str, weights: str) -> str:
    """A checkpoint's name with the weight file that is to be read of it."""
    from stemmatics.lm.checkpoints.pin import with_weights as named

    return named(spec, weights)


def check_checkpoint(spec: str, allow: Mapping[str, bool]) -> dict[str, Any]:
    """The pin of one checkpoint, and what is unusual about it."""
    require("lm", "reading a checkpoint")
    from stemmatics.lm.checkpoints.compat import describe

    described = describe(spec, trust_remote_code=allow["trust_remote_code"])
    findings = [_finding("", name, spec, "", "warning", meaning) for name, meaning in described.flags.items()]
    findings += [_finding("", "notice", spec, "", "note", notice) for notice in described.pin.notices]
    return {"checkpoints": [_row(spec, described.pin)], "findings": findings}


def check_stemma(path: Path, on_step: Callable[[str], None] = lambda _step: None) -> dict[str, Any]:
    """Every declared checkpoint and every pair of them; the measures' settings are validated too."""
    require("lm", "reading checkpoints")
    from stemmatics.lm.checkpoints.compat import compare_descriptions, describe

    stemma, tree = load(path)
    pins = pin_sources(stemma, on_step)
    resolve_requests(stemma, pins, tree=tree, name=str(path))
    described = {}
    for name, source in stemma.checkpoints.items():
        on_step(f"reading {name}")
        described[name] = describe(source.spec, trust_remote_code=source.trust_remote_code)
    findings = []
    for base, name in stemma.pairs():
        if base in described and name in described:
            findings += [
                _finding(
                    f"{base} → {name}",
                    difference.field,
                    difference.a,
                    difference.b,
                    difference.severity,
                    difference.consequence,
                )
                for difference in compare_descriptions(described[base], described[name])
            ]
    rows = [_row(name, description.pin) for name, description in described.items()]
    rows += [
        {
            "checkpoint": name,
            "kind": f"made here ({stage.kind})",
            "revision": "",
            "weights": "",
            "tokenizer": "",
        }
        for name, stage in stemma.stages.items()
    ]
    return {"checkpoints": rows, "findings": findings}


def _row(name: str, pin: Any) -> dict[str, Any]:
    return {
        "checkpoint": name,
        "kind": pin.kind,
        "revision": pin.revision or "",
        "weights": pin.weights_sha256[:16],
        "tokenizer": (pin.tokenizer_sha256 or "none")[:16],
    }


def _finding(*cells: str) -> dict[str, str]:
    names = ("pair", "field", "base", "descendant", "severity", "consequence")
    return dict(zip(names, cells, strict=True))


def check_numerics(
    spec: str,
    texts: Sequence[str],
    device: str,
    allow: Mapping[str, bool],
    *,
    on_event: Callable[[Mapping[str, Any]], None] = lambda _event: None,
) -> dict[str, Any]:
    """How the loss varies with batch, padding, dtype and attention implementation on this machine."""
    require("lm", "scoring")
    from stemmatics.lm.scoring.spread import measure_spread
    from stemmatics.probe.worker import prepare_torch

    if Path(spec).suffix in {".yaml", ".yml"}:
        raise UserError(
            "--numerics needs a checkpoint",
            "it loads one and scores texts with it",
            "Name a checkpoint instead of a stemma.yaml",
            code=2,
        )
    prepare_torch(Numerics(device=device))
    return asdict(measure_spread(spec, texts, device=device, on_event=on_event, **allow))
