"""Collects the mistakes in several values of one request, so that one error names them all."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from kafka_replication.model.errors import BadInput

Value = TypeVar("Value")
Other = TypeVar("Other")


class Mistakes:
    """The mistakes in the values that were read so far."""

    def __init__(self) -> None:
        self._found: list[BadInput] = []

    def of(self, read: Callable[[], Value], instead: Other) -> Value | Other:
        """The result of ``read``; ``instead`` if it raises BadInput. The error is kept."""
        try:
            return read()
        except BadInput as e:
            self._found.append(e)
            return instead

    def raise_all(self) -> None:
        """Raise BadInput with all mistakes and each remedy once, if there are any."""
        if self._found:
            remedies = dict.fromkeys(e.remedy for e in self._found if e.remedy)
            raise BadInput("; ".join(e.what for e in self._found), "; ".join(remedies)) from self._found[0]
