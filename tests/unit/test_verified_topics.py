"""The topics that a run announces as verified."""

from __future__ import annotations

from typing import Any

from kafka_replication.documents import place
from kafka_replication.model.offsets import OffsetRange, PartitionKey, TopicPartition
from kafka_replication.reporting.run import RangeReport, RunReport, verified_topics
from kafka_replication.watermarks.values import RangeOutcome


def line(topic: str, partition: int, from_: int, until: int, **changes: Any) -> RangeReport:
    key = PartitionKey("orders-dr", TopicPartition(topic, partition), f"dr.{topic}")
    values = {"copied": until - from_, "bytes": 10, "watermark": until, **changes}
    return RangeReport(**place(key, OffsetRange(from_, until)), **values)


def report(*lines: RangeReport) -> RunReport:
    return RunReport(replication="orders-dr", run_id="run-2", ranges=lines, level="digest")


def before(line: RangeReport, error: str | None = None) -> RangeOutcome:
    """The outcome of an earlier run that failed."""
    return RangeOutcome(
        run_id="run-1",
        key=line.key,
        range=line.range,
        copied=line.copied,
        not_visible=0,
        digest_ok=True,
        level="digest",
        watermark=line.watermark,
        bytes=line.bytes,
        error=error,
    )


def test_each_topic_has_its_ranges_in_order_and_their_sums() -> None:
    said = report(line("b", 0, 0, 5), line("a", 1, 7, 9), line("a", 0, 0, 3))
    first, second = verified_topics(said)
    assert (first.topic, second.topic) == ("dr.a", "dr.b")
    extra = first.extra(said)
    assert (extra["records"], extra["bytes"], extra["run_id"], extra["verified_by"]) == (5, 20, "run-2", "digest")
    assert [(part["topic"], part["partition"], part["from"], part["until"]) for part in extra["partitions"]] == [
        ("a", 0, 0, 3),
        ("a", 1, 7, 9),
    ]
    assert [part["watermark"] for part in extra["partitions"]] == [3, 9]


def test_a_run_with_a_failed_range_announces_nothing() -> None:
    assert verified_topics(report(line("a", 0, 0, 3), line("b", 0, 0, 3, error="it is refused"))) == []


def test_a_run_that_had_nothing_to_do_announces_nothing() -> None:
    assert verified_topics(report()) == []


def test_what_failed_runs_have_verified_is_announced_by_the_next_good_one() -> None:
    failed = [before(line("a", 0, 0, 3)), before(line("b", 0, 0, 4), error="it is refused")]
    said = report(line("b", 0, 0, 4))
    assert [topic.topic for topic in verified_topics(said, failed)] == ["dr.a", "dr.b"]
    assert [topic.extra(said)["records"] for topic in verified_topics(said, failed)] == [3, 4]


def test_a_topic_that_is_verified_in_part_waits_also_when_a_run_of_other_topics_is_good() -> None:
    failed = [before(line("a", 0, 0, 3)), before(line("a", 1, 0, 4), error="it is refused"), before(line("b", 0, 0, 5))]
    assert [topic.topic for topic in verified_topics(report(line("c", 0, 0, 1)), failed)] == ["dr.b", "dr.c"]
    assert [topic.topic for topic in verified_topics(report(line("a", 1, 0, 4)), failed)] == ["dr.a", "dr.b"]


def test_what_a_run_that_died_has_verified_waits_for_a_run_of_the_same_topic() -> None:
    died = [before(line("a", 0, 0, 3)), before(line("b", 0, 0, 4))]  # whether a-1 was planned, too, is not said
    said = report(line("b", 1, 0, 4))
    assert [topic.topic for topic in verified_topics(said, died, died={"run-1"}, planned={"dr.b"})] == ["dr.b"]
    both = {"dr.a", "dr.b"}
    assert [topic.topic for topic in verified_topics(said, died, died={"run-1"}, planned=both)] == ["dr.a", "dr.b"]
