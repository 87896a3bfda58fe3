"""The ledger's formats: fixed to the byte, read back unchanged, and everything else refused by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_replication.ledger import entries as ledger
from kafka_replication.ledger.entries import GAP_KINDS, Gap, Ids, Position, Receipt, Segment, Verified
from kafka_replication.model.errors import LedgerUnreadable
from kafka_replication.model.keys import LEDGER_PARTITIONS, PartitionKey
from kafka_replication.model.offsets import MAX_OFFSET, Coverage, OffsetRange, TopicPartition

KEY = PartitionKey("orders-dr", TopicPartition("orders", 3), "dr.orders")
IDS = Ids("src-cluster", "src-topic", "tgt-topic")
TIME = "2030-01-31T06:00:00.000Z"
POSITION = Position(1, IDS, 5, 12, Coverage.of([OffsetRange(20, 30), OffsetRange(5, 12)]), 4, 99)
VERIFIED = Verified(1, Coverage.of([OffsetRange(5, 12)]), "digest", "run-1", TIME)
GAP = Gap(1, "retention", OffsetRange(12, 20), "too late", "ann", IDS, "run-1", TIME)
RECEIPT = Receipt(
    1,
    OffsetRange(5, 12),
    6,
    420,
    "00ff",
    "xxh3_128/1",
    "record/1",
    (Segment(3, 90, 95, 6, "00ff"),),
    IDS,
    "run-1",
    TIME,
)

DECODERS: dict[str, Callable[[bytes], Any]] = {
    "position": ledger.decode_position,
    "verified": ledger.decode_verified,
    "gap": ledger.decode_gap,
    "receipt": ledger.decode_receipt,
}
Entry = Position | Verified | Gap | Receipt
ENTRIES: dict[str, Entry] = {"position": POSITION, "verified": VERIFIED, "gap": GAP, "receipt": RECEIPT}

GOLDEN = {
    "position": b'{"coverage":[[5,12],[20,30]],"format":1,"generation":1,'
    b'"ids":{"source_cluster":"src-cluster","source_topic":"src-topic","target_topic":"tgt-topic"},'
    b'"leader_epoch":4,"next_offset":12,"start":5,"target_end":99,"type":"position"}',
    "verified": b'{"coverage":[[5,12]],"format":1,"generation":1,"level":"digest","run_id":"run-1",'
    b'"time":"2030-01-31T06:00:00.000Z","type":"verified"}',
    "gap": b'{"approved_by":"ann","format":1,"generation":1,'
    b'"ids":{"source_cluster":"src-cluster","source_topic":"src-topic","target_topic":"tgt-topic"},"kind":"retention","range":[12,20],'
    b'"reason":"too late","run_id":"run-1","time":"2030-01-31T06:00:00.000Z","type":"gap"}',
    "receipt": b'{"bytes":420,"count":6,"digest":"00ff","digest_kind":"xxh3_128/1","engine":"record/1","format":1,"generation":1,'
    b'"ids":{"source_cluster":"src-cluster","source_topic":"src-topic","target_topic":"tgt-topic"},"range":[5,12],"run_id":"run-1",'
    b'"segments":[{"count":6,"digest":"00ff","first":90,"last":95,"partition":3}],"time":"2030-01-31T06:00:00.000Z","type":"receipt"}',
}


# Golden bytes: a ledger written by any release must stay readable. Never correct these; give the format a new number.


@pytest.mark.parametrize("kind", ENTRIES)
def test_an_entry_is_written_as_these_bytes(kind: str) -> None:
    assert ledger.encode(ENTRIES[kind]) == GOLDEN[kind]


@pytest.mark.parametrize("kind", ENTRIES)
def test_these_bytes_are_read_as_this_entry(kind: str) -> None:
    assert DECODERS[kind](GOLDEN[kind]) == ENTRIES[kind]


def test_a_fresh_position_is_written_as_these_bytes() -> None:
    assert ledger.encode(Position(1, IDS, 0, 0)) == (
        b'{"coverage":[],"format":1,"generation":1,'
        b'"ids":{"source_cluster":"src-cluster","source_topic":"src-topic","target_topic":"tgt-topic"},'
        b'"leader_epoch":null,"next_offset":0,"start":0,"target_end":0,"type":"position"}'
    )


def test_the_names_of_the_ledger_topics_and_their_number_of_partitions() -> None:
    assert (ledger.POSITIONS, ledger.RECEIPTS, LEDGER_PARTITIONS) == (
        "kafka-replication.positions",
        "kafka-replication.receipts",
        16,
    )


def test_record_keys_are_these_bytes() -> None:
    assert ledger.position_key(KEY) == b'["position","orders-dr","orders",3,"dr.orders"]'
    assert ledger.verified_key(KEY) == b'["verified","orders-dr","orders",3,"dr.orders"]'
    assert ledger.gap_key(KEY, GAP) == b'["gap","orders-dr","orders",3,"dr.orders",1,12]'
    assert ledger.receipt_key(KEY, RECEIPT) == b'["receipt","orders-dr","orders",3,"dr.orders",1,5]'


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


# Round trips.

TEXT = st.text(max_size=6)
OFFSET = st.integers(0, MAX_OFFSET)
TOPIC = st.from_regex(r"[a-z0-9._-]{1,8}", fullmatch=True)
KEYS = st.builds(PartitionKey, TOPIC, st.builds(TopicPartition, TOPIC, st.integers(0, 2**31 - 1)), TOPIC)
RANGES = st.tuples(OFFSET, OFFSET).map(lambda pair: OffsetRange(min(pair), max(pair)))
COVERAGES = st.lists(RANGES, max_size=4).map(Coverage.of)
IDS_ANY = st.builds(Ids, TEXT, TEXT, TEXT)
POSITIONS = st.builds(
    Position, OFFSET, IDS_ANY, OFFSET, OFFSET, COVERAGES, st.none() | st.integers(0, 2**31 - 1), OFFSET
)
VERIFIEDS = st.builds(Verified, OFFSET, COVERAGES, TEXT, TEXT, TEXT)
SEGMENTS = st.lists(st.builds(Segment, OFFSET, OFFSET, OFFSET, OFFSET, TEXT), max_size=3).map(tuple)
GAPS = st.builds(
    Gap, OFFSET, st.sampled_from(GAP_KINDS), RANGES.filter(lambda each: each.span > 0), TEXT, TEXT, IDS_ANY, TEXT, TEXT
)
RECEIPTS = st.builds(Receipt, OFFSET, RANGES, OFFSET, OFFSET, TEXT, TEXT, TEXT, SEGMENTS, IDS_ANY, TEXT, TEXT)


@given(POSITIONS, VERIFIEDS, GAPS, RECEIPTS)
def test_entries_survive_their_codec(position: Position, verified: Verified, gap: Gap, receipt: Receipt) -> None:
    assert ledger.decode_gap(ledger.encode(gap)) == gap
    assert ledger.decode_position(ledger.encode(position)) == position
    assert ledger.decode_verified(ledger.encode(verified)) == verified
    assert ledger.decode_receipt(ledger.encode(receipt)) == receipt


@given(KEYS, OFFSET, OFFSET)
def test_keys_survive_their_codec(key: PartitionKey, generation: int, first: int) -> None:
    receipt = replace(RECEIPT, generation=generation, range=OffsetRange(first, first))
    assert ledger.decode_key(ledger.position_key(key)) == ("position", key, ())
    assert ledger.decode_key(ledger.verified_key(key)) == ("verified", key, ())
    assert ledger.decode_key(ledger.receipt_key(key, receipt)) == ("receipt", key, (generation, first))


@given(KEYS, KEYS)
def test_two_keys_never_share_a_record_key(one: PartitionKey, other: PartitionKey) -> None:
    assert (ledger.position_key(one) == ledger.position_key(other)) == (one == other)


# Refusals.


@pytest.mark.parametrize("kind", ENTRIES)
def test_a_newer_format_is_refused_by_name(kind: str) -> None:
    newer = GOLDEN[kind].replace(b'"format":1', b'"format":2').replace(b'"generation"', b'"age"')
    with pytest.raises(LedgerUnreadable) as caught:
        DECODERS[kind](newer)
    assert caught.value.what == f"a ledger {kind} has format 2, this version knows 1"
    assert caught.value.remedy == "upgrade this installation"


@pytest.mark.parametrize("kind", ENTRIES)
@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"7", b"null", b"[]", b'"x"', b"{}", b'{"format":1}', b'{"type":"position"}', b"\xff\xfe", b"\x00"],
)
def test_what_is_no_entry_is_refused_and_shown(kind: str, data: bytes) -> None:
    with pytest.raises(LedgerUnreadable) as caught:
        DECODERS[kind](data)
    assert caught.value.what == f"a ledger entry is not readable: {data!r}"
    assert "only this product may write the ledger topics" in caught.value.remedy


@pytest.mark.parametrize(
    ("kind", "found"), [("position", "verified"), ("verified", "receipt"), ("receipt", "gap"), ("gap", "position")]
)
def test_an_entry_of_another_type_is_refused(kind: str, found: str) -> None:
    with pytest.raises(LedgerUnreadable, match=f"a ledger entry is a '{found}' where a {kind} belongs"):
        DECODERS[kind](GOLDEN[found])


def without(*path: Any) -> Callable[[Any], None]:
    def change(value: Any) -> None:
        for step in path[:-1]:
            value = value[step]
        del value[path[-1]]

    return change


def setting(*path: Any, to: Any) -> Callable[[Any], None]:
    def change(value: Any) -> None:
        for step in path[:-1]:
            value = value[step]
        value[path[-1]] = to

    return change


WRONG = {
    "unknown field": ("position", setting("next", to=1)),
    "missing field": ("position", without("next_offset")),
    # A default in its place would read a broken entry as another position: no foreign writer would be noticed.
    "missing field with a default": ("position", without("target_end")),
    "missing epoch": ("position", without("leader_epoch")),
    "text for a number": ("position", setting("next_offset", to="12")),
    "null for a number": ("position", setting("next_offset", to=None)),
    "true for a number": ("position", setting("generation", to=True)),
    "a fraction": ("position", setting("start", to=1.5)),
    "below zero": ("position", setting("start", to=-1)),
    "text for an epoch": ("position", setting("leader_epoch", to="4")),
    "coverage backwards": ("position", setting("coverage", to=[[12, 5]])),
    "coverage of one number": ("position", setting("coverage", to=[[12]])),
    "coverage of text": ("position", setting("coverage", to=["12"])),
    "coverage that is none": ("verified", setting("coverage", to=None)),
    "no level": ("verified", without("level")),
    "a number for a run": ("verified", setting("run_id", to=7)),
    "ids that are text": ("position", setting("ids", to="abc")),
    "ids without one": ("position", without("ids", "target_topic")),
    "ids with one more": ("position", setting("ids", "target_cluster", to="x")),
    "an id that is null": ("receipt", setting("ids", "source_topic", to=None)),
    "range backwards": ("receipt", setting("range", to=[12, 5])),
    "range of three": ("receipt", setting("range", to=[1, 2, 3])),
    "range of text": ("receipt", setting("range", to="12")),
    "range of fractions": ("receipt", setting("range", to=[1.5, 2.5])),
    "an empty gap": ("gap", setting("range", to=[12, 12])),
    "a gap of another kind": ("gap", setting("kind", to="whim")),
    "a gap without a reason": ("gap", without("reason")),
    "a gap that nobody approved": ("gap", setting("approved_by", to=None)),
    "segments that are none": ("receipt", setting("segments", to=None)),
    "segment without digest": ("receipt", without("segments", 0, "digest")),
    "segment with text": ("receipt", setting("segments", 0, "last", to="95")),
    "segment that is a list": ("receipt", setting("segments", 0, to=[1, 2])),
}


@pytest.mark.parametrize(("kind", "change"), WRONG.values(), ids=WRONG)
def test_a_malformed_entry_is_refused_and_shown(kind: str, change: Callable[[Any], None]) -> None:
    value = json.loads(GOLDEN[kind])
    change(value)
    with pytest.raises(LedgerUnreadable, match=r"^a ledger entry is malformed \(.+\): b'\{\"") as caught:
        DECODERS[kind](json.dumps(value).encode())
    assert "only this product may write the ledger topics" in caught.value.remedy


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
        ledger.decode_key(data)
    assert caught.value.what == f"a ledger entry has the key {data!r}, which is not ours"
    assert "only this product may write the ledger topics" in caught.value.remedy


# Moving a position.


def test_a_copied_range_moves_the_position_to_its_end() -> None:
    moved = Position(2, IDS, 5, 5).after(OffsetRange(5, 12), 7, 40)
    assert moved == Position(2, IDS, 5, 12, Coverage.of([OffsetRange(5, 12)]), 7, 40)


def test_a_range_copied_ahead_is_covered_and_moves_the_position_only_once_the_hole_is_closed() -> None:
    ahead = Position(1, IDS, 0, 0).after(OffsetRange(10, 20), 1, 10)
    assert (ahead.next_offset, str(ahead.coverage)) == (0, "[10, 20)")
    closed = ahead.after(OffsetRange(0, 10), 1, 20)
    assert (closed.next_offset, str(closed.coverage)) == (20, "[0, 20)")


def test_an_empty_chunk_keeps_the_target_end_but_no_epoch_for_offsets_it_did_not_read() -> None:
    moved = POSITION.after(OffsetRange(12, 15), None, 0)
    assert (moved.leader_epoch, moved.target_end, moved.next_offset) == (None, 99, 15)


def test_what_is_left_is_what_was_not_copied() -> None:
    assert POSITION.left_of(OffsetRange(0, 40)) == (OffsetRange(0, 5), OffsetRange(12, 20), OffsetRange(30, 40))
    assert POSITION.left_of(OffsetRange(5, 12)) == ()
