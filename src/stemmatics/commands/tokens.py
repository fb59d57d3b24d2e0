"""The user's own text, token by token: what changed from a base to its descendant."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from stemmatics.commands.score import sources_of
from stemmatics.core.errors import UserError
from stemmatics.core.extras import require
from stemmatics.core.facts import Fact
from stemmatics.core.numerics import Numerics
from stemmatics.core.scoring import Scoring
from stemmatics.core.stemma import Source, Stemma
from stemmatics.facts.pinned import Pinned
from stemmatics.study.pins import pin_sources
from stemmatics.study.read import open_run

if TYPE_CHECKING:
    from stemmatics.lm.scoring.token_views import ModelPass, TokenViews, TopIds
    from stemmatics.lm.text.corpus import Document
    from stemmatics.lm.tokens.tokenizer import TextTokenizer
    from stemmatics.probe.base import Context

Listener = Callable[[Mapping[str, Any]], None]
# UTF-8 bytes of text that one page holds: some ten times as many bytes of page
MAX_BYTES = 2_000_000


@dataclass(frozen=True)
class TokenPair:
    """Two pinned checkpoints with the settings under which both read a text."""

    base: Fact
    descendant: Fact
    scoring: Scoring
    numerics: Numerics


@dataclass(frozen=True, eq=False)
class ComparedTokens:
    """A text's tokens under both models. It holds the text: keep it where the text may be.

    ``names`` are the strings of the ids that ``views`` mention.
    """

    base: str
    descendant: str
    documents: Sequence[Document]
    views: Sequence[TokenViews]
    names: Mapping[int, str]
    settings: Mapping[str, Any]

    @property
    def num_tokens(self) -> int:
        """Tokens that were compared."""
        return sum(int(view.compared_T.sum()) for view in self.views)

    def largest(self, number: int) -> list[dict[str, Any]]:
        """The tokens whose loss changed most, largest change first."""
        rows = [
            (abs(change), order, position)
            for order, view in enumerate(self.views)
            for change, position in zip(
                -view.divergence.delta_logp, np.flatnonzero(view.compared_T), strict=True
            )
        ]
        rows.sort(key=lambda row: (-row[0], row[1], row[2]))
        return [self._row(order, int(position)) for _, order, position in rows[:number]]

    def _row(self, order: int, position: int) -> dict[str, Any]:
        view, data = self.views[order], self.documents[order].text.encode()
        start, end = int(view.document.starts[position]), int(view.document.ends[position])
        at = int(view.compared_T[:position].sum())
        values = {name: column[at] for name, column in view.columns().items()}
        return {
            "document": view.document.index,
            "position": position,
            "before": data[max(0, start - 48) : start].decode(errors="ignore"),
            "token": data[start:end].decode(errors="replace"),
            "after": data[end : end + 48].decode(errors="ignore"),
            **values,
            "delta_nll": values["descendant_nll"] - values["base_nll"],
            "base_top": self._top(view.base_top, at),
            "descendant_top": self._top(view.descendant_top, at),
        }

    def _top(self, top: TopIds, at: int) -> list[dict[str, Any]]:
        """The most likely tokens of a position."""
        pairs = zip(top.ids_NK[at].tolist(), top.probability_NK[at].tolist(), strict=True)
        return [{"token": self.names[number], "probability": share} for number, share in pairs]

    def write_page(self, path: Path) -> None:
        """One page with the text coloured. Raises UserError for a path in a run folder."""
        from stemmatics.report.tokens_page import write_tokens_page

        refuse_run_folder(path)
        names = ("base", "descendant", "documents", "views", "names", "settings")
        write_tokens_page(path, **{name: getattr(self, name) for name in names})

    def to_json(self) -> dict[str, Any]:
        """The object that ``stemma tokens --json`` prints."""
        return {
            "holds_text": True,
            "base": self.base,
            "descendant": self.descendant,
            "num_tokens": self.num_tokens,
            "settings": dict(self.settings),
            "largest": self.largest(20),
            "documents": [
                {
                    "index": view.document.index,
                    "doc_id": view.document.doc_id,
                    "num_compared": int(view.compared_T.sum()),
                    "tokens": self._tokens(view),
                }
                for view in self.views
            ],
        }

    def _tokens(self, view: TokenViews) -> dict[str, list[Any]]:
        spread: dict[str, list[Any]] = {
            name: getattr(view.document, name).tolist() for name in ("ids", "starts", "ends")
        }
        for name, column in view.columns().items():
            values: list[float | None] = [None] * len(view.compared_T)
            for position, value in zip(np.flatnonzero(view.compared_T), column.tolist(), strict=True):
                values[position] = value
            spread[name] = values
        return spread


def refuse_run_folder(path: Path) -> None:
    """Raise UserError for a page inside a run folder."""
    folders = (folder for folder in path.resolve().parents if (folder / "manifest.json").is_file())
    inside = next(folders, None)
    if inside is not None:
        raise UserError(
            f"{path} is in the run folder {inside}",
            "the page holds the text, and run folders are shared",
            "Choose a path outside",
            code=2,
        )


def pair_of_checkpoints(
    base: str,
    descendant: str,
    *,
    scoring: Scoring | None = None,
    numerics: Numerics | None = None,
    allow: Mapping[str, bool] | None = None,
    on_step: Callable[[str], None] = lambda _step: None,
) -> TokenPair:
    """Two checkpoints as ``stemma score`` takes them."""
    require("lm", "scoring tokens")
    allowed = dict(allow or {})
    stemma = Stemma(
        checkpoints={
            "base": Source(source=base, **allowed),
            "descendant": Source(source=descendant, base="base", **allowed),
        },
        scoring=scoring or Scoring(),
        numerics=numerics or Numerics(),
    )
    pinned = Pinned(stemma, pin_sources(stemma, on_step))
    return _pair(pinned, "base", "descendant")


def pair_of_run(root: Path, descendant: str | None) -> TokenPair:
    """A pair of a run, with the run's own settings; its only pair where none is named."""
    require("lm", "scoring tokens")
    run = open_run(root)
    pairs = {name: base for base, name in run.pinned.stemma.pairs()}
    names = ", ".join(pairs) or "none"
    if descendant is None and len(pairs) != 1:
        raise UserError(
            f"{root} has {len(pairs)} pairs", f"descendants: {names}", "Name one with --pair", code=2
        )
    name = descendant or next(iter(pairs))
    if name not in pairs:
        raise UserError(
            f"{root} has no descendant {name!r}", f"descendants: {names}", "Name one of them", code=2
        )
    return _pair(run.pinned, pairs[name], name)


