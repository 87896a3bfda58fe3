"""Names the transaction that hides the offsets behind a partition's last stable offset, with its owner and its end."""

from __future__ import annotations

import logging
import time
from collections.abc import Container, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from kafka_replication.kafka.callbacks import ReportingAdmin
from kafka_replication.kafka.connect_diagnosis import translate
from kafka_replication.model.errors import ReplicationError
from kafka_replication.model.offsets import MAX_OFFSET, Coverage, OffsetRange, TopicPartition, replication_of
from kafka_replication.model.times import to_text

if TYPE_CHECKING:
    from confluent_kafka.admin import ClusterMetadata  # type: ignore[attr-defined]  # re-exported without saying so

    from kafka_replication.wire.connection import Connection
    from kafka_replication.wire.transactions import Described


log = logging.getLogger(__name__)
FIRST_LINE, REPEAT_AFTER = 3.0, 60.0  # seconds of waiting before the first log line and between later ones
MOST_BYTES = 4 << 20  # of one answer
ANSWER = 5.0  # seconds that one broker may take
MOST = 3  # partitions that one message names
ENDED = frozenset({"Empty", "CompleteCommit", "CompleteAbort", "Dead"})  # states of a coordinator
SWEEP = timedelta(seconds=10)  # brokers look for transactions whose time is over every so often, by default


class WaitLog:
    """Logs the reason of a wait once the wait is no short one."""

    def __init__(self, admin: AdminClient) -> None:
        self._admin, self._next = admin, time.monotonic() + FIRST_LINE

    def still_hidden(self, stable: Mapping[TopicPartition, int]) -> None:
        """Note that these partitions are still hidden from these offsets on."""
        if not stable or time.monotonic() < self._next:
            return
        for partition in sorted(stable)[:MOST]:
            description = named(self._admin, partition)
            log.warning(
                "waiting for the end of a transaction that hides %s from %d on%s",
                partition,
                stable[partition],
                description,
            )
        if len(stable) > MOST:
            log.warning("and of those that hide %d more partitions", len(stable) - MOST)
        self._next = time.monotonic() + REPEAT_AFTER


def named(admin: AdminClient, partition: TopicPartition) -> str:
    """``: `` and the brokers' description of the first open transaction in this partition; empty if they have none,
    such as brokers before Kafka 3.0. Never raises, and takes seconds at most.
    """
    try:
        if (first := next(_open_in(admin, partition), None)) is None:
            return ""
        producer, begins, described = first
        abort = (
            f"kafka-transactions.sh --bootstrap-server <cluster> abort --topic {partition.topic} --partition"
            f" {partition.partition} --start-offset {begins}"
        )
        if described is not None:
            return f": {_text(described, producer, abort)}"
        return (
            f": producer id {producer}, which no coordinator shows this login: its owner is somebody else, or the"
            f" transaction hangs and never ends by itself; only if kafka-transactions.sh find-hanging names it: {abort}"
        )
    except (ReplicationError, KafkaException, ImportError, ValueError, OSError) as e:
        log.debug("%s: nothing is known of its open transaction: %s", partition, e)
        return ""


def owners(admin: AdminClient, partition: TopicPartition) -> dict[str, int]:
    """The transactional ids with an open transaction in this partition, each with the offset where that begins there;
    without those that no coordinator knows or shows. Empty if brokers do not tell. Never raises.
    """
    try:
        open_ = _open_in(admin, partition)
        return {one.transactional_id: begins for _, begins, one in open_ if one is not None}
    except (ReplicationError, KafkaException, ImportError, ValueError, OSError) as e:
        log.warning("%s: whose transaction is open in it was not found out: %s", partition, e)
        return {}


def never_ends(admin: AdminClient, partition: TopicPartition, ids: Container[str]) -> bool:
    """True if one of these transactional ids has a transaction open in the partition that its coordinator has ended:
    only a further marker of the same producer ends it there. False if brokers do not tell. Never raises.

    The coordinator calls a transaction ended once all its markers are written, so the leader is asked again afterwards.
    """
    try:
        for producer, begins, described in _open_in(admin, partition):
            if described is None or described.transactional_id not in ids or described.state not in ENDED:
                continue
            if any((producer, begins) == (one, from_) for one, from_, _ in _open_in(admin, partition)):
                return True
    except (ReplicationError, KafkaException, ImportError, ValueError, OSError) as e:
        log.warning("%s: whose transaction is open in it was not found out: %s", partition, e)
    return False


