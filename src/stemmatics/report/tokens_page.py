"""A text with every token coloured by what changed, as one HTML file that makes no network requests.

The page holds the text. Its policy names the hashes of its own script and style, so nothing else can run.

Axes: T tokens of one document, K top ids.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from numpy.typing import NDArray

from stemmatics.store.files import write_bytes

# probabilities are stored as shares of this
_PROBABILITY_STEPS = 65535


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("stemmatics.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def render_tokens_page(
    *,
    base: str,
    descendant: str,
    documents: Sequence[Any],
    views: Sequence[Any],
    names: Mapping[int, str],
    settings: Mapping[str, Any],
) -> str:
    """The page. Deterministic.

    Args:
        base: how the base is named.
        descendant: how the descendant is named.
        documents: the texts, as ``lm.text.corpus.Document``.
        views: their tokens under both models, as ``lm.scoring.token_views.TokenViews``.
        names: the string of every id that occurs in ``views``.
        settings: what the values were computed with, with ``num_support``.
    """
    script, style = _source("tokens.js"), _source("tokens.css")
    known_ids = np.array(sorted(names), dtype=np.int64)
    data = {
        "base": base,
        "descendant": descendant,
        "names": [names[number] for number in known_ids.tolist()],
        "probabilitySteps": _PROBABILITY_STEPS,
        "documents": [
            _document(document, view, known_ids) for document, view in zip(documents, views, strict=True)
        ],
    }
    return (
        _environment()
        .get_template("tokens.html.j2")
        .render(
            base=base,
            descendant=descendant,
            num_tokens=sum(int(view.compared_T.sum()) for view in views),
            num_documents=len(documents),
            settings=settings,
            data=data,
            script=Markup(script),  # noqa: S704 — a file of this package, not input
            style=Markup(style),  # noqa: S704 — a file of this package, not input
            script_hash=_policy_hash(script),
            style_hash=_policy_hash(style),
        )
    )


def write_tokens_page(path: Path, **content: Any) -> None:
    """Write the page; ``content`` as ``render_tokens_page`` takes it."""
    write_bytes(path, render_tokens_page(**content).encode())


def _source(file: str) -> str:
    loader = _environment().loader
    assert loader is not None
    # the newlines around it belong to the element, and so to its hash
    return "\n" + loader.get_source(_environment(), file)[0].strip() + "\n"


def _policy_hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


def _document(document: Any, view: Any, known_ids: NDArray[np.int64]) -> dict[str, Any]:
    """One document's text, where its tokens end, and its columns, in base64."""
    tokens, compared_T = view.document, view.compared_T
    id_type = "<u2" if len(known_ids) < 1 << 16 else "<u4"
    offsets = utf16_offsets(document.text)
    bounds_T = np.concatenate([tokens.starts[:1], tokens.ends])
    return {
        "index": document.index,
        "source": Path(str(document.source)).name,
        "row": document.row,
        "register": document.register,
        "text": document.text,
        "bounds": _encoded(offsets[bounds_T], "<u4"),
        "ids": _encoded(np.searchsorted(known_ids, tokens.ids), id_type),
        "columns": {
            name: _encoded(_spread(values_N, compared_T), "<f4") for name, values_N in view.columns().items()
        },
        "top": {
            side: {
                "ids": _encoded(np.searchsorted(known_ids, top.ids_NK), id_type),
                "probability": _encoded(np.rint(top.probability_NK * _PROBABILITY_STEPS), "<u2"),
                "width": top.ids_NK.shape[1],
            }
            for side, top in (("base", view.base_top), ("descendant", view.descendant_top))
        },
    }


def utf16_offsets(text: str) -> NDArray[np.int64]:
    """For each byte offset of a text its offset in a script's string, which counts UTF-16 units.

    An offset inside a character stands for the character's end: the first token of a character shows it.
    """
    bytes_B = np.frombuffer(text.encode(), dtype=np.uint8)
    starts_B = (bytes_B & 0xC0) != 0x80
    units_B = starts_B.astype(np.int64) + (bytes_B >= 0xF0)
    offsets: NDArray[np.int64] = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(units_B)])
    return offsets


def _spread(values_N: NDArray[np.float64], compared_T: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Values of the compared tokens, NaN elsewhere."""
    spread_T = np.full(len(compared_T), np.nan)
    spread_T[compared_T] = values_N
    return spread_T


def _encoded(values: NDArray[Any], dtype: str) -> str:
    return base64.b64encode(np.ascontiguousarray(values, dtype=dtype).tobytes()).decode()
