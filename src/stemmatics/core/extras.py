"""Parts that are installed on demand."""

from __future__ import annotations

import importlib.util

from stemmatics.core.errors import UserError

# what each extra must bring; the rest comes with them
_EXTRAS = {"lm": ("torch", "transformers", "safetensors", "tokenizers")}


def require(extra: str, what_for: str) -> None:
    """Raise UserError with the command to type where an extra is not installed. Imports nothing."""
    missing = [name for name in _EXTRAS[extra] if importlib.util.find_spec(name) is None]
    if missing:
        raise UserError(
            f"{missing[0]} is not installed",
            f"{what_for} needs it",
            f"Type: pip install 'stemmatics[{extra}]'",
        )
