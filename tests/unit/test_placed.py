"""Chunks in several target partitions that were written without transactions: those that are where they should be are
verified, the others are left to who compares the whole topic.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from kafka_replication.ledger.entries import FailedRecord, Ids, Place, Receipt
from kafka_replication.ledger.placement import KafkaPartitions, Part
from kafka_replication.model.delivery import Delivery
from kafka_replication.model.errors import Stalled
from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.offsets import Coverage, OffsetRange, TopicPartition
from kafka_replication.model.partitioning import PartitionedBy
from kafka_replication.verification.digest import DIGEST_KIND
from kafka_replication.verification.digests import Digest
from kafka_replication.verification.placed import verify_placed
from kafka_replication.verification.verify import PartDigest, VerifyResult, VerifyTask

KEY = PartitionKey("unit", TopicPartition("orders", 0), "orders")


def part(partition: int, first: int, until: int, count: int | None = None) -> Part:
    offsets = Coverage.of([OffsetRange(first, until)])
    return Part(partition=partition, offsets=offsets, count=count or offsets.span, digest="right")


def chunk(number: int, *parts: Part, delivery: Delivery = "leader_ack") -> Receipt:
    return Receipt(
        generation=1,
        range=OffsetRange(10 * number, 10 * number + 10),
        count=sum(one.count for one in parts),
        bytes=10,
        digest="",
        digest_kind=DIGEST_KIND,
        engine="unit",
        placement=KafkaPartitions(PartitionedBy(name="by_key", hash="", partitions=2), parts),
        ids=Ids("c", "s", "t"),
        run_id="unit",
        time="2030-01-31T06:00:00.000Z",
        delivery=delivery,
        after=0,
    )


@dataclass
class Target:
    """Has everything up to ``ends``, but for the parts that are ``changed``."""

    ends: dict[int, int]
    changed: tuple[Part, ...] = ()
    unreachable: bool = False
    asked: list[tuple[int, int]] = field(default_factory=list)

    def read(self, part: Part, digest: Digest | None) -> PartDigest:
        if self.unreachable:
            raise Stalled("nothing arrived", "wait")
        assert part.until <= self.ends[part.partition]
        return PartDigest(part.count, "wrong" if part in self.changed else "right")

    def quarantined(self, failed: FailedRecord) -> bool:
        return False

    def end(self, partition: int, expected: int) -> int:
        self.asked.append((partition, expected))
        return self.ends[partition]

    def verify(self, *receipts: Receipt) -> VerifyResult:
        return verify_placed(VerifyTask(KEY, receipts, "digest"), self, self.end)


def test_what_is_there_is_verified_and_what_is_not_is_left_without_an_error() -> None:
    changed, beyond = part(0, 4, 8), part(1, 8, 12)
    receipts = (
        chunk(0, part(0, 0, 4), part(1, 0, 4)),
        chunk(1, changed, part(1, 4, 8)),
        chunk(2, beyond),
        chunk(3, part(0, 8, 12, count=6)),  # two were acknowledged twice at one offset
        chunk(4, part(0, 12, 16)),
    )
    target = Target({0: 20, 1: 11}, (changed,))
    result = target.verify(*receipts)
    assert (str(result.verified), result.error, result.records) == ("[0, 10) [40, 50)", None, 12)
    assert result.delivery == "leader_ack"
    assert target.asked == [(0, 16), (1, 12)]  # once for each partition: it waits for a log that still grows


def test_a_profile_that_loses_nothing_waits_for_its_records() -> None:
    target = Target({0: 8})
    assert str(target.verify(chunk(0, part(0, 0, 8), delivery="at_least_once")).verified) == "[0, 10)"
    assert not target.asked


def test_other_errors_are_told() -> None:
    whole = chunk(0, part(0, 0, 4))
    result = Target({0: 4}, unreachable=True).verify(whole)
    assert (result.error, result.retriable, bool(result.verified)) == ("nothing arrived", True, False)
    failed = FailedRecord(
        offset=3, kind="refused", reason="", error="", size=1, key_digest="", digest="", place=Place("q", 0, 1)
    )
    result = Target({0: 4}).verify(replace(whole, quarantined=1, failures=(failed,)))
    assert "is not in quarantine at" in (result.error or "") and not result.retriable
