"""What preflight says of a pair of topics, and what becomes of its findings."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_replication.model.errors import PreflightFailed
from kafka_replication.model.trouble import Trouble, raise_errors
from kafka_replication.planning import topic_settings
from kafka_replication.planning.preflight import check
from kafka_replication.runs import looking
from tests.support.preflight_worlds import AT, SOURCE, TARGET, UNSAFE, findings, replication, sides, topic


def test_a_pair_that_fits_has_no_findings() -> None:
    assert findings() == []


CASES: dict[str, tuple[dict[str, Any], Trouble]] = {
    "fewer partitions": (
        {"partitions": 1},
        Trouble(
            "warning",
            AT,
            "the target has 1 partitions, the source 2: a run adds the others",
            "kafka-topics.sh --alter --topic orders --partitions 2",
        ),
    ),
    "timestamps replaced": (
        {"target": {"message.timestamp.type": "LogAppendTime"}},
        Trouble(
            "error", AT, "the target replaces timestamps (message.timestamp.type=LogAppendTime)", "set it to CreateTime"
        ),
    ),
    "smaller records only": (
        {"target": {"max.message.bytes": "1048587"}},
        Trouble(
            "warning",
            AT,
            "the target's max.message.bytes 1048587 is below the source's 1048588: a larger record is refused",
            "raise max.message.bytes of orders",
        ),
    ),
    "earlier records only": (
        {"target": {"message.timestamp.after.max.ms": "6"}, "source": {"message.timestamp.after.max.ms": "7"}},
        Trouble(
            "warning",
            AT,
            "the target's message.timestamp.after.max.ms 6 is below the source's 7: a record with a later timestamp is"
            " refused",
            "raise message.timestamp.after.max.ms of orders",
        ),
    ),
    "later records only": (
        {"target": {"message.timestamp.before.max.ms": "6"}},
        Trouble(
            "warning",
            AT,
            "the target's message.timestamp.before.max.ms is 6: an older record is refused when it is copied",
            "raise message.timestamp.before.max.ms of orders",
        ),
    ),
    "compacted at once": (
        {"target": {"cleanup.policy": "compact", "min.compaction.lag.ms": "3599999"}},
        Trouble(
            "warning",
            AT,
            "the target is compacted and its min.compaction.lag.ms is below one hour: records may be removed before they are verified",
            "set min.compaction.lag.ms on orders",
        ),
    ),
    "shorter retention": (
        {"target": {"retention.ms": "604799999"}},
        Trouble(
            "warning",
            AT,
            "the target keeps records for 604799999 ms, less than the source: old records may be deleted "
            "before they are verified",
            "raise retention.ms of orders",
        ),
    ),
    "retention shorter than for ever": (
        {"source": {"retention.ms": "-1"}},
        Trouble(
            "warning",
            AT,
            "the target keeps records for 604800000 ms, less than the source: old records may be deleted "
            "before they are verified",
            "raise retention.ms of orders",
        ),
    ),
    "fewer bytes kept": (
        {"source": {"retention.bytes": "1000"}, "target": {"retention.bytes": "1999"}},
        Trouble(
            "warning",
            AT,
            "the target keeps at most 1999 bytes a partition, the source 1000: the target compresses records again and may need 2"
            " times the space, so records may be deleted before they are verified",
            "raise retention.bytes of orders",
        ),
    ),
    "bytes limited on the target only": (
        {"target": {"retention.bytes": "1999"}},
        Trouble(
            "warning",
            AT,
            "the target keeps at most 1999 bytes a partition, the source -1: the target compresses records again and may need 2"
            " times the space, so records may be deleted before they are verified",
            "raise retention.bytes of orders",
        ),
    ),
    "one replica": (
        {"replicas": 1},
        Trouble("warning", AT, "the target has replication factor 1: one lost disk loses it", UNSAFE),
    ),
    "one replica acknowledges": (
        {"target": {"min.insync.replicas": "1"}},
        Trouble("warning", AT, "the target acknowledges with one replica (min.insync.replicas=1)", UNSAFE),
    ),
    "unclean election": (
        {"target": {"unclean.leader.election.enable": "true"}},
        Trouble("warning", AT, "the target allows unclean leader election: acknowledged records can vanish", UNSAFE),
    ),
}


@pytest.mark.parametrize(("given", "finding"), CASES.values(), ids=CASES)
def test_what_does_not_fit_is_found_with_its_remedy(given: dict[str, Any], finding: Trouble) -> None:
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


# --- what becomes of findings -------------------------------------------------------------------------------------------------------------


def test_errors_come_first() -> None:
    found = findings(target={"message.timestamp.type": "LogAppendTime", "retention.ms": "1"}, replicas=1)
    assert [each.severity for each in found] == ["error", "warning", "warning"]


def test_warnings_stop_nothing() -> None:
    raise_errors(findings(replicas=1, partitions=1))


def test_every_error_is_named_once_with_every_remedy() -> None:
    found = [
        Trouble("error", "b", "is wrong", "mend it"),
        Trouble("warning", "w", "is odd", "look"),
        Trouble("error", "a", "too", "mend it"),
    ]
    with pytest.raises(PreflightFailed) as caught:
        raise_errors(found)
    assert (caught.value.what, caught.value.remedy) == ("b: is wrong; a: too", "mend it")
    assert not caught.value.retriable


def test_warnings_about_many_places_are_one_line_of_the_log_and_errors_one_each(
    caplog: pytest.LogCaptureFixture,
) -> None:
    places = [f"orders-{number}" for number in range(7)]
    looking.log_findings(
        [Trouble(severity, place, "one replica", "use three") for place in places for severity in ("warning", "error")]
        + [Trouble("warning", "orders-0", "unclean", "use three")]
    )
    logged = [(record.levelname, record.getMessage()) for record in caplog.records]
    named = "orders-0, orders-1, orders-2, orders-3, orders-4, and 2 more (`kafka-replication check` names all)"
    assert [text for level, text in logged if level == "WARNING"] == [
        f"{named}: one replica; orders-0: unclean. Remedy: use three"
    ]
    assert [text for level, text in logged if level == "ERROR"] == [
        f"{place}: one replica. Remedy: use three" for place in places
    ]


def test_a_development_cluster_is_one_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Each run says it again: a topic with one replica, one that allows an unclean election, and the ledger."""
    one = topic("orders", TARGET, replicas=1)
    unclean = topic("other", {**TARGET, "unclean.leader.election.enable": "true"})
    findings = [
        found
        for what, each in (("the target", one), ("the ledger topic", one), ("the target", unclean))
        for found in topic_settings.check_safety(each.name, what, each.replication_factor, each.config)
    ]
    looking.log_findings(findings)
    assert len(findings) == 3 and len(caplog.messages) == 1
    assert all(f"{found.where}: {found.what}" in caplog.messages[0] for found in findings)


def test_a_warning_is_logged_once_and_says_its_severity_once(caplog: pytest.LogCaptureFixture) -> None:
    looking.log_findings([Trouble("warning", "orders", "one replica", "use three")] * 2)
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "orders: one replica. Remedy: use three")
    ]
