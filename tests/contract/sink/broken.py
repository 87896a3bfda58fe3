"""Sinks that are broken on purpose: the suite must notice each of them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from kafka_replication.copying.sink import Record, SetAside
from kafka_replication.kafka.chunk_writer import ChunkWriter
from kafka_replication.kafka.commit import Atomic, Ordered
from kafka_replication.kafka.session import KafkaSession
from kafka_replication.kafka.sink import KafkaSink
from kafka_replication.ledger.account import Change
from kafka_replication.ledger.entries import Ids, Position, Receipt
from kafka_replication.ledger.placement import KafkaSegments
from kafka_replication.ledger.writing import apply
from kafka_replication.model.offsets import OffsetRange, PartitionKey
from kafka_replication.runtime.deadline import NEVER
from tests.conformance import sink as checks
from tests.conformance.ground import SETTINGS
from tests.conformance.sink import Check
from tests.conformance.sink_case import SinkCase, segments_of


def remade(good: ChunkWriter, broken: type[ChunkWriter]) -> ChunkWriter:
    return broken(key=good.key, sender=good.sender, places=good.places, window=good.window, limits=good.limits)


class DroppingWriter(ChunkWriter):
    """Loses the first record of each call."""

    def write(self, records: Sequence[Record]) -> None:
        super().write(records[1:])


class MisplacingWriter(ChunkWriter):
    """Says that the records lie one offset higher than they do."""

    def finish(self, digest: str) -> KafkaSegments:
        good = segments_of(super().finish(digest))
        return KafkaSegments(tuple(replace(each, first=each.first + 1, last=each.last + 1) for each in good))


class DropsRecords(Atomic):
    def begin(self) -> ChunkWriter:
        return remade(super().begin(), DroppingWriter)


class MisplacesRecords(Atomic):
    def begin(self) -> ChunkWriter:
        return remade(super().begin(), MisplacingWriter)


class CountsForEver(Atomic):
    """Says that a committed chunk is still to be committed."""

    _count = 0

    @property
    def written(self) -> int:
        self._count = max(self._count, super().written)
        return self._count


class ForgetsToFence(Atomic):
    """Every session has a transactional id of its own, so that none fences another."""

    def fence(self) -> None:
        self.transaction.transactional_id += f"/{uuid.uuid4()}"
        super().fence()


class ReadsPositionBeforeFencing(Atomic):
    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._stale = super().position()

    def position(self) -> Position | None:
        return self._stale


class CommitsPositionWithoutRecords(Atomic):
    """Aborts the chunk, then commits position and receipt in a transaction of their own."""

    def commit(self, position: Position, receipt: Receipt) -> None:
        self.transaction.producer.abort_transaction(10)
        self.transaction.begin()
        super().commit(position, receipt)


class CommitsRecordsWithoutPosition(Atomic):
    def commit(self, position: Position, receipt: Receipt) -> None:
        self.transaction.commit()


class CommitsWhenItIsClosed(Atomic):
    def close(self) -> None:
        try:
            self.transaction.producer.commit_transaction(10)
        except Exception:  # noqa: BLE001  # nothing was open
            super().close()


class TakesAnyTarget(Atomic):
    def check_target(self, position: Position) -> None:
        pass


class TakesAnyTopic(Atomic):
    def check_ids(self, ids: Ids) -> None:
        pass


@dataclass(frozen=True)
class Broken:
    """A broken session and the check that notices it."""

    session: type[Atomic]
    noticed_by: Check


class BrokenSink(KafkaSink):
    """Kafka's sink with another session."""

    def __init__(self, case: SinkCase, broken: Broken) -> None:
        super().__init__(case.ground.connection, SETTINGS)
        self._case, self._broken = case, broken

    @contextmanager
    def session(self, key: PartitionKey, ids: Ids, aside: SetAside | None = None) -> Iterator[KafkaSession]:
        session = self._broken.session(key, self._case.ground.connection, SETTINGS, NEVER, ids=ids)
        try:
            yield session
        finally:
            session.close()


ALL = [
    Broken(DropsRecords, checks.a_committed_chunk_is_visible_with_its_position),
    Broken(MisplacesRecords, checks.the_placement_says_where_the_records_are),
    Broken(CountsForEver, checks.what_was_written_and_is_not_committed_is_counted),
    Broken(ForgetsToFence, checks.a_fenced_session_cannot_commit),
    Broken(ReadsPositionBeforeFencing, checks.the_position_is_read_after_fencing),
    Broken(CommitsPositionWithoutRecords, checks.a_committed_chunk_is_visible_with_its_position),
    Broken(CommitsRecordsWithoutPosition, checks.a_committed_chunk_is_visible_with_its_position),
    Broken(CommitsWhenItIsClosed, checks.what_is_not_committed_is_not_there),
    Broken(TakesAnyTarget, checks.a_foreign_record_is_noticed),
    Broken(TakesAnyTarget, checks.a_lost_end_is_noticed),
    Broken(TakesAnyTopic, checks.a_target_that_was_re_created_is_refused),
]


class ForgetsToLook(Ordered):
    """Commits whoever has moved the position."""

    def commit(self, position: Position, receipt: Receipt) -> None:
        super().position()
        super().commit(position, receipt)


class LosesTheLast(Ordered):
    """Counts a record that it never sent."""

    def begin(self) -> ChunkWriter:
        return remade(super().begin(), ForgetfulWriter)


class ForgetfulWriter(ChunkWriter):
    def write(self, records: Sequence[Record]) -> None:
        super().write(records[:-1])
        self.sent += 1


class WritesThePositionOnly(Ordered):
    """Moves the position as soon as a chunk begins."""

    def begin(self) -> ChunkWriter:
        if self._newest is not None:
            moved = replace(self._newest.adding(OffsetRange(0, 5), None, 0), delivery="at_least_once")
            apply(self.ledger, self.transaction, [Change(key=self.key, write=(moved,))])
        return super().begin()


@dataclass(frozen=True)
class Unsafe:
    """A broken session without transactions and the check that notices it."""

    session: type[Ordered]
    noticed_by: Check


class BrokenAcknowledgedSink(KafkaSink):
    """Kafka's sink with another session."""

    def __init__(self, case: SinkCase, unsafe: Unsafe) -> None:
        super().__init__(case.ground.connection, SETTINGS, delivery="at_least_once")
        self._case, self._unsafe = case, unsafe

    @contextmanager
    def session(self, key: PartitionKey, ids: Ids, aside: SetAside | None = None) -> Iterator[KafkaSession]:
        session = self._unsafe.session(
            key, self._case.ground.connection, SETTINGS, NEVER, delivery="at_least_once", ids=ids
        )
        try:
            yield session
        finally:
            session.close()


UNSAFE = [
    Unsafe(ForgetsToLook, checks.a_session_cannot_commit_after_a_newer_one_did),
    Unsafe(LosesTheLast, checks.a_committed_chunk_is_visible_with_its_position),
    Unsafe(WritesThePositionOnly, checks.what_is_not_committed_is_not_in_the_position),
]
