"""What retention will drop: figures of one partition in, a warning with figures or nothing out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from kafka_replication.model.offsets import OffsetRange
from kafka_replication.model.times import from_millis, to_text
from kafka_replication.planning import foresight
from kafka_replication.planning.foresight import SourceLoss, Waiting, findings, source_loss, target_loss
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


def foreseen(hours_left: float) -> SourceLoss | None:
    """Of 4,000 offsets that wait, in so many hours before the oldest is a week old."""
    return source_loss(waiting()[0], oldest=round(NOW - 7 * DAY + hours_left * HOUR), now=NOW)


def test_the_source_loses_the_oldest_record_when_it_is_as_old_as_the_retention() -> None:
    loss = foreseen(3)
    assert loss is not None
    assert (loss.seconds, loss.waiting) == (3 * 3600, 4_000)
    assert loss.what == (
        "records may be lost in 3.0 h unless they are copied before: the oldest one of orders-0 that is not copied, at"
        f" offset 1000, is from {to_text(from_millis(loss.oldest))}, and the source keeps records for 7 days"
        " (retention.ms); 4,000 offsets wait"
    )
    assert "retention.ms of orders on the source" in loss.remedy


@pytest.mark.parametrize(
    ("hours_left", "seconds"),
    [
        (23, 23 * 3600),
        (25, None),  # more than a day
        (0, 0),
        (-48, 0),  # a record that is older than that may go at any moment
        (7 * 24 + 24, None),  # a record of the future
    ],
)
def test_the_seconds_until_records_are_lost(hours_left: float, seconds: float | None) -> None:
    loss = foreseen(hours_left)
    assert (None if loss is None else loss.seconds) == seconds
    assert loss is None or ("at any moment" in loss.what) == (seconds == 0)


def test_nothing_is_said_of_a_record_without_a_time() -> None:
    assert source_loss(waiting()[0], oldest=None, now=NOW) is None
    assert source_loss(waiting(source_config={})[0], oldest=0, now=NOW) is None


def test_what_waits_is_what_was_opened_and_is_not_copied() -> None:
    [behind] = waiting()
    assert (str(behind.left), str(behind.to_copy)) == ("[1000, 5000)", "[1000, 5000)")
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
        return [f"{one.left}, {one.source_keeps}" for one in found]

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
    assert waiting(mark) == [f"[40, 100), {7 * DAY}"]
    assert waiting(mark, (60, 100, 90)) == [f"[60, 90), {7 * DAY}"]
    assert waiting(mark, (0, 40, 40)) == [f"nothing, {7 * DAY}"]
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
    late, soon = foreseen(20), foreseen(2)
    assert late is not None and soon is not None
    [finding] = findings([late, replace(soon, key=key(partition=7))])
    assert (finding.topic, finding.partition) == ("orders", 7)
    assert finding.what.startswith("records may be lost in 2.0 h")
    assert finding.what.endswith(" (and 1 other partitions of orders)")