def _pair(pinned: Pinned, base: str, descendant: str) -> TokenPair:
    stemma = pinned.stemma
    return TokenPair(pinned.checkpoint(base), pinned.checkpoint(descendant), stemma.scoring, stemma.numerics)


def compare_tokens(
    pair: TokenPair, documents: Sequence[Document], *, on_event: Listener = lambda _event: None
) -> ComparedTokens:
    """Both models' values of every token of the documents, as ``read_documents`` gives them.

    Raises UserError where the two models do not see the same tokens, before any weights are loaded.
    """
    from stemmatics.lm.scoring.encoded import EncodedCorpus
    from stemmatics.probe.base import Context
    from stemmatics.probe.sources import text_tokenizer_of
    from stemmatics.probe.worker import prepare_torch
    from stemmatics.store.cache import Cache
    from stemmatics.store.ledger import Ledger

    prepare_torch(pair.numerics)
    with tempfile.TemporaryDirectory() as folder:
        context = Context(Ledger(Path(folder)), Cache(), pair.numerics, seed=0, on_event=on_event)
        tokenizers = [text_tokenizer_of(fact, context) for fact in (pair.base, pair.descendant)]
        corpus, other = (EncodedCorpus(tokenizer, documents) for tokenizer in tokenizers)
        _refuse_other_tokens(pair, tokenizers, (corpus, other), context)
        return _compared(pair, documents, corpus, tokenizers, context)


def read_documents(
    texts: Sequence[str | Path],
    only: Sequence[int] = (),
    *,
    source: Mapping[str, Any] | None = None,
    errors: str = "refuse",
) -> list[Document]:
    """The documents of some texts, numbered in one sequence from 0.

    Args:
        texts: files, folders or Hub datasets.
        only: indices of the documents to show; empty for all.
        source: settings of the texts, such as ``field``.
        errors: what to do with invalid UTF-8: ``replace`` it, or ``refuse`` the text.

    Raises:
        UserError: a text can't be read or is too long for a page, or there is no such document.
    """
    require("lm", "scoring tokens")
    indices = frozenset(only)
    selected, num_bytes, last = [], 0, max(indices, default=None)
    num_documents = 0
    for document in _all_documents(texts, source or {}, errors):
        num_documents += 1
        if not indices or document.index in indices:
            selected.append(document)
            num_bytes += len(document.text.encode())
        if num_bytes > MAX_BYTES:
            raise UserError(
                f"the text is longer than {MAX_BYTES:,} bytes",
                "one page holds all of it with both models' predictions",
                "Choose documents with --document N, or a shorter text",
            )
        if last is not None and document.index >= last:
            break
    missing = sorted(indices - {document.index for document in selected})
    if missing:
        raise UserError(
            f"there is no document {missing[0]}",
            f"the text has {num_documents} documents, counted from 0",
            "Give --document a smaller number",
            code=2,
        )
    return selected


def _all_documents(texts: Sequence[str | Path], source: Mapping[str, Any], errors: str) -> Iterator[Document]:
    """The documents of all texts, numbered in one sequence."""
    from dataclasses import replace

    from stemmatics.lm.text.corpus import read

    index = 0
    for corpus in sources_of(texts, source):
        for document in read(corpus, errors="replace" if errors == "replace" else "refuse"):
            yield replace(document, index=index)
            index += 1


