"""The one error of the stack."""

from __future__ import annotations


class StackError(RuntimeError):
    """A part of the stack cannot be fetched, started or stopped: ``what`` happened to which part, and the
    ``remedy``.
    """

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(what, remedy)
        self.what = what
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.what}\nRemedy: {self.remedy}"
