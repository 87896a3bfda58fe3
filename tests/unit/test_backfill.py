"""The plan of a backfill: what is there, what would be copied, what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_replication.config.model import TargetTopics
from kafka_replication.documents import as_json
from kafka_replication.ledger.entries import Verified
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.errors import Refused
from kafka_replication.model.offsets import Coverage, OffsetRange
from kafka_replication.planning.backfill_plan import Sample, raise_refused
from kafka_replication.planning.live import plan
from kafka_replication.planning.plan import State
from kafka_replication.planning.snapshot import PartitionOffsets, Snapshot, Topic
from kafka_replication.planning.topic_settings import created_config
from kafka_replication.reporting.backfill import document, plan_table
from tests.support.backfill_worlds import AT, DAY, KEY, NOW, NOW_MS, OTHER, Case, covered, position, replication


def test_it_says_what_is_there_and_what_would_be_copied() -> None:
    line = Case(position(400, 600, (100, 150))).line(50, 500)
    assert (str(line.covered), str(line.gone), str(line.left)) == (
        "[100, 150) [400, 500)",
        "nothing",
        "[50, 100) [150, 400)",
    )
    assert (line.plan.state, line.plan.copy, line.plan.position) == (State.BEHIND, OffsetRange(50, 500), 600)
    assert line.newer == 250, "50 offsets of an earlier backfill and 200 of live copying lie beyond 50"


def test_all_of_it_on_the_target_is_nothing_to_do() -> None:
    made = Case().plan(450, 600)
    assert (made.lines[0].plan.state, made.plan.idle) == (State.IN_SYNC, True)
    assert "nothing to do: the target is up to date, and verified" in plan_table(made, NOW)
    assert document(made).outcome == "nothing_to_do"


def test_a_range_without_an_offset_is_not_called_copied() -> None:
    made = Case().plan(450, 450)
    assert made.plan.idle
    assert "nothing to do: the source has no offset in this range" in plan_table(made, NOW)


def test_what_an_earlier_run_left_unverified_is_verified() -> None:
    made = Case(verified=covered((400, 550))).plan(450, 600)
    assert (made.lines[0].plan.state, str(made.lines[0].plan.verify), made.plan.idle) == (
        State.PENDING,
        "[550, 600)",
        False,
    )
    assert "nothing to copy" in plan_table(made, NOW)


def test_what_is_pending_inside_of_a_range_to_copy_is_no_line_of_its_own() -> None:
    line = Case(position(400, 600, (100, 150)), verified=covered((400, 550))).line(50, 500)
    assert (line.plan.copy, str(line.plan.verify)) == (OffsetRange(50, 500), "[550, 600)")


def test_an_estimate_is_scaled_from_the_sample() -> None:
    line = Case().line(50, 250, Sample(records=80, span=100, bytes=8_000, oldest=NOW_MS))
    assert (line.records, line.bytes) == (160, 16_000)
    assert "~160" in plan_table(Case().plan(50, 250, Sample(80, 100, 8_000, NOW_MS)), NOW)


@pytest.mark.parametrize(
    ("config", "age", "words"),
    [
        ({"retention.ms": str(7 * DAY)}, 2, "5.0 d more"),
        ({"retention.ms": str(7 * DAY)}, 8, "NOT: too old"),
        ({"retention.ms": "-1"}, 999, "for ever"),
        ({"retention.ms": "5", "cleanup.policy": "compact"}, 999, "for ever"),
        ({"retention.ms": "5", "cleanup.policy": "compact,delete"}, 1, "NOT: too old"),
    ],
)
def test_how_long_the_target_keeps_such_records(config: dict[str, str], age: int, words: str) -> None:
    made = Case(target=config).plan(50, 250, Sample(10, 10, 10, NOW_MS - age * DAY))
    assert words in plan_table(made, NOW)
    assert ("RETENTION orders-0: orders keeps records" in plan_table(made, NOW)) == (words == "NOT: too old")


def test_a_topic_that_does_not_exist_keeps_records_as_long_as_it_is_created_to() -> None:
    source = {"retention.ms": str(4 * DAY), "segment.ms": str(7 * DAY), "cleanup.policy": "delete"}
    line = Case(None, source=source, target=None, request=OTHER).line(50, 250)
    assert line.keeps == int(created_config(source, TargetTopics())["retention.ms"]) == 12 * DAY
    line = Case(None, source=source, target=created_config(source, TargetTopics()), request=OTHER).line(50, 250)
    assert line.keeps == 12 * DAY, "the run says what its dry run said"


def test_the_document_of_a_dry_run() -> None:
    assert as_json(document(Case().plan(50, 450, Sample(10, 10, 500, NOW_MS)))) == {
        "replication": "orders-dr",
        "dry_run": True,
        "outcome": "planned",
        "offsets_to_copy": 350,
        "estimated_records": 350,
        "estimated_bytes": 17_500,
        "partitions": [
            {
                "topic": "orders",
                "partition": 0,
                "target_topic": "orders",
                "from": 50,
                "until": 450,
                "on_target": [[400, 450]],
                "gone": [],
                "to_copy": [[50, 400]],
                "to_copy_again": [],
                "lost_on_both_sides": [],
                "withheld": [],
                "to_verify": [],
                "estimated_records": 350,
                "estimated_bytes": 17_500,
                "newer_on_target": 200,
                "oldest_record": "2024-01-31T00:00:00Z",
                "target_keeps_ms": 7 * DAY,
                "kept_until": "2024-02-07T00:00:00Z",
                "engine": None,
                "engine_why": None,
                "error": None,
                "remedy": None,
            }
        ],
    }


# --- refusals ----------------------------------------------------------------------------------------------------------------------

REFUSED: dict[str, tuple[Case, State, str, str]] = {
    "gone": (
        Case(),
        State.OVERRUN,
        "orders-0: offsets [10, 30) can no longer be read, the log now starts at 30",
        "request only readable offsets: from 30",
    ),
    "source re-created": (
        Case(source_id="new"),
        State.SOURCE_RECREATED,
        "the source topic was re-created",
        "kafka-replication reset",
    ),
    "target deleted": (
        Case(target=None),
        State.TARGET_RECREATED,
        "the target topic orders was re-created or deleted",
        "",
    ),
    "ledger went back": (
        Case(watermarks={KEY: 700}),
        State.LEDGER_LOST,
        "below 700 was verified, but the ledger ends at 600",
        "",
    ),
    "ledger lost": (Case(None, watermarks={KEY: 700}), State.LEDGER_LOST, "the ledger has no entry", ""),
    "target missing": (
        Case(None, target=None, request=OTHER, config={"target_topics": {"create": False}}),
        State.TARGET_MISSING,
        "the target topic again does not exist",
        "create it",
    ),
}


@pytest.mark.parametrize(("case", "state", "what", "remedy"), REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_done_is_named_with_its_remedy(case: Case, state: State, what: str, remedy: str) -> None:
    made = case.plan(10, 100)
    assert made.lines[0].plan.state is state
    with pytest.raises(Refused) as refused:
        raise_refused(made.plan)
    assert what in refused.value.what and remedy in refused.value.remedy
    assert what in plan_table(made, NOW) and document(made).outcome == "failed"


def test_what_is_gone_at_the_source_and_on_the_target_already_is_no_obstacle() -> None:
    line = Case(position(0, 600)).line(0, 700)
    assert (str(line.gone), str(line.left), line.plan.refused) == ("nothing", "[600, 700)", False)


def test_a_range_that_is_still_there_can_be_copied_though_live_copying_was_overrun() -> None:
    line = Case(position(0, 20)).line(50, 100)
    assert (line.plan.state, line.plan.copy) == (State.BEHIND, OffsetRange(50, 100))


def test_a_range_beyond_the_position_says_so_and_keeps_the_plans_position() -> None:
    line = Case().line(800, 900)
    assert (line.plan.position, line.newer, line.plan.copy) == (600, 0, OffsetRange(800, 900))


# --- where a partition begins ------------------------------------------------------------------------------------------------------


def test_the_replications_own_partition_opens_where_live_copying_begins_it() -> None:
    line = Case(None, config={"start_from": "latest"}).line(50, 100)
    assert (line.plan.state, line.plan.start, line.plan.copy) == (State.OPENING, 1000, OffsetRange(50, 100))


def test_another_target_opens_where_the_range_begins() -> None:
    line = Case(None, target={}, request=OTHER).line(50, 100)
    assert (line.plan.state, line.plan.start, line.plan.copy, line.key.target_topic) == (
        State.OPENING,
        50,
        OffsetRange(50, 100),
        "again",
    )


def world_with_another_target(verified: Coverage, topic_id: str = "t") -> tuple[Snapshot, LedgerView]:
    other = replace(KEY, target_topic="again")
    view = LedgerView(
        {other: position(100, 200)},
        {other: Verified(generation=1, coverage=verified, level="digest", run_id="run", time="t")},
    )
    source = {
        "orders": Topic(
            name="orders", topic_id="s", partitions={0: PartitionOffsets(30, 1000, 1000)}, replication_factor=3
        )
    }
    target = {
        name: Topic(name=name, topic_id=topic_id, partitions={0: PartitionOffsets(0, 9999, 9999)}, replication_factor=3)
        for name in ("orders", "again")
    }
    return Snapshot(source_cluster="SRC", target_cluster="TGT", source=source, target=target, starts={AT: 1000}), view


def test_live_copying_is_not_misled_by_a_backfill_to_another_target() -> None:
    snapshot, view = world_with_another_target(covered((100, 200)))
    [line] = plan(replication(start_from="latest"), snapshot, view, {}).partitions
    assert (line.state, line.start) == (State.OPENING, 1000), "it is the first opening still: latest means latest"


def test_what_such_a_backfill_left_unverified_is_found_by_a_live_run_unless_its_topic_is_gone() -> None:
    snapshot, view = world_with_another_target(covered((100, 150)))
    pending = plan(replication(), snapshot, view, {}).partitions[1]
    assert (pending.key.target_topic, pending.state, str(pending.verify), pending.copy) == (
        "again",
        State.PENDING,
        "[150, 200)",
        None,
    )
    snapshot, view = world_with_another_target(covered((100, 150)), topic_id="new")
    assert len(plan(replication(), snapshot, view, {}).partitions) == 1
