"""How a report is told: its JSON, its table, its sum; and what a plan says."""

from __future__ import annotations

import re
from dataclasses import replace
from operator import itemgetter
from typing import Any

import pytest

from kafka_replication.documents import adapter, as_json, listed, place
from kafka_replication.ledger.entries import Ids
from kafka_replication.model.choices import EngineChoice, chosen
from kafka_replication.model.offsets import Coverage, OffsetRange
from kafka_replication.planning.plan import PartitionPlan, Plan, State
from kafka_replication.reporting.run import RangeReport, RunReport, dry_run, plan_summary, plan_table
from kafka_replication.reporting.table import Columns, EngineTurnRow, engine_rows, table
from tests.support.reports import KEY, gap

LINE = RangeReport(
    **place(KEY, OffsetRange(0, 100)),
    copied=85,
    copied_before=5,
    not_visible=10,
    missing=0,
    digest_ok=True,
    watermark=100,
    bytes=3_000_000,
    seconds=1.5,
    engines=("batch/1", "record/1"),
    begun=chosen("batch", 100),
    engine_why="copy.engine says so",
    turns=(EngineTurnRow(engine="record/1", from_=40, until=100, why="its batches have 2.0 records each"),),
)
FAILED = RangeReport(
    **place(KEY, OffsetRange(100, 130)),
    missing=30,
    error="the target refuses the record at offset 100",
    remedy="raise the limit",
)


def test_the_json_of_a_run_is_the_documented_one() -> None:
    assert as_json(RunReport(replication="orders-dr", run_id="run-2", ranges=(LINE, FAILED))) == {
        "replication": "orders-dr",
        "run_id": "run-2",
        "outcome": "failed",
        "ranges": [
            {
                "topic": "orders",
                "partition": 3,
                "target_topic": "dr.orders",
                "from": 0,
                "until": 100,
                "copied": 85,
                "copied_before": 5,
                "written": 85,
                "filtered": 0,
                "quarantined": 0,
                "skipped": 0,
                "lost_in_delivery": 0,
                "duplicates": 0,
                "superseded": 0,
                "not_visible": 10,
                "lost": 0,
                "returned": 0,
                "missing": 0,
                "digest_ok": True,
                "watermark": 100,
                "bytes": 3_000_000,
                "seconds": 1.5,
                "engines": ["batch/1", "record/1"],
                "engine_why": "copy.engine says so",
                "engine_turns": [
                    {"engine": "record/1", "from": 40, "until": 100, "why": "its batches have 2.0 records each"}
                ],
                "error": None,
            },
            {
                "topic": "orders",
                "partition": 3,
                "target_topic": "dr.orders",
                "from": 100,
                "until": 130,
                "copied": 0,
                "copied_before": 0,
                "written": 0,
                "filtered": 0,
                "quarantined": 0,
                "skipped": 0,
                "lost_in_delivery": 0,
                "duplicates": 0,
                "superseded": 0,
                "not_visible": 0,
                "lost": 0,
                "returned": 0,
                "missing": 30,
                "digest_ok": None,
                "watermark": None,
                "bytes": 0,
                "seconds": 0.0,
                "engines": [],
                "engine_why": None,
                "engine_turns": [],
                "error": "the target refuses the record at offset 100. Remedy: raise the limit",
            },
        ],
        "gaps": [],
        "removed": [],
        "verified_by": "none",
        "delivery": "exactly_once",
        "promise": "transactional",
        "adopted": 0,
        "notes": [],
    }


def test_the_json_of_a_run_is_read_as_what_it_was() -> None:
    written = as_json(RunReport(replication="orders-dr", run_id="run-2", ranges=(LINE, FAILED)))
    read = adapter(RunReport).validate_python(written)
    assert as_json(read) == written
    assert (read.outcome, read.ranges[0].range, read.ranges[0].copied) == ("failed", OffsetRange(0, 100), 85)


