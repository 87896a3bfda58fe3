"""Asks single brokers, over connections of our own, for what confluent-kafka cannot ask, or not as cheaply.

The login of such a connection, from the settings of a confluent-kafka client.

Ids of topics with many partitions, without these (KIP-966): the admin client describes every partition of a topic,
10 ms of processor time for 1,000 of them, for each question.

The ends of logs that are certain: told by leaders about whom all brokers agree. A leader that is cut off from the
controllers goes on to answer, with a log that may be shorter than that of its successor. One broker's answer is enough
to refuse something, not to give something up.

The transaction that hides the offsets behind a partition's last stable offset, with its owner and its end.

Only who asks loads `kafka_replication.wire`: it needs the packages of the batch engine.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, TopicDescription  # type: ignore[attr-defined]  # re-exported silently

from kafka_replication.kafka.callbacks import ReportingAdmin, token_callback
from kafka_replication.kafka.connect_diagnosis import translate
from kafka_replication.model.errors import BadInput, ReplicationError
from kafka_replication.model.offsets import MAX_OFFSET, Coverage, OffsetRange, TopicPartition, replication_of
from kafka_replication.model.times import to_text

if TYPE_CHECKING:
    from kafka_replication.wire.connection import Connection
    from kafka_replication.wire.login import Security
    from kafka_replication.wire.transactions import TransactionDescription


log = logging.getLogger(__name__)
_making = threading.Lock()
_NO_WORD = (ReplicationError, KafkaException, ImportError, ValueError, OSError)  # a broker, or this Python, cannot tell


def unsupported(config: Mapping[str, Any]) -> str | None:
    """The reason why no connection can be made with these settings; None if one can be made."""
    from kafka_replication.wire.tls import Unsupported

    try:
        security_of(config)
    except (Unsupported, BadInput) as e:
        return str(e)
    return None


def security_of(config: Mapping[str, Any]) -> Security:
    """The security for these settings; the same value for the same settings, so that connections share a token.

    Raises Unsupported, and BadInput for a callback that cannot be imported.
    """
    from kafka_replication.wire.login import is_about_connecting

    # The servers of a cloud say where tokens come from.
    settings = {
        name: value for name, value in config.items() if is_about_connecting(name) or name == "bootstrap.servers"
    }
    with _making:
        return _security(tuple(sorted(settings.items())))


@lru_cache(maxsize=8)  # loading the authorities of a system takes 20 ms
def _security(settings: tuple[tuple[str, Any], ...]) -> Security:
    from kafka_replication.wire.login import Security

    config = dict(settings)
    return Security.of(config, token_callback(config))


def _forget_logins() -> None:
    global _making
    _making = threading.Lock()  # another thread of the parent may have held it, or one inside of what is cached
    _security.cache_clear()


os.register_at_fork(after_in_child=_forget_logins)


def _connect(admin: AdminClient, host: str, port: int, seconds: float) -> Connection:
    from kafka_replication.wire.connection import Connection

    assert isinstance(admin, ReportingAdmin)
    return Connection(host, port, security_of(admin.reported.settings), seconds)


MANY = 100  # partitions; with fewer the admin client is cheaper than one more connection
SECONDS = 2.0  # for one answer
TRIES = 2  # connections in a row that gave no answer, after which none is made any more


class LargeTopics:
    """The ids that one cluster tells one process of its large topics. For one thread at a time; the caller asks the
    admin client for the rest.

    A broker that does not know this request closes the connection.
    """

    def __init__(self) -> None:
        self._large = set[str]()
        self._connection: Connection | None = None
        self._failed = 0

    def learn(self, described: Iterable[TopicDescription]) -> None:
        """Remember which topics have many partitions."""
        self._large.update(topic.name for topic in described if len(topic.partitions) >= MANY)

    def ids(self, admin: AdminClient, names: Collection[str]) -> Mapping[str, str]:
        """The ids of those of these topics that are known to be large and exist, if the cluster tells them so."""
        large = self._large.intersection(names)
        if not large or self._failed >= TRIES or not isinstance(admin, ReportingAdmin):
            return {}
        from kafka_replication.wire.tls import Unsupported

        try:
            from kafka_replication.wire import metadata

            if self._connection is None:  # to any broker: each knows the ids of all topics
                broker = next(iter(admin.list_topics(min(large), timeout=SECONDS).brokers.values()))
                self._connection = _connect(admin, str(broker.host), int(broker.port), SECONDS)
                weakref.finalize(self, self._connection.close)
            ids = metadata.topic_ids(self._connection, large)
        except (Unsupported, BadInput, ImportError) as why:
            self._failed = TRIES
            log.debug("topics are asked for with all their partitions: %s", why)
            return {}
        except (ReplicationError, KafkaException, OSError) as error:
            self._failed += 1
            if self._connection is not None:
                self._connection.close()
                self._connection = None
            log.debug("no answer about the ids of topics: %s", error)
            return {}
        self._failed = 0
        return ids


def newest_versions(admin: AdminClient, seconds: float) -> dict[int, int] | None:
    """The newest version of each request that every broker takes, by the request's number. None if one of them does
    not answer within ``seconds``.
    """
    try:
        from kafka_replication.wire import metadata

        told = list[dict[int, int]]()
        for broker in admin.list_topics(timeout=seconds).brokers.values():
            with _connect(admin, str(broker.host), int(broker.port), seconds) as connection:
                told.append(metadata.newest_versions(connection))
    except _NO_WORD as error:
        log.debug("the versions of the brokers are not known: %s", error)
        return None
    every = set.intersection(*map(set, told)) if told else set[int]()
    return {request: min(versions[request] for versions in told) for request in every}


def certain_ends(admin: AdminClient, wanted: Collection[TopicPartition], seconds: float) -> dict[TopicPartition, int]:
    """The high watermark of each partition. One is left out if a broker does not answer within ``seconds``, or if two
    brokers name different leaders or leader epochs.
    """
    if not wanted:
        return {}
    try:
        from kafka_replication.wire import metadata

        with ExitStack() as stack:
            # A connection to every broker that the client or another broker knows.
            brokers: dict[int, Connection] = {}
            known_first = admin.list_topics(timeout=seconds).brokers
            new = {number: (str(broker.host), int(broker.port)) for number, broker in known_first.items()}
            while new:
                for number, (host, port) in new.items():
                    brokers[number] = stack.enter_context(_connect(admin, host, port, seconds))
                known = [metadata.metadata(brokers[number], ()).brokers for number in new]
                new = {number: place for told in known for number, place in told.items() if number not in brokers}
            told = [metadata.metadata(broker, {at.topic for at in wanted}) for broker in brokers.values()]
            ends = dict[TopicPartition, int]()
            for at in sorted(wanted):
                named = {answer.leaders.get((at.topic, at.partition)) for answer in told}
                leader = named.pop()
                if named or leader is None or leader.epoch < 0 or leader.broker not in brokers:
                    log.warning("%s: its end is not certain: brokers name different leaders of it, or none", at)
                    continue
                end = metadata.end(brokers[leader.broker], at.topic, at.partition, leader.epoch)
                if end is not None:
                    ends[at] = end
            return ends
    except _NO_WORD as error:
        log.warning("the ends of %s are not certain: not every broker answers: %s", ", ".join(map(str, wanted)), error)
        return {}


def stored_topics(admin: AdminClient) -> set[str]:
    """The topics that the brokers store, also those that they do not list for this client. Empty without the right
    ``Describe`` on the cluster, or if a broker does not answer soon. Never raises.
    """
    try:
        from kafka_replication.wire import metadata

        found = set[str]()
        for broker in admin.list_topics(timeout=ANSWER).brokers.values():
            with _connect(admin, str(broker.host), int(broker.port), ANSWER) as connection:
                found |= metadata.stored_topics(connection)
        return found
    except _NO_WORD as error:
        log.debug("what the brokers store was not found out: %s", error)
        return set()


FIRST_LINE, REPEAT_AFTER = 3.0, 60.0  # seconds of waiting before the first log line and between later ones
MOST_BYTES = 4 << 20  # of one answer
ANSWER = 5.0  # seconds that one broker may take
MOST = 3  # partitions that one message names
ENDED = frozenset({"Empty", "CompleteCommit", "CompleteAbort", "Dead"})  # states of a coordinator
SWEEP = timedelta(seconds=10)  # brokers look for transactions whose time is over every so often, by default


def wait_log(admin: AdminClient) -> Callable[[Mapping[TopicPartition, int]], None]:
    """Logs the reason of a wait once the wait is no short one: call it with the partitions that are still hidden, each
    with the offset from which on.
    """
    say_at = time.monotonic() + FIRST_LINE

    def still_hidden(stable: Mapping[TopicPartition, int]) -> None:
        nonlocal say_at
        if not stable or time.monotonic() < say_at:
            return
        for partition in sorted(stable)[:MOST]:
            log.warning(
                "waiting for the end of a transaction that hides %s from %d on%s",
                partition,
                stable[partition],
                named(admin, partition),
            )
        if len(stable) > MOST:
            log.warning("and of those that hide %d more partitions", len(stable) - MOST)
        say_at = time.monotonic() + REPEAT_AFTER

    return still_hidden


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
    except _NO_WORD as e:
        log.debug("%s: nothing is known of its open transaction: %s", partition, e)
        return ""


def owners(admin: AdminClient, partition: TopicPartition) -> dict[str, int]:
    """The transactional ids with an open transaction in this partition, each with the offset where that begins there;
    without those that no coordinator knows or shows. Empty if brokers do not tell. Never raises.
    """
    try:
        open_ = _open_in(admin, partition)
        return {one.transactional_id: begins for _, begins, one in open_ if one is not None}
    except _NO_WORD as e:
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
    except _NO_WORD as e:
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
    except _NO_WORD as e:
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


def _open_in(admin: AdminClient, partition: TopicPartition) -> Iterator[tuple[int, int, TransactionDescription | None]]:
    """Each producer with an open transaction in the partition: its id, the offset where that begins, and what the
    coordinator says of it.
    """
    if not isinstance(admin, ReportingAdmin):
        return
    from kafka_replication.wire import transactions

    cluster = admin.list_topics(partition.topic, timeout=ANSWER)

    def described(producer: int) -> TransactionDescription | None:
        away: ReplicationError | None = None
        for number, broker in cluster.brokers.items():
            try:
                with _connect(admin, str(broker.host), int(broker.port), ANSWER) as connection:
                    if (transaction := transactions.transaction_of(connection, producer)) is not None:
                        return replace(transaction, coordinator=number)
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
    leader = cluster.brokers[cluster.topics[at.topic].partitions[at.partition].leader]
    return _connect(admin, str(leader.host), int(leader.port), ANSWER)


def _text(described: TransactionDescription, producer: int, abort: str) -> str:
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
