"""ListOffsets and waiting for a partition to become stable."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress

import tenacity
from confluent_kafka import IsolationLevel, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import ListOffsetsResultInfo, OffsetSpec

from kafka_replication.kafka.clients import translate
from kafka_replication.model.errors import Stalled
from kafka_replication.model.offsets import TopicPartition
from kafka_replication.planning.snapshot import PartitionOffsets

_EARLIEST: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]

# A partition that was just created, or whose leader just moved, answers so for a moment.
_PASSING = frozenset(
    {
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError._NOENT,
    }
)


def _passes(error: BaseException) -> bool:
    return isinstance(error.__cause__, KafkaException) and error.__cause__.args[0].code() in _PASSING


@tenacity.retry(
    retry=tenacity.retry_if_exception(_passes),
    stop=tenacity.stop_after_delay(15),
    wait=tenacity.wait_fixed(0.1),
    reraise=True,
)
def _ask(
    admin: AdminClient,
    partitions: Iterable[TopicPartition],
    spec: OffsetSpec,
    *,
    committed: bool,
    timeout: float = 30.0,
) -> dict[TopicPartition, ListOffsetsResultInfo]:
    level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
    wanted = {ClientPartition(each.topic, each.partition): spec for each in partitions}
    if not wanted:
        return {}
    try:
        futures = admin.list_offsets(wanted, isolation_level=level, request_timeout=timeout)
        return {TopicPartition(at.topic, at.partition): future.result(timeout * 2) for at, future in futures.items()}
    except KafkaException as e:
        if e.args[0].code() in _PASSING:
            _look_again(admin, {at.topic for at in wanted})
        raise translate(e.args[0], "listing offsets") from e


def _look_again(admin: AdminClient, topics: Iterable[str]) -> None:
    """Make the client ask for these topics' leaders anew: what one broker did not know yet, it believes for 15 minutes
    otherwise.
    """
    for topic in topics:
        with suppress(KafkaException):
            admin.list_topics(topic, timeout=5)


def _list(
    admin: AdminClient, partitions: Iterable[TopicPartition], spec: OffsetSpec, *, committed: bool
) -> dict[TopicPartition, int]:
    return {at: found.offset for at, found in _ask(admin, partitions, spec, committed=committed).items()}


def leader_epoch(admin: AdminClient, at: TopicPartition) -> int | None:
    """The epoch of the partition's leader now; None from a broker that does not say."""
    epoch = _ask(admin, [at], _LATEST, committed=False)[at].leader_epoch
    return epoch if epoch is not None and epoch >= 0 else None


def log_starts(admin: AdminClient, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    return _list(admin, partitions, _EARLIEST, committed=False)


def high_watermarks(admin: AdminClient, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    return _list(admin, partitions, _LATEST, committed=False)


def last_stable(admin: AdminClient, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    return _list(admin, partitions, _LATEST, committed=True)


def at_time(admin: AdminClient, partitions: Iterable[TopicPartition], timestamp: int) -> dict[TopicPartition, int]:
    """The first offset whose timestamp is >= ``timestamp`` (ms); partitions without one get their last stable
    offset.
    """
    partitions = tuple(partitions)
    found = _list(admin, partitions, OffsetSpec.for_timestamp(timestamp), committed=True)
    ends = last_stable(admin, [at for at, offset in found.items() if offset < 0])
    return {at: ends.get(at, offset) for at, offset in found.items()}


def all_three(admin: AdminClient, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, PartitionOffsets]:
    partitions = tuple(partitions)
    starts, high, stable = (
        log_starts(admin, partitions),
        high_watermarks(admin, partitions),
        last_stable(admin, partitions),
    )
    return {at: PartitionOffsets(starts[at], max(high[at], stable[at]), stable[at]) for at in partitions}


def stable_ends(
    admin: AdminClient,
    partitions: Iterable[TopicPartition],
    deadline: float,
    pause: Callable[[float], None] = time.sleep,
) -> dict[TopicPartition, int]:
    """Each partition's high watermark, once every transaction below it is settled.

    Somebody's open transaction hides what was committed after it began; it ends by its time-out at the latest.
    Raises Stalled after ``deadline`` seconds.
    """
    ends = high_watermarks(admin, partitions)
    until = time.monotonic() + deadline
    waiting = set(ends)
    while waiting:
        stable = last_stable(admin, waiting)
        waiting = {at for at in waiting if stable[at] < ends[at]}
        if waiting and time.monotonic() > until:
            at = min(waiting)
            raise Stalled(
                f"{at}: the last stable offset stays at {stable[at]}, below {ends[at]}, for {deadline:.0f} s: a"
                " transaction is open",
                f"find it: kafka-transactions.sh find-hanging --topic {at.topic} --partition {at.partition}",
            )
        if waiting:
            pause(0.02)
    return ends
