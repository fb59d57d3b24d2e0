"""What a run was made with."""

from __future__ import annotations

import importlib.metadata
import platform

import stemmatics

# libraries that make numbers, then those that make the page
_NUMBERS = ("numpy", "scipy", "pyarrow", "torch", "transformers", "tokenizers", "trl", "peft")
_PAGE = ("altair", "jinja2", "vl-convert-python")
PAGE_LIBRARIES = ("stemmatics", *_PAGE)


def versions() -> dict[str, str]:
    """Ours, Python's, and those of the libraries (as far as installed)."""
    versions_ = {"stemmatics": stemmatics.__version__, "python": platform.python_version()}
    for name in (*_NUMBERS, *_PAGE):
        try:
            versions_[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions_


def hardware() -> dict[str, str]:
    """The kind of machine; nothing that names it."""
    return {
        "system": platform.system(),
        "machine": platform.machine(),
        "processor": platform.processor() or "unknown",
    }
