"""Sets of target topics: those that a run works on, and those that other runs must leave to it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class TargetTopics:
    """The target topics in ``names``, or with ``all_but`` every topic that is not in ``names``."""

    names: frozenset[str] = frozenset()
    all_but: bool = False

    ALL: ClassVar[TargetTopics]
    NONE: ClassVar[TargetTopics]

    @classmethod
    def of(cls, names: Iterable[str]) -> TargetTopics:
        return cls(frozenset(names))

    def __contains__(self, name: str) -> bool:
        return (name in self.names) != self.all_but

    def __bool__(self) -> bool:
        return self.all_but or bool(self.names)

    def minus(self, other: TargetTopics) -> TargetTopics:
        """The topics that are not in ``other``."""
        match self.all_but, other.all_but:
            case False, False:
                return TargetTopics(self.names - other.names)
            case False, True:
                return TargetTopics(self.names & other.names)
            case True, False:
                return TargetTopics(self.names | other.names, all_but=True)
            case _:
                return TargetTopics(other.names - self.names)

    def both(self, other: TargetTopics) -> TargetTopics:
        """The topics that are in ``other``, too."""
        return self.minus(TargetTopics(other.names, not other.all_but))

    def overlaps(self, other: TargetTopics) -> bool:
        """True if a topic is in both sets."""
        return bool(self.both(other))

    def __str__(self) -> str:
        shown = ", ".join(sorted(self.names)[:5]) + (" and others" if len(self.names) > 5 else "")
        if self.all_but:
            return f"all target topics but {shown}" if self.names else "all target topics"
        return shown or "no target topic"

    def encode(self) -> str:
        """The text that a store keeps."""
        return json.dumps({"all_but" if self.all_but else "only": sorted(self.names)})

    @classmethod
    def decode(cls, text: str) -> TargetTopics:
        (kind, names) = json.loads(text).popitem()
        return cls(frozenset(names), all_but=kind == "all_but")


TargetTopics.ALL = TargetTopics(all_but=True)
TargetTopics.NONE = TargetTopics()


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The topics that an attempt claims. It takes those of ``wants`` that no other attempt has.

    It waits until no other attempt has a topic in ``needs``. When its time to wait is over, ``at_least`` must be free.
    """

    wants: TargetTopics
    needs: TargetTopics
    at_least: TargetTopics

    @classmethod
    def exactly(cls, topics: TargetTopics) -> Scope:
        """All of ``topics``, or nothing."""
        return cls(wants=topics, needs=topics, at_least=topics)

    def impatient(self) -> Scope:
        """The scope of the same attempt after its time to wait is over."""
        return Scope(wants=self.wants, needs=self.at_least, at_least=self.at_least)
