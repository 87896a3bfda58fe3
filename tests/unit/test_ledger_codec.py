"""The JSON of ledger entries: every version stays readable, and unknown optional content is kept."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_replication.ledger import codec
from kafka_replication.ledger.entries import GAP_KINDS, Gap, Ids, Position, Receipt, Returned, Transform, Verified
from kafka_replication.ledger.offset_map import AdoptedPlaces
from kafka_replication.ledger.placement import (
    KafkaPartitions,
    KafkaSegments,
    Part,
    Segment,
    SpreadEnds,
    UnknownPlacement,
)
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.choices import PartitionedBy
from kafka_replication.model.errors import LedgerUnreadable
from kafka_replication.model.offsets import MAX_OFFSET, Coverage, OffsetRange, PartitionKey, TopicPartition
from tests.golden.first_entries import POSITIONS, VERIFIED
from tests.golden.ledger_entries import FILES, FOLDER, GOLDEN, decode, golden, kind_of

KEY = PartitionKey("orders-dr", TopicPartition("orders", 3), "dr.orders")
LEVELS = ("digest", "count")
WRITTEN = dict.fromkeys(codec.KINDS, 1)  # the version of each kind that is written
# Golden files: a ledger written by any release must stay readable.


def test_no_golden_file_is_left_out() -> None:
    assert {(int(file.parent.name), file.stem) for file in FOLDER.glob("*/*.json")} == set(FILES)


@pytest.mark.parametrize(("version", "name"), FILES)
def test_a_golden_file_is_read_as_its_entry(version: int, name: str) -> None:
    assert decode(kind_of(name), golden(version, name)) == GOLDEN[version][name]


@pytest.mark.parametrize(("version", "name"), FILES)
def test_an_entry_is_written_in_the_newest_version_of_its_kind(version: int, name: str) -> None:
    assert version == WRITTEN[kind_of(name)]
    assert codec.encode(GOLDEN[version][name]) == golden(version, name)


def test_every_version_of_every_kind_has_a_golden_file() -> None:
    known = {(entry.FORMAT, kind) for kind, entry in codec.KINDS.items()}
    assert known == {(version, kind_of(name)) for version, name in FILES}
    assert {kind: entry.FORMAT for kind, entry in codec.KINDS.items()} == WRITTEN


# Round trips.

TEXT = st.text(max_size=6)
OFFSET = st.integers(0, MAX_OFFSET)
RANGES = st.tuples(OFFSET, OFFSET).map(lambda pair: OffsetRange(min(pair), max(pair)))
COVERAGES = st.lists(RANGES, max_size=4).map(Coverage.of)
IDS_ANY = st.builds(Ids, TEXT, TEXT, TEXT)
NUMBER = st.integers(0, 2)
BY = st.builds(PartitionedBy, name=TEXT, hash=TEXT, partitions=st.just(3))
PARTS = st.lists(
    st.builds(Part, partition=NUMBER, offsets=COVERAGES.filter(bool), count=OFFSET, digest=TEXT), max_size=3
).map(tuple)
SPREADS = st.builds(SpreadEnds, BY, st.tuples(OFFSET, OFFSET, OFFSET))
ANY_POSITION = st.builds(
    Position,
    generation=OFFSET,
    ids=IDS_ANY,
    start=OFFSET,
    next_offset=OFFSET,
    coverage=COVERAGES,
    leader_epoch=st.none() | st.integers(0, 2**31 - 1),
    target_end=OFFSET,
    spread=st.none() | SPREADS,
)
ANY_VERIFIED = st.builds(
    Verified, generation=OFFSET, coverage=COVERAGES, level=st.sampled_from(LEVELS), run_id=TEXT, time=TEXT
)
SEGMENTS = st.lists(
    st.builds(Segment, partition=OFFSET, first=OFFSET, last=OFFSET, count=OFFSET, digest=TEXT), max_size=3
).map(tuple)
ANY_GAP = st.builds(
    Gap,
    generation=OFFSET,
    kind=st.sampled_from([kind for kind in GAP_KINDS if kind != "returned"]),
    range=RANGES.filter(lambda each: each.span > 0),
    reason=TEXT,
    approved_by=TEXT,
    ids=IDS_ANY,
    run_id=TEXT,
    time=TEXT,
)
ANY_GAP |= st.builds(
    Gap,
    generation=OFFSET,
    kind=st.just("returned"),
    range=RANGES,
    reason=TEXT,
    approved_by=TEXT,
    ids=IDS_ANY,
    run_id=TEXT,
    time=TEXT,
    returned=st.builds(Returned, seal=TEXT, target=RANGES, surplus=COVERAGES, places=st.builds(AdoptedPlaces, TEXT)),
)
OLD_RECEIPT = st.builds(
    Receipt,
    generation=OFFSET,
    range=RANGES,
    count=OFFSET,
    bytes=OFFSET,
    digest=TEXT,
    digest_kind=TEXT,
    engine=TEXT,
    placement=SEGMENTS.map(KafkaSegments),
    ids=IDS_ANY,
    run_id=TEXT,
    time=TEXT,
)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXT, inner, max_size=2),
    max_leaves=4,
)
EXTRA = st.dictionaries(TEXT.map(lambda name: f"x-{name}"), JSON, max_size=3)
OTHER_SINK = st.builds(UnknownPlacement, TEXT.map(lambda name: f"x-{name}"), EXTRA)


@st.composite
def new_receipts(draw: st.DrawFn) -> Receipt:
    old = draw(OLD_RECEIPT)
    return replace(
        old,
        placement=draw(OTHER_SINK | st.just(old.placement) | st.builds(KafkaPartitions, BY, PARTS)),
        filtered=draw(OFFSET),
        quarantined=draw(OFFSET),
        skipped=draw(OFFSET),
        transform=draw(st.none() | st.builds(Transform, TEXT, TEXT)),
        throttled=draw(st.floats(0, 1e6)),
    )


ENTRIES: dict[str, st.SearchStrategy[Any]] = {
    "position": ANY_POSITION,
    "verified": ANY_VERIFIED,
    "gap": ANY_GAP,
    "receipt": new_receipts(),
}


@pytest.mark.parametrize("kind", ENTRIES)
@given(data=st.data())
def test_an_entry_survives_its_codec_with_what_it_does_not_know(kind: str, data: st.DataObject) -> None:
    entry = replace(data.draw(ENTRIES[kind]), extra=data.draw(EXTRA))
    assert decode(kind, codec.encode(entry)) == entry


# What this version does not know.

NEWER = {"written_by": "9.9", "hint": {"offset": 7}}


def newer_position() -> Position:
    entry = decode("position", json.loads(golden(1, "position")) | NEWER)
    assert isinstance(entry, Position)
    return entry


def newer_verified() -> Verified:
    entry = decode("verified", json.loads(golden(1, "verified")) | NEWER)
    assert isinstance(entry, Verified)
    return entry


def test_unknown_optional_fields_change_nothing_that_is_known() -> None:
    assert newer_position() == replace(POSITIONS["position"], extra=NEWER)


def test_unknown_optional_fields_survive_that_a_position_moves() -> None:
    moved = newer_position().adding(OffsetRange(12, 15), 4, 102)
    assert json.loads(codec.encode(moved)) == {
        **json.loads(golden(1, "position")),
        **NEWER,
        "next_offset": 15,
        "coverage": [[5, 15]],
        "target_end": 102,
    }


def test_unknown_optional_fields_survive_that_more_is_verified() -> None:
    view = LedgerView(verified={KEY: newer_verified()})
    more = Coverage.of([OffsetRange(12, 15)])
    entry = view.of(KEY, 1).verified_with(more, level="count", run_id="run-2", time="later")
    assert json.loads(codec.encode(entry)) == {
        **json.loads(golden(1, "verified")),
        **NEWER,
        "coverage": [[5, 15]],
        "level": "count",
        "run_id": "run-2",
        "time": "later",
    }


def test_a_new_generation_starts_without_what_was_known_of_the_earlier_one() -> None:
    view = LedgerView(verified={KEY: newer_verified()})
    more = Coverage.of([OffsetRange(0, 3)])
    entry = view.of(KEY, 2).verified_with(more, level="digest", run_id="run-2", time="later")
    assert entry == Verified(generation=2, coverage=more, level="digest", run_id="run-2", time="later")


def test_what_was_once_only_counted_stays_so() -> None:
    counted = replace(VERIFIED["verified"], level="count")
    entry = (
        LedgerView(verified={KEY: counted})
        .of(KEY, 1)
        .verified_with(Coverage(), level="digest", run_id="run-2", time="later")
    )
    assert entry.level == "count"


def test_a_field_that_is_known_wins_over_one_that_was_kept() -> None:
    entry = replace(POSITIONS["position"], extra={"format": 9, "type": "gap", "next_offset": 0})
    assert codec.encode(entry) == golden(1, "position")


@pytest.mark.parametrize("kind", WRITTEN)
@pytest.mark.parametrize("ahead", [1, 7])
def test_a_newer_version_of_a_kind_is_refused_by_name(kind: str, ahead: int) -> None:
    newest = WRITTEN[kind]
    with pytest.raises(LedgerUnreadable) as caught:
        decode(kind, {"type": kind, "format": newest + ahead, "whatever": 1})
    for part in (kind, f"format {newest + ahead}", f"up to {newest}"):
        assert part in caught.value.what
    assert "upgrade" in caught.value.remedy


def test_a_placement_of_another_kind_is_kept_and_refused_by_name_where_its_parts_are_needed() -> None:
    receipt = codec.decode(Receipt, golden(1, "receipt-of-another-sink"))
    assert (receipt.count, receipt.range) == (10, OffsetRange(0, 10))
    with pytest.raises(LedgerUnreadable) as caught:
        assert receipt.parts
    assert "[0, 10)" in caught.value.what
    assert "'index'" in caught.value.what
    assert "upgrade" in caught.value.remedy
