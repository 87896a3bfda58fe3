"""Explains the records in a target topic to which several source partitions write without transactions.

Each record there is one of these:

- one that a chunk's receipt names by its offset, and that is there,
- one of a chunk of which something is not where its receipt says: all records of such chunks are compared by content,
- a further copy of a record of ours, which an attempt left over that did not end: a source has its content,
- another writer's.

This can only be said of all source partitions together, and while none of them writes.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple, Protocol

from kafka_replication.ledger.entries import Receipt
from kafka_replication.model.delivery import EXACTLY_ONCE
from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.offsets import Coverage, OffsetRange
from kafka_replication.verification.audit import Seen
from kafka_replication.verification.delivery import AROUND, BothSides, all_set_aside, source_of


class At(NamedTuple):
    """A place in the target topic."""

    partition: int
    offset: int


class Lost(NamedTuple):
    """A source record of a chunk that the target does not have. ``chunk`` is the receipt's range."""

    key: PartitionKey
    chunk: OffsetRange
    offset: int


class Copied(NamedTuple):
    """A record that is on the target beyond what the receipts say, and the source record of the same content."""

    key: PartitionKey
    offset: int
    at: At


class TopicSides(Protocol):
    """Reads the target topic, and the sources of all who write to it. Raises Stalled, Unreachable."""

    def of(self, key: PartitionKey) -> BothSides: ...

    def target(self, partition: int, wanted: OffsetRange) -> Iterator[Seen]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Writer:
    """One source partition. It sent nothing without a transaction below the target offsets ``sent_from`` (None: nothing
    at all), and everything below ``explained`` was explained before. Both are by partition; further ones count as 0.

    ``receipts`` are those of its chunks that lie where something is to be explained; ``compared`` are among them, those
    that are not where they should be. A source that is not ``readable`` is not searched.
    """

    key: PartitionKey
    next_offset: int
    sent_from: tuple[int, ...] | None
    explained: tuple[int, ...] | None = None
    receipts: tuple[Receipt, ...] = ()
    compared: tuple[Receipt, ...] = ()
    readable: bool = True

    def sent(self, at: At) -> bool:
        """Whether a record there can be one that it sent without a transaction."""
        return self.sent_from is not None and at.offset >= _of(self.sent_from, at.partition)

    def begin(self, partition: int) -> int | None:
        """From which offset on it is not known what lies there; None if it left nothing to explain."""
        if self.sent_from is None:
            return None
        return _of(self.sent_from if self.explained is None else self.explained, partition)

    @property
    def set_aside(self) -> frozenset[int]:
        """The source offsets that these chunks quarantined or skipped."""
        return all_set_aside(self.receipts)

    def is_new(self, at: At) -> bool:
        begin = self.begin(at.partition)
        return begin is not None and at.offset >= begin


def _of(offsets: Sequence[int], partition: int) -> int:
    return offsets[partition] if partition < len(offsets) else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """What is to be explained. ``logs`` has what can be read of each partition. Records at the offsets ``known`` belong
    to something else than the writers' receipts. Below ``floor`` nothing can be told any more.
    """

    writers: tuple[Writer, ...]
    logs: Mapping[int, OffsetRange]
    known: Mapping[int, Coverage] = field(default_factory=dict)
    floor: Mapping[int, int] = field(default_factory=dict)

    def begin(self, partition: int) -> int:
        """The lowest offset that is not explained of every writer."""
        begins = [begin for writer in self.writers if (begin := writer.begin(partition)) is not None]
        return min(begins, default=self.logs[partition].until if partition in self.logs else 0)

    def unexplained(self, partition: int) -> Coverage:
        """The offsets of which no receipt says whose they are."""
        log = self.logs[partition]
        first = max(self.begin(partition), self.floor.get(partition, 0), log.from_)
        window = Coverage.of([OffsetRange(min(first, log.until), log.until)])
        firm = (receipt for writer in self.writers for receipt in writer.receipts if receipt not in writer.compared)
        ours = Coverage.of(range_ for receipt in firm for range_ in offsets_of(receipt, partition))
        return window.subtract(ours.union(self.known.get(partition, Coverage())))


def offsets_of(receipt: Receipt, partition: int) -> Iterator[OffsetRange]:
    return (range_ for part in receipt.parts if part.partition == partition for range_ in part.offsets)


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """``lost`` has one entry for each record that should be on the target: several for one source record where a
    transform makes several of it.
    """

    lost: tuple[Lost, ...] = ()
    copies: tuple[Copied, ...] = ()
    foreign: tuple[At, ...] = ()

    def lost_of(self, writer: Writer, receipts: Iterable[Receipt]) -> Counter[OffsetRange]:
        """The source records of these chunks of a writer that are lost, by chunk."""
        chunks = {receipt.range for receipt in receipts}
        return Counter(lost.chunk for lost in set(self.lost) if lost.key == writer.key and lost.chunk in chunks)

    def copies_of(self, writer: Writer) -> list[Copied]:
        """Copies of its records that were not found before."""
        return [copy for copy in self.copies if copy.key == writer.key and writer.is_new(copy.at)]


