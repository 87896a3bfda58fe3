"""Offsets that the threads of a worker ask for at the same time: they share the requests. No answer is older than its
question.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from contextlib import suppress

from confluent_kafka.admin import AdminClient

from kafka_replication.kafka import offsets
from kafka_replication.kafka.consumer_pool import OfEachAdmin, SharedRead
from kafka_replication.model.errors import ReplicationError
from kafka_replication.model.offsets import TopicPartition

End = tuple[int, int | None]  # the end of a partition, and the leader epoch if it is known
_ends: OfEachAdmin[SharedRead[TopicPartition, End]] = OfEachAdmin(SharedRead)
_ends_now: OfEachAdmin[SharedRead[TopicPartition, End]] = OfEachAdmin(SharedRead)


def shown_log(admin: AdminClient, at: TopicPartition) -> tuple[int, int | None] | None:
    """The end of a partition and its leader epoch; None if it did not answer at once, or if a transaction is open below
    it.
    """
    return _asked(_ends, admin, at, offsets.shown_logs)


def leader_epoch(admin: AdminClient, at: TopicPartition) -> int | None:
    """The current leader epoch of a partition, or None if the broker does not return it. Raises Unreachable."""
    known = _asked(_ends_now, admin, at, offsets.ends_now)
    return offsets.leader_epoch(admin, at) if known is None or known[1] is None else known[1]


def _asked(
    questions: OfEachAdmin[SharedRead[TopicPartition, End]],
    admin: AdminClient,
    at: TopicPartition,
    ask: Callable[[AdminClient, Set[TopicPartition]], Mapping[TopicPartition, End]],
) -> End | None:
    def answers(wanted: Set[TopicPartition]) -> Mapping[TopicPartition, End]:
        with suppress(ReplicationError):  # who asks alone gets an error of its own
            return ask(admin, wanted)
        return {}

    return questions.of(admin).ask(at, answers)
