"""What the golden ledger files of the first versions hold, by their names; see `ledger_entries`."""

from __future__ import annotations

from kafka_replication.ledger.entries import (
    FailedRecord,
    Gap,
    Ids,
    Place,
    Position,
    Receipt,
    Transform,
    Verified,
)
from kafka_replication.ledger.placement import (
    KafkaSegments,
    Segment,
    UnknownPlacement,
)
from kafka_replication.model.offsets import Coverage, OffsetRange

IDS = Ids("Xk4z-cluster_A", "kP9w0ZtuQ6q", "aB3-target_id")
UNICODE = Ids("cluster-ü", "thème-источник", "цель")
TIME = "2030-01-31T06:00:00.000Z"
DIGEST = "e562a515e1682feb2fc6f434f304eb61"


def covered(*pairs: tuple[int, int]) -> Coverage:
    return Coverage.of(OffsetRange(*pair) for pair in pairs)


POSITIONS = {
    "position-fresh": Position(generation=1, ids=IDS, start=0, next_offset=0),
    "position-from-latest": Position(generation=1, ids=IDS, start=41, next_offset=41, target_end=7),
    "position": Position(
        generation=1, ids=IDS, start=5, next_offset=12, coverage=covered((5, 12)), leader_epoch=4, target_end=99
    ),
    "position-null-epoch": Position(
        generation=2, ids=IDS, start=0, next_offset=20, coverage=covered((0, 20)), leader_epoch=None, target_end=31
    ),
    "position-coverage-with-holes": Position(
        generation=3,
        ids=IDS,
        start=0,
        next_offset=100,
        coverage=covered((0, 100), (120, 130), (9000000000, 9000000001)),
        leader_epoch=17,
        target_end=140,
    ),
    "position-largest-numbers": Position(
        generation=2**31,
        ids=IDS,
        start=0,
        next_offset=2**63 - 1,
        coverage=covered((0, 2**63 - 1)),
        leader_epoch=2**31 - 1,
        target_end=2**63 - 1,
    ),
    "position-with-transform": Position(
        generation=1,
        ids=IDS,
        start=0,
        next_offset=200,
        coverage=covered((0, 200)),
        leader_epoch=4,
        target_end=250,
        transform=Transform("filter", "sha256:9f86d081884c7d659a2feaa0c55ad015"),
    ),
    "position-unicode": Position(
        generation=1, ids=UNICODE, start=0, next_offset=3, coverage=covered((0, 3)), leader_epoch=0, target_end=3
    ),
}
VERIFIED = {
    "verified": Verified(generation=1, coverage=covered((5, 12)), level="digest", run_id="run-1", time=TIME),
    "verified-nothing": Verified(generation=1, coverage=Coverage(), level="digest", run_id="run-1", time=TIME),
    "verified-by-count-with-holes": Verified(
        generation=4,
        coverage=covered((0, 7), (9, 12)),
        level="count",
        run_id="airflow-orders-dr-scheduled__2030-01-31T06:00:00+00:00",
        time=TIME,
    ),
}
GAPS = {
    "gap-retention": Gap(
        generation=1,
        kind="retention",
        range=OffsetRange(12, 20),
        reason="too late",
        approved_by="ann",
        ids=IDS,
        run_id="run-1",
        time=TIME,
    ),
    "gap-late": Gap(
        generation=1,
        kind="late",
        range=OffsetRange(0, 500),
        reason='a new topic, "old" records\nare not needed',
        approved_by="Zoë Łącka",
        ids=UNICODE,
        run_id="run-2",
        time=TIME,
    ),
    "gap-unverifiable": Gap(
        generation=2,
        kind="unverifiable",
        range=OffsetRange(20, 21),
        reason="retention on the target",
        approved_by="ann",
        ids=IDS,
        run_id="run-3",
        time=TIME,
    ),
}


def segment(partition: int, first: int, last: int, digest: str) -> Segment:
    return Segment(partition=partition, first=first, last=last, count=last - first + 1, digest=digest)


RECEIPT = Receipt(
    generation=1,
    range=OffsetRange(5, 12),
    count=6,
    bytes=420,
    digest=DIGEST,
    digest_kind="xxh3_128/1",
    engine="record/1",
    placement=KafkaSegments((segment(3, 90, 95, DIGEST),)),
    ids=IDS,
    run_id="run-1",
    time=TIME,
)
FAILED = (
    FailedRecord(
        offset=103,
        kind="refused",
        reason="it has no key",
        error="INVALID_RECORD",
        size=7,
        key_digest="",
        digest=DIGEST,
        place=Place("kafka-replication.quarantine.orders-dr", 5, 41),
    ),
    FailedRecord(
        offset=104, kind="unreadable", reason="CRC ≠", error="_BAD_MSG", size=-1, key_digest="", digest=DIGEST
    ),
)
RECEIPTS = {
    "receipt": RECEIPT,
    "receipt-with-everything": Receipt(
        generation=1,
        range=OffsetRange(100, 2100),
        count=1990,
        bytes=199000,
        digest=DIGEST,
        digest_kind="xxh3_128/1",
        engine="record/1",
        placement=KafkaSegments((segment(3, 0, 1989, DIGEST),)),
        ids=IDS,
        run_id="run-1",
        time=TIME,
        filtered=5,
        quarantined=2,
        skipped=1,
        transform=Transform("drop-tests", "sha256:9f86d081"),
        extra={"newer": {"than": ["this", 1, None, 2.5]}},
    ),
    "receipt-of-several-for-one": Receipt(
        generation=1,
        range=OffsetRange(100, 200),
        count=250,
        bytes=2500,
        digest=DIGEST,
        digest_kind="xxh3_128/1",
        engine="record/1",
        placement=KafkaSegments((segment(3, 0, 249, DIGEST),)),
        ids=IDS,
        run_id="run-1",
        time=TIME,
        filtered=20,
        transform=Transform("filter, my.orders:split", "sha256:9f86d081884c7d659a2feaa0c55ad015"),
        sources=79,
    ),
    "receipt-of-another-sink": Receipt(
        generation=1,
        range=OffsetRange(0, 10),
        count=10,
        bytes=990,
        digest="0a",
        digest_kind="another/7",
        engine="index/1",
        placement=UnknownPlacement("index", {"name": "orders-2030", "documents": 10}),
        ids=IDS,
        run_id="run-1",
        time=TIME,
    ),
    "receipt-with-failures": Receipt(
        generation=1,
        range=OffsetRange(100, 110),
        count=8,
        bytes=800,
        digest=DIGEST,
        digest_kind="xxh3_128/1",
        engine="record/1",
        placement=KafkaSegments((segment(3, 0, 7, DIGEST),)),
        ids=IDS,
        run_id="run-1",
        time=TIME,
        quarantined=1,
        skipped=1,
        failures=FAILED,
    ),
}
