"""Notices: work went on although something is not as it should be. They go to the logger ``stemmatics``."""

from __future__ import annotations

import logging

LOGGER = logging.getLogger("stemmatics")
_given: set[str] = set()


def notice(text: str) -> None:
    """Log a line, once a process however often the cause is met. Without a handler it goes to stderr."""
    if text not in _given:
        _given.add(text)
        LOGGER.warning("note: %s", text)
