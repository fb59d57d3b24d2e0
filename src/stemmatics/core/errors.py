"""Errors that say what is wrong, why, and how to fix it."""

from __future__ import annotations

import re


class UserError(Exception):
    """An error that the user can fix. Printed as ``error: WHAT. WHY. FIX`` without a traceback.

    ``code`` is the exit status: 1 if something was refused or failed, 2 for wrong use.
    """

    def __init__(self, what: str, why: str, fix: str, *, code: int = 1) -> None:
        self.what = what.rstrip(".")
        self.why = why.rstrip(".")
        self.fix = fix.rstrip(".")
        self.code = code
        super().__init__(f"{self.what}. {_sentence(self.why)} {_sentence(self.fix)}")

    def __reduce__(self) -> tuple[object, tuple[str, str, str], dict[str, int]]:
        """Survive pickling, for errors of worker processes."""
        return (type(self), (self.what, self.why, self.fix), {"code": self.code})


def _sentence(text: str) -> str:
    """With a capital letter, unless it begins with a name (``stemma.yaml``, ``'base'``), and a full stop."""
    if re.match(r"[a-z]+([ ,;:]|$)", text):
        text = text[:1].upper() + text[1:]
    return text if text.endswith("?") else f"{text}."
