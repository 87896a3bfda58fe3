"""Which settings of a target topic follow its source, and when."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafka_replication.config.model import TargetTopics
from kafka_replication.planning.followed_settings import LEFT_ALONE, Difference, differences, findings
from kafka_replication.planning.snapshot import Topic
from kafka_replication.planning.topic_settings import created_config
from tests.support.preflight_worlds import replication, topic

DAY = 24 * 3600 * 1000
DEFAULTS = {
    "cleanup.policy": "delete",
    "max.message.bytes": "1048588",
    "retention.ms": str(7 * DAY),
    "segment.ms": str(7 * DAY),
    "flush.ms": "9",
    "min.compaction.lag.ms": "0",
    "min.insync.replicas": "1",
    "retention.bytes": "-1",
    "message.timestamp.after.max.ms": str(2**63 - 1),
    "message.timestamp.before.max.ms": str(2**63 - 1),
}


def with_own(own: Mapping[str, str]) -> Topic:
    return replace(topic("orders", {**DEFAULTS, **own}), own=frozenset(own))


def created(source: Mapping[str, str], **settings: Any) -> dict[str, str]:
    """The settings of a target topic that was created for this source."""
    return created_config({**DEFAULTS, **source}, TargetTopics(**settings))


def found(source: Mapping[str, str], target: Mapping[str, str], **settings: Any) -> list[str]:
    there = differences(replication(target_topics=settings), with_own(source), with_own(target))
    return [("" if one.can_follow else "report: ") + f"{one.name}: {one.now} -> {one.wanted}" for one in there]


@pytest.mark.parametrize(
    "source",
    [
        {},
        {"retention.ms": str(DAY)},
        {"cleanup.policy": "compact", "min.compaction.lag.ms": "5", "max.compaction.lag.ms": "6"},
        {"retention.bytes": "1000", "segment.ms": "5", "message.timestamp.before.max.ms": "5"},
        dict.fromkeys(LEFT_ALONE, "5"),
    ],
)
def test_a_topic_that_was_just_created_does_not_differ(source: dict[str, str]) -> None:
    assert found(source, created(source)) == []


@pytest.mark.parametrize(
    ("source", "target", "said"),
    [
        ({"flush.ms": "5"}, {}, ["flush.ms: 9 -> 5"]),
        ({}, {"flush.ms": "5"}, ["report: flush.ms: 5 -> None"]),
        ({"x.y": "5"}, {}, ["report: x.y: None -> 5"]),
        ({"retention.ms": str(DAY)}, {"retention.ms": str(20 * DAY)}, [f"retention.ms: {20 * DAY} -> {9 * DAY}"]),
        ({"retention.ms": str(DAY)}, {"retention.ms": str(DAY)}, []),
        ({}, {"retention.ms": str(20 * DAY)}, []),
        ({}, {"retention.ms": "-1"}, []),
        ({}, {"retention.ms": str(DAY)}, [f"report: retention.ms: {DAY} -> {15 * DAY}"]),
        ({"max.message.bytes": "5"}, {"max.message.bytes": "6"}, []),
        ({"max.message.bytes": "7"}, {"max.message.bytes": "6"}, ["max.message.bytes: 6 -> 7"]),
        ({"cleanup.policy": "compact,delete"}, {"cleanup.policy": "delete,compact"}, []),
        ({"cleanup.policy": "compact"}, {"cleanup.policy": "compact"}, []),
        (
            {"cleanup.policy": "compact"},
            {"min.compaction.lag.ms": str(7 * DAY)},
            ["cleanup.policy: delete -> compact", f"segment.ms: {7 * DAY} -> {36_500 * DAY}"],
        ),
        (
            {"cleanup.policy": "delete"},
            created({"cleanup.policy": "compact"}),
            ["cleanup.policy: compact -> delete", f"segment.ms: {36_500 * DAY} -> None"],
        ),
        ({}, {"cleanup.policy": "compact", "segment.ms": "5"}, ["report: cleanup.policy: compact -> delete"]),
        ({"min.compaction.lag.ms": str(9 * DAY)}, {}, [f"min.compaction.lag.ms: 0 -> {9 * DAY}"]),
    ],
)
def test_what_is_set_on_one_of_the_topics_is_compared(
    source: dict[str, str], target: dict[str, str], said: list[str]
) -> None:
    assert found(source, target) == said


def test_the_replication_file_has_the_last_word() -> None:
    config = {"retention.ms": "5", "min.insync.replicas": "2"}
    said = ["min.insync.replicas: 1 -> 2", f"retention.ms: {9 * DAY} -> 5"]
    source, target = {"retention.ms": str(DAY)}, {"retention.ms": str(9 * DAY)}
    assert found(source, target, config=config) == said
    assert found(source, target, config=config, follow_except=["^ret"]) == said
    assert found({"flush.ms": "5"}, {}, follow_except=["flush.ms"]) == []
    assert found({"flush.ms": "5"}, {}, follow_except=["^flush[.]"]) == []
    assert found({"flush.ms": "5"}, {}, follow="off") == []


def test_what_cannot_be_read_does_not_differ() -> None:
    source = with_own({"flush.ms": "5"})
    assert differences(replication(), source, topic("orders", {})) == []
    assert differences(replication(), replace(source, config={}), with_own({})) == []
    index = replication(target={"connection": "search", "type": "opensearch"})
    assert differences(index, source, with_own({})) == [], "an index has other settings"
    assert len(differences(replication(), source, with_own({}))) == 1


@pytest.mark.parametrize(
    ("name", "now", "wanted", "to_copy", "to_verify", "waits"),
    [
        ("cleanup.policy", "delete", "compact", True, False, True),
        ("cleanup.policy", "delete", "compact", False, True, True),
        ("cleanup.policy", "delete", "compact", False, False, False),
        ("retention.ms", "5", "4", True, False, False),
        ("retention.ms", "5", "4", False, True, True),
        ("retention.ms", "-1", "4", False, True, True),
        ("retention.ms", "5", "6", False, True, False),
        ("retention.ms", "5", "-1", False, True, False),
        ("flush.ms", "5", "4", True, True, False),
    ],
)
def test_what_may_remove_or_refuse_records_waits_for_them(
    name: str, now: str, wanted: str, to_copy: bool, to_verify: bool, waits: bool
) -> None:
    assert Difference(name=name, now=now, wanted=wanted).waits(to_copy=to_copy, to_verify=to_verify) == waits


def test_the_findings_say_what_a_run_does_and_what_a_person_has_to() -> None:
    settings = TargetTopics()
    there = differences(replication(), with_own({"flush.ms": "5"}), with_own({"flush.messages": "3"}))
    to_set, alone = findings("orders -> orders", there, settings)
    assert "flush.ms is 9, and should be 5" in to_set.what and "follow: apply" in to_set.remedy
    assert "flush.messages=3 is set on the target alone" in alone.what and "follow_except" in alone.remedy
    assert {to_set.severity, alone.severity} == {"warning"}
    applying = TargetTopics(follow="apply")
    assert next(findings("orders -> orders", there, applying)).remedy.startswith("a run sets them")


def test_the_docs_give_the_reason_for_each_setting_that_is_left_alone() -> None:
    page = (Path(__file__).parents[2] / "docs" / "partitioning.md").read_text()
    for name, why in LEFT_ALONE.items():
        (line,) = [line for line in page.splitlines() if line.startswith(f"| `{name}` | ")]
        assert why in line
