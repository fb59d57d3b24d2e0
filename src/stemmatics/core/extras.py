"""Optional dependencies."""

from __future__ import annotations

import importlib.util

from stemmatics.core.errors import UserError

# modules that show whether an extra is installed
_EXTRAS = {"lm": ("torch", "transformers", "safetensors", "tokenizers")}


def require(extra: str, what_for: str) -> None:
    """Raise UserError with the install command where an extra is missing. Imports nothing."""
    missing = [name for name in _EXTRAS[extra] if importlib.util.find_spec(name) is None]
    if missing:
        raise UserError(
            f"{missing[0]} is not installed",
            f"{what_for} needs it",
            f"Type: pip install 'stemmatics[{extra}]'",
        )
