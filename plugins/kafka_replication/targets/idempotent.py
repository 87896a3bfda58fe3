"""The session of a target without transactions: records first, each acknowledged at a place of its own, then position
and receipt in one write of the ledger.

Writing a record again writes the same place again. A session has a number, higher than that of every earlier one, and
what a later session wrote stays as it is. The store says what a place is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, replace

from kafka_replication.copying.sink import MOST_IN_CHUNK, Batches, Record, RefusedAt, Screen, SetAside, failed_record
from kafka_replication.ledger.entries import FailedRecord, Ids, Position, Proof, Receipt
from kafka_replication.ledger.placement import Placement
from kafka_replication.ledger.port import Ledger
from kafka_replication.model.choices import IDEMPOTENT, LATEST, Failure, FailureKind
from kafka_replication.model.errors import ForeignWriter, Refused
from kafka_replication.model.offsets import Coverage, OffsetRange, PartitionKey, TopicPartition
from kafka_replication.model.times import now
from kafka_replication.targets.journal_ledger import EntryWriter
from kafka_replication.targets.keyed import NewestPlaces, NoPlace, OffsetPlaces
from kafka_replication.targets.record_store import Aside, Item, Leftover, RecordStore, Resend, place_of

AT_ONCE = 2  # requests of one session that are under way
REQUEST_BYTES = 4 << 20
REQUEST_RECORDS = 1_000


class ChunkWriter:
    """A `RecordWriter` of one chunk."""

    def __init__(self, session: IdempotentSession, aside: SetAside | None, before: int) -> None:
        self._session, self._aside, self._before = session, aside, before
        self._set_aside: list[FailedRecord] = []
        self._ready: list[Item] = []
        self._bytes = 0
        self._under_way: deque[Future[tuple[Failure, ...]]] = deque()
        partition = session.key.source.partition
        self._places: OffsetPlaces | NewestPlaces = (
            OffsetPlaces(partition, digests=self.screen is not None)
            if session.records.takes_back
            else NewestPlaces(partition)
        )
        self._first, self._last = -1, -1
        self._aside_begun = False
        self.sent = 0
        self.first: Record | None = None

    @property
    def screen(self) -> Screen | None:
        return self._screened if self._aside is not None and self._aside.anything else None

    def _screened(self, record: Record) -> Failure | None:
        assert self._aside is not None
        return self._aside.known.get(record[0]) or self._session.refusal(record)

    @property
    def failures(self) -> tuple[FailedRecord, ...]:
        return tuple(self._set_aside)

    @property
    def full(self) -> bool:
        return len(self._set_aside) >= MOST_IN_CHUNK

    def set_aside(self, record: Record, failure: Failure) -> None:
        assert self._aside is not None
        what = self._session.named(failure)
        action = self._aside.action(failure)
        if action == "fail":
            raise self._session.refused([failure])
        self._aside.check(self._before + len(self._set_aside), failure.offset, what)
        failed = failed_record(record, failure)
        if action == "quarantine":
            self._aside_begun = True
            failed = self._session.quarantine(self._aside, record, failed)
        self._set_aside.append(failed)
        self._places.leave_out(failure.offset)

    def write(self, records: Sequence[Record]) -> None:
        records_there, leftovers, number = self._session.records, self._session.leftovers, self._session.number
        for record in records:
            offset = record[0]
            if offset == self._last:
                several = records_there.several
                raise self._session.refused([Failure(offset, FailureKind.TRANSFORM, several, "several_records")])
            try:
                item = records_there.item(record, number)
            except NoPlace as error:
                raise self._session.refused([self._session.without_place(record, error)]) from None
            self._ready.append(item)
            self._bytes += item.size
            self._first, self._last = offset if self._first < 0 else self._first, offset
            self.sent += 1
            self.first = self.first or record
            if leftovers:
                leftovers.discard(records_there.leftover(record))
            if self._bytes >= REQUEST_BYTES or len(self._ready) >= REQUEST_RECORDS:
                self._send()
        self._places.add(records)
        self._raise_refused(wait=False)

    @property
    def wrote(self) -> bool:
        """True if a record may have been written, here or to the quarantine."""
        return self._aside_begun or self.sent > 0

    @property
    def _written(self) -> OffsetRange | None:
        """The offsets from the first to the last written record."""
        return OffsetRange(self._first, self._last + 1) if self.sent else None

    def _send(self) -> None:
        """Begin a request; first wait until fewer than `AT_ONCE` are under way."""
        while len(self._under_way) >= AT_ONCE:
            self._end_oldest()
        if self._ready:
            self._under_way.append(self._session.submit(self._ready))
            self._ready, self._bytes = [], 0

    def _end_oldest(self) -> None:
        """Raises its refusals with what the other requests have taught: a new session sets all aside at once."""
        if refused := self._under_way.popleft().result():
            known = [*refused, *(failure for request in self._under_way for failure in request.result())]
            self._under_way.clear()
            raise self._session.refused(sorted(known, key=lambda failure: failure.offset))

    def _raise_refused(self, *, wait: bool) -> None:
        while self._under_way and (wait or self._under_way[0].done()):
            self._end_oldest()

    def finish(self, digest: str) -> Placement:
        self._send()
        self._raise_refused(wait=True)
        self._session.refuse_foreign(self._written)
        return self._places.placement(digest)


class IdempotentSession:
    """A `SinkSession` of one key."""

    batches: Batches | None = None

    def __init__(
        self,
        *,
        key: PartitionKey,
        store: RecordStore,
        resend: Resend,
        ledger: Ledger,
        writer: EntryWriter,
        ids: Ids | None = None,
        aside: SetAside | None = None,
    ) -> None:
        self.key, self.ledger, self.transaction = key, ledger, writer
        self._store, self._resend = store, resend
        self._ids, self._aside = ids, aside
        self._pool: ThreadPoolExecutor | None = None
        self._stand_at(None)
        self._chunk: ChunkWriter | None = None
        self.leftovers: set[Leftover] = set()

    def fence(self) -> None:
        if self._ids is not None:
            self.check_ids(self._ids)
        self.transaction.fence(copies=True)

    def _stand_at(self, position: Position | None) -> None:
        self._position, self.records = position, self._store.records(self.key, position)

    def position(self) -> Position | None:
        self._stand_at(self.ledger.position(self.key))
        self.leftovers = set()
        if self._position is not None and self._ids is not None:
            self._store.refresh(self.key.target_topic)
            self.leftovers = self.records.uncommitted()
        return self._position

    @property
    def number(self) -> int:
        """The number by which this session writes: what an earlier one still writes does not replace what this one has
        written.
        """
        assert self.transaction.session is not None, "not fenced"
        return self.transaction.epoch if self.records.by_epoch else self.transaction.session

    def check_ids(self, ids: Ids) -> None:
        self._store.check_ids(self.key, ids)

    def check_target(self, position: Position) -> None:
        self._stand_at(position)
        if position.target_end and not self.records.has(position.target_end - 1):
            raise ForeignWriter(
                f"{self.key.target} lacks our last record, of offset {position.target_end - 1}",
                "restore it; or reset the topic, which copies it anew",
            )
        self.refuse_foreign()

    def refuse_foreign(self, written: OffsetRange | None = None) -> None:
        """Raise ForeignWriter if the target has records that are not of this key and generation. Raise Refused if it
        is another one than that of the plan.
        """
        if self._ids is not None:
            self.check_ids(self._ids)
        self._store.refresh(self.key.target_topic)
        if foreign := self.records.foreign(written):
            raise ForeignWriter(
                f"{self.key.target_topic} has {foreign} records that are not of {self.key.replication}",
                "find their writer, and remove them; it belongs to one replication",
            )

    def begin(self) -> ChunkWriter:
        self.transaction.begin()
        self._chunk = ChunkWriter(self, self._aside, self._position.set_aside if self._position else 0)
        return self._chunk

    @property
    def written(self) -> int:
        return self._chunk.sent if self._chunk else 0

    @property
    def first(self) -> Record | None:
        return self._chunk.first if self._chunk else None

    @property
    def throttled(self) -> float:
        return self._resend.waited

    def submit(self, items: Sequence[Item]) -> Future[tuple[Failure, ...]]:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="writes")
        return self._pool.submit(self.records.write, items, self._resend)

    def named(self, failure: Failure) -> str:
        return f"{self.key.source}: the record at offset {failure.offset} cannot be copied: {failure.reason}"

    def refused(self, failures: Sequence[Failure]) -> RefusedAt:
        """The error about these failures, with the remedy for the first one."""
        first, *more = failures
        remedy = "correct the record (a transform can), or let failures set it aside (quarantine or skip)"
        if first.error != f"not_a_{self._store.noun}":  # the target was asked
            remedy = self._store.remedies.get(first.kind, remedy)
        return RefusedAt(self.named(first), remedy, first.offset, kind=first.kind, error=first.error, more=more)

    def without_place(self, record: Record, error: NoPlace) -> Failure:
        noun = self._store.noun
        return Failure(record[0], FailureKind.REFUSED, f"it cannot be a {noun}: {error}", f"not_a_{noun}")

    def refusal(self, record: Record) -> Failure | None:
        if self._position is None:  # a session that only asks
            self._stand_at(self.ledger.position(self.key))
        error = self.records.refusal(record)
        return self.without_place(record, error) if error else None

    def quarantine(self, aside: SetAside, record: Record, failed: FailedRecord) -> FailedRecord:
        place = place_of(aside.topic, self.key, aside.generation, failed.offset)
        about = {"failed": asdict(replace(failed, place=None)), "time": now()}
        there = Aside(key=self.key, generation=aside.generation, place=place, record=record, about=about)
        if failures := self._store.set_aside(there, self.number, self._resend):
            raise self.refused(failures)
        return replace(failed, place=place)

    def commit(self, position: Position, receipt: Receipt) -> None:
        self._remove_leftovers(receipt)
        receipt = replace(receipt, promise=IDEMPOTENT)
        if receipt.proof is Proof.BY_KEY:
            receipt = replace(receipt, promise=LATEST, superseded=receipt.count - receipt.newest.keys)
        self.ledger.write(self.transaction, self.key, receipt)
        self.ledger.write(self.transaction, self.key, position)
        self.transaction.commit()
        self._chunk = None
        self._stand_at(position)

    def _remove_leftovers(self, receipt: Receipt) -> None:
        """Remove what an earlier attempt wrote in this range and this one did not, perhaps since a filter changed."""
        left = sorted(one for one in self.leftovers if one[0] in receipt.range)
        if left and not self.records.takes_back:
            raise Refused(
                f"{self.key.source}: an attempt that died has written a record at offset {left[0][0]}, which is left"
                " out or another one now, and what it replaced at its key is gone",
                "set filter, transform or failures back to what they were; or reset the topic, and copy it to another"
                " target topic",
            )
        if left:
            self._remove([offset for offset, _ in left])
            self.leftovers.difference_update(left)

    def _remove(self, offsets: Sequence[int]) -> None:
        items = [self.records.removal(offset, self.number) for offset in offsets]
        if failures := self.records.write(items, self._resend):
            raise self.refused(failures)

    def drop_uncommitted(self, offsets: Coverage) -> None:
        if self.records.takes_back:
            self._remove([offset for some in offsets for offset in range(some.from_, some.until)])

    def end_left_open(self, left_open: Iterable[TopicPartition], write: Callable[[], None] | None) -> None:
        """Nothing is ever hidden."""

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
        unfinished = self.transaction.open and self._chunk is not None and self._chunk.wrote
        if not unfinished and not self._resend.unanswered:
            self.transaction.leave()
        self.transaction.close()
