"""The model of a replication: defaults, selection, renaming, schedules and start points."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from kafka_replication.config import Replication
from kafka_replication.config.names import PRESETS, check_schedule, is_pattern, target_problem, topic_problem
from kafka_replication.config.sections import Section
from kafka_replication.config.yaml import fields_of, section_of
from kafka_replication.model.choices import FailureKind
from kafka_replication.model.errors import BadInput, ConfigError
from kafka_replication.planning.plan import Plan
from stack.pages import configuration

ROOT = Path(__file__).parents[2]
TOPIC_NAMES = st.from_regex(r"[a-zA-Z0-9._-]{1,249}", fullmatch=True).filter(lambda name: name not in {".", ".."})


def replication(**changes: Any) -> Replication:
    minimal: dict[str, Any] = {
        "name": "orders-dr",
        "source": {"connection": "kafka_source"},
        "target": {"connection": "kafka_target"},
        "topics": {"include": ["orders", "^audit\\..*"]},
    }
    return Replication.model_validate(minimal | changes)


def test_a_minimal_replication_gets_the_documented_defaults() -> None:
    made = replication()
    assert made.schedule is None
    assert made.start_from == "earliest"
    assert made.max_records_per_run is None
    assert (made.copying.chunk_records, made.copying.chunk_seconds) == (100_000, 60)
    assert (made.copying.engine, made.copying.transaction_timeout, made.copying.stall_timeout) == ("auto", 600, 60)
    assert made.verify.level == "digest"
    assert (made.target_topics.create, made.on_existing_target) == (True, "refuse")
    assert (made.target_topics.replication_factor, made.target_topics.config) == (None, {})
    assert (made.spark.connection, made.spark.parallelism, made.spark.conf) == ("spark_default", None, {})
    assert (made.retries.attempts, made.timeouts.request, made.timeouts.run) == (3, 30, 21_600)


def test_a_replication_cannot_be_changed() -> None:
    with pytest.raises(ValidationError):
        replication().name = "other"


@pytest.mark.parametrize("start", ["latest", "2030-01-31T08:00:00.5+02:00"])
def test_what_is_dumped_loads_again(start: str) -> None:
    made = replication(start_from=start, copy={"chunk_records": 7}, schedule="*/15 * * * *")
    dumped = made.model_dump(mode="json")
    assert dumped["copy"]["chunk_records"] == 7
    assert Replication.model_validate(dumped) == made


@pytest.mark.parametrize(
    ("topics", "topic", "selected"),
    [
        ({"include": ["orders"]}, "orders", True),
        ({"include": ["orders"]}, "orders2", False),
        ({"include": ["or.ers"]}, "orders", False),
        ({"include": ["^audit\\..*"]}, "audit.eu", True),
        ({"include": ["^audit\\."]}, "audit.eu", True),
        ({"include": ["^audit$"]}, "audit.eu", False),
        ({"include": ["^audit"]}, "my.audit", False),
        ({"include": ["^a|b"]}, "xb", False),
        ({"include": ["^.*"]}, "__consumer_offsets", False),
        ({"include": ["^.*"]}, "__mine", False),
        ({"include": ["__mine"]}, "__mine", True),
        ({"include": ["^.*"]}, "kafka-replication.positions", False),
        ({"include": ["^.*"]}, "kafka-replicationx", True),
        ({"include": ["^.*"], "exclude": ["orders"]}, "orders", False),
        ({"include": ["^.*"], "exclude": ["orders"]}, "orders2", True),
        ({"include": ["^.*"], "exclude": ["^tmp"]}, "tmp.x", False),
    ],
)
def test_selects(topics: dict[str, Any], topic: str, selected: bool) -> None:
    assert replication(topics=topics).selects(topic) is selected


def test_is_pattern() -> None:
    assert is_pattern("^orders")
    assert not is_pattern("orders")


def test_target_topic_follows_the_template() -> None:
    assert replication().target_topic("orders") == "orders"
    assert (
        replication(topics={"include": ["orders"], "rename": "dr.{topic}-copy"}).target_topic("orders")
        == "dr.orders-copy"
    )


@pytest.mark.parametrize("date", ["{yyyy.MM.dd}", "{date}", "%Y-%m", "{timestamp:yyyyMM}"])
def test_a_target_by_date_is_refused_with_the_reason(date: str) -> None:
    with pytest.raises(ValidationError, match=r"cannot have a date: .*docs/opensearch.md"):
        replication(topics={"include": ["orders"], "rename": f"{{topic}}-{date}"})


@given(TOPIC_NAMES)
def test_target_topic_gives_a_name_kafka_takes_or_refuses(name: str) -> None:
    made = replication(topics={"include": ["^.*"], "rename": "dr.{topic}"})
    if len(name) <= 246:
        assert topic_problem(made.target_topic(name)) is None
    else:
        with pytest.raises(ConfigError, match=r"orders-dr.*Remedy: change topics.rename"):
            made.target_topic(name)


@pytest.mark.parametrize("topic", ["__consumer_offsets", "__transaction_state", "kafka-replication.positions"])
def test_the_ledger_and_kafkas_own_topics_are_never_a_target(topic: str) -> None:
    assert target_problem(topic)
    with pytest.raises(BadInput, match=r"change topics\.rename"):
        replication(topics={"include": ["^.*"]}).target_topic(topic)
    with pytest.raises(ValidationError, match="change rename"):
        replication(topics={"include": [topic]})
    assert replication(topics={"include": [topic], "rename": "old.{topic}"}).target_topic(topic) == f"old.{topic}"


def test_each_kind_of_failure_has_the_policy_of_all_unless_it_has_its_own() -> None:
    failures = replication(failures={"policy": "quarantine", "transform": "fail", "too_large": "skip"}).failures
    policies = {kind.value: failures.of(kind) for kind in FailureKind}
    assert policies == {
        "too_large": "skip",
        "refused": "quarantine",
        "unfaithful": "quarantine",
        "transform": "fail",
    }
    assert replication().failures.policies == {"fail"}


@pytest.mark.parametrize(
    ("limit", "offsets", "most"), [(7, 5, 7), ("1%", 1000, 10), ("1%", 1001, 11), ("0.1%", 1, 1), ("0%", 9, 0)]
)
def test_the_limit_of_failed_records_is_a_number_or_a_share(limit: int | str, offsets: int, most: int) -> None:
    assert replication(failures={"limit": limit}).failures.most(offsets) == most


@pytest.mark.parametrize("limit", [-1, "1", "101%", "x%", True, 0.1])
def test_other_limits_are_refused(limit: object) -> None:
    with pytest.raises(ValidationError):
        replication(failures={"limit": limit})


def test_the_quarantine_topic_is_none_of_the_replications_topics() -> None:
    name = "kafka-replication.quarantine.orders-dr"
    everything = replication(topics={"include": ["^.*"]})
    assert everything.quarantine_topic == name
    assert not everything.selects(name) and everything.target_problem(name)
    assert not replication(topics={"include": [name], "rename": "copy.{topic}"}).selects(name)


def test_numbers_and_booleans_among_settings_become_their_text() -> None:
    made = replication(
        target_topics={"config": {"retention.ms": 1000, "preallocate": True}}, spark={"conf": {"spark.cores.max": 2}}
    )
    assert made.target_topics.config == {"retention.ms": "1000", "preallocate": "true"}
    assert made.spark.conf == {"spark.cores.max": "2"}


def test_start_times_become_utc() -> None:
    six = datetime(2030, 1, 31, 6, tzinfo=UTC)
    for text in (
        "2030-01-31T06:00:00Z",
        "2030-01-31t08:00:00+02:00",
        "2030-01-31 05:30:00-00:30",
        "2030-01-31T06:00:00.000000000Z",
    ):
        made = replication(start_from=text).start_from
        assert isinstance(made, datetime)
        assert made == six and made.utcoffset() == timedelta(0)
    assert replication(start_from=six.astimezone(timezone(timedelta(hours=9)))).start_from == six


@pytest.mark.parametrize(
    "schedule",
    [
        *PRESETS,
        "* * * * *",
        "*/15 8-18 * * mon-fri",
        "0 0 29 2 *",
        "0 0 31 2 1",
        "5/10 0,12 1 JAN-jun 7",
        "0 6 L * *",
        "0 6 15W * *",
        "0 6 * * 1#1",
        "0 6 * * mon#1,fri#3",
        "0 6 * * L5",
        "0 6 ? * ?",
        "0 22-2 * * *",
        "* * * * * */15",
    ],
)
def test_schedules_that_run(schedule: str) -> None:
    assert replication(schedule=schedule).schedule == schedule


FIELD = st.from_regex(r"(\*|L|[0-9]{1,2}|[0-9]{1,2}-[0-9]{1,2})(/[0-9]{1,2}|#[0-9])?", fullmatch=True) | st.text(
    max_size=5
)


@given(st.lists(FIELD, min_size=4, max_size=7).map(" ".join) | st.sampled_from(PRESETS) | st.text())
def test_a_wrong_schedule_raises_value_error_and_nothing_else(text: str) -> None:
    with suppress(ValueError):
        assert check_schedule(text) == text


def test_the_reference_is_current() -> None:
    assert (ROOT / "docs/configuration.md").read_text() == configuration.render(), "run: python -m stack.pages"


def keys_of(section: type[Section]) -> list[str]:
    """The keys of the section and of all sections inside it."""
    inner = [section_of(field) for field in fields_of(section).values()]
    return [*fields_of(section), *(key for each in inner if each for key in keys_of(each))]


def test_the_reference_has_every_key_with_a_meaning() -> None:
    rows = [line for line in configuration.render().splitlines() if line.startswith("| `")]
    assert sorted(row.split("`")[1] for row in rows) == sorted(keys_of(Replication))
    assert all(len(row.split(" | ")[-1]) > 15 for row in rows)


def test_documents_belong_to_a_target_that_has_them() -> None:
    target = {"connection": "b", "type": "opensearch", "documents": {"value": "base64"}}
    assert replication(target=target).target.documents.value == "base64"
    for wrong, named in (({**target, "type": "kafka"}, "documents is for 'type: opensearch'"),):
        with pytest.raises(ValidationError, match=named):
            replication(target=wrong)


def test_the_newest_record_of_each_key_belongs_to_a_target_that_keeps_it() -> None:
    latest = {"connection": "b", "shape": "latest", "partitioner": "crc32"}
    assert replication(target={**latest, "type": "opensearch"}).target.partitioner == "crc32"
    for wrong, named in (
        (latest, "a Kafka topic keeps every record"),
        ({**latest, "type": "tests.folder_target.target:FolderTarget"}, "decide"),
        ({**latest, "type": "opensearch", "shape": "records"}, "partitioner is for 'shape: latest' only"),
    ):
        with pytest.raises(ValidationError, match=named):
            replication(target=wrong)


def test_a_table_begins_with_no_dot() -> None:
    made = replication(target={"connection": "b", "type": "hbase"})
    assert "no table" in (made.target_problem(".orders") or "")
    assert "keeps for itself" in (made.target_problem("zookeeper") or "")
    assert made.target_problem("Orders") is None


def test_an_index_has_no_capital_letters() -> None:
    made = replication(target={"connection": "b", "type": "opensearch"})
    assert "capital letters" in (made.target_problem("Orders") or "")
    assert made.target_problem("orders") is None
    assert replication().target_problem("Orders") is None


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"schedule": None, "copy": {"stall_timeout": 3}, "failures": {"policy": "skip"}}, []),
        ({"target_topics": {"config": {"retention.ms": "1"}}, "start_from": "latest"}, []),
        ({"topics": {"include": ["more", "orders"]}}, []),
        ({"topics": {"include": ["orders"], "rename": "dr.{topic}"}}, ["topics"]),
        ({"target": {"connection": "another"}}, ["target"]),
        ({"target": {"connection": "kafka_target", "type": "opensearch", "shape": "latest"}}, ["target"]),
        ({"source": {"connection": "another"}}, ["source"]),
        ({"partitioning": "by_key"}, ["partitioning"]),
        ({"on_existing_target": "share", "target_topics": {"partitions": 3}}, ["on_existing_target", "target_topics"]),
        ({"delivery": "at_least_once"}, ["delivery"]),
    ],
)
def test_a_plan_depends_on_what_is_copied_where_and_how(changes: dict[str, Any], names: list[str]) -> None:
    before, now = replication().planned_with, replication(**changes).planned_with
    assert Plan("r", (), settings=before).changed(now) == names
    assert Plan("r", (), settings=now).changed(before) == names
    assert Plan("r", ()).changed(now) == [], "an older build planned it"
