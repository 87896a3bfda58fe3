"""Offsets that the threads of a worker ask for at the same time: they share the requests. No answer is older than its
question.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from contextlib import suppress

from confluent_kafka.admin import AdminClient

from kafka_replication.kafka.client.shared_reads import OfEachAdmin, SharedRead
from kafka_replication.kafka.metadata import offsets
from kafka_replication.model.errors import ReplicationError
from kafka_replication.model.offsets import TopicPartition

_Questions = OfEachAdmin[SharedRead[TopicPartition, int]]
_ends: _Questions = OfEachAdmin(SharedRead)
_epochs: _Questions = OfEachAdmin(SharedRead)


def shown_end(admin: AdminClient, at: TopicPartition) -> int | None:
    """The end of a partition; None if it did not answer at once, or if a transaction is open below it."""
    return _asked(_ends, admin, at, offsets.shown_ends)


def leader_epoch(admin: AdminClient, at: TopicPartition) -> int | None:
    """The current leader epoch of a partition, or None if the broker does not return it. Raises Unreachable."""
    known = _asked(_epochs, admin, at, offsets.leader_epochs_now)
    return offsets.leader_epoch(admin, at) if known is None else known


def _asked(
    questions: _Questions,
    admin: AdminClient,
    at: TopicPartition,
    ask: Callable[[AdminClient, Set[TopicPartition]], Mapping[TopicPartition, int]],
) -> int | None:
    def answers(wanted: Set[TopicPartition]) -> Mapping[TopicPartition, int]:
        with suppress(ReplicationError):  # who asks alone gets an error of its own
            return ask(admin, wanted)
        return {}

    return questions.of(admin).ask(at, answers)
