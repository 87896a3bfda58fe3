"""The newest record of each key: what a chunk leaves, and what may be found at its keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_replication.kafka.partitioner import partition_of_key
from kafka_replication.ledger.entries import FailedRecord, Receipt, Transform
from kafka_replication.ledger.placement import NewestByKey, Part
from kafka_replication.model.choices import MOST_GENERATION, MOST_OFFSET, version
from kafka_replication.model.errors import GapFound
from kafka_replication.model.offsets import OffsetRange, PartitionKey, TopicPartition
from kafka_replication.verification.digests import Digest, Fingerprint, record_digest
from kafka_replication.verification.matching import Sent
from kafka_replication.verification.newest import Change, Comparison, Found, NewestRecords, Verdict, stands_alone
from kafka_replication.verification.verify import PartDigest, Sides, VerifyResult, VerifyTask, verify
from tests.golden.first_entries import RECEIPT

OWN = TopicPartition("orders", 0)
KEY = PartitionKey("latest", OWN, "orders")
Rec = tuple[int, int, bytes, bytes, None]


def record(offset: int, key: bytes, value: bytes = b"v") -> Rec:
    return offset, 1000 + offset, key, value, None


def sent(one: Rec) -> Found:
    return Found(OWN, one[0], record_digest(*one[1:]))


class Store:
    """A target in memory, as a reader sees it."""

    def __init__(self, *found: tuple[bytes, Found]) -> None:
        self.found = dict(found)

    def at_keys(self, keys: Sequence[bytes]) -> Mapping[bytes, Found]:
        return {key: self.found[key] for key in keys if key in self.found}

    def still_newest(self, wanted: OffsetRange) -> Iterator[Sent]:
        there = sorted(one for one in map(as_sent, self.found.values()) if one.offset in wanted)
        yield from there


def as_sent(found: Found) -> Sent:
    return Sent(found.offset, found.digest)


CHUNK = [record(5, b"a"), record(6, b"b"), record(8, b"a", b"w")]


def receipt_of(records: Sequence[Rec], until: int = 10) -> Receipt:
    made = NewestRecords.of(records)
    return replace(
        RECEIPT,
        range=OffsetRange(records[0][0], until),
        count=len(records),
        digest=made.total.hexdigest(),
        placement=made.placement(0),
    )


def compared(store: Store, made: Sequence[Rec] = CHUNK, receipt: Receipt | None = None) -> tuple[Comparison, list[str]]:
    comparison = Comparison(key=KEY, receipt=receipt or receipt_of(CHUNK), made=NewestRecords.of(made))
    return comparison, [str(one.verdict) for one in comparison.wrong(store)]


def test_a_chunk_leaves_the_newest_record_of_each_key() -> None:
    placement = NewestRecords.of(CHUNK).placement(0)
    assert (placement.first, placement.last, placement.keys, placement.partition) == (5, 8, 2, 0)
    assert placement.digest == NewestRecords.of([CHUNK[1], CHUNK[2]]).placement(0).digest
    assert placement.digest != NewestRecords.of([CHUNK[1], record(9, b"a", b"w")]).placement(0).digest


def test_what_is_there_or_newer_is_right_and_counted() -> None:
    store = Store((b"a", sent(CHUNK[2])), (b"b", sent(record(17, b"b", b"newer"))))
    comparison, wrong = compared(store)
    assert not wrong
    assert comparison.superseded == 2, "one by its own chunk, one by a later one"


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (None, Verdict.MISSING),
        (Found(OWN, 5, b"old"), Verdict.OLDER),
        (Found(OWN, 8, b"other content"), Verdict.ALTERED),
        (Found(OWN, 9, b"of the same chunk, which has no such record"), Verdict.ALTERED),
        (Found(TopicPartition("orders", 1), 99, b""), Verdict.ELSEWHERE),
        (Found(None, 99, b""), Verdict.FOREIGN),
    ],
)
def test_anything_else_is_wrong(found: Found | None, verdict: Verdict) -> None:
    store = Store((b"b", sent(CHUNK[1])), *([(b"a", found)] if found else []))
    assert compared(store)[1] == [str(verdict)]


def test_a_record_that_was_set_aside_and_retried_is_newer() -> None:
    aside = FailedRecord(offset=9, kind="refused", reason="", error="", size=1, key_digest="", digest="")
    receipt = replace(receipt_of(CHUNK), failures=(aside,), skipped=1)
    store = Store((b"b", sent(CHUNK[1])), (b"a", sent(record(9, b"a"))))
    assert compared(store, receipt=receipt)[1] == []


def test_what_compaction_removed_at_the_source_is_superseded() -> None:
    store = Store((b"a", sent(CHUNK[2])), (b"b", sent(record(17, b"b"))))
    comparison, wrong = compared(store, made=[CHUNK[2]])
    assert not wrong and not comparison.is_another
    assert (comparison.compacted, comparison.superseded) == (2, 2)


def test_as_many_other_records_are_another_chunk() -> None:
    comparison, _ = compared(Store(), made=[*CHUNK[:2], record(8, b"a", b"impure")])
    assert comparison.is_another


def test_without_the_source_only_a_chunk_of_which_all_is_there_is_proven() -> None:
    placement = receipt_of(CHUNK).placement
    assert isinstance(placement, NewestByKey)
    there = Store((b"a", sent(CHUNK[2])), (b"b", sent(CHUNK[1])))
    assert stands_alone(placement, there)
    there.found[b"b"] = sent(record(6, b"b", b"changed"))
    assert not stands_alone(placement, there)
    there.found[b"b"] = sent(record(17, b"b"))
    assert not stands_alone(placement, there)


class Reader(Store):
    """The same as what verification reads."""

    def read(self, part: Part, digest: Digest | None) -> PartDigest:
        raise AssertionError("there are no places")

    def quarantined(self, failed: FailedRecord) -> bool:
        return True


@dataclass
class Source:
    """What the source shows; None if it has lost the offsets."""

    records: Sequence[Rec] | None

    def source_digest(self, wanted: OffsetRange, digest: Fingerprint) -> PartDigest:
        raise AssertionError("the keys are needed")

    def written(self, receipt: Receipt, change: Change) -> NewestRecords:
        if self.records is None:
            raise GapFound("the offsets are gone", "")
        return NewestRecords.of(made for one in self.records for made in change(one))


def verified(store: Reader, source: Sequence[Rec] | None, receipt: Receipt | None = None) -> VerifyResult:
    task = VerifyTask(KEY, (receipt or receipt_of(CHUNK),), "digest")
    return verify(task, store, lambda: cast("Sides", Source(source)))


ALL_THERE = (b"a", sent(CHUNK[2])), (b"b", sent(CHUNK[1]))
B_NEWER = (b"a", sent(CHUNK[2])), (b"b", sent(record(17, b"b")))


def test_what_was_copied_is_verified_and_superseded_records_are_counted() -> None:
    for store, count in ((ALL_THERE, 1), (B_NEWER, 2)):
        result = verified(Reader(*store), CHUNK)
        assert (result.error, result.superseded, list(result.verified)) == (None, count, [OffsetRange(5, 10)])
        assert result.judged[0].noted(receipt_of(CHUNK)).superseded == count


def test_a_source_that_lost_the_chunk_proves_it_only_if_all_of_it_is_there() -> None:
    assert verified(Reader(*ALL_THERE), None).error is None
    assert "unverifiable" in (verified(Reader(*B_NEWER), None).error or "")


def test_another_transform_than_that_of_the_copy_proves_nothing() -> None:
    receipt = replace(receipt_of(CHUNK), transform=Transform("filter", "0"))
    assert verified(Reader(*ALL_THERE), CHUNK, receipt).error is None
    assert "unverifiable" in (verified(Reader(*B_NEWER), CHUNK, receipt).error or "")


def test_a_source_that_shows_other_records_is_named() -> None:
    changed = [*CHUNK[:2], record(8, b"a", b"impure")]
    assert "another digest" in (verified(Reader(*ALL_THERE), changed).error or "")


def test_a_record_that_is_missing_is_named() -> None:
    result = verified(Reader(ALL_THERE[0]), CHUNK)
    assert "offset 6: nothing is there" in (result.error or "") and not result.verified


numbers = st.tuples(st.integers(1, MOST_GENERATION), st.integers(0, MOST_OFFSET))


@given(numbers, numbers)
def test_versions_have_the_order_of_generation_and_offset(one: tuple[int, int], other: tuple[int, int]) -> None:
    assert (version(*one) < version(*other)) == (one < other)
    assert 0 < version(*one) < 1 << 63


@pytest.mark.parametrize(("generation", "offset"), [(0, 0), (1, -1), (1, MOST_OFFSET + 1), (MOST_GENERATION + 1, 0)])
def test_numbers_that_are_too_large_have_no_version(generation: int, offset: int) -> None:
    with pytest.raises(ValueError, match="too large"):
        version(generation, offset)


def test_keys_have_the_partition_that_clients_choose() -> None:
    """As kafka-clients 4 (`Utils.toPositive(Utils.murmur2(key)) % 7`) and librdkafka (`rd_crc32(key) % 7`) do."""
    keys = [b"", b"k7", b"customer-17", b"\xff\x00"]
    assert [partition_of_key("murmur2", key, 7) for key in keys] == [2, 3, 6, 5]
    assert [partition_of_key("crc32", key, 7) for key in keys] == [0, 3, 4, 0]