def test_records_left_out_are_in_the_table_of_a_run() -> None:
    line = replace(LINE, copied=75, filtered=7, quarantined=2, skipped=1)
    (text,) = [
        row
        for row in RunReport(replication="orders-dr", run_id="run-2", ranges=(line, FAILED)).table().splitlines()
        if "filtered" in row
    ]
    assert "orders-3 [0, 100)" in text and "7 filtered, 2 quarantined, 1 skipped" in text
    assert "filtered" not in RunReport(replication="orders-dr", run_id="run-2", ranges=(LINE,)).table()


@pytest.mark.parametrize(
    ("ranges", "outcome"), [((), "nothing_to_do"), ((LINE,), "done"), ((LINE, FAILED), "failed"), ((FAILED,), "failed")]
)
def test_the_outcome_of_a_run(ranges: tuple[RangeReport, ...], outcome: str) -> None:
    assert RunReport(replication="orders-dr", run_id="run-2", ranges=ranges).outcome == outcome


def test_the_table_names_each_range_and_each_failure() -> None:
    head, first, second, meaning, begun, turn, *failures = (
        RunReport(replication="orders-dr", run_id="run-2", ranges=(LINE, replace(FAILED, digest_ok=False)))
        .table()
        .splitlines()
    )
    assert head.split() == [
        "partition",
        "target",
        "range",
        "span",
        "copied",
        "before",
        "not",
        "visible",
        "lost",
        "missing",
        "digest",
        "watermark",
        "speed",
        "engine",
    ]
    assert first.split() == [
        "orders-3",
        "dr.orders",
        "[0,",
        "100)",
        "100",
        "85",
        "5",
        "10",
        "0",
        "0",
        "equal",
        "100",
        "2.0",
        "MB/s",
        "batch/1,",
        "record/1",
    ]
    assert second.split()[:11] == ["orders-3", "dr.orders", "[100,", "130)", "30", "0", "0", "0", "0", "30", "DIFFERS"]
    assert meaning.startswith("(before: ") and "not visible: " in meaning and "missing: " in meaning
    assert "lost: " not in meaning
    assert second.split()[-1] == "-"
    assert begun == "planned to be copied by the batch engine: 1 partition (copy.engine says so)"
    assert turn == "orders-3 [40, 100) went to the engine record/1: its batches have 2.0 records each"
    assert failures == [
        "FAILED orders-3 [100, 130): the target refuses the record at offset 100",
        "  remedy: raise the limit",
    ]


def test_the_sum_of_a_run() -> None:
    def summary(*ranges: RangeReport) -> str:
        return RunReport(replication="orders-dr", run_id="run-2", ranges=ranges).summary()

    many = replace(LINE, copied=1_171_875, bytes=1_200_000_000)
    assert summary() == "nothing to do"
    assert summary(many) == "done: 1 partitions, 1,171,875 records copied, 1.2 GB"
    assert summary(LINE, FAILED) == "failed: 1 partitions, 85 records copied, 3.0 MB; 1 of 2 ranges failed"


def test_large_numbers_are_grouped_in_a_table_and_plain_numbers_in_json() -> None:
    many = replace(LINE, copied=1_171_875)
    made = RunReport(replication="orders-dr", run_id="run-2", ranges=(many,))
    assert "1,171,875" in made.table() and made.ranges[0].copied == 1_171_875


def planned(**changes: Any) -> Plan:
    values: dict[str, Any] = {
        "key": KEY,
        "state": State.OPENING,
        "ids": Ids("c", "s", ""),
        "generation": 0,
        "start": 0,
        "position": 0,
        "source_end": 120_000,
        "watermark": None,
        "copy": OffsetRange(0, 120_000),
    }
    return Plan("orders-dr", (PartitionPlan(**values | changes),))


