"""What preflight finds between source and target, how grave it is, and what it says to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from kafka_replication.config import Replication
from kafka_replication.model.errors import PreflightFailed
from kafka_replication.planning.preflight import Finding, check, raise_errors
from kafka_replication.planning.snapshot import PartitionOffsets, Snapshot, Topic

# As brokers describe them: every setting has a value.
SOURCE = {
    "cleanup.policy": "delete",
    "max.message.bytes": "1048588",
    "retention.ms": "604800000",
    "message.timestamp.type": "CreateTime",
}
TARGET = {**SOURCE, "min.insync.replicas": "2", "unclean.leader.election.enable": "false", "min.compaction.lag.ms": "0"}
UNSAFE = "see preflight.unsafe_target; use 3 replicas, min.insync.replicas=2 and no unclean election"
AT = "orders -> orders"


def topic(name: str, config: Mapping[str, str], partitions: int = 2, replicas: int = 3) -> Topic:
    return Topic(
        name, f"id-{name}", {number: PartitionOffsets(0, 9, 9) for number in range(partitions)}, replicas, config
    )


def replication(**changes: Any) -> Replication:
    minimal: dict[str, Any] = {
        "name": "orders-dr",
        "source": {"connection": "kafka_source"},
        "target": {"connection": "kafka_target"},
        "topics": {"include": ["^.*orders"]},
    }
    return Replication.model_validate(minimal | changes)


def findings(
    source: Mapping[str, str] = {},
    target: Mapping[str, str] = {},
    partitions: int = 2,
    replicas: int = 3,
    **changes: Any,
) -> list[Finding]:
    """Of one topic pair that fits but for what is given."""
    pair = topic("orders", {**SOURCE, **source}), topic("orders", {**TARGET, **target}, partitions, replicas)
    return check(replication(**changes), Snapshot("SRC", "TGT", {"orders": pair[0]}, {"orders": pair[1]}))


def test_a_pair_that_fits_has_no_findings() -> None:
    assert findings() == []


CASES: dict[str, tuple[dict[str, Any], Finding]] = {
    "fewer partitions": (
        {"partitions": 1},
        Finding(
            "warning",
            AT,
            "the target has 1 partitions, the source 2: others are refused",
            "kafka-topics.sh --alter --topic orders --partitions 2",
        ),
    ),
    "timestamps replaced": (
        {"target": {"message.timestamp.type": "LogAppendTime"}},
        Finding(
            "error", AT, "the target replaces timestamps (message.timestamp.type=LogAppendTime)", "set it to CreateTime"
        ),
    ),
    "smaller records only": (
        {"target": {"max.message.bytes": "1048587"}},
        Finding(
            "warning",
            AT,
            "the target's max.message.bytes 1048587 is below the source's 1048588: a larger record is refused",
            "raise max.message.bytes of orders",
        ),
    ),
    "compacted at once": (
        {"target": {"cleanup.policy": "compact", "min.compaction.lag.ms": "3599999"}},
        Finding(
            "warning",
            AT,
            "the target is compacted without a min.compaction.lag.ms of an hour: records may go before they are verified",
            "set min.compaction.lag.ms on orders",
        ),
    ),
    "shorter retention": (
        {"target": {"retention.ms": "604799999"}},
        Finding(
            "warning",
            AT,
            "the target keeps records for 604799999 ms, less than the source: old records may be deleted "
            "before they are verified",
            "raise retention.ms of orders",
        ),
    ),
    "retention shorter than for ever": (
        {"source": {"retention.ms": "-1"}},
        Finding(
            "warning",
            AT,
            "the target keeps records for 604800000 ms, less than the source: old records may be deleted "
            "before they are verified",
            "raise retention.ms of orders",
        ),
    ),
    "one replica": (
        {"replicas": 1},
        Finding("warning", AT, "the target has replication factor 1: one lost disk loses the copy", UNSAFE),
    ),
    "one replica acknowledges": (
        {"target": {"min.insync.replicas": "1"}},
        Finding("warning", AT, "the target acknowledges with one replica (min.insync.replicas=1)", UNSAFE),
    ),
    "unclean election": (
        {"target": {"unclean.leader.election.enable": "true"}},
        Finding("warning", AT, "the target allows unclean leader election: acknowledged records can vanish", UNSAFE),
    ),
    "unsafe, and that is refused": (
        {"replicas": 1, "preflight": {"unsafe_target": "refuse"}},
        Finding("error", AT, "the target has replication factor 1: one lost disk loses the copy", UNSAFE),
    ),
}


@pytest.mark.parametrize(("given", "finding"), CASES.values(), ids=CASES)
def test_what_does_not_fit_is_found_with_its_remedy(given: dict[str, Any], finding: Finding) -> None:
    assert findings(**given) == [finding]


@pytest.mark.parametrize(
    "given",
    [
        {"partitions": 3},
        {"target": {"max.message.bytes": "2000000"}},
        {"target": {"cleanup.policy": "compact", "min.compaction.lag.ms": "3600000"}},
        {"target": {"retention.ms": "-1"}},
        {"source": {"retention.ms": "-1"}, "target": {"retention.ms": "-1"}},
        {
            "source": {"cleanup.policy": "compact"},
            "target": {"cleanup.policy": "compact", "min.compaction.lag.ms": "3600000", "retention.ms": "1"},
        },
        {"source": {"message.timestamp.type": "LogAppendTime"}},
        {"replicas": 2},
    ],
    ids=[
        "more partitions",
        "larger records",
        "an hour's lag",
        "kept for ever",
        "both for ever",
        "compacted, not deleted",
        "the source's timestamp type",
        "two replicas",
    ],
)
def test_what_fits_is_no_finding(given: dict[str, Any]) -> None:
    assert findings(**given) == []


def test_a_compacted_and_deleted_target_is_looked_at_both_ways() -> None:
    found = findings(target={"cleanup.policy": "compact,delete", "retention.ms": "1"})
    assert [each.remedy for each in found] == ["set min.compaction.lag.ms on orders", "raise retention.ms of orders"]


@pytest.mark.parametrize("setting", ["max.message.bytes", "retention.ms", "cleanup.policy", "message.timestamp.type"])
def test_a_setting_that_the_target_does_not_tell_is_no_crash(setting: str) -> None:
    target = topic("orders", {name: value for name, value in TARGET.items() if name != setting})
    assert check(replication(), Snapshot("SRC", "TGT", {"orders": topic("orders", SOURCE)}, {"orders": target})) == []


# --- topics and clusters ----------------------------------------------------------------------------------------------------------------


def pairless(*names: str, target: tuple[str, ...] = (), target_cluster: str = "TGT", **changes: Any) -> list[Finding]:
    source = {name: topic(name, SOURCE) for name in names}
    targets = {name: topic(name, TARGET) for name in target}
    return check(replication(**changes), Snapshot("SRC", target_cluster, source, targets))


def test_nothing_selected_is_an_error() -> None:
    assert pairless() == [
        Finding("error", "orders-dr", "no topic of the source is selected", "correct topics.include and topics.exclude")
    ]


def test_a_missing_target_topic_is_an_error_only_where_it_is_not_created() -> None:
    assert pairless("orders") == []
    assert pairless("orders", target_topics={"create": False}) == [
        Finding("error", "orders", "its target topic does not exist and target_topics.create is false", "create it")
    ]


def test_one_cluster_for_both_sides_needs_other_names() -> None:
    found = pairless("orders", target=("orders",), target_cluster="SRC")
    assert (
        Finding(
            "error",
            "orders-dr",
            "source and target are the same cluster (SRC)",
            "use another target connection, or topics.rename",
        )
        in found
    )
    renamed = {"include": ["orders"], "rename": "dr.{topic}"}
    assert pairless("orders", target=("dr.orders",), target_cluster="SRC", topics=renamed) == []


def test_a_target_topic_that_is_itself_a_source_would_feed_itself() -> None:
    renamed = {"include": ["^.*orders"], "rename": "dr.{topic}"}
    found = pairless("orders", "dr.orders", target_cluster="SRC", topics=renamed)
    assert found == [
        Finding(
            "error", "orders", "its target topic dr.orders is itself selected as a source", "exclude it: topics.exclude"
        )
    ]
    assert pairless("orders", "dr.orders", topics=renamed) == []  # on another cluster it is another topic


def test_renamed_topics_are_compared_with_their_target() -> None:
    source, target = topic("orders", SOURCE), topic("dr.orders", TARGET, 1)
    renamed = replication(topics={"include": ["orders"], "rename": "dr.{topic}"})
    assert [
        str(each) for each in check(renamed, Snapshot("SRC", "TGT", {"orders": source}, {"dr.orders": target}))
    ] == [
        "warning: orders -> dr.orders: the target has 1 partitions, the source 2: others are refused. "
        "Remedy: kafka-topics.sh --alter --topic dr.orders --partitions 2"
    ]


# --- what becomes of findings -------------------------------------------------------------------------------------------------------------


def test_errors_come_first() -> None:
    found = findings(target={"message.timestamp.type": "LogAppendTime", "retention.ms": "1"}, replicas=1)
    assert [each.severity for each in found] == ["error", "warning", "warning"]


def test_warnings_stop_nothing() -> None:
    raise_errors(findings(replicas=1, partitions=1))


def test_every_error_is_named_once_with_every_remedy() -> None:
    found = [
        Finding("error", "b", "is wrong", "mend it"),
        Finding("warning", "w", "is odd", "look"),
        Finding("error", "a", "too", "mend it"),
    ]
    with pytest.raises(PreflightFailed) as caught:
        raise_errors(found)
    assert (caught.value.what, caught.value.remedy) == ("b: is wrong; a: too", "mend it")
    assert not caught.value.retriable
