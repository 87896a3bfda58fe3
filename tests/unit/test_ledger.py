"""The ledger's record keys, fixed to the byte, and how a position moves."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_replication.ledger import codec
from kafka_replication.ledger.entries import POSITIONS, RECEIPTS, Gap, Ids, Position, Receipt
from kafka_replication.ledger.placement import KafkaSegments, Segment
from kafka_replication.model.errors import LedgerUnreadable
from kafka_replication.model.offsets import (
    LEDGER_PARTITIONS,
    MAX_OFFSET,
    Coverage,
    OffsetRange,
    PartitionKey,
    TopicPartition,
)

KEY = PartitionKey("orders-dr", TopicPartition("orders", 3), "dr.orders")
IDS = Ids("src-cluster", "src-topic", "tgt-topic")
TIME = "2030-01-31T06:00:00.000Z"
POSITION = Position(
    generation=1,
    ids=IDS,
    start=5,
    next_offset=12,
    coverage=Coverage.of([OffsetRange(20, 30), OffsetRange(5, 12)]),
    leader_epoch=4,
    target_end=99,
)
GAP = Gap(
    generation=1,
    kind="retention",
    range=OffsetRange(12, 20),
    reason="too late",
    approved_by="ann",
    ids=IDS,
    run_id="run-1",
    time=TIME,
)
RECEIPT = Receipt(
    generation=1,
    range=OffsetRange(5, 12),
    count=6,
    bytes=420,
    digest="00ff",
    digest_kind="xxh3_128/1",
    engine="record/1",
    placement=KafkaSegments((Segment(partition=3, first=90, last=95, count=6, digest="00ff"),)),
    ids=IDS,
    run_id="run-1",
    time=TIME,
)


def test_the_names_of_the_ledger_topics_and_their_number_of_partitions() -> None:
    assert (POSITIONS, RECEIPTS, LEDGER_PARTITIONS) == (
        "kafka-replication.positions",
        "kafka-replication.receipts",
        16,
    )


def test_record_keys_are_these_bytes() -> None:
    assert KEY.entry("position") == b'["position","orders-dr","orders",3,"dr.orders"]'
    assert KEY.entry("verified") == b'["verified","orders-dr","orders",3,"dr.orders"]'
    assert codec.key_of(KEY, GAP) == b'["gap","orders-dr","orders",3,"dr.orders",1,12]'
    assert codec.key_of(KEY, RECEIPT) == b'["receipt","orders-dr","orders",3,"dr.orders",1,5]'


def test_the_transactional_id_is_the_documented_one() -> None:
    assert KEY.transactional_id == "kafka-replication/orders-dr/orders/3/dr.orders"


@pytest.mark.parametrize(
    ("key", "partition"),
    [
        (KEY, 13),
        (PartitionKey("r", TopicPartition("t", 0), "t"), 9),
        (PartitionKey("r", TopicPartition("t", 2), "t"), 6),
    ],
)
def test_a_key_stays_in_its_ledger_partition_for_ever(key: PartitionKey, partition: int) -> None:
    assert key.ledger_partition == partition


def test_a_key_names_its_target_and_prints_itself() -> None:
    assert KEY.target == TopicPartition("dr.orders", 3)
    assert str(KEY) == "orders-dr: orders-3 -> dr.orders"


def test_keys_of_one_replication_spread_over_all_ledger_partitions() -> None:
    used = {
        PartitionKey("orders-dr", TopicPartition("orders", number), "orders").ledger_partition for number in range(200)
    }
    assert used == set(range(LEDGER_PARTITIONS))


OFFSET = st.integers(0, MAX_OFFSET)
TOPIC = st.from_regex(r"[a-z0-9._-]{1,8}", fullmatch=True)
KEYS = st.builds(PartitionKey, TOPIC, st.builds(TopicPartition, TOPIC, st.integers(0, 2**31 - 1)), TOPIC)


@given(KEYS, OFFSET, OFFSET)
def test_keys_survive_their_codec(key: PartitionKey, generation: int, first: int) -> None:
    receipt = replace(RECEIPT, generation=generation, range=OffsetRange(first, first))
    assert codec.decode_key(key.entry("position")) == ("position", key, ())
    assert codec.decode_key(key.entry("verified")) == ("verified", key, ())
    assert codec.decode_key(codec.key_of(key, receipt)) == ("receipt", key, (generation, first))


@given(KEYS, KEYS)
def test_two_keys_never_share_a_record_key(one: PartitionKey, other: PartitionKey) -> None:
    assert (one.entry("position") == other.entry("position")) == (one == other)


# Refusals.


@pytest.mark.parametrize(
    "data",
    [
        None,
        b"",
        b"orders",
        b"{}",
        b"7",
        b'"abcdef"',
        b'{"a":1,"b":2,"c":3,"d":4,"e":5}',
        b'["position"]',
        b'["position","r","t",0]',
        b'["position","r","t","0","x"]',
        b'["position","r","t",-1,"x"]',
        b'["position","r","",0,"x"]',
        b'["position",7,"t",0,"x"]',
        b'["position","r","t",true,"x"]',
        b'[1,"r","t",0,"x"]',
        b'["receipt","r","t",0,"x","1"]',
        b'["receipt","r","t",0,"x",1.5]',
        b"\xff",
    ],
)
def test_a_foreign_key_is_refused_and_shown(data: bytes | None) -> None:
    with pytest.raises(LedgerUnreadable) as caught:
        codec.decode_key(data)
    assert caught.value.what == f"a ledger entry has the key {data!r}, which is not ours"
    assert "only this product may write the ledger topics" in caught.value.remedy


# Moving a position.


def test_a_copied_range_moves_the_position_to_its_end() -> None:
    moved = Position(generation=2, ids=IDS, start=5, next_offset=5).adding(OffsetRange(5, 12), 7, 40)
    assert moved == Position(
        generation=2,
        ids=IDS,
        start=5,
        next_offset=12,
        coverage=Coverage.of([OffsetRange(5, 12)]),
        leader_epoch=7,
        target_end=40,
    )


def test_a_range_copied_ahead_is_covered_and_moves_the_position_only_once_the_hole_is_closed() -> None:
    ahead = Position(generation=1, ids=IDS, start=0, next_offset=0).adding(OffsetRange(10, 20), 1, 10)
    assert (ahead.next_offset, str(ahead.coverage)) == (0, "[10, 20)")
    closed = ahead.adding(OffsetRange(0, 10), 1, 20)
    assert (closed.next_offset, str(closed.coverage)) == (20, "[0, 20)")


def test_an_empty_chunk_keeps_the_target_end_but_no_epoch_for_offsets_it_did_not_read() -> None:
    moved = POSITION.adding(OffsetRange(12, 15), None, 0)
    assert (moved.leader_epoch, moved.target_end, moved.next_offset) == (None, 99, 15)


def test_what_is_left_is_what_was_not_copied() -> None:
    assert POSITION.left_of(OffsetRange(0, 40)) == (OffsetRange(0, 5), OffsetRange(12, 20), OffsetRange(30, 40))
    assert POSITION.left_of(OffsetRange(5, 12)) == ()