def test_a_plan_says_in_a_line_what_a_run_would_do() -> None:
    there = {"ids": Ids("c", "s", "t")}
    idle = {**there, "state": State.IN_SYNC, "copy": None}
    assert plan_summary(planned()) == ("to copy: 120,000 offsets of 1 partitions\nto create on the target: dr.orders")
    assert plan_summary(planned(**there)) == "to copy: 120,000 offsets of 1 partitions"
    assert plan_summary(planned(**idle)) == "nothing to do: the target is up to date"
    assert plan_summary(planned(**idle, verify=Coverage.of([OffsetRange(0, 5)]))) == "to verify: 1 partitions"
    document = as_json(dry_run(planned()))
    assert (document["outcome"], document["offsets_to_copy"], document["topics_to_create"]) == (
        "planned",
        120_000,
        ["dr.orders"],
    )
    assert dry_run(planned(**idle)).outcome == "nothing_to_do"


def test_a_run_with_nothing_to_do_says_so_and_still_what_was_given_up() -> None:
    made = RunReport(replication="orders-dr", run_id="run-2", ranges=(), gaps=listed({KEY: [gap("retention", 60, 90)]}))
    made = replace(made, level="count")
    assert made.table().splitlines() == [
        "everything is copied and verified (by count)",
        "LOST orders-3 [60, 90): 30 offsets (retention, generation 1), given up by ann at time: too late",
    ]
    assert made.gaps[0].from_ == 60


def test_a_failure_without_remedy_says_run_again() -> None:
    assert (
        RunReport(replication="orders-dr", run_id="run-2", ranges=(replace(FAILED, remedy=""),))
        .table()
        .endswith("\n  remedy: run again")
    )


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    columns: Columns[str] = {"a": lambda row: row, "long head": lambda row: None}
    assert table(["wider"], columns) == "a      long head\nwider  -"


def test_a_cell_is_shown_as_it_is_however_narrow_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setenv("FORCE_COLOR", "1")
    cells = ("[bold]", "[120, 480)", ":smile:", "a" * 500)
    columns = {str(number): itemgetter(number) for number in range(len(cells))}
    assert table([cells], columns).splitlines()[1] == "  ".join(cells)


def test_speed_is_megabytes_a_second_of_the_copy() -> None:
    def speed(line: RangeReport) -> str:
        return re.split("  +", RunReport(replication="r", run_id="1", ranges=(line,)).table().splitlines()[1])[-2]

    assert (speed(LINE), speed(replace(LINE, seconds=0.0))) == ("2.0 MB/s", "-")


def test_a_slow_copy_is_not_said_to_copy_nothing() -> None:
    slow = RunReport(replication="orders-dr", run_id="run-2", ranges=(replace(LINE, bytes=72_000, seconds=10.0),))
    assert slow.table().splitlines()[1].endswith("  7.2 kB/s  batch/1, record/1")


def begins(choice: EngineChoice | None) -> dict[str, Any]:
    return {"engine": choice.engine, "engine_why": choice.why} if choice else {}


def test_a_plan_says_which_engine_copies_how_many_ranges_and_why() -> None:
    short = chosen("auto", 1)
    made = [planned(**begins(choice)).partitions[0] for choice in (chosen("auto", 10_000), short, None, short)]
    assert as_json(engine_rows(one.choice for one in made)[0]) == {
        "engine": "record",
        "why": "it has fewer than 5,000 offsets",
        "partitions": 2,
    }
    text = plan_table(Plan("orders-dr", tuple(made)))
    assert "copied by the record engine: 2 partitions (it has fewer than 5,000 offsets)" in text
    assert "copied by the batch engine: 1 partition (it has 5,000 offsets or more)" in text


def test_of_many_turns_the_table_names_ten() -> None:
    turns = tuple(EngineTurnRow(engine="record/1", from_=at, until=at + 1, why="small") for at in range(12))
    text = RunReport(replication="orders-dr", run_id="run-2", ranges=(replace(LINE, turns=turns),)).table()
    assert text.count("went to the engine record/1") == 10
    assert "2 more parts of ranges went to another engine" in text
