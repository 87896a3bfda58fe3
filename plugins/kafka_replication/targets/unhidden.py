"""The answers of a target without transactions, which hides nothing from readers, for its `Ledger` and `Standing`; and
a reader of what stands there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Protocol

from kafka_replication.ledger import writing
from kafka_replication.ledger.entries import Entry, Receipt
from kafka_replication.ledger.transaction import TransactionPort
from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.offsets import Coverage, OffsetRange, TopicPartition
from kafka_replication.sinks.port import Record
from kafka_replication.targets.port import Failures
from kafka_replication.verification.digest import BatchDigest, record_digest
from kafka_replication.verification.digests import Digest
from kafka_replication.verification.matching import Seen


class UnhiddenLedger:
    """The part of a `Ledger` that is about entries which readers do not see yet, and how entries are written. No
    receipt is ever deleted for its age.
    """

    def undecided(self) -> set[PartitionKey]:
        return set()

    def undecided_entries(self) -> list[tuple[PartitionKey, Entry]]:
        return []

    def hidden(self) -> Mapping[TopicPartition, int]:
        return {}

    def hidden_by(self, at: TopicPartition) -> str:
        return ""

    def write(self, transaction: TransactionPort, key: PartitionKey, entry: Entry) -> None:
        writing.write(transaction, key, entry)

    def delete(self, transaction: TransactionPort, key: PartitionKey, receipt: Receipt) -> None:
        writing.delete(transaction, key, receipt)

    def expire(self, may_go: Callable[[PartitionKey, Receipt], bool]) -> int:
        return 0


class UnhiddenStanding(Protocol):
    """The part of a `Standing` that is about records which readers do not see yet. Logs begin at 0 and lose no end."""

    commit_takes: int = 0

    def ends(self, wanted: Iterable[TopicPartition]) -> tuple[dict[TopicPartition, int], Failures]: ...

    def logs(self, wanted: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetRange]:
        return {at: OffsetRange(0, end) for at, end in self.ends(wanted)[0].items()}

    def starts(self, wanted: Iterable[TopicPartition]) -> tuple[dict[TopicPartition, int], Failures]:
        return dict.fromkeys(wanted, 0), {}

    def stable_ends(
        self, wanted: Iterable[TopicPartition], seconds: float | None = None
    ) -> tuple[dict[TopicPartition, int], Failures]:
        return self.ends(wanted)

    def hiding(self, wanted: Iterable[TopicPartition]) -> set[TopicPartition]:
        return set()

    def at_rest(self, at: TopicPartition, expected: int) -> OffsetRange:
        ends, failed = self.ends([at])
        if at in failed:
            raise failed[at]
        return OffsetRange(0, ends[at])

    def check_all_shown(self, at: TopicPartition, until: int) -> None:
        return

    def left_open(self, at: TopicPartition) -> Mapping[str, int]:
        return {}

    def hidden_by(self, at: TopicPartition, session_id: str) -> Coverage:
        return Coverage()

    def certain_ends(self, wanted: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return {}


class ContentReader:
    """A `RecordReader` of one partition, whose records ``content`` returns."""

    def __init__(self, content: Callable[[OffsetRange], Iterator[Record]]) -> None:
        self.content, self.records = content, 0

    def seen(self, wanted: OffsetRange, total: Digest | None = None) -> Iterator[Seen]:
        for offset, *fields in self.content(wanted):
            self.records += 1
            if total is not None and not isinstance(total, BatchDigest):
                total.add(*fields)
            yield Seen(offset, record_digest(*fields))

    def add_to(self, total: Digest, wanted: OffsetRange) -> None:
        for _ in self.seen(wanted, total):
            pass
