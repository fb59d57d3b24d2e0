"""Which recipe a recovery takes where none is named: the largest that pool and time allow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from stemmatics.core.corpora import Corpus
from stemmatics.core.errors import UserError
from stemmatics.core.recipes import RECIPES
from stemmatics.core.stages import RecoveryRecipe

AUTO = "auto"
FALLBACK = "nano"
LONGEST_MINUTES = 10.0
# operations a parameter and token: forward, and backward through frozen weights
_OPERATIONS = 4
# of a matrix product's measured speed, what a fine-tune reaches
_EFFICIENCY = 0.5
_BYTES_PER_TOKEN = 4


@dataclass(frozen=True)
class RecipeChoice:
    """``seconds`` is the expected time of all arms; ``reason`` says why no larger recipe was taken."""

    name: str
    seconds: float
    reason: str

    def line(self) -> str:
        """For progress: name, settings, expected time, reason."""
        recipe = RecoveryRecipe.model_validate(self.name)
        tokens = recipe.updates * recipe.update_tokens
        text = (
            f"recovery by recipe {self.name} ({tokens:,} tokens, rank {recipe.lora.rank}), "
            f"about {max(1, round(self.seconds / 60))} min for all arms"
        )
        return f"{text}; {self.reason}" if self.reason else text


def choose_recipe(
    num_parameters: Sequence[int], pool_tokens: int | None, minutes: float, flops: float
) -> RecipeChoice:
    """The largest named recipe that fits; the smallest where none fits the time.

    Args:
        num_parameters: of each model that is fine-tuned.
        pool_tokens: about how many the pool has; None where it is not known, which is taken for enough.
        minutes: that all arms together may take.
        flops: operations a second of a matrix product here.

    Raises UserError where the pool is too small for every recipe.
    """
    reason = ""
    by_size = sorted(RECIPES, key=_tokens_of, reverse=True)
    for name in by_size:
        tokens = _tokens_of(name)
        seconds = _OPERATIONS * sum(num_parameters) * tokens / (flops * _EFFICIENCY)
        if pool_tokens is not None and tokens > pool_tokens:
            reason = f"{name} needs {tokens:,} tokens, the pool has about {pool_tokens:,}"
        elif seconds > 60 * minutes and name != by_size[-1]:
            reason = f"{name} would take about {seconds / 60:,.0f} min (--time sets another limit)"
        else:
            return RecipeChoice(name, seconds, reason)
    raise UserError(
        f"the pool has about {pool_tokens:,} tokens",
        f"the smallest recipe, {by_size[-1]}, reads {_tokens_of(by_size[-1]):,}",
        "Give a larger text as --pool",
        code=2,
    )


def _tokens_of(name: str) -> int:
    recipe: Mapping[str, int] = RECIPES[name]
    return int(recipe["updates"]) * int(recipe["update_tokens"])


def pool_tokens(pool: Corpus) -> int | None:
    """Tokens of a pool, at four bytes a token; None for a Hub dataset or a compressed file."""
    if pool.generator is not None:
        from stemmatics.lm.text.corpus import records

        texts = (str(record.values.get("text", "")) for record in records(pool))
        return sum(len(text.encode()) for text in texts) // _BYTES_PER_TOKEN
    if not pool.path:
        return None
    files = [file for path in pool.path for file in _files(Path(path).expanduser())]
    if any(file.suffix in {".zst", ".gz", ".parquet"} for file in files):
        return None
    return sum(file.stat().st_size for file in files) // _BYTES_PER_TOKEN


def _files(path: Path) -> list[Path]:
    return [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else [path]
