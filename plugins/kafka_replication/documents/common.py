"""The parts that several documents share, and the document of a command that failed."""

from __future__ import annotations

from typing import Literal

from typing_extensions import TypedDict

Pairs = list[list[int]]  # coverage: [[from, until], ...]
FromUntil = TypedDict("FromUntil", {"from": int, "until": int})  # `from` cannot be the name of a field of a class


class FailureDocument(TypedDict):
    """The document of a command that failed. ``error_id`` is stable, ``see`` is the page that explains it."""

    error: str
    error_id: str
    remedy: str
    see: str
    outcome: Literal["failed"]


class FindingRow(TypedDict):
    """One finding of the checks before a run: an ``error`` is refused, a ``warning`` is not."""

    severity: Literal["error", "warning"]
    where: str
    what: str
    remedy: str


class PartitionRow(TypedDict):
    """A source partition, and the topic that it is copied to."""

    topic: str
    partition: int
    target_topic: str


class GapRow(PartitionRow, FromUntil):
    """Source offsets that a person gave up. ``kind``: ``retention``, ``late`` and ``unreadable`` ones were never
    copied, ``unverifiable`` ones were copied and could not be read back.
    """

    generation: int
    kind: str
    reason: str
    approved_by: str
    time: str
    run_id: str
