"""What the golden ledger files hold, by their names.

``ledger/1`` was written by commit 33e4a7d, before kinds had versions of their own; ``ledger/2`` by the version that
brought receipts of format 2, the files of `NOTES` by the version that brought these kinds, those of `SPREAD_1` and
`SPREAD_2` by the version that brought partitioning, ``position-with-transform`` and ``receipt-of-several-for-one`` by
the one that brought filters and transforms, `SPREAD_DELIVERED_1` by the one that brought delivery profiles for other
partitionings, ``handled-not-visible`` by the one that sets unreadable batches aside. Every release has to read them. Never
change a file or a value here; a new format gets new files.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from kafka_replication.ledger import codec
from kafka_replication.ledger.entries import (
    Deleted,
    Entry,
    FailedRecord,
    Gap,
    Handled,
    Ids,
    MappedOffset,
    Place,
    Position,
    Receipt,
    Removed,
    Start,
    Transform,
    Verified,
)
from kafka_replication.ledger.placement import (
    Explained,
    KafkaPartitions,
    KafkaSegments,
    Part,
    Segment,
    Spread,
    UnknownPlacement,
)
from kafka_replication.model.offsets import Coverage, OffsetRange
from kafka_replication.model.partitioning import PartitionedBy

FOLDER = Path(__file__).with_name("ledger")
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
RECEIPTS_1 = {
    "receipt": RECEIPT,
    "receipt-no-segments": Receipt(
        generation=1,
        range=OffsetRange(12, 15),
        count=0,
        bytes=0,
        digest="99aa06d3014798d86001c324468d497f",
        digest_kind="xxh3_128/1",
        engine="record/1",
        placement=KafkaSegments(),
        ids=IDS,
        run_id="run-1",
        time=TIME,
    ),
    "receipt-two-segments": Receipt(
        generation=2,
        range=OffsetRange(0, 5000000000),
        count=3,
        bytes=10,
        digest="aa",
        digest_kind="xxh3_128/1",
        engine="record/1",
        placement=KafkaSegments((segment(0, 7, 8, "bb"), segment(0, 11, 11, "cc"))),
        ids=IDS,
        run_id="run-1",
        time=TIME,
    ),
    "receipt-unicode": Receipt(
        generation=1,
        range=OffsetRange(0, 1),
        count=1,
        bytes=2**40,
        digest="dd",
        digest_kind="xxh3_128/1",
        engine="record/1",
        placement=KafkaSegments((segment(2147483647, 0, 0, "dd"),)),
        ids=UNICODE,
        run_id="run-ß",
        time=TIME,
    ),
}
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
RECEIPTS_2 = {
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
        offset_map=(MappedOffset(100, 3, 0), MappedOffset(1100, 3, 995)),
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
# Fields and kinds that came with records that are set aside.
SET_ASIDE: dict[str, Entry] = {
    "position-set-aside": Position(
        generation=1, ids=IDS, start=0, next_offset=9, coverage=covered((0, 9)), target_end=9, quarantined=3, skipped=1
    ),
    "handled": Handled(
        generation=1,
        state="retried",
        quarantined=covered((3, 4), (9, 11)),
        skipped=covered((5, 6)),
        ids=IDS,
        by="ann",
        reason="the limit was raised",
        run_id="run-7",
        time=TIME,
        count=4,
        digest=DIGEST,
        digest_kind="xxh3_128/1",
        placement=KafkaSegments((segment(3, 100, 103, DIGEST),)),
        extra={"newer": [1, None]},
    ),
    "handled-discarded": Handled(
        generation=2,
        state="discarded",
        quarantined=covered((3, 4)),
        skipped=covered(),
        ids=UNICODE,
        by="Zoë Łącka",
        reason="test data",
        run_id="run-8",
        time=TIME,
    ),
    "handled-not-visible": Handled(
        generation=1,
        state="retried",
        quarantined=covered(),
        skipped=covered((20, 30)),
        ids=IDS,
        by="ann",
        reason="the disk was mended",
        run_id="run-9",
        time=TIME,
        count=9,
        digest=DIGEST,
        digest_kind="xxh3_128/1",
        placement=KafkaSegments((segment(3, 100, 108, DIGEST),)),
        not_visible=covered((29, 30)),
    ),
}
NOTES: dict[str, Entry] = {
    "start": Start(
        source_cluster=IDS.source_cluster, source_topic=IDS.source_topic, start_from="latest", offset=41, time=TIME
    ),
    "start-not-resolved": Start(
        source_cluster=UNICODE.source_cluster,
        source_topic=UNICODE.source_topic,
        start_from="2030-01-31T06:00:00+00:00",
        offset=None,
        time=TIME,
        extra={"newer": [1, None]},
    ),
    "deleted": Deleted(source_topic=IDS.source_topic, run_id="run-1", time=TIME, extra={"newer": [1, None]}),
    "removed": Removed(
        generation=3,
        target_start=500,
        coverage=covered((0, 40), (60, 100)),
        unexplained=covered((60, 100)),
        again=covered((40, 60)),
        passed=100,
        run_id="run-1",
        time=TIME,
        receipts_from=7,
        extra={"newer": [1, None]},
    ),
    "removed-without-receipts": Removed(
        generation=1,
        target_start=0,
        coverage=covered(),
        unexplained=covered(),
        again=covered(),
        passed=0,
        run_id="run-1",
        time=TIME,
    ),
}
# The optional fields of the version that brought delivery profiles.
DELIVERED_1: dict[str, Entry] = {
    "position-without-transactions": Position(
        generation=1,
        ids=IDS,
        start=5,
        next_offset=12,
        coverage=covered((5, 12)),
        leader_epoch=4,
        target_end=99,
        delivery="leader_ack",
    ),
    "verified-with-losses": Verified(
        generation=1,
        coverage=covered((5, 12)),
        level="digest",
        run_id="run-1",
        time=TIME,
        delivery="fire_and_forget",
        lost_in_delivery=3,
        duplicates=2,
        judged_until=101,
    ),
}
DELIVERED_2: dict[str, Entry] = {
    "receipt-with-losses": replace(RECEIPT, delivery="at_least_once", after=88, lost_in_delivery=1, duplicates=4),
}
BY = PartitionedBy(name="by_key", hash="", partitions=3)
SPREAD_1: dict[str, Entry] = {
    "position-spread": Position(
        generation=1,
        ids=IDS,
        start=0,
        next_offset=100,
        coverage=covered((0, 100)),
        leader_epoch=4,
        spread=Spread(PartitionedBy(name="shop.rules:by_country", hash="sha256:9f86d081", partitions=3), (41, 0, 77)),
    ),
    "removed-spread": Removed(
        generation=3,
        target_start=0,
        target_starts=(500, 0, 7),
        coverage=covered((0, 40)),
        unexplained=covered(),
        again=covered(),
        passed=0,
        run_id="run-1",
        time=TIME,
        receipts_from=7,
    ),
}
SPREAD_DELIVERED_1: dict[str, Entry] = {
    "position-spread-without-transactions": Position(
        generation=1,
        ids=IDS,
        start=0,
        next_offset=100,
        coverage=covered((0, 100)),
        leader_epoch=4,
        delivery="at_least_once",
        spread=Spread(BY, (41, 0, 77)),
        sent_from=(12, 0, 9000000000),
    ),
    "verified-spread-without-transactions": Verified(
        generation=1,
        coverage=covered((0, 100)),
        level="digest",
        run_id="run-1",
        time=TIME,
        delivery="at_least_once",
        duplicates=4,
        explained=Explained((50, 0, 9000000077), 31, settled=True),
    ),
}
SPREAD_2: dict[str, Entry] = {
    "receipt-spread": Receipt(
        generation=1,
        range=OffsetRange(100, 110),
        count=9,
        bytes=990,
        digest=DIGEST,
        digest_kind="xxh3_128/1",
        engine="record/1",
        placement=KafkaPartitions(
            BY,
            (
                Part(partition=0, offsets=covered((40, 41), (9000000000, 9000000004)), count=5, digest=DIGEST),
                Part(partition=2, offsets=covered((7, 11)), count=4, digest="0a"),
            ),
        ),
        ids=IDS,
        run_id="run-1",
        time=TIME,
    ),
    "receipt-spread-without-records": Receipt(
        generation=1,
        range=OffsetRange(110, 111),
        count=0,
        bytes=0,
        digest=DIGEST,
        digest_kind="xxh3_128/1",
        engine="record/1",
        placement=KafkaPartitions(PartitionedBy(name="map", hash="2", partitions=3)),
        ids=IDS,
        run_id="run-1",
        time=TIME,
    ),
}
GOLDEN: dict[int, dict[str, Entry]] = {
    1: {
        **POSITIONS,
        **VERIFIED,
        **GAPS,
        **RECEIPTS_1,
        **NOTES,
        **SET_ASIDE,
        **SPREAD_1,
        **DELIVERED_1,
        **SPREAD_DELIVERED_1,
    },
    2: {**RECEIPTS_2, **SPREAD_2, **DELIVERED_2},
}
FILES = [(version, name) for version, entries in GOLDEN.items() for name in entries]


def kind_of(name: str) -> str:
    """Files are named for their kind and what is odd in them."""
    return name.partition("-")[0]


def golden(version: int, name: str) -> bytes:
    return (FOLDER / str(version) / f"{name}.json").read_bytes()


DECODERS: dict[str, Callable[[bytes], Entry]] = {
    "position": codec.decode_position,
    "verified": codec.decode_verified,
    "gap": codec.decode_gap,
    "start": codec.decode_start,
    "deleted": codec.decode_deleted,
    "removed": codec.decode_removed,
    "handled": codec.decode_handled,
    "receipt": codec.decode_receipt,
}


def decode(kind: str, value: Any) -> Entry:
    """The entry of this kind from its JSON or, as bytes, from what was written."""
    return DECODERS[kind](value if isinstance(value, bytes) else json.dumps(value).encode())
