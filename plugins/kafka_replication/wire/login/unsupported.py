"""The error for settings of a connection that this package cannot follow."""

from __future__ import annotations


class Unsupported(ValueError):
    """A setting that this package cannot follow, or whose value is of no use. The message names the setting, shows no
    value that may be secret, and says what helps.
    """

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(f"{what}; {remedy}")
        self.what, self.remedy = what, remedy
