"""One base and its descendants, without a config file."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from stemmatics.commands.fail_if import (
    ALL,
    Check,
    check_conditions,
    parse_conditions,
    refuse_unknown_registers,
    refuse_unmeasured,
)
from stemmatics.commands.recipe_choice import AUTO, LONGEST_MINUTES, choose_recipe, pool_tokens
from stemmatics.commands.score import sources_of
from stemmatics.core.corpora import Corpus
from stemmatics.core.errors import UserError
from stemmatics.core.extras import require
from stemmatics.core.numerics import Numerics
from stemmatics.core.recipes import RECIPES
from stemmatics.core.scoring import Scoring, Windows
from stemmatics.core.stemma import Source, Stemma
from stemmatics.presets import pairs
from stemmatics.study import run as engine
from stemmatics.study.run import Outcome

# tokens on which a correction is fitted, and on which it is scored
PRIOR_TOKENS = pairs.PRIOR_TOKENS


def compare(
    base: str,
    descendants: str | Sequence[str],
    text: Sequence[str | Path],
    out: str | Path = "runs/compare",
    *,
    only: Iterable[str] | None = None,
    on_event: Callable[[Mapping[str, Any]], None] = lambda _event: None,
    on_step: Callable[[str], None] = lambda _step: None,
    **settings: Any,
) -> Outcome:
    """Compare a base with one or several descendants on some texts and write a report to ``out``.

    Descendants share what is made of the base. ``only`` names measures (all by default); ``settings`` are
    those of :func:`pair_stemma`. Raises UserError for what can't be compared, before weights are read.
    """
    root = Path(out)
    only = None if only is None else list(only)
    settings = _with_recipe(base, descendants, only, on_step, settings)
    stemma = pair_stemma(base, descendants, text, name=root.name, **settings)
    refuse_unknown_measures(stemma, only)
    return engine.run(stemma, root, only=only, on_event=on_event, on_step=on_step)


def compare_if(
    base: str,
    descendants: str | Sequence[str],
    text: Sequence[str | Path],
    out: str | Path,
    expressions: Sequence[str],
    *,
    only: Iterable[str] | None = None,
    on_event: Callable[[Mapping[str, Any]], None] = lambda _event: None,
    on_step: Callable[[str], None] = lambda _step: None,
    **settings: Any,
) -> tuple[Outcome, list[Check]]:
    """As ``compare``, with conditions like ``loss.delta > 0.02`` checked for every descendant.

    Raises UserError for a condition that can't be read, or that names an unknown quantity, a measure that is
    not run or a register that no text has: before weights are read.
    """
    conditions = parse_conditions(expressions)
    root = Path(out)
    only = None if only is None else list(only)
    settings = _with_recipe(base, descendants, only, on_step, settings)
    stemma = pair_stemma(base, descendants, text, name=root.name, **settings)
    selected = refuse_unknown_measures(stemma, only)
    refuse_unmeasured(conditions, selected)
    corpora = {name: corpus for name, corpus in stemma.corpora.items() if corpus.role == "text"}
    registers: dict[str, set[str]] = {name: set() for name in corpora}
    if any(condition.register != ALL for condition in conditions):
        registers = {name: _registers(corpus) for name, corpus in corpora.items()}
        refuse_unknown_registers(conditions, set().union(*registers.values()))
    outcome = engine.run(stemma, root, only=only, on_event=on_event, on_step=on_step)
    names = [descendant for _, descendant in stemma.pairs()]
    checks = check_conditions(conditions, outcome.content.results, names, list(corpora), registers)
    return outcome, checks


def _with_recipe(
    base: str,
    descendants: str | Sequence[str],
    names: Sequence[str] | None,
    on_step: Callable[[str], None],
    settings: Mapping[str, Any],
) -> dict[str, Any]:
    """The settings with a named recipe; ``minutes`` is taken out.

    ``names`` of measures with recovery among them request one. Raises UserError where they leave out one that
    was requested, and where the pool is too small.
    """
    changed = dict(settings)
    minutes = float(changed.pop("minutes", None) or LONGEST_MINUTES)
    if names is not None and "recovery" in names and changed.get("recover") is None:
        changed["recover"] = AUTO
    if names is not None and "recovery" not in names and changed.get("recover") is not None:
        raise UserError(
            f"a recovery is requested, and the only measures are {', '.join(names)}",
            "one excludes the other",
            "Add recovery to --only, or leave out --recover",
            code=2,
        )
    if changed.get("recover") != AUTO:
        return changed
    require("lm", "a recovery")
    from stemmatics.probe.costs import declared_parameters
    from stemmatics.study.plan import measured_flops

    sources = [base, *named_descendants(descendants).values()]
    trust = bool((changed.get("allow") or {}).get("trust_remote_code"))
    sizes = [declared_parameters(source, trust=trust) for source in sources]
    pool = _pool(changed.get("pool") or (), changed.get("source") or {})
    choice = choose_recipe(sizes, pool_tokens(pool), minutes, measured_flops())
    on_step(choice.line())
    changed["recover"] = choice.name
    return changed


def refuse_unknown_measures(stemma: Stemma, only: Iterable[str] | None) -> list[str]:
    """The measures that run. Raises UserError where ``only`` names another, or none."""
    if only is None:
        return list(stemma.measures)
    names = list(only)
    unknown = next((name for name in names if name not in stemma.measures), None)
    if unknown is not None or not names:
        raise UserError(
            "no measure is named" if unknown is None else f"measure {unknown!r} is not part of a comparison",
            f"this comparison measures {', '.join(stemma.measures)}",
            "Add --recover" if unknown == "recovery" else "Choose among them",
            code=2,
        )
    return names


def _registers(corpus: Corpus) -> set[str]:
    """The registers of a text, from one pass over it."""
    from stemmatics.lm.text.corpus import read

    require("lm", "reading texts")
    return {document.register for document in read(corpus)}


def pair_stemma(
    base: str,
    descendants: str | Sequence[str],
    texts: Sequence[str | Path],
    *,
    name: str = "compare",
    source: Mapping[str, Any] | None = None,
    scoring: Scoring | None = None,
    numerics: Numerics | None = None,
    allow: Mapping[str, bool] | None = None,
    recover: str | None = None,
    pool: Sequence[str | Path] = (),
) -> Stemma:
    """The stemma of a base and its descendants on some texts, with the measures that fit any pair.

    A single descendant is called ``descendant``; several have the names of their sources.
    ``recover`` names the recipe of a recovery fine-tune of both (None: no fine-tune); ``pool`` is the
    text that it trains on (by default the language reference and the sources of Python's standard library,
    which every machine has). ``auto`` is for ``compare`` to choose.
    Raises UserError for an unknown recipe, a descendant that is given twice, and texts that can't be read.
    """
    if recover is not None and recover not in RECIPES:
        raise UserError(
            f"unknown recipe {recover!r}",
            "a recipe is the recovery fine-tune of both models",
            f"Choose {', '.join(RECIPES)}",
            code=2,
        )
    corpora: dict[str, Corpus] = {}
    for position, corpus in enumerate(sources_of(texts, source or {}), start=1):
        # a correction is fitted on one half of the documents and scored on the other
        halves = corpus.model_copy(update={"eval_share": 0.5})
        corpora["text" if position == 1 else f"text-{position}"] = halves
    measures = pairs.pair_measures("text")
    if recover is not None:
        corpora["pool"] = _pool(pool, source or {})
        measures["recovery"] = {"pool": "pool", "recipe": recover, "scoring": _by_byte(scoring or Scoring())}
    allowed = dict(allow or {})
    return Stemma(
        # a folder may be called anything
        name=re.sub(r"[^A-Za-z0-9._-]+", "-", name).lstrip("._-") or "compare",
        checkpoints={
            "base": Source(source=base, **allowed),
            **{
                name: Source(source=source, base="base", **allowed)
                for name, source in named_descendants(descendants).items()
            },
        },
        corpora=corpora,
        scoring=scoring or Scoring(),
        numerics=numerics or Numerics(),
        measures=measures,
    )


def named_descendants(descendants: str | Sequence[str]) -> dict[str, str]:
    """Sources by name: the last part of each source, with a number where two would have one name.

    Raises UserError where there is none, or one is given twice.
    """
    sources = [descendants] if isinstance(descendants, str) else list(descendants)
    twice = next((source for source in sources if sources.count(source) > 1), None)
    if twice is not None or not sources:
        raise UserError(
            "no descendant is given" if twice is None else f"{twice} is given twice",
            "each descendant is compared with the base once",
            "Name one or several different checkpoints after the base",
            code=2,
        )
    if len(sources) == 1:
        return {"descendant": sources[0]}
    stems = [_stem(source) for source in sources]
    named: dict[str, str] = {}
    for stem, source in zip(stems, sources, strict=True):
        # a number that is another source's own name is skipped
        taken = {"base", *named, *(other for other in stems if other != stem)}
        candidates = itertools.chain([stem], (f"{stem}-{number}" for number in itertools.count(2)))
        named[next(name for name in candidates if name not in taken)] = source
    return named


def _stem(source: str) -> str:
    """A checkpoint's name without its folders or organisation; with an adapter, the adapter's."""
    part = source.rpartition("+")[2]
    if not Path(part).exists():
        # a chosen file of weights is no part of the name
        part = part.partition("#")[0]
    path = part if Path(part).exists() else part.partition("@")[0]
    stem = Path(path).name or Path(path).resolve().name
    # the revision says which checkpoint of a repository it is
    revision = "" if path == part else f"@{part.partition('@')[2]}"
    return "".join(sign if sign.isprintable() else "-" for sign in stem.removesuffix(".gguf") + revision)


def _pool(texts: Sequence[str | Path], source: Mapping[str, Any]) -> Corpus:
    """The text of the recovery fine-tune: one source, since its order is part of the recipe."""
    if not texts:
        return Corpus(generator="python", params={"part": "pool"}, role="data")
    corpora = sources_of(texts, {"field": source.get("field", "text")})
    if len(corpora) > 1 and any(corpus.path is None for corpus in corpora):
        raise UserError(
            f"{len(corpora)} pools are given, and one of them is a Hub dataset",
            "several pools are read one after the other, which only files allow",
            "Give one dataset, or only files",
            code=2,
        )
    paths = [path for corpus in corpora for path in corpus.path or []]
    return corpora[0].model_copy(update={"role": "data", "path": paths or None})


def _by_byte(scoring: Scoring) -> dict[str, Any]:
    """Scoring that compares fine-tuned models: windows cut at bytes, the first byte scored too."""
    windows = scoring.windows if scoring.windows.rule == "bytes" else Windows(rule="bytes")
    return scoring.model_copy(update={"windows": windows, "prefix": "always"}).model_dump(mode="json")