def offsets_of(admin: AdminClient, partition: TopicPartition, transactional_id: str) -> Coverage:
    """The offsets of the records that the open transaction of this id has in the partition. Empty if brokers do not
    tell. Never raises.
    """
    try:
        for producer, begins, described in _open_in(admin, partition):
            if described is not None and described.transactional_id == transactional_id:
                return _written(admin, partition, producer, begins)
    except (ReplicationError, KafkaException, ImportError, ValueError, OSError) as e:
        log.warning("%s: what is open in it was not read: %s", partition, e)
    return Coverage()


def _written(admin: AdminClient, at: TopicPartition, producer: int, begins: int) -> Coverage:
    """The offsets from ``begins`` to the present high watermark that this producer has written, which is fenced.

    Raises ReplicationError.
    """
    from kafka_replication.wire import fetching
    from kafka_replication.wire.batch import batches

    written, offset, end = list[OffsetRange](), begins, MAX_OFFSET
    with _leader(admin, at) as leader:
        while offset < end:
            fetching.ask(leader, at.topic, at.partition, offset, MOST_BYTES, 0.0, fetching.READ_UNCOMMITTED)
            data, _ = fetching.answer(leader)
            if data is None:
                continue  # a quota
            if data.error_code:
                raise translate(KafkaError(int(data.error_code)), f"{at}: reading offset {offset}")
            came = list(batches(memoryview(data.records or b"")))
            written += (
                OffsetRange(batch.base_offset, batch.until)
                for batch in came
                if batch.producer_id == producer and not batch.is_control
            )
            if not came:
                break
            offset, end = came[-1].until, min(end, int(data.high_watermark))
    return Coverage.of(written)


def _open_in(admin: AdminClient, partition: TopicPartition) -> Iterator[tuple[int, int, Described | None]]:
    """Each producer with an open transaction in the partition: its id, the offset where that begins, and what the
    coordinator says of it.
    """
    if not isinstance(admin, ReportingAdmin):
        return
    from kafka_replication.wire import transactions

    cluster = admin.list_topics(partition.topic, timeout=ANSWER)

    def described(producer: int) -> Described | None:
        away: ReplicationError | None = None
        for broker in cluster.brokers:
            try:
                with _connect(admin, cluster, broker) as connection:
                    if (found := transactions.transaction_of(connection, producer)) is not None:
                        return replace(found, coordinator=broker)
            except ReplicationError as error:
                away = error
        if away is not None:  # it may be the coordinator
            raise away
        return None

    with _leader(admin, partition) as connection:
        producers = transactions.open_in(connection, partition.topic, partition.partition)
    for producer, begins in producers.items():
        yield producer, begins, described(producer)


def _leader(admin: AdminClient, at: TopicPartition) -> Connection:
    cluster = admin.list_topics(at.topic, timeout=ANSWER)
    return _connect(admin, cluster, cluster.topics[at.topic].partitions[at.partition].leader)


def _connect(admin: AdminClient, cluster: ClusterMetadata, broker: int) -> Connection:
    from kafka_replication.kafka.login import security_of
    from kafka_replication.wire.connection import Connection

    assert isinstance(admin, ReportingAdmin)
    address = cluster.brokers[broker]
    return Connection(str(address.host), int(address.port), security_of(admin.reported.settings), ANSWER)


def _text(described: Described, producer: int, abort: str) -> str:
    whose = replication_of(described.transactional_id)
    owner = f"replication {whose}" if whose else "none of our replications"
    text = (
        f"transactional id {described.transactional_id} ({owner}), producer id {producer}, coordinator"
        f" {described.coordinator}"
    )
    if described.begun is None or described.timeout is None:  # the markers of its end are not written everywhere yet
        hangs = f"; if that stays it hangs, and nobody else ends it: {abort}" if described.state in ENDED else ""
        return f"{text}, in state {described.state}{hangs}"
    since, end = to_text(described.begun), described.begun + described.timeout + SWEEP
    if datetime.now(UTC) > end:
        return f"{text}, open since {since}, hanging: its time-out was over at {to_text(end)}; end it: {abort}"
    return f"{text}, open since {since}; if nobody ends it, brokers abort it by {to_text(end)}"
