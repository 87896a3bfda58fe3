"""The transactional part of one producer life: fence, read the ledger, check the target, commit."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cached_property
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from kafka_replication import failpoints, ledger
from kafka_replication.config import Copy
from kafka_replication.errors import ForeignWriter, Refused, Unreachable
from kafka_replication.kafka import clients, offsets, topics
from kafka_replication.kafka.ledger_topics import LedgerReader
from kafka_replication.kafka.scan import records
from kafka_replication.keys import PartitionKey
from kafka_replication.ledger import POSITIONS, RECEIPTS, Ids, Position, Receipt
from kafka_replication.offsets import OffsetRange

T = TypeVar("T")
INIT_TIMEOUT = 60.0
COMMIT_TIMEOUT = 60.0
COMMIT_ATTEMPTS = 10


class LedgerSession:
    """One transactional producer of one key, from its first call to the first doubt."""

    def __init__(
        self, key: PartitionKey, source: clients.ClientConfig, target: clients.ClientConfig, settings: Copy, **producer: Any
    ) -> None:
        self.key, self.source, self.target, self.settings = key, source, target, settings
        self._more = producer
        self.group = f"kafka-replication.{key.replication}"

    @cached_property
    def producer(self) -> Producer:
        return clients.producer(
            self.target, **self._more,
            **{"transactional.id": self.key.transactional_id, "transaction.timeout.ms": self.settings.transaction_timeout * 1000},
        )  # fmt: skip

    @cached_property
    def source_admin(self) -> AdminClient:
        return clients.admin(self.source)

    @cached_property
    def target_admin(self) -> AdminClient:
        return clients.admin(self.target)

    def close(self) -> None:
        """Abort whatever is open, so that nobody has to wait for its time-out."""
        if "producer" in self.__dict__:
            clients.quietly_abort(self.producer)

    def guard(self, doing: str, call: Callable[[], T]) -> T:
        """Run a producer call; any failure leaves as one of our errors."""
        try:
            return call()
        except (KafkaException, SystemError) as e:
            raise clients.translate(clients.true_error(e, self.producer), f"{self.key.source}: {doing}") from e

    def fence(self) -> None:
        self.guard("init_transactions", lambda: self.producer.init_transactions(INIT_TIMEOUT))

    def position(self) -> Position | None:
        return LedgerReader(self.target, self.target_admin, self.key.replication).position(self.key)

    def check_ids(self, ids: Ids) -> None:
        found = (
            topics.topic_ids(self.source_admin, [self.key.source.topic]).get(self.key.source.topic),
            topics.topic_ids(self.target_admin, [self.key.target_topic]).get(self.key.target_topic),
        )
        if found != (ids.source_topic, ids.target_topic):
            raise Refused(
                f"{self.key.source} -> {self.key.target_topic}: a topic was re-created or deleted during the copy: "
                f"ids were {ids.source_topic} and {ids.target_topic}, are {found[0]} and {found[1]}",
                "plan again: the plan says which one, and what to do",
            )

    def check_target(self, position: Position) -> None:
        at, ours = self.key.target, position.target_end
        end = offsets.stable_ends(self.target_admin, [at], self.settings.transaction_timeout + 60.0)[at]
        if end < ours:
            raise ForeignWriter(
                f"{at} on the target ends at {end}, but records of ours were there up to {ours}: the target lost data",
                "find out what truncated or restored it; replicate again under another name to an empty topic",
            )
        start = offsets.log_starts(self.target_admin, [at])[at]
        stranger = self._first_record(OffsetRange(min(max(start, ours), end), end))
        if stranger is not None:
            raise ForeignWriter(
                f"{at} on the target holds a record at offset {stranger} that the ledger does not know (ours end at {ours})",
                "stop the other writer, or find which older ledger was restored; targets belong to one replication alone",
            )

    def _first_record(self, stretch: OffsetRange) -> int | None:
        reader = clients.consumer(self.target, self.group)
        try:
            return next((m.offset() for m in records(reader, self.key.target, stretch)), None)
        finally:
            reader.close()

    def first_target_record(self) -> int | None:
        """The offset of the first record a ``read_committed`` reader finds on the target partition."""
        at = self.key.target
        end = offsets.stable_ends(self.target_admin, [at], self.settings.transaction_timeout + 60.0)[at]
        start = offsets.log_starts(self.target_admin, [at])[at]
        return self._first_record(OffsetRange(min(start, end), end))

    def begin(self) -> None:
        self.guard("begin_transaction", self.producer.begin_transaction)

    def commit(self, position: Position, receipt: Receipt | None) -> None:
        """Write the entries into the open transaction and commit it; retriable answers are asked again, bounded."""
        entries = [(POSITIONS, ledger.position_key(self.key), ledger.encode(position))]
        if receipt is not None:
            entries.append((RECEIPTS, ledger.receipt_key(self.key, receipt), ledger.encode(receipt)))
        for topic, key, value in entries:
            self.guard("writing the ledger", lambda t=topic, k=key, v=value: self._produce(t, k, v))  # type: ignore[misc]
        self.flush()
        failpoints.reached("P2")
        for _ in range(COMMIT_ATTEMPTS):
            try:
                self.producer.commit_transaction(COMMIT_TIMEOUT)
                return
            except (KafkaException, SystemError) as e:
                if not (isinstance(e, KafkaException) and e.args[0].retriable() and not e.args[0].txn_requires_abort()):
                    raise clients.translate(clients.true_error(e, self.producer), f"{self.key.source}: commit_transaction") from e
        raise Unreachable(f"{self.key.source}: the commit was not answered in {COMMIT_ATTEMPTS} attempts", "run again")

    def _produce(self, topic: str, key: bytes, value: bytes) -> None:
        self.producer.produce(topic, key=key, value=value, partition=self.key.ledger_partition)

    def flush(self) -> None:
        deadline = time.monotonic() + self.settings.stall_timeout
        while self.guard("sending", lambda: self.producer.flush(1.0)):
            reason = clients.failure(self.producer)
            if reason is not None:  # what is left would only be sent to time out
                raise clients.translate(reason, f"{self.key.source}: sending")
            if time.monotonic() > deadline:
                raise clients.translate(KafkaError(KafkaError._TIMED_OUT, "records not delivered"), f"{self.key.source}: sending")


def open_partition(session: LedgerSession, opened: Position, on_existing: str) -> Position:
    """Commit where a partition begins, before anything is copied; one that is open already stays as it is.

    Raises ForeignWriter where the target partition holds records and ``on_existing`` is not ``append``.
    """
    session.fence()
    known = session.position()
    if known is not None:
        return known
    stranger = session.first_target_record()
    at = session.key.target
    if stranger is not None and on_existing != "append":
        raise ForeignWriter(
            f"{at} on the target already holds records (the first at offset {stranger}) that {session.key.replication} did not copy",
            "replicate to an empty topic (topics.rename), or say target_topics.on_existing: append to write behind them",
        )
    end = offsets.stable_ends(session.target_admin, [at])[at] if stranger is not None else 0
    fresh = opened.after(OffsetRange(opened.start, opened.start), None, end)
    session.begin()
    session.commit(fresh, None)
    return fresh
