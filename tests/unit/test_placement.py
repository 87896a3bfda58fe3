"""Where the records of a chunk lie on the target, and how that is proven and told."""

from dataclasses import replace

import pytest

from kafka_replication.ledger.entries import Proof
from kafka_replication.ledger.placement import (
    KafkaPartitions,
    KafkaSegments,
    NewestByKey,
    Part,
    Placement,
    Segment,
    UnknownPlacement,
    chooser_of,
    described,
)
from kafka_replication.model.choices import BY_KEY, KEEP, PartitionedBy
from kafka_replication.model.errors import LedgerUnreadable
from kafka_replication.model.offsets import Coverage, OffsetRange
from tests.support.target_log import receipt_of

SPREAD = PartitionedBy(name=BY_KEY, hash="", partitions=4)
AT_KEYS = NewestByKey(partition=0, first=7, last=9, keys=2, digest="d")
RECEIPT = receipt_of(OffsetRange(5, 10), KafkaSegments())
A_PART = Part(partition=2, offsets=Coverage.of([OffsetRange(4, 6), OffsetRange(9, 10)]), count=3, digest="d")


def segments(*bounds: tuple[int, int, int]) -> KafkaSegments:
    """Each: first offset, last offset, number of records."""
    return KafkaSegments(
        tuple(Segment(partition=1, first=first, last=last, count=count, digest="d") for first, last, count in bounds)
    )


@pytest.mark.parametrize(
    ("placement", "numbers", "places"),
    [
        (segments((10, 12, 3)), [1, 0, 2], ["o-1 offset 10", "", "o-1 offset 11"]),
        (segments((5, 5, 1), (9, 9, 1)), [1, 1], ["o-1 offset 5", "o-1 offset 9"]),
        (segments((5, 9, 2)), [1, 1], ["o-1 offsets [5, 10)", "o-1 offsets [5, 10)"]),
        (KafkaSegments(), [0, 0], ["", ""]),
        (KafkaPartitions(SPREAD, (A_PART,)), [3, 0], ["o (by by_key)", ""]),
        (AT_KEYS, [1, 1], ["o (by its key)", "o (by its key)"]),
    ],
)
def test_the_place_of_a_retried_record_is_told_as_exactly_as_it_is_known(
    placement: Placement, numbers: list[int], places: list[str]
) -> None:
    assert described(placement, "o", numbers) == places


@pytest.mark.parametrize(
    ("placement", "after", "proof"),
    [
        (segments((5, 5, 1)), None, Proof.BY_TRANSACTION),
        (KafkaPartitions(SPREAD, (A_PART,)), None, Proof.BY_TRANSACTION),
        (segments((5, 5, 1)), 5, Proof.BY_WINDOW),
        (AT_KEYS, None, Proof.BY_KEY),
    ],
)
def test_a_chunk_is_proven_in_one_of_three_ways(placement: Placement, after: int | None, proof: Proof) -> None:
    receipt = replace(RECEIPT, placement=placement, after=after)
    assert receipt.proof is proof


def test_a_receipt_without_keys_names_its_range_when_it_is_asked_for_them() -> None:
    assert replace(RECEIPT, placement=AT_KEYS).newest is AT_KEYS
    receipt = replace(RECEIPT, placement=UnknownPlacement("rows", {}))
    with pytest.raises(LedgerUnreadable, match="the receipt of source offsets"):
        _ = receipt.newest


def test_only_records_that_do_not_keep_their_partition_have_a_chooser() -> None:
    kept = KafkaPartitions(replace(SPREAD, name=KEEP), (A_PART,))
    assert [chooser_of(one) for one in (segments(), kept, AT_KEYS, KafkaPartitions(SPREAD, ()))] == [
        None,
        None,
        None,
        SPREAD,
    ]
