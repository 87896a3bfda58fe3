"""What a created target topic is told to keep."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from kafka_replication.config.model import TargetTopics
from kafka_replication.planning.topic_settings import before_3_6, created_config

DAY = 24 * 3600 * 1000


@pytest.mark.parametrize(
    ("source", "kept"),
    [
        ({"retention.ms": str(3 * DAY), "segment.ms": str(7 * DAY)}, str(11 * DAY)),
        ({"retention.ms": str(3 * DAY)}, str(4 * DAY)),
        ({"retention.ms": "0", "segment.ms": "1"}, str(DAY + 1)),
        ({"retention.ms": "-1", "segment.ms": str(7 * DAY)}, "-1"),
        ({"retention.ms": str(2**63 - 1), "segment.ms": "1"}, "-1"),
        ({}, None),
    ],
)
def test_a_record_is_kept_as_long_as_the_source_may_have_it(source: dict[str, str], kept: str | None) -> None:
    assert created_config(source, TargetTopics()).get("retention.ms") == kept


@pytest.mark.parametrize(("policy", "long"), [("compact", True), ("compact,delete", True), ("delete", False)])
def test_old_records_of_a_compacted_topic_share_a_segment_with_young_markers(policy: str, long: bool) -> None:
    made = created_config({"cleanup.policy": policy}, TargetTopics())
    assert int(made.get("segment.ms", 0)) == (36_500 * DAY if long else 0)


def test_the_replication_file_has_the_last_word() -> None:
    settings = TargetTopics(config={"retention.ms": "5", "segment.ms": "6", "min.compaction.lag.ms": "2000"})
    made = created_config(
        {"retention.ms": "1", "cleanup.policy": "compact", "max.message.bytes": "7", "flush.ms": "8"}, settings
    )
    assert made == {
        "retention.ms": "5",
        "segment.ms": "6",
        "min.compaction.lag.ms": "2000",
        "cleanup.policy": "compact",
        "max.message.bytes": "7",
    }


@pytest.mark.parametrize("limit", ["-1", "1000"])
def test_a_limit_in_bytes_is_not_taken_over(limit: str) -> None:
    """The target compresses anew: the same records may need more bytes there."""
    assert created_config({"retention.bytes": limit}, TargetTopics())["retention.bytes"] == "-1"
    assert (
        created_config({"retention.bytes": limit}, TargetTopics(config={"retention.bytes": "7"}))["retention.bytes"]
        == "7"
    )


@pytest.mark.parametrize(
    ("source", "after"),
    [
        ({"message.timestamp.after.max.ms": "7", "message.timestamp.before.max.ms": "8"}, "7"),
        ({"message.timestamp.difference.max.ms": "9"}, "9"),  # before Kafka 3.6
        ({}, None),
    ],
)
def test_timestamps_of_the_source_are_accepted(source: dict[str, str], after: str | None) -> None:
    """An old record is written to the target later than to the source, so no age may be too old there."""
    made = created_config(source, TargetTopics())
    assert made.get("message.timestamp.after.max.ms") == after
    assert made.get("message.timestamp.before.max.ms") == (str(2**63 - 1) if after else None)


def test_brokers_before_3_6_get_the_larger_limit_under_their_name() -> None:
    """2.8 refuses a topic with a setting that it does not know."""
    limits = {"message.timestamp.after.max.ms": "7", "message.timestamp.before.max.ms": "9", "cleanup.policy": "delete"}
    assert before_3_6(limits) == {"message.timestamp.difference.max.ms": "9", "cleanup.policy": "delete"}


def test_overrides_are_for_the_topics_that_they_match_and_the_later_one_counts() -> None:
    settings = TargetTopics(
        config={"retention.ms": "1", "flush.ms": "1"},
        overrides={"^audit[.]": {"retention.ms": "2"}, "audit.eu": {"retention.ms": "3"}, "^orders": {"flush.ms": "4"}},
    )
    made = {name: created_config({}, settings.of(name)) for name in ("audit.us", "audit.eu", "orders", "other")}
    assert {name: (config["retention.ms"], config["flush.ms"]) for name, config in made.items()} == {
        "audit.us": ("2", "1"),
        "audit.eu": ("3", "1"),
        "orders": ("1", "4"),
        "other": ("1", "1"),
    }


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ({"^audit(": {}}, "not a regular expression"),
        ({"audit.*": {}}, "must start with"),
        ({"audit": {"message.timestamp.type": "LogAppendTime"}}, "must be CreateTime"),
    ],
)
def test_overrides_that_cannot_be_meant_are_refused(overrides: dict[str, dict[str, str]], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        TargetTopics(overrides=overrides)
