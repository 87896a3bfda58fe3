"""What the golden ledger files hold, by their names.

Every release has to read them. Never change a file or a value here; a new format gets new files.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from kafka_replication.ledger import codec
from kafka_replication.ledger.entries import (
    Adopted,
    Deleted,
    Entry,
    Gap,
    Handled,
    Position,
    Receipt,
    Removed,
    Returned,
    Seal,
    Start,
    Verified,
)
from kafka_replication.ledger.offset_map import AdoptedPlaces, OffsetMap
from kafka_replication.ledger.placement import (
    KafkaPartitions,
    KafkaSegments,
    NewestByKey,
    Part,
    SpreadEnds,
)
from kafka_replication.model.choices import PartitionedBy
from kafka_replication.model.offsets import OffsetRange
from tests.golden.first_entries import (
    DIGEST,
    GAPS,
    IDS,
    POSITIONS,
    RECEIPT,
    RECEIPTS,
    TIME,
    UNICODE,
    VERIFIED,
    covered,
    segment,
)

FOLDER = Path(__file__).with_name("ledger")


# A copy of another tool that a partition goes on behind.
ADOPTED: dict[str, Entry] = {
    "position-adopted": Position(
        generation=1,
        ids=IDS,
        start=900,
        next_offset=900,
        target_end=1200,
        adopted=Adopted(
            source="mirrormaker2",
            proof="tail",
            target_from=200,
            target_until=1200,
            compared=990,
            doubles=100,
            missing=3,
            run_id="adopt",
            time=TIME,
        ),
    ),
    "position-sealed": Position(
        generation=1,
        ids=IDS,
        start=0,
        next_offset=90,
        coverage=covered((0, 90)),
        target_end=91,
        sealed=Seal(why="cutover", by="ann", reason="fire", target_until=92, run_id="over", time=TIME, cut=TIME),
    ),
    "position-followed": Position(
        generation=1,
        ids=IDS,
        start=0,
        next_offset=90,
        coverage=covered((0, 90)),
        target_end=91,
        sealed=Seal(why="failover", by="ann", reason="fire", target_until=92, run_id="over", time=TIME),
        followed_by="orders-back",
    ),
    "position-denied": Position(
        generation=1,
        ids=IDS,
        start=0,
        next_offset=90,
        coverage=covered((0, 90)),
        target_end=91,
        denied=f"ann at {TIME}",
    ),
    "gap-returned": Gap(
        generation=1,
        kind="returned",
        range=OffsetRange(0, 90),
        reason="a drill",
        approved_by="ann",
        ids=IDS,
        run_id="turn",
        time=TIME,
        returned=Returned(
            seal="over",
            target=OffsetRange(0, 107),
            surplus=covered((90, 107)),
            places=AdoptedPlaces("eJwTucTIeINlOlMr8w0WBgAcGAPC"),
        ),
    ),
    "position-adopted-with-places": Position(
        generation=1,
        ids=IDS,
        start=900,
        next_offset=900,
        target_end=1200,
        adopted=Adopted(
            source="data",
            proof="whole",
            target_from=200,
            target_until=1200,
            compared=700,
            doubles=0,
            missing=0,
            run_id="adopt",
            time=TIME,
        ),
        adopted_places=AdoptedPlaces("eJwTucTIeINlOlMr8w0WBgAcGAPC"),
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
    "handled-given-back": Handled(
        generation=1,
        state="discarded",
        quarantined=covered((3, 4), (9, 11)),
        skipped=covered(),
        ids=IDS,
        by="ann",
        reason="again",
        run_id="run-11",
        time=TIME,
        given_back=covered((9, 10)),
        number=2,
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
        recopy_allowed=covered((40, 60)),
        watermark_floor=100,
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
        recopy_allowed=covered(),
        watermark_floor=0,
        run_id="run-1",
        time=TIME,
    ),
}
# The optional fields of the version that brought delivery profiles.
DELIVERED_POSITIONS: dict[str, Entry] = {
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
DELIVERED_RECEIPTS: dict[str, Entry] = {
    "receipt-with-losses": replace(RECEIPT, delivery="at_least_once", after=88, lost_in_delivery=1, duplicates=4),
}
BY = PartitionedBy(name="by_key", hash="", partitions=3)
SPREAD_POSITIONS: dict[str, Entry] = {
    "position-spread": Position(
        generation=1,
        ids=IDS,
        start=0,
        next_offset=100,
        coverage=covered((0, 100)),
        leader_epoch=4,
        spread=SpreadEnds(
            PartitionedBy(name="shop.rules:by_country", hash="sha256:9f86d081", partitions=3), (41, 0, 77)
        ),
    ),
    "removed-spread": Removed(
        generation=3,
        target_start=0,
        target_starts=(500, 0, 7),
        coverage=covered((0, 40)),
        unexplained=covered(),
        recopy_allowed=covered(),
        watermark_floor=0,
        run_id="run-1",
        time=TIME,
        receipts_from=7,
    ),
}
SPREAD_DELIVERED: dict[str, Entry] = {
    "position-spread-without-transactions": Position(
        generation=1,
        ids=IDS,
        start=0,
        next_offset=100,
        coverage=covered((0, 100)),
        leader_epoch=4,
        delivery="at_least_once",
        spread=SpreadEnds(BY, (41, 0, 77)),
    ),
    "verified-spread-without-transactions": Verified(
        generation=1,
        coverage=covered((0, 100)),
        level="digest",
        run_id="run-1",
        time=TIME,
        delivery="at_least_once",
        duplicates=4,
    ),
}
SPREAD_RECEIPTS: dict[str, Entry] = {
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
        placement=KafkaPartitions(PartitionedBy(name="round_robin", hash="", partitions=3)),
        ids=IDS,
        run_id="run-1",
        time=TIME,
    ),
}
# A field that came with targets that have no transactions.
IDEMPOTENT: dict[str, Entry] = {"receipt-idempotent": replace(RECEIPT, promise="idempotent")}
# A placement and a field that came with targets that keep the newest record of each key.
LATEST_POSITIONS: dict[str, Entry] = {
    "verified-superseded": Verified(
        generation=1, coverage=covered((5, 12)), level="digest", run_id="run-1", time=TIME, superseded=4
    )
}
LATEST_RECEIPTS: dict[str, Entry] = {
    "receipt-newest-by-key": replace(
        RECEIPT,
        placement=NewestByKey(partition=3, first=5, last=11, keys=2, digest=DIGEST),
        promise="latest",
        superseded=4,
    )
}
# The offsets of a chunk that have a record, exactly, and one of each 64 of them.
WRITTEN_OFFSETS: dict[str, Entry] = {
    "receipt-offset-map": replace(RECEIPT, offset_map=OffsetMap("eJxjYGJkAQAAEAAI")),
    "receipt-coarse-offset-map": replace(RECEIPT, offset_map=OffsetMap("eJxjOMB4gBEABIkBgw==", 64)),
}
GOLDEN: dict[int, dict[str, Entry]] = {
    1: {
        **POSITIONS,
        **VERIFIED,
        **GAPS,
        **NOTES,
        **ADOPTED,
        **SET_ASIDE,
        **SPREAD_POSITIONS,
        **DELIVERED_POSITIONS,
        **SPREAD_DELIVERED,
        **LATEST_POSITIONS,
        **RECEIPTS,
        **SPREAD_RECEIPTS,
        **DELIVERED_RECEIPTS,
        **IDEMPOTENT,
        **LATEST_RECEIPTS,
        **WRITTEN_OFFSETS,
    },
}
FILES = [(version, name) for version, entries in GOLDEN.items() for name in entries]


def kind_of(name: str) -> str:
    """Files are named for their kind and what is odd in them."""
    return name.partition("-")[0]


def golden(version: int, name: str) -> bytes:
    return (FOLDER / str(version) / f"{name}.json").read_bytes()


def decode(kind: str, value: Any) -> Entry:
    """The entry of this kind from its JSON or, as bytes, from what was written."""
    return codec.decode(codec.KINDS[kind], value if isinstance(value, bytes) else json.dumps(value).encode())
