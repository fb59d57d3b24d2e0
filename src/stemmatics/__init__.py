"""stemmatics: what did training change in a language model, and how sure can one be?

``score``, ``compare``, ``analyse``, ``load_run`` and ``verify`` mirror the commands of the same names.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"
__all__ = ["__version__", "analyse", "compare", "load_run", "run", "score", "verify"]

_WHERE = {
    "analyse": "stemmatics.commands.analyse",
    "score": "stemmatics.commands.score",
    "compare": "stemmatics.commands.api",
    "run": "stemmatics.commands.api",
    "load_run": "stemmatics.commands.api",
    "verify": "stemmatics.study.verify",
}


def __getattr__(name: str) -> Any:
    """Rooms are imported when they are asked for: the command starts without torch."""
    if name not in _WHERE:
        message = f"module 'stemmatics' has no attribute {name!r}"
        raise AttributeError(message)
    return getattr(importlib.import_module(_WHERE[name]), name)
