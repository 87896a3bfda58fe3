"""The session that copies into an index: documents first, each acknowledged, then position and receipt in one write."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

from kafka_replication.ledger.entries import FailedRecord, Gap, Handled, Ids, Place, Position, Receipt
from kafka_replication.ledger.placement import NewestByKey, Placement
from kafka_replication.ledger.port import Ledger
from kafka_replication.model.errors import ForeignWriter, Refused
from kafka_replication.model.failures import Failure, FailureKind
from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.offsets import TopicPartition
from kafka_replication.model.targets import IDEMPOTENT, LATEST
from kafka_replication.opensearch import quarantine
from kafka_replication.opensearch.bulk import Bulk, Item, deletion, item
from kafka_replication.opensearch.client import Client, path
from kafka_replication.opensearch.documents import FIELD, NoDocument, Origin, failure_of
from kafka_replication.opensearch.indexes import Indexes
from kafka_replication.opensearch.journal import EntryWriter, hits, refresh
from kafka_replication.opensearch.shapes import Making
from kafka_replication.opensearch.standing import Query, count, foreign, ours, within
from kafka_replication.sinks.failure_budget import MOST_IN_CHUNK, SetAside
from kafka_replication.sinks.port import Batches, Record, RefusedAt, Screen, failed_record

AT_ONCE = 2  # requests of one session that are under way
REQUEST_BYTES = 4 << 20
REQUEST_RECORDS = 1_000
PAGE = 10_000
SEVERAL = "the transform makes several records of it, and a document's id has only the offset"


class ChunkWriter:
    """A `RecordWriter` of one chunk."""

    def __init__(self, session: OpenSearchSession, aside: SetAside | None, before: int) -> None:
        self._session, self._aside, self._before = session, aside, before
        self._set_aside: list[FailedRecord] = []
        self._ready: list[Item] = []
        self._bytes = 0
        self._under_way: deque[Future[tuple[Failure, ...]]] = deque()
        self._parts = session.making.places(digests=self.screen is not None)
        self._last = -1
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
            failed = self._session.quarantine(self._aside, record, failed)
        self._set_aside.append(failed)
        self._parts.leave_out(failure.offset)

    def write(self, records: Sequence[Record]) -> None:
        make, leftovers, version = self._session.making.item, self._session.leftovers, self._session.version
        for record in records:
            offset = record[0]
            if offset == self._last:
                raise self._session.refused([Failure(offset, FailureKind.TRANSFORM, SEVERAL, "several_records")])
            try:
                one = make(record, version)
            except NoDocument as error:
                raise self._session.refused([failure_of(record, error)]) from error
            self._ready.append(one)
            self._bytes += len(one.lines)
            self._last = offset
            self.sent += 1
            self.first = self.first or record
            if leftovers:
                leftovers.discard(offset)
            if self._bytes >= REQUEST_BYTES or len(self._ready) >= REQUEST_RECORDS:
                self._send()
        self._parts.add(records)
        self._raise_refused(wait=False)

    def _send(self) -> None:
        """Begin a request; first wait until fewer than `AT_ONCE` are under way."""
        while len(self._under_way) >= AT_ONCE:
            self._end_oldest()
        if self._ready:
            self._under_way.append(self._session.submit(self._ready))
            self._ready, self._bytes = [], 0

    def _end_oldest(self) -> None:
        if refused := self._under_way.popleft().result():
            self._raise_all(refused)

    def _raise_refused(self, *, wait: bool) -> None:
        while self._under_way and (wait or self._under_way[0].done()):
            self._end_oldest()

    def _raise_all(self, refused: Sequence[Failure]) -> None:
        """With what the other requests have taught: a new session then sets all of it aside at once."""
        known = list(refused)
        for request in self._under_way:
            known += request.result()
        self._under_way.clear()
        raise self._session.refused(sorted(known, key=lambda failure: failure.offset))

    def finish(self, digest: str) -> Placement:
        self._send()
        self._raise_refused(wait=True)
        self._session.refuse_foreign()
        return self._parts.placement(digest)


class OpenSearchSession:
    """A `DecidingSession` and an `EntrySession` of one key."""

    batches: Batches | None = None

    def __init__(
        self,
        *,
        key: PartitionKey,
        client: Client,
        ledger: Ledger,
        writer: EntryWriter,
        bulk: Bulk,
        make: Callable[[Origin], Making],
        ids: Ids | None = None,
        aside: SetAside | None = None,
    ) -> None:
        self.key, self.ledger, self.transaction = key, ledger, writer
        self._client, self._ids, self._aside, self._make = client, ids, aside, make
        self._indexes = Indexes(client)
        self._bulk = bulk
        self._pool: ThreadPoolExecutor | None = None
        self._position: Position | None = None
        self._chunk: ChunkWriter | None = None
        self._making: Making | None = None
        self.leftovers: set[int] = set()  # offsets of documents that an earlier session wrote and did not commit

    def fence(self) -> None:
        if self._ids is not None:
            self.check_ids(self._ids)
        self.transaction.fence()

    def position(self) -> Position | None:
        self._position = self.ledger.position(self.key)
        self.leftovers = set()
        self._making = None
        if self._position is not None and self._ids is not None:
            refresh(self._client, self.key.target_topic)
            self.leftovers = self._not_committed(self._position)
        return self._position

    def _not_committed(self, position: Position) -> set[int]:
        query: Query = {"bool": {"filter": ours(self.origin), "must_not": [within(position.coverage)]}}
        found, after = set[int](), -1
        while True:
            past = {"bool": {"filter": [query, {"range": {f"{FIELD}.offset": {"gt": after}}}]}}
            body = {"query": past, "sort": [{f"{FIELD}.offset": "asc"}], "size": PAGE, "_source": False}
            page = [int(hit["sort"][0]) for hit in hits(self._client, body, self.key.target_topic)]
            found.update(page)
            if len(page) < PAGE:
                return found
            after = page[-1]

    @property
    def origin(self) -> Origin:
        return Origin.of(self.key, self._position.generation if self._position else 1)

    @property
    def making(self) -> Making:
        if self._making is None:
            self._making = self._make(self.origin)
        return self._making

    @property
    def version(self) -> int:
        """Of the documents that this session writes: an earlier session cannot replace them any more."""
        assert self.transaction.session is not None, "not fenced"
        return self.transaction.session

    def check_ids(self, ids: Ids) -> None:
        self._indexes.check_ids(self.key, ids)

    def check_target(self, position: Position) -> None:
        self._position = position
        if position.target_end and not self._is_there(position.target_end - 1):
            raise ForeignWriter(
                f"{self.key.target} lacks the document of our last record, at offset {position.target_end - 1}",
                "restore the index; or reset the topic, which copies it anew",
            )
        self.refuse_foreign()

    def _is_there(self, offset: int) -> bool:
        """True if the record of this offset is there, or where only the newest of a key is kept, one that is as new."""
        if not self.making.takes_back:
            refresh(self._client, self.key.target_topic)
            as_new: Query = {"range": {f"{FIELD}.offset": {"gte": offset}}}
            return count(self._client, self.key.target_topic, {"bool": {"filter": [*ours(self.origin), as_new]}}) > 0
        found = self._client.found("GET", path(self.key.target_topic, "_doc", self.origin.id(offset)), _source=False)
        return bool(found and found.get("found"))

    def refuse_foreign(self) -> None:
        """Raise ForeignWriter if the index has a document that is not of this replication and generation. Raise Refused
        if it is another index: one that a write has made again has other fields.
        """
        if self._ids is not None:
            self.check_ids(self._ids)
        refresh(self._client, self.key.target_topic)
        found = count(self._client, self.key.target_topic, foreign(self.key.replication, self.origin.generation))
        if found:
            raise ForeignWriter(
                f"{self.key.target_topic} has {found} documents that are not of {self.key.replication}",
                "find their writer, and remove them; an index belongs to one replication",
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
        return self._bulk.waited

    def submit(self, items: Sequence[Item]) -> Future[tuple[Failure, ...]]:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="bulk")
        return self._pool.submit(self._bulk.write, items)

    def named(self, failure: Failure) -> str:
        return f"{self.key.source}: the record at offset {failure.offset} cannot be copied: {failure.reason}"

    def refused(self, failures: Sequence[Failure]) -> RefusedAt:
        first, *more = failures
        return RefusedAt(
            self.named(first),
            "correct the mapping of the index or the record (a transform can), or let failures.refused set it aside",
            first.offset,
            kind=first.kind,
            error=first.error,
            more=more,
        )

    def quarantine(self, aside: SetAside, record: Record, failed: FailedRecord) -> FailedRecord:
        """Write the record to the quarantine, and wait until it is there."""
        place: Place = quarantine.place_of(aside.topic, self.key, aside.generation, failed.offset)
        placed = replace(failed, place=place)
        document = quarantine.document(self.key, aside.generation, record, placed)
        bulk = replace(self._bulk, index=aside.topic, newest=False)
        if refused := bulk.write([item(failed.offset, quarantine.id_of(place), self.version, document)]):
            raise self.refused(refused)
        return placed

    def refusal(self, record: Record) -> Failure | None:
        return self.making.refusal(record)

    def commit(self, position: Position, receipt: Receipt) -> None:
        self._delete_leftovers(receipt)
        if isinstance(placement := receipt.placement, NewestByKey):
            receipt = replace(receipt, promise=LATEST, superseded=receipt.count - placement.keys)
        else:
            receipt = replace(receipt, promise=IDEMPOTENT)
        self.ledger.write(self.transaction, self.key, receipt)
        self.move(position, begun=True)

    def _delete_leftovers(self, receipt: Receipt) -> None:
        """Delete what an earlier attempt wrote in this range and this one did not, perhaps since a filter changed."""
        left = [offset for offset in sorted(self.leftovers) if offset in receipt.range]
        if left and not self.making.takes_back:
            raise Refused(
                f"{self.key.source}: an attempt that died has written the record at offset {left[0]}, which is left out"
                " now, and what it replaced at its key is gone",
                "set filter, transform or failures back to what they were; or reset the topic, and copy it to a new"
                " index",
            )
        self._bulk.write([deletion(offset, self.origin.id(offset), self.version) for offset in left])
        self.leftovers.difference_update(left)

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

    def settle(self, left_open: Iterable[TopicPartition], write: Callable[[], None] | None) -> None:
        """An index hides nothing."""

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
        self.transaction.close()
