"""What preflight finds between source and target, how grave it is, and what it says to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from kafka_replication.config import Replication
from kafka_replication.ledger.entries import POSITIONS, RECEIPTS
from kafka_replication.model.errors import PreflightFailed
from kafka_replication.planning.ledger_topics import created
from kafka_replication.planning.preflight import Finding, check, raise_errors
from kafka_replication.planning.snapshot import PartitionOffsets, Snapshot, Topic, TopicDefaults

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
SAFE = {"min.insync.replicas": "2", "unclean.leader.election.enable": "false"}
DEFAULTS = TopicDefaults(3, SAFE)  # of brokers that lose nothing


def topic(name: str, config: Mapping[str, str], partitions: int = 2, replicas: int = 3) -> Topic:
    return Topic(
        name=name,
        topic_id=f"id-{name}",
        partitions={number: PartitionOffsets(0, 9, 9) for number in range(partitions)},
        replication_factor=replicas,
        config=config,
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
    return check(replication(**changes), sides({"orders": pair[0]}, {"orders": pair[1]}))


def sides(
    source: Mapping[str, Topic], target: Mapping[str, Topic], target_cluster: str = "TGT", **more: Any
) -> Snapshot:
    known: dict[str, Any] = {"defaults": DEFAULTS, **more}
    return Snapshot(source_cluster="SRC", target_cluster=target_cluster, source=source, target=target, **known)


def test_a_pair_that_fits_has_no_findings() -> None:
    assert findings() == []


CASES: dict[str, tuple[dict[str, Any], Finding]] = {
    "fewer partitions": (
        {"partitions": 1},
        Finding(
            "warning",
            AT,
            "the target has 1 partitions, the source 2: a run adds the others",
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
    "earlier records only": (
        {"target": {"message.timestamp.after.max.ms": "6"}, "source": {"message.timestamp.after.max.ms": "7"}},
        Finding(
            "warning",
            AT,
            "the target's message.timestamp.after.max.ms 6 is below the source's 7: a record with a later timestamp is"
            " refused",
            "raise message.timestamp.after.max.ms of orders",
        ),
    ),
    "later records only": (
        {"target": {"message.timestamp.before.max.ms": "6"}},
        Finding(
            "warning",
            AT,
            "the target's message.timestamp.before.max.ms is 6: an older record is refused when it is copied",
            "raise message.timestamp.before.max.ms of orders",
        ),
    ),
    "compacted at once": (
        {"target": {"cleanup.policy": "compact", "min.compaction.lag.ms": "3599999"}},
        Finding(
            "warning",
            AT,
            "the target is compacted and its min.compaction.lag.ms is below one hour: records may be removed before they are verified",
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
    "fewer bytes kept": (
        {"source": {"retention.bytes": "1000"}, "target": {"retention.bytes": "1999"}},
        Finding(
            "warning",
            AT,
            "the target keeps at most 1999 bytes a partition, the source 1000: the target compresses records again and may need 2"
            " times the space, so records may be deleted before they are verified",
            "raise retention.bytes of orders",
        ),
    ),
    "bytes limited on the target only": (
        {"target": {"retention.bytes": "1999"}},
        Finding(
            "warning",
            AT,
            "the target keeps at most 1999 bytes a partition, the source -1: the target compresses records again and may need 2"
            " times the space, so records may be deleted before they are verified",
            "raise retention.bytes of orders",
        ),
    ),
    "one replica": (
        {"replicas": 1},
        Finding("warning", AT, "the target has replication factor 1: one lost disk loses it", UNSAFE),
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
        Finding("error", AT, "the target has replication factor 1: one lost disk loses it", UNSAFE),
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
        {"source": {"retention.bytes": "1000"}, "target": {"retention.bytes": "2000"}},
        {"source": {"retention.bytes": "1000"}, "target": {"retention.bytes": "-1"}},
        {
            "source": {"retention.bytes": "9"},
            "target": {"cleanup.policy": "compact", "min.compaction.lag.ms": "3600000", "retention.bytes": "1"},
        },
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
        "twice the bytes",
        "bytes without a limit",
        "compacted, so bytes do not count",
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
    assert check(replication(), sides({"orders": topic("orders", SOURCE)}, {"orders": target})) == []


# --- topics and clusters ----------------------------------------------------------------------------------------------------------------


def pairless(*names: str, target: tuple[str, ...] = (), target_cluster: str = "TGT", **changes: Any) -> list[Finding]:
    source = {name: topic(name, SOURCE) for name in names}
    targets = {name: topic(name, TARGET) for name in target}
    return check(replication(**changes), sides(source, targets, target_cluster))


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
    loop = Finding(
        "error", "orders", "its target topic dr.orders is itself selected as a source", "exclude it: topics.exclude"
    )
    assert loop in pairless("orders", "dr.orders", target_cluster="SRC", topics=renamed)
    assert pairless("orders", target_cluster="SRC", topics=renamed) == [loop], "also before the target topic exists"
    excluded = renamed | {"exclude": [r"^dr\..*"]}
    assert pairless("orders", target_cluster="SRC", topics=excluded) == []
    assert pairless("orders", "dr.orders", topics=renamed) == []  # on another cluster it is another topic


def test_copies_that_provenance_leaves_out_may_be_selected_as_long_as_their_copies_are_not() -> None:
    marked: dict[str, Any] = {"transform": "provenance"}
    named = {"include": ["orders", "dr.orders"], "rename": "dr.{topic}", "exclude_from": ["SRC"]}
    assert pairless("orders", target_cluster="SRC", topics=named, **marked) == []
    assert pairless("orders", target_cluster="SRC", topics=named), "nothing says where a record came from"
    matched = named | {"include": ["^.*orders"]}
    (loop,) = pairless("orders", target_cluster="SRC", topics=matched, **marked)
    assert loop.what == "its target topic dr.dr.orders is itself selected as a source"


def test_a_cluster_id_that_is_not_the_targets_is_warned_of() -> None:
    topics = {"include": ["orders"], "exclude_from": ["elsewhere"]}
    (found,) = pairless("orders", topics=topics)
    assert found.severity == "warning" and "elsewhere, which is not the target's cluster id TGT" in found.what
    assert pairless("orders", topics=topics | {"exclude_from": ["elsewhere", "TGT"]}) == []


def test_renamed_topics_are_compared_with_their_target() -> None:
    source, target = topic("orders", SOURCE), topic("dr.orders", TARGET, 1)
    renamed = replication(topics={"include": ["orders"], "rename": "dr.{topic}"})
    assert [str(each) for each in check(renamed, sides({"orders": source}, {"dr.orders": target}))] == [
        "warning: orders -> dr.orders: the target has 1 partitions, the source 2: a run adds the others. "
        "Remedy: kafka-topics.sh --alter --topic dr.orders --partitions 2"
    ]


# --- topics that the run is about to create ---------------------------------------------------------------------------------------------

CREATED: dict[str, tuple[dict[str, Any], TopicDefaults | None, list[str]]] = {
    "safe by default": ({}, DEFAULTS, []),
    "safe by the file": (
        {"target_topics": {"replication_factor": 3, "config": SAFE}},
        TopicDefaults(1, {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}),
        [],
    ),
    "safe by the file, brokers not asked": ({"target_topics": {"replication_factor": 3, "config": SAFE}}, None, []),
    "one replica": ({}, TopicDefaults(1, SAFE), ["replication factor 1"]),
    "one replica by the file": ({"target_topics": {"replication_factor": 1}}, DEFAULTS, ["replication factor 1"]),
    "one acknowledges": (
        {},
        TopicDefaults(3, SAFE | {"min.insync.replicas": "1"}),
        ["min.insync.replicas=1"],
    ),
    "unclean election": (
        {},
        TopicDefaults(3, SAFE | {"unclean.leader.election.enable": "true"}),
        ["unclean leader election"],
    ),
    "brokers may not be asked": ({}, None, ["cannot be read from the brokers"]),
}


@pytest.mark.parametrize("severity", ["warning", "error"])
@pytest.mark.parametrize(("changes", "defaults", "words"), CREATED.values(), ids=CREATED)
def test_a_topic_to_be_created_is_judged_as_it_will_be(
    changes: dict[str, Any], defaults: TopicDefaults | None, words: list[str], severity: str
) -> None:
    settings = replication(preflight={"unsafe_target": {"warning": "warn", "error": "refuse"}[severity]}, **changes)
    made = check(settings, sides({"orders": topic("orders", SOURCE)}, {}, defaults=defaults))
    assert [finding.severity for finding in made] == [severity] * len(words)
    assert all(finding.where == AT and word in finding.what for finding, word in zip(made, words, strict=True))


@pytest.mark.parametrize(
    ("source", "config", "told"),
    [
        ({"retention.bytes": "1000"}, {}, True),
        ({"retention.bytes": "1000"}, {"retention.bytes": "5000"}, False),
        ({"retention.bytes": "-1"}, {}, False),
        ({"retention.bytes": "1000", "cleanup.policy": "compact"}, {}, False),
    ],
)
def test_a_limit_in_bytes_that_is_not_taken_over_is_told(
    source: dict[str, str], config: dict[str, str], told: bool
) -> None:
    pair = {"orders": topic("orders", SOURCE | source)}
    made = check(replication(target_topics={"config": config}), sides(pair, {}))
    assert ["gets no such limit" in finding.what for finding in made] == [True] * told


# --- the ledger's topics ----------------------------------------------------------------------------------------------------------------

SOON = SAFE | {
    "segment.bytes": "1048576",
    "segment.ms": "60000",
    "min.cleanable.dirty.ratio": "0.1",
    "max.compaction.lag.ms": "3600000",
    "min.compaction.lag.ms": "0",
}


def ledger_findings(
    config: Mapping[str, str] = {}, replicas: int = 3, defaults: TopicDefaults | None = DEFAULTS, **changes: Any
) -> list[tuple[str, str, str]]:
    """Of a ledger whose positions topic has ``config``; None: of a ledger to be created."""
    topics = {name: topic(name, {**SOON, **config}, 16, replicas) for name in (POSITIONS, RECEIPTS)} if replicas else {}
    made = check(
        replication(**changes),
        sides(
            {"orders": topic("orders", SOURCE)}, {"orders": topic("orders", TARGET)}, ledger=topics, defaults=defaults
        ),
    )
    return [(finding.where, finding.what, finding.remedy) for finding in made]


def test_a_ledger_that_is_as_we_create_it_has_no_findings() -> None:
    assert ledger_findings() == []
    assert ledger_findings(replicas=0) == [], "to be created"


def test_the_ledger_is_judged_like_any_target() -> None:
    for made in (ledger_findings(replicas=1), ledger_findings(replicas=0, defaults=TopicDefaults(1, SAFE))):
        assert [where for where, _, _ in made] == [POSITIONS, RECEIPTS]
        assert all("the ledger topic" in what and "replication factor 1" in what for _, what, _ in made)
    assert ledger_findings(replicas=0, defaults=TopicDefaults(1, SAFE), target_topics={"replication_factor": 3}) == []
    made = ledger_findings(replicas=0, defaults=TopicDefaults(2, SAFE | {"min.insync.replicas": "1"}))
    assert all("min.insync.replicas=1" in what for _, what, _ in made) and len(made) == 2
    assert ledger_findings({"min.insync.replicas": "1"}) != []


@pytest.mark.parametrize(
    ("config", "command"),
    [
        ({"segment.bytes": "1073741824"}, "segment.bytes=1048576"),
        (
            {"segment.ms": "604800000", "min.cleanable.dirty.ratio": "0.6"},
            "segment.ms=60000,min.cleanable.dirty.ratio=0.1",
        ),
        ({"max.compaction.lag.ms": str(2**63 - 1)}, None),
        ({"segment.bytes": "16777216", "min.cleanable.dirty.ratio": "0.5"}, None),
    ],
)
def test_positions_that_kafka_compacts_late_are_told_with_the_command_that_mends_it(
    config: dict[str, str], command: str | None
) -> None:
    made = ledger_findings(config)
    assert [where for where, _, _ in made] == ([POSITIONS] if command else [])
    assert all(remedy.endswith(f"--entity-name {POSITIONS} --add-config {command}") for _, _, remedy in made)


def test_ledger_topics_are_created_with_the_replicas_that_target_topics_names() -> None:
    by_file = replication(target_topics={"replication_factor": 3}, retention={"receipts": 86_400})
    factor, positions = created(POSITIONS, by_file, None)
    assert (factor, positions["min.insync.replicas"], positions["cleanup.policy"]) == (3, "2", "compact")
    assert {name: positions[name] for name in SOON if name in positions and name not in SAFE} == {
        name: value for name, value in SOON.items() if name not in SAFE
    }
    _, receipts = created(RECEIPTS, by_file, None)
    assert (receipts["cleanup.policy"], receipts["retention.ms"]) == ("compact,delete", "86400000")
    named = replication(target_topics={"replication_factor": 3, "config": {"min.insync.replicas": "1"}})
    assert created(POSITIONS, named, None)[1]["min.insync.replicas"] == "1"
    assert created(POSITIONS, replication(), TopicDefaults(3, {}))[1]["min.insync.replicas"] == "2"
    assert created(POSITIONS, replication(), TopicDefaults(2, {}))[0] is None
    assert "min.insync.replicas" not in created(POSITIONS, replication(), TopicDefaults(2, {}))[1]


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
