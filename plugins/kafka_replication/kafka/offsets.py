"""ListOffsets, and waiting until no transaction below an offset is open."""

from __future__ import annotations

import operator
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress

import tenacity
from confluent_kafka import OFFSET_INVALID, IsolationLevel, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import ListOffsetsResultInfo, OffsetSpec

from kafka_replication.kafka.clients import translate
from kafka_replication.model.errors import Stalled
from kafka_replication.model.offsets import TopicPartition
from kafka_replication.planning.snapshot import PartitionOffsets

_EARLIEST: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]

# A partition that was just created, or whose leader just moved, returns these errors for a moment.
_PASSING = frozenset(
    {
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError._NOENT,
        KafkaError._NO_OFFSET,
    }
)


def _passes(error: BaseException) -> bool:
    return isinstance(error.__cause__, KafkaException) and error.__cause__.args[0].code() in _PASSING


def _ask(
    admin: AdminClient,
    partitions: Iterable[TopicPartition],
    spec: OffsetSpec,
    *,
    committed: bool,
    patience: float = 15.0,
) -> dict[TopicPartition, ListOffsetsResultInfo]:
    """ListOffsets of all ``partitions``. Repeats the request for those that do not answer, for ``patience`` seconds.

    Raises Unreachable naming a partition that still does not answer.
    """
    answers: dict[TopicPartition, ListOffsetsResultInfo] = {}
    wanted = tuple(partitions)
    tenacity.Retrying(
        retry=tenacity.retry_if_exception(_passes),
        stop=tenacity.stop_after_delay(patience),
        wait=tenacity.wait_exponential(multiplier=0.1, max=2.0),
        reraise=True,
    )(lambda: _ask_missing(admin, wanted, spec, answers, committed=committed))
    return answers


def _ask_missing(
    admin: AdminClient,
    wanted: Sequence[TopicPartition],
    spec: OffsetSpec,
    answers: dict[TopicPartition, ListOffsetsResultInfo],
    *,
    committed: bool,
    timeout: float = 30.0,
) -> None:
    """Add the missing partitions to ``answers``. Raises an error naming the first that does not answer."""
    left = {ClientPartition(at.topic, at.partition): spec for at in wanted if at not in answers}
    if not left:
        return
    level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
    failed: dict[TopicPartition, KafkaException] = {}
    for at, future in admin.list_offsets(left, isolation_level=level, request_timeout=timeout).items():
        partition = TopicPartition(at.topic, at.partition)
        try:
            answers[partition] = answer_of(future, timeout * 2)
        except KafkaException as e:
            failed[partition] = e
    if failed:
        lasting = {at: e for at, e in failed.items() if e.args[0].code() not in _PASSING}
        _refresh_metadata(admin, {at.topic for at in failed.keys() - lasting.keys()})
        first, error = min((lasting or failed).items(), key=operator.itemgetter(0))
        others = f" and {len(failed) - 1} more" if len(failed) > 1 else ""
        raise translate(error.args[0], f"listing offsets of {first}{others}") from error


def answer_of(future: Future[ListOffsetsResultInfo], seconds: float) -> ListOffsetsResultInfo:
    """The answer for one partition. Raises KafkaException, also if its broker did not answer.

    librdkafka 2.16 drops that broker's error: its partitions have no error, and no offset.
    """
    answer = future.result(seconds)
    if answer.offset == OFFSET_INVALID:
        raise KafkaException(KafkaError(KafkaError._NO_OFFSET, "its broker did not answer"))
    return answer


def _refresh_metadata(admin: AdminClient, topics: Iterable[str]) -> None:
    """Make the client ask for these topics' leaders again. Otherwise it keeps stale metadata for 15 minutes."""
    for topic in topics:
        with suppress(KafkaException):
            admin.list_topics(topic, timeout=5)


def _list(
    admin: AdminClient, partitions: Iterable[TopicPartition], spec: OffsetSpec, *, committed: bool
) -> dict[TopicPartition, int]:
    return {at: result.offset for at, result in _ask(admin, partitions, spec, committed=committed).items()}


def leader_epoch(admin: AdminClient, at: TopicPartition) -> int | None:
    """The current leader epoch of the partition, or None if the broker does not return it."""
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
    first = _list(admin, partitions, OffsetSpec.for_timestamp(timestamp), committed=True)
    ends = last_stable(admin, [at for at, offset in first.items() if offset < 0])
    return {at: ends.get(at, offset) for at, offset in first.items()}


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
    """Each partition's high watermark, once every transaction below it is committed or aborted.

    An open transaction hides records that were committed after it began. It ends at its time-out at the latest.
    The pauses grow from 0.02 s to 0.5 s, because the wait may take minutes on overloaded brokers.

    Raises Stalled after ``deadline`` seconds.
    """
    ends = high_watermarks(admin, partitions)
    waiting = set(ends)

    def hidden() -> dict[TopicPartition, int]:
        stable = last_stable(admin, waiting)
        waiting.intersection_update([at for at, offset in stable.items() if offset < ends[at]])
        return {at: stable[at] for at in waiting}

    left: dict[TopicPartition, int] = tenacity.Retrying(
        retry=tenacity.retry_if_result(bool),
        stop=tenacity.stop_after_delay(deadline),
        wait=tenacity.wait_exponential(multiplier=0.02, max=0.5),
        retry_error_callback=lambda state: state.outcome and state.outcome.result(),
        sleep=pause,
    )(hidden)
    if left:
        at, stable = min(left.items())
        raise Stalled(
            f"{at}: the last stable offset stays at {stable}, below {ends[at]}, for {deadline:.0f} s: a"
            " transaction is open",
            f"find it: kafka-transactions.sh find-hanging --topic {at.topic} --partition {at.partition}",
        )
    return ends
