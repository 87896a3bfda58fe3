"""Reads what a `RecordStore` has: what stands there, what was copied, what was set aside. Nothing is ever hidden."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property

from kafka_replication.copying.sink import Record, digest_of
from kafka_replication.ledger.entries import FailedRecord, Place
from kafka_replication.ledger.placement import Part
from kafka_replication.model.errors import ReplicationError
from kafka_replication.model.offsets import OffsetRange, PartitionKey, TopicPartition
from kafka_replication.targets.journal import Writers
from kafka_replication.targets.journal_ledger import JournalLedger
from kafka_replication.targets.port import Failures, Standing
from kafka_replication.targets.record_store import Records, RecordStore, place_of
from kafka_replication.verification.digests import BatchDigest, Digest, record_digest
from kafka_replication.verification.matching import Seen, Sent
from kafka_replication.verification.newest import Found, KeyReader, key_reader
from kafka_replication.verification.verify import PartDigest


class StoredStanding(Standing):
    """A record's place is its source offset. Records of others have no place: they get the offsets behind
    our last record. What an attempt of ours has written and not committed is not shown: the next one writes it again,
    or removes it.
    """

    def __init__(self, store: RecordStore, ledger: JournalLedger) -> None:
        self._store, self._ledger = store, ledger

    def _records(self, at: TopicPartition, writers: Writers) -> Records:
        key, position = writers.get(at, (PartitionKey("", at, at.topic), None))
        return self._store.records(key, position)

    def _end(self, at: TopicPartition, writers: Writers) -> int:
        records = self._records(at, writers)
        return records.end() + records.foreign()

    def ends_of(self, topic: str, numbers: Iterable[int], writers: Writers) -> dict[int, int]:
        """The end of each of these partitions of an existing topic."""
        self._store.refresh(topic)
        return {number: self._end(TopicPartition(topic, number), writers) for number in numbers}

    def ends(self, wanted: Iterable[TopicPartition]) -> tuple[dict[TopicPartition, int], Failures]:
        ends, failed, partitions = dict[TopicPartition, int](), dict[TopicPartition, ReplicationError](), list(wanted)
        try:
            writers = self._ledger.writers()
        except ReplicationError as error:
            return {}, dict.fromkeys(partitions, error)
        for topic in sorted({at.topic for at in partitions}):
            there = [at for at in partitions if at.topic == topic]
            try:
                self._store.refresh(topic)
            except ReplicationError as error:
                failed |= dict.fromkeys(there, error)
                continue
            for at in there:
                try:
                    ends[at] = self._end(at, writers)
                except ReplicationError as error:
                    failed[at] = error
        return ends, failed

    def first_record(self, at: TopicPartition, wanted: OffsetRange) -> int | None:
        self._store.refresh(at.topic)
        records = self._records(at, self._ledger.writers())
        if (first := records.first(wanted)) is not None:
            return first
        end = records.end()
        from_ = max(end, wanted.from_)
        return from_ if from_ < wanted.until and from_ < end + records.foreign() else None

    def reader(self, at: TopicPartition) -> AbstractContextManager[ContentReader]:
        self._store.refresh(at.topic)
        return nullcontext(ContentReader(self._records(at, self._ledger.writers())))


class ContentReader:
    """A `RecordReader` of one partition."""

    def __init__(self, there: Records) -> None:
        self._there, self.records = there, 0

    def content(self, wanted: OffsetRange) -> Iterator[Record]:
        """Ours in their order, then those of others. Where only the newest record of each key is kept, ours are found
        by their keys, and not here.
        """
        if self._there.takes_back:
            for record, _ in self._there.scan(self._there.coverage.within(wanted)):
                yield record
        end = self._there.end()
        if wanted.until > end:
            for number, record in enumerate(self._there.others(), end):
                if number in wanted:
                    yield (number, *record[1:])

    def seen(self, wanted: OffsetRange, total: Digest | None = None) -> Iterator[Seen]:
        for offset, *fields in self.content(wanted):
            self.records += 1
            if total is not None and not isinstance(total, BatchDigest):
                total.add(*fields)
            yield Seen(offset, record_digest(*fields))

    def add_to(self, total: Digest, wanted: OffsetRange) -> None:
        for _ in self.seen(wanted, total):
            pass


class StoredReader:
    """A `TargetReader`: what is at the offsets of a receipt, each at the place that it has to have."""

    def __init__(self, store: RecordStore, ledger: JournalLedger, key: PartitionKey) -> None:
        self._store, self._ledger, self._key = store, ledger, key

    @cached_property
    def _records(self) -> Records:
        """Once all that was acknowledged before is visible."""
        position = self._ledger.position(self._key)
        if position is not None:
            self._store.check_ids(self._key, position.ids)
        self._store.refresh(self._key.target_topic)
        return self._store.records(self._key, position)

    def read(self, part: Part, digest: Digest | None) -> PartDigest:
        if digest is None:
            return PartDigest(self._records.count(part.offsets), "")
        count = 0
        for (_, *fields), is_at_its_place in self._records.scan(part.offsets):
            if is_at_its_place and not isinstance(digest, BatchDigest):
                count += 1
                digest.add(*fields)
        return PartDigest(count, digest.hexdigest())

    def quarantined(self, failed: FailedRecord) -> bool:
        record = StoredQuarantine(self._store).stored(self._key, failed)
        return record is not None and failed.digest in ("", digest_of(record))


class NewestReader(StoredReader):
    """A `KeyReader`, and a `TargetReader` of what its target has at places: the quarantine."""

    def _refreshed(self) -> KeyReader:
        if "_records" in self.__dict__:  # it is known, and not only now refreshed
            self._store.refresh(self._key.target_topic)
        return key_reader(self._records, str(self._key.source))

    def at_keys(self, keys: Sequence[bytes]) -> Mapping[bytes, Found]:
        return self._refreshed().at_keys(keys)

    def still_newest(self, wanted: OffsetRange) -> Iterator[Sent]:
        return self._refreshed().still_newest(wanted)


class StoredQuarantine:
    """A `Quarantine`."""

    def __init__(self, store: RecordStore) -> None:
        self._store = store

    def records(self, topic: str, key: PartitionKey, generation: int) -> Iterator[tuple[FailedRecord, str]]:
        if self._store.describe(topic) is None:
            return
        self._store.refresh(topic)
        first = place_of(topic, key, generation, 0)
        for offset, about in self._store.all_aside(key, generation, first):
            place = Place(topic, first.partition, offset)
            yield FailedRecord(**{**about["failed"], "place": place}), about["time"]

    def original(self, key: PartitionKey, failed: FailedRecord) -> Record | None:
        record = self.stored(key, failed)
        return record if record is not None and digest_of(record) == failed.digest else None

    def stored(self, key: PartitionKey, failed: FailedRecord) -> Record | None:
        """The record at its place, whatever its content is; that of one that nobody could read is empty."""
        assert failed.place is not None
        return self._store.aside(key, failed.place)
