"""What counts as verified: receipts without hole or overlap, and a copy that equals them."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_replication.ledger.entries import FailedRecord, Ids, Place, Receipt
from kafka_replication.ledger.placement import KafkaSegments, Part, Segment, UnknownPlacement
from kafka_replication.model.errors import Stalled, VerificationFailed
from kafka_replication.model.offsets import Coverage, OffsetRange, PartitionKey, TopicPartition
from kafka_replication.verification import digests
from kafka_replication.verification.digests import DIGEST_KIND, Digest, Fingerprint
from kafka_replication.verification.verify import PartDigest, VerifyTask, select_receipts, verify

KEY = PartitionKey("orders-dr", TopicPartition("orders", 3), "dr.orders")
IDS = Ids("SRC", "s", "t")
AUDIT = "another program changed the receipts topic: compare source and target (kafka-replication audit) first"


def receipt(from_: int, until: int, *segments: Segment, count: int | None = None) -> Receipt:
    total = sum(each.count for each in segments) if count is None else count
    return Receipt(
        generation=1,
        range=OffsetRange(from_, until),
        count=total,
        bytes=10 * total,
        digest="all",
        digest_kind=DIGEST_KIND,
        engine="engine",
        placement=KafkaSegments(segments),
        ids=IDS,
        run_id="run",
        time="time",
    )


def segment(first: int, last: int, digest: str) -> Segment:
    return Segment(partition=3, first=first, last=last, count=last - first + 1, digest=digest)


def coverage(*pairs: tuple[int, int]) -> Coverage:
    return Coverage.of(OffsetRange(*pair) for pair in pairs)


# --- selecting receipts -------------------------------------------------------------------------------------------------------------------------------


def test_receipts_are_put_in_order_and_those_of_other_offsets_left_out() -> None:
    wanted = [receipt(10, 20), receipt(20, 25), receipt(40, 50)]
    others = [receipt(0, 10), receipt(25, 40), receipt(50, 60)]
    assert select_receipts(coverage((10, 25), (40, 50)), [*reversed(wanted), *others]) == tuple(wanted)


def test_nothing_wanted_needs_no_receipt() -> None:
    assert select_receipts(Coverage(), [receipt(0, 10)]) == ()


HOLES: dict[str, tuple[Coverage, list[Receipt], str]] = {
    "none at all": (coverage((0, 10)), [], "[0, 10)"),
    "at the start": (coverage((0, 10)), [receipt(4, 10)], "[0, 4)"),
    "in the middle": (coverage((0, 10)), [receipt(0, 4), receipt(6, 10)], "[4, 6)"),
    "at the end": (coverage((0, 10)), [receipt(0, 9)], "[9, 10)"),
    "in the second stretch": (coverage((0, 4), (6, 10)), [receipt(0, 4), receipt(6, 8)], "[8, 10)"),
    "a receipt that reaches beyond does not count": (coverage((0, 10)), [receipt(0, 4), receipt(4, 12)], "[4, 10)"),
    "a receipt that begins before does not count": (coverage((4, 10)), [receipt(0, 8), receipt(8, 10)], "[4, 8)"),
}


@pytest.mark.parametrize(("wanted", "receipts", "hole"), HOLES.values(), ids=HOLES)
def test_a_hole_is_refused_by_name(wanted: Coverage, receipts: list[Receipt], hole: str) -> None:
    with pytest.raises(VerificationFailed) as caught:
        select_receipts(wanted, receipts)
    assert caught.value.what == f"no receipt for source offsets {hole}, though the ledger says they are on the target"
    assert caught.value.remedy == AUDIT


@pytest.mark.parametrize("second", [(3, 10), (2, 4), (0, 10)])
def test_an_overlap_is_refused_by_name(second: tuple[int, int]) -> None:
    with pytest.raises(VerificationFailed) as caught:
        select_receipts(coverage((0, 10)), [receipt(0, 4), receipt(*second), receipt(4, 10)])
    assert caught.value.what.endswith("overlap")
    assert "[0, 4)" in caught.value.what
    assert str(OffsetRange(*second)) in caught.value.what
    assert caught.value.remedy == AUDIT


@given(st.lists(st.integers(0, 30), min_size=2, unique=True).map(sorted), st.data())
def test_receipts_that_fit_are_accepted_and_any_that_is_lost_or_doubled_is_not(
    cuts: list[int], data: st.DataObject
) -> None:
    receipts = [receipt(*pair) for pair in itertools.pairwise(cuts)]
    wanted = coverage((cuts[0], cuts[-1]))
    assert select_receipts(wanted, data.draw(st.permutations(receipts))) == tuple(receipts)
    chosen = data.draw(st.sampled_from(receipts))
    with pytest.raises(VerificationFailed, match="no receipt"):
        select_receipts(wanted, [each for each in receipts if each is not chosen])
    with pytest.raises(VerificationFailed, match="overlap"):
        select_receipts(wanted, [*receipts, chosen])


# --- comparing ------------------------------------------------------------------------------------------------------------------------------

CHUNKS = (
    receipt(0, 10, segment(0, 4, "d0")),
    receipt(10, 12),  # a chunk of markers: nothing on the target
    receipt(12, 20, segment(6, 8, "d1"), segment(10, 10, "d2")),
    receipt(20, 30, segment(12, 13, "d3")),
)


@dataclass
class Reader:
    """A target that holds what the receipts say, but for ``other``."""

    other: Mapping[int, PartDigest | Exception] = field(default_factory=dict)  # by first offset
    asked: list[tuple[Part, bool]] = field(default_factory=list)

    def read(self, wanted: Part, digest: Digest | None) -> PartDigest:
        self.asked.append((wanted, digest is not None))
        match self.other.get(wanted.first):
            case Exception() as error:
                raise error
            case PartDigest() as found:
                return found
        return PartDigest(wanted.count, "" if digest is None else wanted.digest)

    def quarantined(self, failed: FailedRecord) -> bool:
        return failed.digest == "kept"


def aside(offset: int, digest: str) -> FailedRecord:
    place = Place("quarantine", 0, offset)
    return FailedRecord(
        offset=offset, kind="refused", reason="", error="", size=1, key_digest="", digest=digest, place=place
    )


@pytest.mark.parametrize(
    ("failures", "error"),
    [
        ((aside(3, "kept"), aside(5, "kept")), None),
        ((aside(3, "kept"), aside(5, "gone")), "offset 5 is not in quarantine at quarantine-0 offset 5"),
        ((aside(3, "kept"),), "counts 2 quarantined"),
    ],
)
def test_a_chunk_with_quarantined_records_is_verified_if_each_is_there(
    failures: tuple[FailedRecord, ...], error: str | None
) -> None:
    chunk = replace(CHUNKS[0], quarantined=2, failures=failures)
    result = verify(task(receipts=(chunk,)), Reader())
    assert (error is None) == (result.error is None)
    assert (error or "") in (result.error or "")


def task(level: Literal["digest", "count"] = "digest", receipts: tuple[Receipt, ...] = CHUNKS) -> VerifyTask:
    return VerifyTask(KEY, receipts, level)


@pytest.mark.parametrize("level", ["digest", "count"])
def test_an_equal_copy_is_verified_whole(level: Literal["digest", "count"]) -> None:
    reader = Reader()
    result = verify(task(level), reader)
    assert (result.key, result.verified, result.error, result.remedy) == (KEY, coverage((0, 30)), None, "")
    assert (result.records, result.bytes) == (11, 110)
    assert reader.asked == [(each, level == "digest") for chunk in CHUNKS for each in chunk.parts]


REMEDY = (
    "the target was changed or compacted after the copy: stop other writers, compare source and target"
    " (kafka-replication audit), then copy again under another replication name"
)
DIFFERENCES: dict[str, tuple[int, PartDigest, list[list[int]], int, str]] = {
    "digest": (
        0,
        PartDigest(5, "xx"),
        [],
        0,
        "orders-3 [0, 10): the copy at dr.orders-3 offsets [0, 5) differs from its receipt: digest xx, not d0",
    ),
    "count": (
        12,
        PartDigest(1, "d3"),
        [[0, 20]],
        9,
        "orders-3 [20, 30): the copy at dr.orders-3 offsets [12, 14) differs from its receipt: 1 records, not 2",
    ),
    "a chunk's second segment": (
        10,
        PartDigest(0, "xx"),
        [[0, 12]],
        5,
        "orders-3 [12, 20): the copy at dr.orders-3 offsets [10, 11) differs from its receipt: 0 records, not 1, digest xx, not d2",
    ),
}


@pytest.mark.parametrize(("first", "found", "good", "records", "error"), DIFFERENCES.values(), ids=DIFFERENCES)
def test_a_difference_stops_there_and_what_came_before_is_verified(
    first: int, found: PartDigest, good: list[list[int]], records: int, error: str
) -> None:
    reader = Reader({first: found})
    result = verify(task(), reader)
    assert (result.verified.encode(), result.records, result.bytes) == (good, records, 10 * records)
    assert (result.error, result.remedy) == (error, REMEDY)
    assert reader.asked[-1][0].first == first


def test_counting_looks_at_no_digest() -> None:
    assert verify(task("count"), Reader({0: PartDigest(5, "")})).error is None
    assert verify(task("count"), Reader({0: PartDigest(4, "")})).error is not None


UNKNOWN = replace(CHUNKS[2], digest_kind="xxh3_128/2")


def test_an_unknown_digest_kind_is_named_and_is_no_copy_that_differs() -> None:
    reader = Reader()
    result = verify(task(receipts=(*CHUNKS[:2], UNKNOWN, CHUNKS[3])), reader)
    assert result.error is not None
    assert "[12, 20)" in result.error and "'xxh3_128/2'" in result.error and DIGEST_KIND in result.error
    assert "differs" not in result.error and "upgrade" in result.remedy
    assert (result.verified, result.retriable) == (coverage((0, 12)), False)
    assert [segment.first for segment, _ in reader.asked] == [0], "nothing of that chunk was read"


def test_counting_needs_to_know_no_digest_kind() -> None:
    assert verify(task("count", (UNKNOWN,)), Reader()).verified == coverage((12, 20))


class Otherwise(Fingerprint):
    """Stands in for a second digest kind."""


def test_the_digest_is_of_the_kind_that_the_receipt_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digests, "DIGESTS", {DIGEST_KIND: Fingerprint, "xxh3_128/2": Otherwise})
    given: list[type] = []

    class Recorder(Reader):
        def read(self, wanted: Part, digest: Digest | None) -> PartDigest:
            given.append(type(digest))
            return super().read(wanted, digest)

    assert verify(task(receipts=(*CHUNKS[:2], UNKNOWN)), Recorder()).error is None
    assert given == [Fingerprint, Otherwise, Otherwise]


def test_a_placement_of_another_kind_is_named() -> None:
    elsewhere = replace(CHUNKS[0], placement=UnknownPlacement("index", {"name": "orders"}))
    result = verify(task(receipts=(elsewhere,)), Reader())
    assert result.error is not None and "'index'" in result.error
    assert "upgrade" in result.remedy and not result.verified


def test_a_reader_that_fails_ends_in_the_result() -> None:
    stalled = Stalled("dr.orders-3: no record before the last stable offset 9", "end the open transaction")
    result = verify(task(), Reader({6: stalled}))
    assert (result.verified, result.error, result.remedy) == (coverage((0, 12)), stalled.what, stalled.remedy)


def test_only_the_offsets_of_the_receipts_that_were_read_are_verified() -> None:
    assert verify(task(receipts=(CHUNKS[1], CHUNKS[3])), Reader()).verified == coverage((10, 12), (20, 30))


def test_a_receipt_that_does_not_add_up_is_refused_before_anything_is_read() -> None:
    reader = Reader()
    result = verify(task(receipts=(replace(CHUNKS[0], count=6),)), reader)
    assert result.error == "orders-3 [0, 10): the receipt's segments do not add up to its 6 records"
    assert (result.remedy, result.verified, reader.asked) == (AUDIT, Coverage(), [])


def test_no_receipts_verify_nothing() -> None:
    assert verify(task(receipts=()), Reader()).verified == Coverage()
