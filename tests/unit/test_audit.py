"""The chunks that an audit compares, and what its report says of the records that differ."""

from __future__ import annotations

import pytest

from kafka_replication.documents import as_json
from kafka_replication.ledger.entries import Ids, Receipt
from kafka_replication.ledger.placement import KafkaSegments, Segment
from kafka_replication.model.offsets import OffsetRange, PartitionKey, TopicPartition
from kafka_replication.reporting.audit import AuditReport, PartitionAudit
from kafka_replication.verification.auditing import LISTED
from kafka_replication.verification.digests import Unit, area_of, units
from kafka_replication.verification.matching import Difference, Kind

KEY = PartitionKey("orders-dr", TopicPartition("orders", 3), "dr.orders")
IDS = Ids("SRC", "s", "t")


def receipt(from_: int, until: int, *segments: tuple[int, int]) -> Receipt:
    made = tuple(
        Segment(partition=3, first=first, last=last, count=last - first + 1, digest="d") for first, last in segments
    )
    return Receipt(
        generation=1,
        range=OffsetRange(from_, until),
        count=sum(s.count for s in made),
        bytes=9,
        digest="d",
        digest_kind="k",
        engine="e",
        placement=KafkaSegments(made),
        ids=IDS,
        run_id="run-1",
        time="time",
    )


LIVE, NEXT, MARKERS, BACKFILL = (
    receipt(50, 60, (0, 9)),
    receipt(60, 70, (11, 20)),
    receipt(70, 71),
    receipt(0, 50, (22, 71)),
)


def test_chunks_come_in_the_order_of_the_target_with_what_lies_between_them() -> None:
    made = units([BACKFILL, LIVE, NEXT, MARKERS], [], OffsetRange(0, 80))
    assert made == [
        Unit(OffsetRange(0, 10), LIVE),
        Unit(OffsetRange(10, 11), None),
        Unit(OffsetRange(11, 21), NEXT),
        Unit(None, MARKERS),
        Unit(OffsetRange(21, 22), None),
        Unit(OffsetRange(22, 72), BACKFILL),
        Unit(OffsetRange(72, 80), None),
    ]


def test_chunks_of_others_are_neither_audited_nor_strangers() -> None:
    assert units([NEXT], [LIVE, BACKFILL], OffsetRange(0, 72)) == [
        Unit(OffsetRange(10, 11), None),
        Unit(OffsetRange(11, 21), NEXT),
        Unit(OffsetRange(21, 22), None),
    ]


def test_the_area_of_a_chunk() -> None:
    assert (area_of(MARKERS), area_of(receipt(0, 9, (5, 7), (9, 14)))) == (None, OffsetRange(5, 15))


def audited(*found: Difference) -> PartitionAudit:
    made = PartitionAudit(key=KEY, generation=1, range=OffsetRange(0, 100))
    made.differ(found)
    made.finish()
    return made


def test_a_record_missing_here_and_extra_there_was_moved() -> None:
    made = audited(
        Difference(Kind.MISSING, 5, None, b"a"),
        Difference(Kind.MISSING, 6, None, b"b"),
        Difference(Kind.EXTRA, None, 90, b"a"),
    )
    assert [str(each) for each in made.stretches] == [
        "missing source [6, 7): 1 record",
        "moved source [5, 6), target [90, 91): 1 record",
    ]
    assert (made.counts[Kind.MISSING], made.counts[Kind.EXTRA], made.counts[Kind.MOVED]) == (1, 0, 1)


def test_neighbours_become_one_stretch() -> None:
    made = audited(
        *(Difference(Kind.MISSING, n, None, b"%d" % n) for n in (7, 5, 6, 9)),
        Difference(Kind.ALTERED, 1, 11),
        Difference(Kind.ALTERED, 2, 13),
    )
    assert [str(each) for each in made.stretches] == [
        "altered source [1, 2), target [11, 12): 1 record",
        "altered source [2, 3), target [13, 14): 1 record",
        "missing source [5, 8): 3 records",
        "missing source [9, 10): 1 record",
    ]


def test_what_is_too_much_to_list_is_counted() -> None:
    made = audited(*(Difference(Kind.EXTRA, None, n, b"%d" % n) for n in range(LISTED + 7)))
    assert (made.counts[Kind.EXTRA], made.unlisted) == (LISTED + 7, 7)
    assert made.stretches[0].count == LISTED


@pytest.mark.parametrize(
    ("count", "kind", "records"), [(3, Kind.MISSING, 7), (12, Kind.EXTRA, 2), (10, Kind.ALTERED, 1)]
)
def test_without_the_source_a_chunk_is_judged_as_a_whole(count: int, kind: Kind, records: int) -> None:
    made = PartitionAudit(key=KEY, generation=1, range=OffsetRange(0, 100))
    made.differ_by_receipt(LIVE, count)
    assert [(each.kind, each.source, each.target, each.count) for each in made.stretches] == [
        (kind, OffsetRange(50, 60), OffsetRange(0, 10), records)
    ]


def test_outcomes() -> None:
    clean, differs, failed = audited(), audited(Difference(Kind.EXTRA, None, 1, b"")), audited()
    failed.errors.append("unreachable")
    outcomes = [
        AuditReport("r", "run-1", "time", each).outcome for each in ((), (clean,), (clean, differs), (differs, failed))
    ]
    assert outcomes == ["clean", "clean", "differs", "failed"]


def test_the_json_of_a_report_is_the_documented_one() -> None:
    made = audited(Difference(Kind.ALTERED, 1, 11))
    assert as_json(AuditReport("orders-dr", "run-1", "time", (made,)).document()) == {
        "format": 1,
        "replication": "orders-dr",
        "promise": "transactional",
        "run_id": "run-1",
        "time": "time",
        "outcome": "differs",
        "sample": None,
        "partitions": [
            {
                "topic": "orders",
                "partition": 3,
                "target_topic": "dr.orders",
                "generation": 1,
                "from": 0,
                "until": 100,
                "outcome": "differs",
                "chunks": 0,
                "offsets": 0,
                "source_records": 0,
                "target_records": 0,
                "by_content": 0,
                "by_receipt": 0,
                "not_at_source": 0,
                "lost_in_delivery": 0,
                "duplicates": 0,
                "superseded": 0,
                "quarantined": 0,
                "skipped": 0,
                "retried": 0,
                "verified_by": "none",
                "missing": 0,
                "extra": 0,
                "moved": 0,
                "altered": 1,
                "differences": [{"kind": "altered", "source": [1, 2], "target": [11, 12], "count": 1}],
                "unlisted": 0,
                "lost": [],
                "notes": [],
                "errors": [],
            }
        ],
    }


def test_the_text_shows_a_line_a_partition_and_each_stretch() -> None:
    head, line, *more = (
        AuditReport("orders-dr", "run-1", "time", (audited(Difference(Kind.ALTERED, 1, 11)),)).text().splitlines()
    )
    assert head.split()[-7:] == ["missing", "extra", "moved", "altered", "verified", "by", "outcome"]
    assert line.split()[-6:] == ["0", "0", "0", "1", "none", "differs"]
    assert more == ["DIFFERS orders-3 altered source [1, 2), target [11, 12): 1 record"]
