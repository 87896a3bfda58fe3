"""Says where the records of a chunk lie that has its target partition to itself: from the first to the last one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import repeat

from kafka_replication.kafka.write.commit import UNKNOWN, Commit
from kafka_replication.kafka.write.session import PartitionSession
from kafka_replication.ledger.entries import Position
from kafka_replication.ledger.placement import KafkaSegments, Segment
from kafka_replication.ledger.view import partitioning_of
from kafka_replication.model.errors import Refused
from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.partitioning import KEEP, SOLE, Partitioning
from kafka_replication.sinks.port import Record


def refuse_change(partitioning: Partitioning, key: PartitionKey, position: Position) -> None:
    """Raise Refused if records would go to other target partitions than those before them, and may not. A plan refuses
    that, too, but for one that was made before the file was changed.
    """
    before = partitioning_of(key, position)
    if before is not None and (before == KEEP) != partitioning.keeps:
        raise Refused(
            f"{key.source}: its records below offset {position.next_offset} were copied with partitioning {before}, not"
            f" {partitioning.name}",
            "plan again: the plan says what to do; in Airflow, clear the task plan of this run",
        )


class FirstAndLast:
    """The layout of a source partition that is the only writer of its target partition."""

    def __init__(self, partition: PartitionSession) -> None:
        self._partition = partition

    def check_target(self, position: Position) -> None:
        refuse_change(SOLE, self._partition.key, position)
        self._partition.check_target(position)

    def begin(self) -> Ends:
        return Ends(self._partition.key.target.partition, self._partition.how)


@dataclass(slots=True)
class Ends:
    """The `Places` of one chunk, of which the first and the last record are acknowledged by themselves."""

    partition: int
    how: Commit
    _first: int = UNKNOWN
    _last: int = UNKNOWN
    each = False

    def partitions(self, batch: Sequence[Record]) -> Iterable[int]:  # noqa: ARG002  # all go to one
        return repeat(self.partition)

    def acknowledged(self, partition: int, offset: int) -> None:  # noqa: ARG002
        self._first = offset if self._first == UNKNOWN else min(self._first, offset)
        self._last = max(self._last, offset)

    def check(self, sent: int) -> None: ...

    def placement(self, sent: int, digest: str) -> KafkaSegments:
        if not sent:
            return KafkaSegments()
        between = self.how.lies(sent, self._first, self._last)
        segment = Segment(
            partition=self.partition, first=between.from_, last=between.until - 1, count=sent, digest=digest
        )
        return KafkaSegments((segment,))
