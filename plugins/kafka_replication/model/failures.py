"""Why a record cannot be copied."""

from __future__ import annotations

from enum import StrEnum


class FailureKind(StrEnum):
    """What is wrong with a record."""

    TOO_LARGE = "too_large"  # for the target topic, or for the producer
    REFUSED = "refused"  # by the target's broker or client: no key on a compacted topic, timestamp out of bounds
    UNREADABLE = "unreadable"  # a batch of the source has a wrong checksum, or cannot be decoded
    UNFAITHFUL = "unfaithful"  # the client cannot copy it without changing it
    TRANSFORM = "transform"  # a filter or a transform failed on it
