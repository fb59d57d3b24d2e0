"""The recipe of a comparison's recovery fine-tune: the largest one that pool and machine allow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from stemmatics.core.corpora import Corpus
from stemmatics.core.errors import UserError
from stemmatics.core.extras import require
from stemmatics.core.numerics import Numerics
from stemmatics.core.recipes import RECIPES
from stemmatics.core.stages import RecoveryRecipe

# The value that stands for a choice, in place of a recipe's name.
AUTO = "auto"
SMALLEST = "nano"
# Arms together, in seconds.
LIMIT = 600.0
# A pass takes longer than its matrix products in a row: attention, norms, the optimiser, narrow matrices.
_OVERHEAD = 2.0
_ENCODED_TOGETHER = 64


@dataclass(frozen=True)
class Choice:
    """A recipe, the hash of its arms, the expected seconds of all of them, and why it was chosen."""

    name: str
    hash: str
    seconds: float
    reason: str

    def line(self) -> str:
        """For the terminal."""
        return (
            f"recovery: recipe {self.name} ({self.hash[:12]}), about {self.seconds / 60:.1f} minutes "
            f"for all fine-tunes; {self.reason}"
        )


def choose_recipe(
    specs: Sequence[str],
    num_arms: Mapping[str, int],
    pool: Corpus,
    *,
    name: str = AUTO,
    limit: float = LIMIT,
    numerics: Numerics,
    allow: Mapping[str, bool],
    on_step: Callable[[str], None] = lambda _step: None,
) -> Choice:
    """The named recipe, or the largest whose fine-tunes take less than ``limit`` seconds, else ``nano``.

    Reads the pool, configs and tokenizers; no weights are loaded.

    Args:
        specs: the checkpoints that are fine-tuned.
        num_arms: how often each is.
        pool: the text.
        name: a recipe, or ``auto``.
        limit: for all fine-tunes together, in seconds.
        numerics: the device and precision.
        allow: ``trust_remote_code``, as for loading.
        on_step: listens to what is done.

    Raises:
        UserError: the pool is too small for the recipe, or for every one.
    """
    require("lm", "a recovery fine-tune")
    from stemmatics.lm.text.contents import content_hash
    from stemmatics.probe.costs import matrix_speed, recovery_flops

    trust = bool(allow.get("trust_remote_code"))
    recipes = {key: RecoveryRecipe.model_validate(key) for key in RECIPES}
    candidates = sorted(recipes if name == AUTO else [name], key=lambda key: -_tokens(recipes[key]))
    on_step("counting the tokens of the pool")
    have = _num_tokens(specs, pool, _tokens(recipes[candidates[0]]), trust=trust)
    pool_sha256 = content_hash(pool)
    speed = matrix_speed(numerics)
    reasons = []
    for key in candidates:
        recipe = recipes[key]
        if have < _tokens(recipe):
            reasons.append(f"{key} reads {_tokens(recipe):,} tokens, and the pool has {have:,}")
            continue
        flops = sum(num_arms[spec] * recovery_flops(spec, recipe, trust=trust) for spec in specs)
        seconds = _OVERHEAD * flops / speed
        if name == AUTO and key != SMALLEST and seconds >= limit:
            reasons.append(f"{key} would take about {seconds / 60:.0f} minutes")
            continue
        reason = "; ".join(reasons) or ("as asked for" if name != AUTO else "the largest named recipe")
        return Choice(key, recipe.hash(pool_sha256), seconds, reason)
    smallest = recipes[candidates[-1]]
    raise UserError(
        f"the pool has {have:,} tokens, the recipe {candidates[-1]} reads {_tokens(smallest):,}",
        "repeated documents would be memorised",
        "Give a larger pool" + ("" if name in {AUTO, SMALLEST} else ", or a smaller recipe"),
    )


def _tokens(recipe: RecoveryRecipe) -> int:
    return recipe.updates * recipe.update_tokens


def _num_tokens(specs: Iterable[str], pool: Corpus, enough: int, *, trust: bool) -> int:
    """The pool's tokens for the checkpoint with the fewest; counting ends at ``enough``."""
    from stemmatics.lm.checkpoints.loading import load_tokenizer
    from stemmatics.lm.tokens.tokenizer import TextTokenizer

    counts: dict[Any, int] = {}
    for spec in specs:
        tokenizer = TextTokenizer(load_tokenizer(spec, trust_remote_code=trust)[0])
        # every row begins with a prefix, which not every tokenizer has
        tokenizer.prefix("always")
        if tokenizer.identity not in counts:
            counts[tokenizer.identity] = _count(tokenizer, pool, enough)
    return min(counts.values())


def _count(tokenizer: Any, pool: Corpus, enough: int) -> int:
    from stemmatics.lm.text.corpus import read

    texts = (document.text for document in read(pool))
    total = 0
    while total < enough and (some := list(islice(texts, _ENCODED_TOGETHER))):
        total += sum(len(encoding.ids) for encoding in tokenizer.encode_batch(some))
    return total
