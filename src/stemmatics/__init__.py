"""stemmatics: what did training change in a language model, and how sure is that?

``score``, ``compare``, ``analyse``, ``load_run`` and ``verify`` mirror the commands of the same names;
``StemmaCallback`` watches a training run.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"
__all__ = ["StemmaCallback", "__version__", "analyse", "compare", "load_run", "run", "score", "verify"]

_MODULES = {
    "StemmaCallback": "stemmatics.commands.callback",
    "analyse": "stemmatics.commands.analyse",
    "score": "stemmatics.commands.score",
    "compare": "stemmatics.commands.compare",
    "run": "stemmatics.commands.run",
    "load_run": "stemmatics.commands.show",
    "verify": "stemmatics.commands.verify",
}


def __getattr__(name: str) -> Any:
    """Modules are imported at their first use: the command starts without torch."""
    if name not in _MODULES:
        message = f"module 'stemmatics' has no attribute {name!r}"
        raise AttributeError(message)
    return getattr(importlib.import_module(_MODULES[name]), name)
