"""The JSON of ledger entries: every version stays readable, and what cannot be read is refused by name."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_replication.ledger import codec
from kafka_replication.ledger.entries import (
    GAP_KINDS,
    Entry,
    Gap,
    Ids,
    KafkaSegments,
    MappedOffset,
    Position,
    Receipt,
    Segment,
    Transform,
    UnknownPlacement,
    Verified,
)
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.errors import LedgerUnreadable
from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.offsets import MAX_OFFSET, Coverage, OffsetRange, TopicPartition
from tests.golden.ledger_entries import FILES, FOLDER, GOLDEN, POSITIONS, RECEIPT, VERIFIED, golden, kind_of

KEY = PartitionKey("orders-dr", TopicPartition("orders", 3), "dr.orders")
LEVELS = ("digest", "count")
DECODERS: dict[str, Callable[[bytes], Entry]] = {
    "position": codec.decode_position,
    "verified": codec.decode_verified,
    "gap": codec.decode_gap,
    "receipt": codec.decode_receipt,
}
WRITTEN = {"position": 1, "verified": 1, "gap": 1, "receipt": 2}  # the version of each kind that is written
LAST_FILES = {"position": "position", "verified": "verified", "gap": "gap-retention", "receipt": "receipt"}


def decode(kind: str, value: Any) -> Entry:
    return DECODERS[kind](value if isinstance(value, bytes) else json.dumps(value).encode())


# Golden files: a ledger written by any release must stay readable.


def test_no_golden_file_is_left_out() -> None:
    assert {(int(file.parent.name), file.stem) for file in FOLDER.glob("*/*.json")} == set(FILES)


@pytest.mark.parametrize(("version", "name"), FILES)
def test_a_golden_file_is_read_as_its_entry(version: int, name: str) -> None:
    assert decode(kind_of(name), golden(version, name)) == GOLDEN[version][name]


@pytest.mark.parametrize(("version", "name"), FILES)
def test_an_entry_is_written_in_the_newest_version_of_its_kind(version: int, name: str) -> None:
    newest, entry = WRITTEN[kind_of(name)], GOLDEN[version][name]
    written = codec.encode(entry)
    assert json.loads(written)["format"] == newest
    if version == newest:
        assert written == golden(version, name)
    else:
        assert decode(kind_of(name), written) == entry


def test_every_version_of_every_kind_has_a_golden_file() -> None:
    known = {(version, kind) for kind, versions in codec.FORMATS.items() for version in versions}
    assert known == {(version, kind_of(name)) for version, name in FILES}
    assert {kind: max(versions) for kind, versions in codec.FORMATS.items()} == WRITTEN


# Round trips.

TEXT = st.text(max_size=6)
OFFSET = st.integers(0, MAX_OFFSET)
RANGES = st.tuples(OFFSET, OFFSET).map(lambda pair: OffsetRange(min(pair), max(pair)))
COVERAGES = st.lists(RANGES, max_size=4).map(Coverage.of)
IDS_ANY = st.builds(Ids, TEXT, TEXT, TEXT)
ANY_POSITION = st.builds(
    Position,
    generation=OFFSET,
    ids=IDS_ANY,
    start=OFFSET,
    next_offset=OFFSET,
    coverage=COVERAGES,
    leader_epoch=st.none() | st.integers(0, 2**31 - 1),
    target_end=OFFSET,
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
    kind=st.sampled_from(GAP_KINDS),
    range=RANGES.filter(lambda each: each.span > 0),
    reason=TEXT,
    approved_by=TEXT,
    ids=IDS_ANY,
    run_id=TEXT,
    time=TEXT,
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
    inside = st.integers(old.range.from_, old.range.until - 1) if old.range.span else st.nothing()
    offsets = sorted(draw(st.just(set()) | st.sets(inside, min_size=1, max_size=3)))
    return replace(
        old,
        placement=draw(OTHER_SINK | st.just(old.placement)),
        filtered=draw(OFFSET),
        quarantined=draw(OFFSET),
        skipped=draw(OFFSET),
        transform=draw(st.none() | st.builds(Transform, TEXT, TEXT)),
        offset_map=tuple(MappedOffset(offset, draw(OFFSET), draw(OFFSET)) for offset in offsets),
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


@given(OLD_RECEIPT, EXTRA)
def test_a_receipt_of_format_1_survives_its_codec(receipt: Receipt, extra: Mapping[str, Any]) -> None:
    """No release writes this version any more, so it is spelled out here."""
    content = {
        "type": "receipt",
        "format": 1,
        "range": [receipt.range.from_, receipt.range.until],
        "segments": [asdict(segment) for segment in receipt.segments],
        "ids": asdict(receipt.ids),
    } | {name: getattr(receipt, name) for name in ("generation", "count", "bytes", "digest", "digest_kind")}
    content |= {name: getattr(receipt, name) for name in ("engine", "run_id", "time")} | dict(extra)
    assert decode("receipt", content) == replace(receipt, extra=extra)


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
    moved = newer_position().after(OffsetRange(12, 15), 4, 102)
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
    entry = view.verified_with(KEY, 1, more, level="count", run_id="run-2", time="later")
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
    entry = view.verified_with(KEY, 2, more, level="digest", run_id="run-2", time="later")
    assert entry == Verified(generation=2, coverage=more, level="digest", run_id="run-2", time="later")


def test_what_was_once_only_counted_stays_so() -> None:
    counted = replace(VERIFIED["verified"], level="count")
    entry = LedgerView(verified={KEY: counted}).verified_with(
        KEY, 1, Coverage(), level="digest", run_id="run-2", time="later"
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


def test_a_placement_of_another_kind_is_kept_and_refused_by_name_where_its_segments_are_needed() -> None:
    receipt = codec.decode_receipt(golden(2, "receipt-of-another-sink"))
    assert (receipt.count, receipt.range) == (10, OffsetRange(0, 10))
    with pytest.raises(LedgerUnreadable) as caught:
        assert receipt.segments
    assert "[0, 10)" in caught.value.what
    assert "'index'" in caught.value.what
    assert "upgrade" in caught.value.remedy


@pytest.mark.parametrize(
    "offsets", [[(7, 0), (6, 1)], [(7, 0), (7, 1)], [(4, 0)], [(12, 0)]], ids=["falling", "twice", "below", "above"]
)
def test_an_offset_map_rises_within_its_range(offsets: list[tuple[int, int]]) -> None:
    with pytest.raises(ValueError, match="offset map"):
        replace(RECEIPT, offset_map=tuple(MappedOffset(source, 3, target) for source, target in offsets))


# Refusals.


@pytest.mark.parametrize("kind", WRITTEN)
@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"7", b"null", b"[]", b'"x"', b"{}", b'{"format":1}', b'{"type":"position"}', b"\xff\xfe", b"\x00"],
)
def test_what_is_no_entry_is_refused_and_shown(kind: str, data: bytes) -> None:
    with pytest.raises(LedgerUnreadable) as caught:
        decode(kind, data)
    assert caught.value.what == f"a ledger entry is not readable: {data!r}"
    assert "only this product may write the ledger topics" in caught.value.remedy


@pytest.mark.parametrize(
    ("kind", "found"), [("position", "verified"), ("verified", "receipt"), ("receipt", "gap"), ("gap", "position")]
)
def test_an_entry_of_another_type_is_refused(kind: str, found: str) -> None:
    with pytest.raises(LedgerUnreadable, match=f"a ledger entry is a '{found}' where a {kind} belongs"):
        decode(kind, golden(1, LAST_FILES[found]))


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
    "segments that are none": ("receipt", setting("placement", "segments", to=None)),
    "segment without digest": ("receipt", without("placement", "segments", 0, "digest")),
    "segment with text": ("receipt", setting("placement", "segments", 0, "last", to="95")),
    "segment that is a list": ("receipt", setting("placement", "segments", 0, to=[1, 2])),
    "segments with one more field": ("receipt", setting("placement", "topic", to="x")),
    "a placement without kind": ("receipt", without("placement", "kind")),
    "a placement that is text": ("receipt", setting("placement", to="kafka-segments")),
    "a placement whose kind is a number": ("receipt", setting("placement", "kind", to=1)),
    "quarantined below zero": ("receipt", setting("quarantined", to=-1)),
    "skipped that is text": ("receipt", setting("skipped", to="0")),
    "a transform without hash": ("receipt", setting("transform", to={"name": "x"})),
    "an offset map of pairs": ("receipt", setting("offset_map", to=[[5, 90]])),
    "an offset map of text": ("receipt", setting("offset_map", to=[[5, 3, "90"]])),
    "an offset map below zero": ("receipt", setting("offset_map", to=[[5, 3, -1]])),
    "an offset map that falls": ("receipt", setting("offset_map", to=[[6, 3, 91], [5, 3, 90]])),
    "an offset map outside the range": ("receipt", setting("offset_map", to=[[12, 3, 90]])),
    "a format that is no version": ("receipt", setting("format", to=0)),
    "a level that does not exist": ("verified", setting("level", to="thorough")),
}


@pytest.mark.parametrize(("kind", "change"), WRONG.values(), ids=WRONG)
def test_a_malformed_entry_is_refused_and_shown(kind: str, change: Callable[[Any], None]) -> None:
    value = json.loads(golden(WRITTEN[kind], LAST_FILES[kind]))
    change(value)
    with pytest.raises(LedgerUnreadable, match=r"^a ledger entry is malformed \(.+\): b'\{\"") as caught:
        decode(kind, value)
    assert "only this product may write the ledger topics" in caught.value.remedy


@pytest.mark.parametrize(("version", "name"), FILES)
def test_every_field_of_a_version_is_required(version: int, name: str) -> None:
    """A default in its place could read a broken entry as another one."""
    content = json.loads(golden(version, name))
    for field in content.keys() - GOLDEN[version][name].extra.keys():
        with pytest.raises(LedgerUnreadable):
            decode(kind_of(name), {other: value for other, value in content.items() if other != field})


@pytest.mark.parametrize(
    "change",
    [
        without("segments"),
        without("digest_kind"),
        setting("segments", 0, "last", to=-1),
        setting("count", to=1.0),
        setting("ids", "one_more", to="x"),
    ],
)
def test_a_malformed_receipt_of_format_1_is_refused(change: Callable[[Any], None]) -> None:
    value = json.loads(golden(1, "receipt"))
    change(value)
    with pytest.raises(LedgerUnreadable, match="malformed"):
        decode("receipt", value)
