"""Chunks of which a target keeps the newest record of each key: what should be at their keys, and what is.

The caller reads the chunk from the source again: receipts hold no keys. Pure.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from typing import Any, Protocol, runtime_checkable

import xxhash

from kafka_replication.ledger.entries import Receipt
from kafka_replication.ledger.placement import UPGRADE, NewestByKey
from kafka_replication.model.errors import LedgerUnreadable
from kafka_replication.model.offsets import OffsetRange, PartitionKey, TopicPartition
from kafka_replication.verification.digests import Fingerprint, equals, record_digest, set_aside
from kafka_replication.verification.matching import Sent

AT_ONCE = 1_000  # keys that are asked for at a time
_state = struct.Struct("<q16s").pack  # offset, digest of the record
_Record = tuple[int, int, bytes | None, bytes | None, Any]  # as `kafka_replication.copying.sink.Record`
Change = Callable[[_Record], Iterable[_Record]]  # makes the records to write of a source record


@dataclass(frozen=True, slots=True)
class Found:
    """A record that a reader finds at a key. ``source`` is None for something that this generation of the replication
    has not written.
    """

    source: TopicPartition | None
    offset: int
    digest: bytes  # of the record


@runtime_checkable
class KeyReader(Protocol):
    """Reads a target that keeps the newest record of each key, as its readers see it, with connections of its own.

    Both methods see everything that was acknowledged before the call. They raise Unreachable, GapFound.
    """

    def at_keys(self, keys: Sequence[bytes]) -> Mapping[bytes, Found]:
        """The record at each of these different keys; without those where nothing is."""

    def still_newest(self, wanted: OffsetRange) -> Iterator[Sent]:
        """The records of the partition that are there and have these source offsets, in their order. Without those that
        are not at the place of their key.
        """


def key_reader(reader: object, what: str) -> KeyReader:
    """The reader of a target, which has to read by keys. Raises LedgerUnreadable, which names ``what``."""
    if not isinstance(reader, KeyReader):
        raise LedgerUnreadable(f"{what}: this kind of target does not read records by their keys", UPGRADE)
    return reader


class NewestRecords:
    """The newest record of each key among records that were added in the order of their offsets."""

    def __init__(self) -> None:
        self.by_key: dict[bytes, Sent] = {}
        self.total = Fingerprint()  # of all that were added
        self.first = self.last = -1  # offsets

    @classmethod
    def of(cls, records: Iterable[_Record]) -> NewestRecords:
        made = cls()
        for record in records:
            made.add(record)
            made.total.add(*record[1:])
        return made

    def add(self, record: _Record) -> None:
        """Add a record, which has a key, but not to the ``total``."""
        offset, key = record[0], record[2]
        assert key is not None, "refused before"
        self.by_key.pop(key, None)  # so that the order stays that of offsets
        self.by_key[key] = Sent(offset, record_digest(*record[1:]))
        self.first = offset if self.first < 0 else self.first
        self.last = offset

    def placement(self, partition: int) -> NewestByKey:
        """``partition`` is the source's. Call it only if a record was added."""
        digest = digest_of(self.by_key.values())
        keys = len(self.by_key)
        return NewestByKey(partition=partition, first=self.first, last=self.last, keys=keys, digest=digest)


def digest_of(newest: Iterable[Sent]) -> str:
    """The digest of the newest records of a chunk's keys, in the order of their offsets."""
    digest = xxhash.xxh3_128()
    for record in newest:
        digest.update(_state(record.offset, record.digest))
    return str(digest.hexdigest())


class Verdict(StrEnum):
    """The verdict about what is found at the key of a record, in the words of a message."""

    THERE = "it is there"
    SUPERSEDED = "a newer record of its key is there"
    MISSING = "nothing is there"
    OLDER = "an older record of its key is there"
    ALTERED = "it is there with other content"
    ELSEWHERE = "a record of another partition, topic or generation is there"
    FOREIGN = "something is there that this replication has not written"

    @property
    def is_right(self) -> bool:
        return self in (Verdict.THERE, Verdict.SUPERSEDED)


def verdict(own: TopicPartition, record: Sent, found: Found | None, copied: Callable[[int], bool]) -> Verdict:
    """The verdict about the newest record of a key in a chunk. ``copied`` is true for an offset whose record the chunk
    has copied, if there was one.
    """
    if found is None:
        return Verdict.MISSING
    if found.source != own:
        return Verdict.FOREIGN if found.source is None else Verdict.ELSEWHERE
    if found.offset < record.offset:
        return Verdict.OLDER
    if found.offset > record.offset:  # one of the same chunk, which is not what was copied, is no newer one
        return Verdict.ALTERED if copied(found.offset) else Verdict.SUPERSEDED
    return Verdict.THERE if found.digest == record.digest else Verdict.ALTERED


@dataclass(frozen=True, slots=True)
class AtKey:
    """The finding at the key of the record at this ``offset``. ``found`` is the offset of that, if it is ours."""

    offset: int
    verdict: Verdict
    found: int | None

    def __str__(self) -> str:
        at = "" if self.found is None else f" (offset {self.found})"
        return f"the record at offset {self.offset}: {self.verdict}{at}"


def at_keys(
    own: TopicPartition, made: NewestRecords, reader: KeyReader, copied: Callable[[int], bool] = lambda _: False
) -> Iterator[AtKey]:
    """The findings at the keys of these records of the source partition ``own``. ``copied`` as in `verdict`."""
    left = iter(made.by_key.items())
    while some := dict(islice(left, AT_ONCE)):
        there = reader.at_keys(tuple(some))
        for key, record in some.items():
            found = there.get(key)
            offset = found.offset if found and found.source == own else None
            yield AtKey(record.offset, verdict(own, record, found, copied), offset)


@dataclass(slots=True, kw_only=True)
class Comparison:
    """A chunk, as the source and today's filter and transform make it, beside the target."""

    key: PartitionKey
    receipt: Receipt
    made: NewestRecords
    there: int = 0  # records of the chunk that were found

    @property
    def compacted(self) -> int:
        """The records that the source shows no more, because newer ones of their keys follow."""
        return max(0, self.receipt.count - self.made.total.count)

    @property
    def is_another(self) -> bool:
        """True if the source shows other records than were copied, not only fewer."""
        return not self.compacted and not equals(self.made.total, self.receipt)

    def wrong(self, reader: KeyReader) -> Iterator[AtKey]:
        """The keys that do not show what they have to."""
        aside = set_aside(self.receipt)
        copied = self.receipt.range
        for at in at_keys(self.key.source, self.made, reader, lambda at: at in copied and at not in aside):
            self.there += at.verdict is Verdict.THERE
            if not at.verdict.is_right:
                yield at

    @property
    def superseded(self) -> int:
        """The records of the chunk that readers do not find because a newer one of their key is there. Call it after
        `wrong`.
        """
        return self.receipt.count - self.there


def stands_alone(placement: NewestByKey, reader: KeyReader) -> bool:
    """True if all newest records of the chunk are there and none is superseded: this needs no source."""
    there = list(reader.still_newest(placement.offsets))
    return len(there) == placement.keys and digest_of(there) == placement.digest
