"""The session that copies into a folder."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from kafka_replication.api import (
    FailedRecord,
    Failure,
    FailureKind,
    ForeignWriter,
    Ids,
    Ledger,
    PartitionKey,
    Placement,
    Position,
    Receipt,
    Refused,
    RefusedAt,
    SetAside,
    SinkRecord,
    TopicPartition,
)
from kafka_replication.api.targets import (
    MOST_IN_CHUNK,
    Gap,
    Handled,
    OffsetPlaces,
    Place,
    Screen,
    failed_record,
    size_of,
)
from tests.folder_target.journal import Journal, line_of
from tests.folder_target.quarantine import ABOUT, about, partition_of
from tests.folder_target.writer import FolderWriter


def check_ids(journal: Journal, key: PartitionKey, ids: Ids) -> None:
    there = journal.now().topics.get(key.target_topic)
    if there is None or there.id != ids.target_topic:
        raise Refused(f"{key.target_topic} on the target was deleted or created again", "plan again")


class ChunkWriter:
    """A `RecordWriter` that keeps the records of its chunk."""

    def __init__(self, session: FolderSession, aside: SetAside | None, set_aside: int, expected_end: int) -> None:
        self._session, self._aside, self._before, self._expected_end = session, aside, set_aside, expected_end
        self._set_aside: list[FailedRecord] = []
        self._places = OffsetPlaces(session.key.source.partition, digests=self.screen is not None)
        self.full = False
        self.sent = 0
        self.first: SinkRecord | None = None

    @property
    def screen(self) -> Screen | None:
        return self._session.refusal if self._aside is not None and self._aside.anything else None

    @property
    def failures(self) -> tuple[FailedRecord, ...]:
        return tuple(self._set_aside)

    def set_aside(self, record: SinkRecord, failure: Failure) -> None:
        assert self._aside is not None
        source = self._session.key.source
        what = f"{source}: the record at offset {failure.offset} cannot be copied: {failure.reason}"
        action = self._aside.action(failure)
        if action == "fail":
            raise RefusedAt(what, "remove the cause", failure.offset, kind=failure.kind, error=failure.error)
        self._aside.check(self._before + len(self._set_aside), failure.offset, what)
        failed = failed_record(record, failure)
        if action == "quarantine":
            failed = replace(failed, place=self._session.quarantine(self._aside.topic, record, failed))
        self._set_aside.append(failed)
        self._places.leave_out(failure.offset)
        self.full = len(self._set_aside) >= MOST_IN_CHUNK or failure.offset in self._aside.known

    def write(self, records: Sequence[SinkRecord]) -> None:
        for record in records:
            if failure := self._session.refusal(record):
                raise RefusedAt(failure.reason, "raise the limit", record[0], kind=failure.kind, error=failure.error)
            self._session.put(record)
            self.sent += 1
            self.first = self.first or record
        self._places.add(records)

    def finish(self, digest: str) -> Placement:
        self._session.refuse_foreign(self._expected_end)
        return self._places.placement(digest)


class FolderSession:
    """A `DecidingSession` and an `EntrySession` of one key."""

    batches = None
    throttled = 0.0

    def __init__(
        self, key: PartitionKey, journal: Journal, ledger: Ledger, ids: Ids | None = None, aside: SetAside | None = None
    ) -> None:
        self.key, self.ledger, self._journal, self._ids, self._aside = key, ledger, journal, ids, aside
        self.transaction = FolderWriter(journal, key.transactional_id, str(key))
        self._position: Position | None = None
        self._chunk: ChunkWriter | None = None

    def fence(self) -> None:
        if self._ids is not None:
            self.check_ids(self._ids)
        self.transaction.fence()

    def position(self) -> Position | None:
        self._position = self.ledger.position(self.key)
        return self._position

    def check_ids(self, ids: Ids) -> None:
        check_ids(self._journal, self.key, ids)

    def check_target(self, position: Position) -> None:
        end = self._journal.now().topics[self.key.target_topic].end(self.key.source.partition)
        if end < position.target_end:
            raise ForeignWriter(f"{self.key.target} ends at {end}, ours was {position.target_end}", "restore it")
        self.refuse_foreign(position.target_end)
        self._position = position

    def refuse_foreign(self, end: int) -> None:
        there = self._journal.now().topics[self.key.target_topic].records.get(self.key.source.partition, {})
        if foreign := [offset for offset in there if offset >= end]:
            raise ForeignWriter(f"{self.key.target} has a record at {min(foreign)} that is not ours", "find its writer")

    @property
    def generation(self) -> int:
        return self._aside.generation if self._aside else 1

    def begin(self) -> ChunkWriter:
        before, end = (self._position.set_aside, self._position.target_end) if self._position else (0, 0)
        self.transaction.begin()
        self._chunk = ChunkWriter(self, self._aside, before, end)
        return self._chunk

    @property
    def written(self) -> int:
        return self._chunk.sent if self._chunk else 0

    @property
    def first(self) -> SinkRecord | None:
        return self._chunk.first if self._chunk else None

    def put(self, record: SinkRecord) -> None:
        at = self.key.target
        self.transaction.records.append(line_of(at.topic, at.partition, record))

    def quarantine(self, topic: str, record: SinkRecord, failed: FailedRecord) -> Place:
        place = Place(topic, partition_of(self.key), failed.offset)
        headers = [*(record[4] or ()), (ABOUT, about(self.key, self.generation, failed))]
        self.transaction.records.append(line_of(topic, place.partition, (*record[:4], headers)))
        return place

    def refusal(self, record: SinkRecord) -> Failure | None:
        limit = int(self._journal.topics[self.key.target_topic].config.get("max.message.bytes", 1 << 30))
        if (size := size_of(record)) <= limit:
            return None
        return Failure(record[0], FailureKind.TOO_LARGE, f"its {size} bytes are too many", "MSG_SIZE_TOO_LARGE")

    def commit(self, position: Position, receipt: Receipt) -> None:
        self.ledger.write(self.transaction, self.key, receipt)
        self.move(position, begun=True)

    def decide(self, position: Position, decided: Handled) -> None:
        self.ledger.write(self.transaction, self.key, decided)
        self.move(position, begun=True)

    def move(self, position: Position, gap: Gap | None = None, *, begun: bool = False) -> None:
        if not begun:
            self.transaction.begin()
        if gap is not None:
            self.ledger.write(self.transaction, self.key, gap)
        self.ledger.write(self.transaction, self.key, position)
        self.transaction.commit()
        self._position, self._chunk = position, None

    def end_left_open(self, left_open: Iterable[TopicPartition], write: Callable[[], None] | None) -> None:
        """A folder hides nothing."""

    def close(self) -> None:
        self.transaction.close()