def _refuse_other_tokens(
    pair: TokenPair, tokenizers: Sequence[TextTokenizer], corpora: Sequence[Any], context: Context
) -> None:
    """Raise UserError where the two models do not see the same tokens in the same windows."""
    from stemmatics.lm.checkpoints.loading import context_length, load_config
    from stemmatics.lm.tokens.windows import DEFAULT_SIZE, Cutter
    from stemmatics.probe.sources import pin_of

    what = "the two models can't be compared token by token"
    hashes = {corpus.counted(0).token_ids_sha256 for corpus in corpora}
    if len(hashes) > 1:
        raise UserError(what, "their tokenizers give this text different ids", "Compare by byte: stemma run")
    prefixes = [tokenizer.prefix(pair.scoring.prefix)[0] for tokenizer in tokenizers]
    if len(set(prefixes)) > 1:
        raise UserError(
            what, f"their prefix ids differ ({prefixes[0]} and {prefixes[1]})", "Set --prefix never"
        )
    cutters = []
    for fact, prefix_id in zip((pair.base, pair.descendant), prefixes, strict=True):
        config = load_config(
            pin_of(fact, context), trust_remote_code=bool(fact.where.get("trust_remote_code"))
        )
        length = context_length(config) or DEFAULT_SIZE
        has_prefix = prefix_id is not None
        cutters.append(Cutter.of(pair.scoring.windows, context_length=length, has_prefix=has_prefix))
    sizes = [(cutter.rule, cutter.size, cutter.stride) for cutter in cutters]
    if len(set(sizes)) > 1:
        smallest = min(cutter.size for cutter in cutters)
        raise UserError(
            what, "their windows differ, since their context lengths do", f"Set --window {smallest}"
        )


def _compared(
    pair: TokenPair,
    selected: Sequence[Document],
    corpus: Any,
    tokenizers: Sequence[TextTokenizer],
    context: Context,
) -> ComparedTokens:
    from stemmatics.lm.scoring.token_views import token_views
    from stemmatics.lm.tokens.tokenizer import shared_support

    base, descendant = (_pass(fact, pair, corpus, context) for fact in (pair.base, pair.descendant))
    mask_V = shared_support(tokenizers[0], tokenizers[1], base.num_ids, descendant.num_ids).mask
    views = list(token_views(base, descendant, corpus, mask_V))
    shown = {
        int(number)
        for view in views
        for ids in (view.document.ids, view.base_top.ids_NK, view.descendant_top.ids_NK)
        for number in np.unique(ids)
    }
    settings = {
        **pair.scoring.key(),
        **pair.numerics.key(),
        "device": _both(base.head.weight.device, descendant.head.weight.device),
        "dtype": _both(base.head.weight.dtype, descendant.head.weight.dtype),
        "prefix_id": base.prefix_id,
        "num_support": int(mask_V.sum()),
        "support": "shared",
    }
    names = display_names(tokenizers[0], shown)
    return ComparedTokens(
        _described(pair.base), _described(pair.descendant), selected, views, names, settings
    )


def _both(base: Any, descendant: Any) -> str:
    """What was used for the two models, once where it is the same."""
    return " and ".join(dict.fromkeys(str(value).removeprefix("torch.") for value in (base, descendant)))


def _described(fact: Fact) -> str:
    """A checkpoint as the page names it: what was given, else its name in the run."""
    return str(fact.where.get("source") or fact.label)


def _pass(fact: Fact, pair: TokenPair, corpus: Any, context: Context) -> ModelPass:
    """One model over the text; its weights but for the head are released."""
    import time

    from stemmatics.lm.scoring.passes import Reader
    from stemmatics.lm.scoring.token_views import ModelPass
    from stemmatics.probe.sources import load_alone

    def forward(event: Mapping[str, Any]) -> None:
        named = {"key": fact.key, "probe": "tokens", "label": _described(fact), "unit": "tokens"}
        context.on_event({**named, **event, "total": corpus.num_tokens})

    reader = Reader.of(load_alone(fact, context), pair.scoring, pair.numerics)
    started = time.monotonic()
    passed = ModelPass.run(reader, corpus, context.scratch(), on_event=forward)
    spent = time.monotonic() - started
    num_tokens = passed.stored.num_scored
    context.on_event(
        {"kind": "pass", "label": fact.label, "corpus": "text", "num_tokens": num_tokens, "spent": spent}
    )
    return passed


def display_names(tokenizer: TextTokenizer, ids: set[int]) -> dict[int, str]:
    """The text that each id stands for; of a part of a character the name in the vocabulary."""
    vocabulary = tokenizer.vocabulary()
    names = {}
    for number in ids:
        name = vocabulary.get(number, f"[{number}]")
        decoded = str(tokenizer.hf.decode([number]))
        # SentencePiece drops the space before a text's first word
        names[number] = name.replace("▁", " ") if "▁" in name else name if "\ufffd" in decoded else decoded
    return names
