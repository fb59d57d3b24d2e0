"""Versions and hardware that a run was made with."""

from __future__ import annotations

import importlib.metadata
import platform

import stemmatics

# libraries that affect the numbers, then those that affect the page
_NUMBERS = ("numpy", "scipy", "pyarrow", "torch", "transformers", "tokenizers", "trl", "peft")
_PAGE = ("altair", "jinja2", "vl-convert-python")
PAGE_LIBRARIES = ("stemmatics", *_PAGE)


def versions() -> dict[str, str]:
    """Versions of stemmatics, Python and the installed libraries."""
    result = {"stemmatics": stemmatics.__version__, "python": platform.python_version()}
    for name in (*_NUMBERS, *_PAGE):
        try:
            result[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return result


def hardware() -> dict[str, str]:
    """The kind of machine, without anything that identifies it."""
    return {
        "system": platform.system(),
        "machine": platform.machine(),
        "processor": platform.processor() or "unknown",
    }
