"""SciPy's modules, imported at their first use: that takes half a second, and reading a run needs none."""

from __future__ import annotations

import importlib
from typing import Any


class _ImportedAtFirstUse:
    """Stands for a module until something of it is used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(importlib.import_module(self._name), attribute)


linalg: Any = _ImportedAtFirstUse("scipy.linalg")
optimize: Any = _ImportedAtFirstUse("scipy.optimize")
sparse: Any = _ImportedAtFirstUse("scipy.sparse")
special: Any = _ImportedAtFirstUse("scipy.special")
stats: Any = _ImportedAtFirstUse("scipy.stats")
