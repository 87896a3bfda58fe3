"""What retention will drop: figures of one partition in, a warning with figures or nothing out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_replication.model.offsets import OffsetRange
from kafka_replication.model.times import from_millis, to_text
from kafka_replication.planning.retention import foresight
from kafka_replication.planning.retention.foresight import (
    Waiting,
    seconds_until_loss,
    size_loss,
    source_loss,
    target_loss,
)
from kafka_replication.planning.retention.losses import SourceLoss, findings
from kafka_replication.planning.snapshot import Snapshot, TopicDefaults
from kafka_replication.watermarks.values import Watermark
from tests.support.planning import Case, key, position, replication, source, topic, verified

HOUR, DAY = 3_600_000, 86_400_000
NOW = 1_900_000_000_000
WEEK = {"cleanup.policy": "delete", "retention.ms": str(7 * DAY)}
BEHIND = Case(
    source=source((0, 5_000, 5_000)),
    positions={key(): position(1_000)},
    verified={key(): verified(1_000)},
    watermarks={key(): 1_000},
)


def waiting(
    case: Case = BEHIND, source_config: Mapping[str, str] = WEEK, target: Mapping[str, str] | None = WEEK, **more: Any
) -> list[Waiting]:
    """``target``: None if the topic does not exist."""
    sources = {name: replace(one, config=source_config) for name, one in case.source.items()}
    targets = {} if target is None else {"orders": replace(case.target["orders"], config=target)}
    changed = replace(case, source=sources, target=targets)
    snapshot: Snapshot = replace(changed.snapshot, defaults=TopicDefaults(3, more.pop("defaults", {})))
    return foresight.waiting(replication(**more), changed.plan(), snapshot, changed.ledger)


def foreseen(*, hours_left: float, copied: int = 0, hours: float | None = None, **changes: Any) -> SourceLoss | None:
    """Of 4,000 offsets that wait, in so many hours before the oldest is a week old; ``copied`` ones in ``hours``."""
    oldest = round(NOW - 7 * DAY + hours_left * HOUR)
    since = oldest if hours is None else round(NOW - hours * HOUR)
    figures: dict[str, Any] = {"oldest": oldest, "now": NOW, "since": since, "offset_then": 1_000 - copied}
    return source_loss(waiting()[0], **{**figures, **changes})


def test_stopped_runs_lose_the_oldest_record_when_it_is_as_old_as_the_retention() -> None:
    loss = foreseen(hours_left=3)
    assert loss is not None
    assert (loss.seconds, loss.waiting, loss.per_second) == (3 * 3600, 4_000, 0)
    oldest = to_text(from_millis(loss.oldest))
    assert loss.what == (
        "at this rate records are lost in 3.0 h: the oldest one of orders-0 that is not copied, at offset 1000, is from"
        f" {oldest}, and the source keeps records for 7 days (retention.ms); 4,000 offsets wait, and of late none was"
        " copied"
    )
    assert "retention.ms of orders on the source" in loss.remedy


CASES: list[tuple[str, dict[str, Any], float | None]] = [
    ("as much is copied as comes", {"hours_left": 3, "copied": 4_000}, None),
    ("half of what comes is copied: it takes twice as long", {"hours_left": 3, "copied": 2_000}, 6 * 3600),
    ("it takes longer than a day", {"hours_left": 3, "copied": 3_600}, None),
    ("there is more than a day left", {"hours_left": 25}, None),
    ("a record that is older than that may go at any moment", {"hours_left": -48}, 0),
    ("even if much is copied", {"hours_left": -48, "copied": 90_000}, 0),
    ("measured for an hour only", {"hours_left": 3, "hours": 1}, None),
    ("measured for three hours", {"hours_left": 3, "hours": 3}, 3 * 3600),
    ("fast for the last hour, after a long stop", {"hours_left": 3, "copied": 100, "hours": 4}, None),
    ("the time of the record is not known", {"hours_left": 3, "oldest": None}, None),
    ("what was copied is not known", {"hours_left": 3, "since": None}, None),
    ("a clock that goes wrong", {"hours_left": 3, "since": NOW + 5}, None),
    ("a record of the future", {"hours_left": 3, "oldest": NOW + DAY}, None),
]


@pytest.mark.parametrize(("figures", "seconds"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_the_seconds_until_records_are_lost(figures: dict[str, Any], seconds: float | None) -> None:
    loss = foreseen(**figures)
    assert (None if loss is None else round(loss.seconds)) == seconds
    assert loss is None or ("at any moment" in loss.what) == (seconds == 0)


@given(
    keeps=st.integers(1, 10**6),
    left=st.integers(1, 10**6),
    came=st.integers(1, 10**6),
    copied=st.integers(0, 10**6),
    elapsed=st.integers(1, 10**6),
)
def test_records_are_lost_when_copying_meets_the_end_of_retention(
    keeps: int, left: int, came: int, copied: int, elapsed: int
) -> None:
    """Records come and are copied evenly: at that second the next record to copy is as old as the retention."""
    age = max(0, keeps - left)
    seconds = seconds_until_loss(age=age, keeps=keeps, came=came, copied=copied, elapsed=elapsed)
    if seconds is None:
        assert copied * age >= came * elapsed
        return
    copied_then = seconds * copied / elapsed
    came_at = copied_then * age / came - age  # its time, from now
    assert seconds - came_at == pytest.approx(keeps, rel=1e-6)
    more = seconds_until_loss(age=age, keeps=keeps, came=came, copied=copied + 1, elapsed=elapsed)
    assert more is None or more >= seconds


def test_what_waits_is_what_was_opened_and_is_not_copied() -> None:
    [behind] = waiting()
    assert (str(behind.left), str(behind.to_copy), behind.end) == ("[1000, 5000)", "[1000, 5000)", 5_000)
    ahead = replace(BEHIND, positions={key(): position(1_000, more=[OffsetRange(1_500, 3_000)])})
    [around_backfill] = waiting(ahead)
    assert (str(around_backfill.left), around_backfill.left) == ("[1000, 1500) [3000, 5000)", around_backfill.to_copy)
    assert waiting(replace(BEHIND, positions={key(): position(5_000)})) == []
    [new] = waiting(replace(BEHIND, positions={}, verified={}, watermarks={}))
    assert (str(new.left), str(new.to_copy)) == ("nothing", "[0, 5000)")
    target_end = topic("orders", "t-orders", (0, 500, 500))
    [stopped] = waiting(replace(BEHIND, target={"orders": target_end}))  # the target lost its end: nothing is copied
    assert (stopped.left, str(stopped.to_copy)) == (behind.left, "nothing")
    overrun = replace(BEHIND, source=source((2_000, 5_000, 5_000)))
    assert waiting(overrun) == []  # it is refused, with a reason of its own


def test_while_the_target_is_away_the_store_says_what_waits() -> None:
    def waiting(mark: Watermark, offsets: tuple[int, int, int] = (0, 100, 100)) -> list[str]:
        topics = {"orders": replace(topic("orders", "s-orders", offsets), config=WEEK)}
        found = foresight.unverified(replication(), [mark], topics)
        return [f"{one.left} of {one.end}, {one.source_keeps}" for one in found]

    mark = Watermark(
        key=key(),
        generation=1,
        source_topic_id="s-orders",
        target_topic_id="t-orders",
        offset=40,
        version=1,
        updated_at=from_millis(NOW),
        run_id="run-1",
    )
    assert waiting(mark) == [f"[40, 100) of 100, {7 * DAY}"]
    assert waiting(mark, (60, 100, 90)) == [f"[60, 90) of 90, {7 * DAY}"]
    assert waiting(mark, (0, 40, 40)) == [f"nothing of 40, {7 * DAY}"]
    assert waiting(replace(mark, source_topic_id="another")) == []
    assert waiting(replace(mark, key=key(target="elsewhere"))) == []
    assert waiting(replace(mark, key=key("gone"))) == []


@pytest.mark.parametrize(
    ("config", "keeps"),
    [
        (WEEK, 7 * DAY),
        ({"retention.ms": "60000"}, 60_000),
        ({}, None),  # not shown to this client
        ({"retention.ms": "-1"}, None),
        ({**WEEK, "cleanup.policy": "compact"}, None),
        ({**WEEK, "cleanup.policy": "compact,delete"}, 7 * DAY),
    ],
)
def test_only_a_retention_that_is_known_is_looked_at(config: Mapping[str, str], keeps: int | None) -> None:
    [found] = waiting(source_config=config, target=config)
    assert (found.source_keeps, found.target_keeps) == (keeps, keeps)
    assert (found.source_limit(NOW) is None) == (keeps is None)


def test_the_retention_that_a_target_will_have() -> None:
    def keeps(**more: Any) -> int | None:
        return waiting(replace(BEHIND, positions={}, verified={}, watermarks={}), target=None, **more)[0].target_keeps

    assert keeps() == 8 * DAY  # the default of created topics
    assert keeps(target_topics={"config": {"retention.ms": "1000"}}) == 1_000
    assert keeps(source_config={}, defaults={"retention.ms": "5000"}) == 5_000
    assert keeps(transform=["functions:later"]) is None  # which may change timestamps


def test_a_limit_is_a_day_or_a_quarter_of_the_retention_before_the_end() -> None:
    [week] = waiting()
    assert week.source_limit(NOW) == NOW - 6 * DAY
    [hours] = waiting(source_config={"retention.ms": str(8 * HOUR)})
    assert hours.source_limit(NOW) == NOW - 6 * HOUR
    assert foresight.young_from(2**62, NOW) == 0


def test_the_target_is_asked_for_only_if_it_keeps_less_than_the_source_shows() -> None:
    [same] = waiting()
    assert same.target_limit(NOW, young_at_source=900) is None
    assert same.target_limit(NOW, young_at_source=1_001) == NOW - 6 * DAY
    assert same.target_limit(NOW, young_at_source=None) == NOW - 6 * DAY
    [shorter] = waiting(target={"retention.ms": str(2 * DAY)})
    assert shorter.target_limit(NOW, young_at_source=900) == NOW - 36 * HOUR
    [forever] = waiting(target={"retention.ms": "-1"})
    assert forever.target_limit(NOW, young_at_source=None) is None


def test_copies_that_the_target_drops_are_counted_for_the_topic() -> None:
    two = Case(
        source=source((0, 50, 50), (0, 70, 70)), target={"orders": topic("orders", "t-orders", (0, 0, 0), (0, 0, 0))}
    )
    first, second = waiting(two, target={"retention.ms": str(2 * DAY)})
    assert target_loss(first, oldest=None, young=9) is None
    assert target_loss(first, oldest=NOW, young=0) is None
    losses = [target_loss(first, oldest=NOW, young=99), target_loss(second, oldest=NOW - 9 * DAY, young=20)]
    [finding] = findings([], [loss for loss in losses if loss])
    assert (finding.severity, finding.where, finding.partition) == ("warning", "orders -> orders", 1)
    assert "orders keeps records for 2 days" in finding.what and "up to 70 of the 120 offsets" in finding.what
    assert f"at offset 0 of orders-1, is from {to_text(from_millis(NOW - 9 * DAY))}" in finding.what
    assert "raise retention.ms of orders first" in finding.remedy


def test_the_nearest_loss_of_a_topic_is_told_with_the_number_of_the_others() -> None:
    late, soon = foreseen(hours_left=20), foreseen(hours_left=2)
    assert late is not None and soon is not None
    [finding] = findings([late, replace(soon, key=key(partition=7))], [])
    assert (finding.topic, finding.partition) == ("orders", 7)
    assert finding.what.startswith("at this rate records are lost in 2.0 h")
    assert finding.what.endswith(" (and 1 other partitions of orders)")


MB = 1_000_000
LIMITED = {"cleanup.policy": "delete", "retention.bytes": str(8 * MB)}


def by_size(
    size: int | None, *, hours: float, copied: int = 0, config: Mapping[str, str] = LIMITED
) -> SourceLoss | None:
    """Of 5,000 offsets 4,000 wait; they came in so many hours, in which ``copied`` ones were copied."""
    oldest = round(NOW - hours * HOUR)
    [behind] = waiting(source_config=config)
    return source_loss(behind, oldest=oldest, now=NOW, since=oldest, offset_then=1_000 - copied, size=size)


def test_a_partition_that_fills_loses_the_oldest_record_when_as_much_lies_behind_it_as_the_source_keeps() -> None:
    loss = by_size(9 * MB, hours=18)  # 7.2 MB of them wait: 0.8 MB are left, at 0.4 MB an hour
    assert loss is not None and (round(loss.seconds), loss.waiting) == (2 * 3600, 4_000)
    assert (
        "records are lost in 2.0 h" in loss.what
        and "the source keeps 8.0 MB of a partition (retention.bytes); it and what lies behind it have about 7.2 MB"
        in loss.what
    )
    assert "raise retention.bytes of orders on the source" in loss.remedy


@pytest.mark.parametrize(
    ("size", "figures", "seconds"),
    [
        (9 * MB, {"hours": 18, "copied": 2_000}, 4 * 3600),  # half of what comes is copied
        (9 * MB, {"hours": 18, "copied": 4_000}, None),
        (7 * MB, {"hours": 18}, None),  # less than three quarters of what is kept waits
        (10 * MB, {"hours": 18}, 0),
        (100 * MB, {"hours": 18}, 0),
        (9 * MB, {"hours": 18, "config": {**LIMITED, "cleanup.policy": "compact"}}, None),
        (9 * MB, {"hours": 18, "config": {**LIMITED, "remote.storage.enable": "true"}}, None),
        (9 * MB, {"hours": 167, "config": {**LIMITED, **WEEK}}, 3600),  # the time comes first
        (9 * MB, {"hours": 18, "config": WEEK}, None),
        (9 * MB, {"hours": 0}, None),
        (None, {"hours": 18}, None),
        (0, {"hours": 18}, None),
    ],
)
def test_the_seconds_until_a_partition_is_full(
    size: int | None, figures: dict[str, Any], seconds: float | None
) -> None:
    loss = by_size(size, **figures)
    assert (None if loss is None else round(loss.seconds)) == seconds
    if loss and loss.limit.setting == "retention.bytes":
        assert waiting(source_config=LIMITED)[0].may_outgrow(size)


def test_a_partition_is_looked_at_only_if_a_quarter_or_less_is_free() -> None:
    [behind] = waiting(source_config=LIMITED)
    assert [behind.may_outgrow(size) for size in (None, 7_499_000, 7_500_000)] == [False, False, True]
    assert not waiting()[0].may_outgrow(9 * MB)
    assert [waiting(source_config=config, target=config)[0].needs_size for config in (WEEK, LIMITED)] == [False, True]


def waits_for_size(case: Case = BEHIND, target: Mapping[str, str] | None = LIMITED, **more: Any) -> list[int | None]:
    found = (size_loss(one, 20 * MB) for one in waiting(case, target=target, **more))
    return [None if loss is None else loss.waits for loss in found]


def test_more_than_a_target_keeps_is_told_for_each_topic() -> None:
    assert waits_for_size() == [16 * MB]
    assert waits_for_size(target={**LIMITED, "retention.bytes": str(16 * MB)}) == [None]
    assert waits_for_size(target=WEEK) == [None]
    assert waits_for_size(target={**LIMITED, "cleanup.policy": "compact"}) == [None]
    assert waits_for_size(filter="key == 'a'") == [None]  # how much that leaves out is not known
    assert waits_for_size(partitioning="by_key") == [None]
    assert waits_for_size(source_config={"remote.storage.enable": "true"}) == [None]
    created = replace(BEHIND, positions={}, verified={}, watermarks={})
    assert waits_for_size(created, None, target_topics={"config": {"retention.bytes": "1000"}}) == [20 * MB]
    assert waits_for_size(created, None, defaults={"retention.bytes": "1000"}) == [20 * MB]
    [behind] = waiting(target=LIMITED)
    assert size_loss(behind, None) is None
    first, second = size_loss(behind, 20 * MB), size_loss(replace(behind, key=key(partition=7)), 30 * MB)
    assert first is not None and second is not None
    [finding] = findings([], [], [first, second])
    assert (finding.severity, finding.where, finding.partition) == ("warning", "orders -> orders", 7)
    assert finding.what == (
        "orders keeps 8.0 MB of a partition (retention.bytes), and about 24.0 MB of orders-7 are not copied to it yet (and of"
        " 1 more partitions more than it keeps): the oldest of them may be deleted soon after they are copied, and before"
        " they are read back"
    )
    assert finding.remedy == "raise retention.bytes of orders first"
