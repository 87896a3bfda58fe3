"""What preflight says of missing, looping, future and ledger topics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from kafka_replication.ledger.entries import POSITIONS, RECEIPTS
from kafka_replication.model.trouble import Trouble
from kafka_replication.planning.preflight import check
from kafka_replication.planning.snapshot import TopicDefaults
from kafka_replication.planning.topic_settings import ledger_created
from tests.support.preflight_worlds import AT, DEFAULTS, SAFE, SOURCE, TARGET, replication, sides, topic

# --- topics and clusters ----------------------------------------------------------------------------------------------------------------


def pairless(*names: str, target: tuple[str, ...] = (), target_cluster: str = "TGT", **changes: Any) -> list[Trouble]:
    source = {name: topic(name, SOURCE) for name in names}
    targets = {name: topic(name, TARGET) for name in target}
    return check(replication(**changes), sides(source, targets, target_cluster))


def test_nothing_selected_is_an_error() -> None:
    assert pairless() == [
        Trouble("error", "orders-dr", "no topic of the source is selected", "correct topics.include and topics.exclude")
    ]


def test_a_missing_target_topic_is_an_error_only_where_it_is_not_created() -> None:
    assert pairless("orders") == []
    assert pairless("orders", target_topics={"create": False}) == [
        Trouble("error", "orders", "its target topic does not exist and target_topics.create is false", "create it")
    ]


def test_one_cluster_for_both_sides_needs_other_names() -> None:
    found = pairless("orders", target=("orders",), target_cluster="SRC")
    assert (
        Trouble(
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
    loop = Trouble(
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


@pytest.mark.parametrize(("changes", "defaults", "words"), CREATED.values(), ids=CREATED)
def test_a_topic_to_be_created_is_judged_as_it_will_be(
    changes: dict[str, Any], defaults: TopicDefaults | None, words: list[str]
) -> None:
    made = check(replication(**changes), sides({"orders": topic("orders", SOURCE)}, {}, defaults=defaults))
    assert [finding.severity for finding in made] == ["warning"] * len(words)
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
    factor, positions = ledger_created(POSITIONS, by_file, None)
    assert (factor, positions["min.insync.replicas"], positions["cleanup.policy"]) == (3, "2", "compact")
    assert {name: positions[name] for name in SOON if name in positions and name not in SAFE} == {
        name: value for name, value in SOON.items() if name not in SAFE
    }
    _, receipts = ledger_created(RECEIPTS, by_file, None)
    assert (receipts["cleanup.policy"], receipts["retention.ms"]) == ("compact,delete", "86400000")
    named = replication(target_topics={"replication_factor": 3, "config": {"min.insync.replicas": "1"}})
    assert ledger_created(POSITIONS, named, None)[1]["min.insync.replicas"] == "1"
    assert ledger_created(POSITIONS, replication(), TopicDefaults(3, {}))[1]["min.insync.replicas"] == "2"
    assert ledger_created(POSITIONS, replication(), TopicDefaults(2, {}))[0] is None
    assert "min.insync.replicas" not in ledger_created(POSITIONS, replication(), TopicDefaults(2, {}))[1]
