"""The places of one chunk's records on a target without transactions, as its receipt names them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kafka_replication.ledger.placement import KafkaSegments, Placement, Segment
from kafka_replication.sinks.port import Record
from kafka_replication.verification.digest import Fingerprint
from kafka_replication.verification.newest import NewestRecords


@dataclass(slots=True)
class NewestPlaces:
    """The places of a chunk's records: at their keys."""

    partition: int
    newest: NewestRecords = field(default_factory=NewestRecords)

    def add(self, records: Sequence[Record]) -> None:
        for record in records:
            self.newest.add(record)

    def leave_out(self, offset: int) -> None:
        """It has no place."""

    def placement(self, digest: str) -> Placement:  # noqa: ARG002 - the receipt has it
        return self.newest.placement(self.partition) if self.newest.by_key else KafkaSegments()


class OffsetPlaces:
    """The places of a chunk's records: at the offsets from its first to its last record, without those of records that
    were set aside, which may be written there later.
    """

    def __init__(self, partition: int, *, digests: bool) -> None:
        """Without ``digests`` nothing is left out."""
        self._partition, self._digests = partition, digests
        self._parts: list[tuple[int, int, int, Fingerprint | None]] = []  # first, last, count, digest
        self._left_out: list[int] = []

    def add(self, records: Sequence[Record]) -> None:
        if self._digests:
            for record in records:
                self._add_one(record)
        elif records:
            first, _, number, _ = self._parts.pop() if self._parts else (records[0][0], 0, 0, None)
            self._parts.append((first, records[-1][0], number + len(records), None))

    def _add_one(self, record: Record) -> None:
        offset = record[0]
        if not self._parts or self._is_apart(self._parts[-1][1], offset):
            self._parts.append((offset, offset, 0, Fingerprint()))
        first, _, number, digest = self._parts[-1]
        assert digest is not None
        digest.add(*record[1:])
        self._parts[-1] = (first, offset, number + 1, digest)

    def _is_apart(self, last: int, offset: int) -> bool:
        return offset != last + 1 and any(last < left < offset for left in self._left_out)

    def leave_out(self, offset: int) -> None:
        """The record at this offset is not written."""
        self._left_out.append(offset)

    def placement(self, digest: str) -> KafkaSegments:
        """``digest`` covers all records."""
        return KafkaSegments(
            tuple(
                Segment(
                    partition=self._partition,
                    first=first,
                    last=last,
                    count=number,
                    digest=own.hexdigest() if own else digest,
                )
                for first, last, number, own in self._parts
            )
        )
