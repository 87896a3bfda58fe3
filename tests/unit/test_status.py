"""Where every partition stands: the documented JSON, and the table a person reads."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kafka_replication.config import Replication
from kafka_replication.documents import StatusRow, adapter
from kafka_replication.ledger.entries import Ids, Position, Verified
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.offsets import Coverage, OffsetRange, PartitionKey, TopicPartition
from kafka_replication.model.trouble import Trouble
from kafka_replication.planning.foresight import SourceLoss
from kafka_replication.planning.live import plan, without_source
from kafka_replication.planning.plan import PartitionPlan, Plan, State
from kafka_replication.planning.snapshot import PartitionOffsets, Snapshot, Topic
from kafka_replication.reporting.status import PartitionStatus, row_of, status, status_table

IDS = Ids("SRC", "s", "t")
TIME = "2030-01-31T06:00:00.000Z"


def key(partition: int) -> PartitionKey:
    return PartitionKey("orders-dr", TopicPartition("orders", partition), "dr.orders")


BEHIND = PartitionPlan(
    key=key(0),
    state=State.BEHIND,
    ids=IDS,
    generation=1,
    start=10,
    position=60,
    source_end=100,
    watermark=40,
    copy=OffsetRange(60, 100),
)
NEW = PartitionPlan(
    key=key(1),
    state=State.OPENING,
    ids=IDS,
    generation=1,
    start=5,
    position=5,
    source_end=9,
    watermark=None,
    copy=OffsetRange(5, 9),
)
GONE = PartitionPlan(
    key=key(2),
    state=State.VANISHED,
    ids=IDS,
    generation=1,
    start=0,
    position=7,
    source_end=7,
    watermark=7,
    what="orders-2: gone",
    remedy="exclude it",
)
SNAPSHOT = Snapshot(
    source_cluster="SRC",
    target_cluster="TGT",
    source={
        "orders": Topic(
            name="orders",
            topic_id="s",
            partitions={0: PartitionOffsets(3, 110, 100), 1: PartitionOffsets(5, 9, 9)},
            replication_factor=3,
        )
    },
    target={},
)
VIEW = LedgerView(
    {
        key(0): Position(generation=1, ids=IDS, start=10, next_offset=60, coverage=Coverage.of([OffsetRange(10, 60)])),
        key(2): Position(generation=1, ids=IDS, start=0, next_offset=7, coverage=Coverage.of([OffsetRange(0, 7)])),
    },
    {
        key(0): Verified(
            generation=1, coverage=Coverage.of([OffsetRange(10, 40)]), level="digest", run_id="run-1", time=TIME
        )
    },
)


def rows() -> list[PartitionStatus]:
    return status(Plan("orders-dr", (BEHIND, NEW, GONE)), SNAPSHOT, VIEW)


def test_the_json_of_a_partition_is_the_documented_one() -> None:
    assert [adapter(StatusRow).dump_python(row, mode="json", by_alias=True) for row in rows()] == [
        {
            "topic": "orders",
            "partition": 0,
            "target_topic": "dr.orders",
            "state": "behind",
            "in_store": True,
            "log_start": 3,
            "source_end": 100,
            "high_watermark": 110,
            "withheld": 10,
            "position": 60,
            "watermark": 40,
            "lag": 60,
            "lag_seconds": None,
            "removed": 0,
            "no_longer_on_target": [],
            "missed": [],
            "last_verified": TIME,
            "verified_by": "digest",
            "delivery": "exactly_once",
            "lost_in_delivery": 0,
            "duplicates": 0,
            "superseded": 0,
            "lost": 0,
            "quarantined": 0,
            "skipped": 0,
            "undecided": 0,
            "gaps": [],
            "error": None,
            "remedy": None,
            "lost_in_seconds": None,
            "settings": [],
            "adopted": None,
            "seal": None,
        },
        {
            "topic": "orders",
            "partition": 1,
            "target_topic": "dr.orders",
            "state": "not opened yet",
            "in_store": True,
            "log_start": 5,
            "source_end": 9,
            "high_watermark": 9,
            "withheld": 0,
            "position": None,
            "watermark": None,
            "lag": 4,
            "lag_seconds": None,
            "removed": 0,
            "no_longer_on_target": [],
            "missed": [],
            "last_verified": None,
            "verified_by": "none",
            "delivery": "exactly_once",
            "lost_in_delivery": 0,
            "duplicates": 0,
            "superseded": 0,
            "lost": 0,
            "quarantined": 0,
            "skipped": 0,
            "undecided": 0,
            "gaps": [],
            "error": None,
            "remedy": None,
            "lost_in_seconds": None,
            "settings": [],
            "adopted": None,
            "seal": None,
        },
        {
            "topic": "orders",
            "partition": 2,
            "target_topic": "dr.orders",
            "state": "topic vanished",
            "in_store": True,
            "log_start": None,
            "source_end": 7,
            "high_watermark": None,
            "withheld": 0,
            "position": 7,
            "watermark": 7,
            "lag": 0,
            "lag_seconds": None,
            "removed": 0,
            "no_longer_on_target": [],
            "missed": [],
            "last_verified": None,
            "verified_by": "none",
            "delivery": "exactly_once",
            "lost_in_delivery": 0,
            "duplicates": 0,
            "superseded": 0,
            "lost": 0,
            "quarantined": 0,
            "skipped": 0,
            "undecided": 0,
            "gaps": [],
            "error": "orders-2: gone",
            "remedy": "exclude it",
            "lost_in_seconds": None,
            "settings": [],
            "adopted": None,
            "seal": None,
        },
    ]


SILENT = replace(GONE, key=key(1), state=State.UNREADABLE, what="orders-1 has no leader", remedy="start it")


def test_a_partition_that_does_not_answer_has_no_end_and_no_lag() -> None:
    topic = SNAPSHOT.source["orders"]
    hidden = replace(
        topic, partitions={**topic.partitions, 1: Trouble("error", "", "orders-1 has no leader", "start it")}
    )
    source_away = status(Plan("orders-dr", (SILENT,)), replace(SNAPSHOT, source={"orders": hidden}), VIEW)
    assert [(row.answers, row.source_end, row.lag) for row in source_away] == [(False, None, None)]
    target_away = status(Plan("orders-dr", (replace(SILENT, source_end=9),)), SNAPSHOT, VIEW)
    assert [(row.answers, row.source_end, row.lag) for row in target_away] == [(False, 9, 2)]
    assert "NO ANSWER orders-1 has no leader\n  remedy: start it" in status_table(source_away)
    assert all(row.answers for row in rows())


def test_without_the_source_the_ledger_still_says_where_every_partition_stands() -> None:
    topics = {"include": ["orders"], "rename": "dr.{topic}"}
    sides = {"source": {"connection": "a"}, "target": {"connection": "b"}}
    replication = Replication.model_validate({"name": "orders-dr", "topics": topics, **sides})
    snapshot = without_source(replication, VIEW, Trouble("error", "", "no answer", "check the address"))
    made = status(plan(replication, snapshot, VIEW, {key(0): 40}), snapshot, VIEW)
    assert [(row.plan.key, row.plan.state, row.position, row.plan.watermark, row.lag) for row in made] == [
        (key(0), State.UNREADABLE, 60, 40, None),
        (key(2), State.UNREADABLE, 7, None, None),
    ]


def test_the_state_is_plain_text() -> None:
    assert all(type(row.state) is str for row in rows())


def test_a_topic_that_is_gone_from_the_source_has_no_log_start() -> None:
    empty = Snapshot(source_cluster="SRC", target_cluster="TGT", source={}, target={})
    assert status(Plan("orders-dr", (GONE,)), empty, VIEW)[0].log_start is None


@pytest.mark.parametrize(
    ("plan", "lag"),
    [
        (BEHIND, 60),  # from the watermark, not from the position: copied and unverified offsets still lag
        (
            PartitionPlan(
                key=key(0),
                state=State.IN_SYNC,
                ids=IDS,
                generation=1,
                start=10,
                position=100,
                source_end=100,
                watermark=100,
            ),
            0,
        ),
        (
            PartitionPlan(
                key=key(0),
                state=State.OPENING,
                ids=IDS,
                generation=1,
                start=100,
                position=100,
                source_end=100,
                watermark=None,
            ),
            0,
        ),  # from latest: nothing to wait for
        (
            PartitionPlan(
                key=key(0), state=State.BEHIND, ids=IDS, generation=1, start=5, position=9, source_end=100, watermark=0
            ),
            100,
        ),  # a watermark of 0 is one
    ],
)
def test_lag_counts_from_the_watermark_or_else_from_the_start(plan: PartitionPlan, lag: int) -> None:
    assert row_of(plan, log_start=0).lag == lag


def test_the_table_has_a_line_a_partition_and_a_dash_for_what_is_unknown() -> None:
    head, *lines, last = status_table(rows()).splitlines()
    assert head.split("  ")[0] == "partition"
    assert [cell.strip() for cell in head.split("  ") if cell.strip()] == [
        "partition",
        "target",
        "state",
        "log start",
        "source end",
        "withheld",
        "position",
        "watermark",
        "lag",
        "lag time",
        "last verified",
        "verified by",
    ]
    cells = [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in lines]
    assert cells == [
        ["orders-0", "dr.orders", "behind", "3", "100", "10", "60", "40", "60", "-", TIME[:19] + "Z", "digest"],
        ["orders-1", "dr.orders", "not opened yet", "5", "9", "0", "-", "-", "4", "-", "-", "none"],
        ["orders-2", "dr.orders", "topic vanished", "-", "7", "0", "7", "7", "0", "-", "-", "none"],
    ]
    assert len({line.index("dr.orders") for line in lines}) == 1
    assert last == (
        "orders-0: a transaction is open: the last stable offset is 100, the high watermark 110; "
        "the 10 offsets between them are withheld until it ends"
    )


def test_records_that_will_be_lost_have_a_warning_below_the_table() -> None:
    loss = SourceLoss(key=key(0), first=60, oldest=1_900_000_000_000, keeps=86_400_000, waiting=40, seconds=7200)
    made = status(Plan("orders-dr", (BEHIND, NEW, GONE)), SNAPSHOT, VIEW, {key(0): loss})
    assert [row.lost_in_seconds for row in made] == [7200, None, None]
    warning, remedy = status_table(made).splitlines()[-2:]
    assert warning == f"WARNING {loss.what}"
    assert remedy == f"  remedy: {loss.remedy}"


def test_a_usual_table_fits_a_terminal_and_groups_its_digits() -> None:
    usual = row_of(
        replace(
            BEHIND,
            key=PartitionKey("orders-dr", TopicPartition("orders.of.the.shop", 7), "orders.of.the.shop"),
            source_end=12_345_678,
            watermark=12_000_000,
        ),
        log_start=10_000_000,
        last_verified=TIME,
        position=12_000_000,
        lag_seconds=1_000.0,
        verified_by="digest",
    )
    head, line = status_table([usual]).splitlines()
    assert "12,345,678" in line and "345,678" in line
    assert max(len(head), len(line)) <= 120
    assert not {"target", "position", "withheld", "removed", "lost", "failed"} & {
        cell.strip() for cell in head.split("  ")
    }
    failed = status_table([usual, replace(usual, quarantined=1_000)])
    assert "  failed  " in failed and "  1,000  " in failed


def test_every_column_of_status_is_among_the_words() -> None:
    known = (Path(__file__).parents[2] / "docs/words.md").read_text()
    everything = replace(rows()[0], quarantined=1, removed=1, lost=3)
    head = status_table([everything]).splitlines()[0]
    columns = [cell.strip() for cell in head.split("  ") if cell.strip()]
    assert len(columns) == 15
    plain = {"partition", "target"}
    assert [column for column in columns if column not in plain and f"\n| {column} |" not in known] == []


def test_nothing_is_in_sync_of_which_the_store_knows_less_than_the_ledger() -> None:
    synced = replace(BEHIND, state=State.IN_SYNC, copy=None, source_end=40)
    for watermark, state in ((40, "in sync"), (39, "not in this store"), (None, "not in this store")):
        [row] = found = status(Plan("orders-dr", (replace(synced, watermark=watermark),)), SNAPSHOT, VIEW)
        assert (row.state, row.in_store) == (state, state == "in sync")
        assert ("WARNING 1 of 1 partitions are verified further in the ledger" in status_table(found)) == (
            state != "in sync"
        )
