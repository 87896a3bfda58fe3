"""What a backfill's form and command may say, and the words for what they may not."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_replication.config import Replication
from kafka_replication.model.errors import BadInput
from kafka_replication.model.offsets import OffsetRange, TopicPartition
from kafka_replication.planning.backfill_plan import partitions_of, resolve
from kafka_replication.planning.backfill_request import BackfillRequest, parse
from kafka_replication.planning.snapshot import PartitionOffsets, Topic
from tests.support.backfill_requests import HOSTILE

REPLICATION = Replication.model_validate(
    {
        "name": "orders-dr",
        "source": {"connection": "here"},
        "target": {"connection": "there"},
        "topics": {"include": ["orders", "^audit[.]"], "exclude": ["audit.scratch"]},
    }
)
GOOD: dict[str, Any] = {"topics": ["orders"], "from_": "10", "until": "20"}
ORDERS = {
    "orders": Topic(
        name="orders",
        topic_id="s",
        partitions={0: PartitionOffsets(3, 110, 100), 1: PartitionOffsets(0, 20, 20)},
        replication_factor=3,
    )
}


def read(**changes: Any) -> BackfillRequest:
    return parse(REPLICATION, **{**GOOD, **changes})


def test_integers_are_offsets_and_rfc_3339_is_a_time() -> None:
    assert (read().from_, read().until) == (10, 20)
    assert (read(from_=0, until=2**63 - 1).from_, read(from_=0, until=2**63 - 1).until) == (0, 2**63 - 1)
    times = read(from_="2024-01-31T06:00:00Z", until="2024-01-31T08:00:00.5+01:00")
    assert times.from_ == datetime(2024, 1, 31, 6, tzinfo=UTC)
    assert times.until == datetime(2024, 1, 31, 7, 0, 0, 500_000, tzinfo=UTC)
    assert read(from_="5", until="2024-01-31T06:00:00Z").from_ == 5


@pytest.mark.parametrize("partitions", ["0, 2", " 2,0 ", ["0", 2], (2, 0, 2)])
def test_partitions_as_a_line_or_as_a_list(partitions: object) -> None:
    assert read(partitions=partitions).partitions == (0, 2)


@pytest.mark.parametrize("partitions", [None, "", " ", [], ()])
def test_no_partitions_are_all(partitions: object) -> None:
    assert read(partitions=partitions).partitions == ()


def test_topics_partitions_and_target() -> None:
    request = read(topics=["audit.a", "orders", "audit.a"], partitions=["2", 0, 2])
    assert (request.topics, request.partitions, request.target_topic) == (("audit.a", "orders"), (0, 2), None)
    assert read(target_topic="orders.again").target_topic == "orders.again"
    assert read(target_topic="").target_topic is None
    assert read(target_topic="orders").target_topic is None, "the replication's own target is no other one"


@pytest.mark.parametrize(("changes", "words"), HOSTILE)
def test_what_makes_no_sense_is_refused_in_words(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput) as refused:
        read(**changes)
    assert words in refused.value.what
    assert refused.value.remedy
    assert refused.value.what.isprintable() and len(refused.value.what) < 400


ANY = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(),
    st.lists(st.one_of(st.text(), st.integers()), max_size=3),
)


@settings(deadline=None)
@given(st.sampled_from(["topics", "from_", "until", "partitions", "target_topic", "dry_run"]), ANY)
def test_any_value_of_any_field_is_taken_or_refused_in_words(field: str, value: object) -> None:
    with suppress(BadInput):
        request = read(**{field: value})
        assert request.from_ is None or isinstance(request.from_, datetime) or 0 <= request.from_ < 2**63


@pytest.mark.parametrize(("from_", "until"), [(None, None), ("earliest", "latest")])
def test_what_is_left_open(from_: str | None, until: str | None) -> None:
    request = read(topics=None, from_=from_, until=until)
    assert request == BackfillRequest(topics=(), from_=None, until=None)
    assert read(from_=from_).until == 20 and read(until=until).from_ == 10


# --- against what the source has ---------------------------------------------------------------------------------------------------


def test_a_range_for_each_partition() -> None:
    assert resolve(read(), ORDERS, {}) == {
        TopicPartition("orders", 0): OffsetRange(10, 20),
        TopicPartition("orders", 1): OffsetRange(10, 20),
    }
    moment = datetime(2024, 1, 31, tzinfo=UTC)
    times = {moment: {TopicPartition("orders", 0): 40, TopicPartition("orders", 1): 20}}
    assert resolve(read(until=moment.isoformat()), ORDERS, times)[TopicPartition("orders", 0)] == OffsetRange(10, 40)


def test_two_times_between_which_nothing_was_written_are_an_empty_range() -> None:
    first, second = datetime(2024, 1, 31, tzinfo=UTC), datetime(2024, 2, 1, tzinfo=UTC)
    request = read(from_=first.isoformat(), until=second.isoformat(), partitions=[0])
    at = TopicPartition("orders", 0)
    assert resolve(request, ORDERS, {first: {at: 40}, second: {at: 40}}) == {at: OffsetRange(40, 40)}


def test_an_open_range_is_what_the_source_has() -> None:
    first, second = TopicPartition("orders", 0), TopicPartition("orders", 1)
    everything = read(from_=None, until=None)
    assert resolve(everything, ORDERS, {}) == {first: OffsetRange(3, 100), second: OffsetRange(0, 20)}
    assert resolve(read(until=None), ORDERS, {})[second] == OffsetRange(10, 20)
    assert resolve(read(from_=None, until="2"), ORDERS, {}) == {first: OffsetRange(3, 3), second: OffsetRange(0, 2)}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"until": "21"},
            "until: 21 lies past the end of orders-1; allowed are offsets up to 20, its last stable offset",
        ),
        ({"from_": "101", "until": "110", "partitions": [0]}, "from: 101 lies past the end of orders-0"),
        ({"partitions": [2]}, "partition: orders has no partition 2; it has 2, from 0 on"),
        ({"topics": ["audit.gone"]}, "topic: 'audit.gone' does not exist on the source"),
        (
            {"from_": "50", "until": "2024-01-31T00:00:00Z", "partitions": [0]},
            r"orders-0: from \(50\) is greater than until \(40\)",
        ),
    ],
)
def test_what_the_source_does_not_have_is_refused(changes: dict[str, Any], words: str) -> None:
    moment = datetime(2024, 1, 31, tzinfo=UTC)
    with pytest.raises(BadInput, match=words):
        resolve(read(**changes), ORDERS, {moment: {TopicPartition("orders", 0): 40}})


def test_the_partitions_asked_for_are_those_that_exist() -> None:
    assert [str(each) for each in partitions_of(read(), ORDERS)] == ["orders-0", "orders-1"]
    assert [str(each) for each in partitions_of(read(partitions=[1]), ORDERS)] == ["orders-1"]