def explain(topic: Topic, sides: TopicSides) -> Explanation:
    """Raises VerificationFailed if the source cannot show what a chunk had."""
    sent = chain.from_iterable(_sent(writer, sides) for writer in topic.writers)
    found = (
        (At(partition, record.offset), record.digest)
        for partition in sorted(topic.logs)
        for range_ in topic.unexplained(partition)
        for record in sides.target(partition, range_)
    )
    lost, extra = _unmatched(sent, found)
    copies, foreign = _origins(topic.writers, extra, sides)
    return Explanation(lost=tuple(lost), copies=tuple(copies), foreign=tuple(foreign))


def _sent(writer: Writer, sides: TopicSides) -> Iterator[tuple[Lost, bytes]]:
    for receipt in writer.compared:
        for record in source_of(writer.key, receipt, sides.of(writer.key)):
            yield Lost(writer.key, receipt.range, record.offset), record.digest


def _unmatched(
    sent: Iterable[tuple[Lost, bytes]], found: Iterable[tuple[At, bytes]]
) -> tuple[list[Lost], list[tuple[At, bytes]]]:
    """What of each side the other one does not have, by content. Memory is needed for all that is ``sent``."""
    missing, extra = defaultdict[bytes, deque[Lost]](deque), list[tuple[At, bytes]]()
    for one, digest in sent:
        missing[digest].append(one)
    for at, digest in found:
        if waiting := missing.get(digest):
            waiting.popleft()
        else:
            extra.append((at, digest))
    return sorted(chain.from_iterable(missing.values())), extra


def _origins(
    writers: Collection[Writer], extra: Iterable[tuple[At, bytes]], sides: TopicSides
) -> tuple[list[Copied], list[At]]:
    """Where each of these target records comes from, and those of which no source has the content."""
    wanted, copies = defaultdict[bytes, list[At]](list), list[Copied]()
    for at, digest in extra:
        wanted[digest].append(at)
    for writer, range_ in _near(writers, sides) if wanted else ():
        for record in sides.of(writer.key).around(range_, writer.set_aside):
            places = wanted.get(record.digest, ())
            if mine := [at for at in places if writer.sent(at)]:
                copies += (Copied(writer.key, record.offset, at) for at in mine)
                wanted[record.digest] = [at for at in places if at not in mine]
                if not wanted[record.digest]:
                    del wanted[record.digest]
        if not wanted:
            break
    return copies, sorted(chain.from_iterable(wanted.values()))


def _near(writers: Collection[Writer], sides: TopicSides) -> Iterator[tuple[Writer, OffsetRange]]:
    """Where the origin of a record is searched: in the chunks of each source partition, then in what is to be copied
    next, then around both.
    """
    senders = sorted((one for one in writers if one.sent_from is not None and one.readable), key=lambda one: one.key)
    logs = {writer.key: sides.of(writer.key).source_log() for writer in senders}
    own = {writer.key: Coverage.of(receipt.range for receipt in writer.receipts) for writer in senders}
    next_ = {w.key: Coverage.of([OffsetRange(w.next_offset, w.next_offset + AROUND)]) for w in senders}
    for tier in (own, {key: next_[key].subtract(own[key]) for key in own}, _around(own, next_)):
        for writer in senders:
            for range_ in tier[writer.key]:
                if readable := range_.intersection(logs[writer.key]):
                    yield writer, readable


def _around(
    own: Mapping[PartitionKey, Coverage], next_: Mapping[PartitionKey, Coverage]
) -> dict[PartitionKey, Coverage]:
    inner = {key: own[key].union(next_[key]) for key in own}
    return {
        key: Coverage.of(OffsetRange(max(0, r.from_ - AROUND), r.until + AROUND) for r in here).subtract(here)
        for key, here in inner.items()
    }


def overlapping(receipts: Collection[Receipt]) -> list[Receipt]:
    """Those written without a transaction of which another one claims an offset, too: the log was cut off between, and
    both are there only because their contents are equal.
    """
    claims = sorted(
        (part.partition, range_, number)
        for number, receipt in enumerate(receipts)
        for part in receipt.parts
        for range_ in part.offsets
    )
    found, last = set[int](), dict[int, tuple[int, int]]()
    for partition, range_, number in claims:
        until, owner = last.get(partition, (0, number))
        if range_.from_ < until:
            found |= {number, owner}
        if range_.until > until:
            last[partition] = range_.until, number
    return [receipt for number, receipt in enumerate(receipts) if number in found and receipt.delivery != EXACTLY_ONCE]
