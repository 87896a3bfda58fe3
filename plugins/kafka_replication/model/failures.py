"""Failures of records: their kinds, one failure as a value, and the actions about it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class FailureKind(StrEnum):
    """The kind of a record's failure. Some are keys of the section ``failures`` of a replication file."""

    TOO_LARGE = "too_large"  # for the target topic, or for the producer
    REFUSED = "refused"  # by the target's broker or client: no key on a compacted topic, timestamp out of bounds
    UNFAITHFUL = "unfaithful"  # the client cannot copy it without changing it
    TRANSFORM = "transform"  # a filter or a transform failed on it


STATES = ("quarantined", "skipped", "retried", "discarded")  # what became of a failed record


class Action(StrEnum):
    """An action of a person about failed records."""

    LIST = "list"
    SHOW = "show"
    RETRY = "retry"
    DISCARD = "discard"


@dataclass(frozen=True, slots=True)
class Failure:
    """One source record that cannot be copied. ``error`` is the class of the error: Kafka's name, or Python's."""

    offset: int
    kind: FailureKind
    reason: str
    error: str
