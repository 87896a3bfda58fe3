"""Decides which of several engines copies the next part of a range, and up to which offset."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from kafka_replication.copying.engine import CopyEngine, HandOver, OnlyAsStored

LEAST = 1_000  # offsets; a session of its own is not worth less
GROWTH = 10
Exact = Callable[[], CopyEngine | None]


@dataclass(slots=True, kw_only=True)
class Turns:
    """``engine`` copies until it hands over to ``fallback``; without a fallback it copies everything. Records that an
    engine would change go to the ``exact`` one, if this range has one. If that cannot copy them either, they are
    refused.
    """

    engine: CopyEngine
    fallback: CopyEngine | None = None
    exact: Exact | None = None
    _fallback_until: int | None = field(init=False, default=None)  # the fallback copies up to here
    _exact_engine: CopyEngine | None = field(init=False, default=None)  # at work, up to the next
    _exact_until: int = field(init=False, default=0)
    _odd_until: int = field(init=False, default=0)  # behind the record that was handed to it
    _refusing_until: int | None = field(init=False, default=None)  # nothing is handed to it up to here
    _most: int = field(init=False, default=LEAST)

    @property
    def now(self) -> CopyEngine:
        if self._exact_engine is not None:
            return self._exact_engine
        return self.engine if self.fallback is None or self._fallback_until is None else self.fallback

    @property
    def until(self) -> int | None:
        """The offset before which the turn ends; None if it ends with the range."""
        if self._exact_engine is not None:
            return self._exact_until
        ends = [until for until in (self._refusing_until, self._fallback_until) if until is not None]
        return min(ends, default=None)

    @property
    def hands_over(self) -> bool:
        """True if the engine has to hand over records that it would change."""
        return self.exact is not None and self._refusing_until is None and self._exact_engine is None

    def ended(self, position: int) -> None:
        """Note that the engine copied everything before ``position``, where its turn ended."""
        if self._exact_engine is not None:
            self._exact_engine = None
            return
        if self._refusing_until is not None and self._refusing_until <= position:
            self._refusing_until = None
        if self._fallback_until is not None and self._fallback_until <= position:
            self._fallback_until = None

    def hand_over(self, asked: HandOver) -> None:
        if self._exact_engine is not None and self._exact_until > self._odd_until:
            self._exact_until = self._odd_until  # this record alone
        elif self._exact_engine is not None:
            self._refuse()
        elif not isinstance(asked, OnlyAsStored):
            self._fallback_until = asked.until
        elif (engine := self.exact() if self.exact else None) is None:
            self.exact = None
        else:
            self._exact_engine, self._odd_until = engine, asked.until
            self._exact_until = asked.until - 1 + self._most
            self._most *= GROWTH

    def give_up(self, until: int) -> bool:
        """Give the range up to ``until`` to another engine, because this one got no further in several sessions. False
        if there is no other one.
        """
        if self._exact_engine is not None:
            self._refuse()
        elif self.fallback is None or self._fallback_until is not None:
            return False
        else:
            self._fallback_until = until
        return True

    def _refuse(self) -> None:
        self._exact_engine, self._refusing_until = None, self._odd_until
