"""A simulated log of a target partition: records of ours and of others, markers and aborted records."""

from __future__ import annotations

from dataclasses import dataclass, field

from kafka_replication.config import Replication
from kafka_replication.ledger.entries import Ids, Receipt
from kafka_replication.ledger.placement import KafkaSegments
from kafka_replication.model.offsets import OffsetRange, PartitionKey, TopicPartition

KEY = PartitionKey("orders-dr", TopicPartition("orders", 0), "orders")
REPLICATION = Replication.model_validate(
    {
        "name": "orders-dr",
        "source": {"connection": "a"},
        "target": {"connection": "b"},
        "topics": {"include": ["orders"]},
    }
)
OURS, MARKER, ABORTED, FOREIGN = range(4)


def receipt_of(chunk: OffsetRange, placement: KafkaSegments) -> Receipt:
    return Receipt(
        generation=1,
        range=chunk,
        count=0,
        bytes=0,
        digest="d",
        digest_kind="k",
        engine="e",
        placement=placement,
        ids=Ids("SRC", "s", "t0"),
        run_id="r",
        time="t",
    )


@dataclass
class Target:
    """``log[n]`` is what lies at offset n: its kind, and the source offset of a record of ours."""

    id: str = "t0"
    start: int = 0
    log: list[tuple[int, int]] = field(default_factory=list)

    def ours(self) -> list[int]:
        return [source for kind, source in self.log[self.start :] if kind == OURS]

    def first_foreign(self, behind: int) -> int | None:
        found = (at for at, (kind, _) in enumerate(self.log) if kind == FOREIGN and at >= max(behind, self.start))
        return next(found, None)

    def stands(self, offset: int) -> bool:
        """Whether a record of ours lies at this offset. One that compaction or retention may have removed is not asked for."""
        return offset < self.start or (offset < len(self.log) and self.log[offset][0] == OURS)
