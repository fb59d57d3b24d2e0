"""Errors that tell the user what is wrong, why, and what to do about it."""

from __future__ import annotations


class UserError(Exception):
    """Something the user can mend. Printed as ``error: WHAT. WHY. FIX`` without a traceback.

    ``code`` is the exit status: 1 where something was refused or failed, 2 for wrong use.
    """

    def __init__(self, what: str, why: str, fix: str, *, code: int = 1) -> None:
        self.what = what.rstrip(".")
        self.why = why.rstrip(".")
        self.fix = fix.rstrip(".")
        self.code = code
        super().__init__(f"{self.what}. {self.why}. {self.fix}.")

    def __reduce__(self) -> tuple[object, tuple[str, str, str], dict[str, int]]:
        """Survive the way back from a worker process."""
        return (type(self), (self.what, self.why, self.fix), {"code": self.code})
