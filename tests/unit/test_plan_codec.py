"""The JSON of a stored plan: what an older version stored is read, and what cannot be read names its run."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_replication.ledger.entries import Ids
from kafka_replication.model.errors import PlanUnreadable
from kafka_replication.model.offsets import Coverage, OffsetRange, PartitionKey, TopicPartition
from kafka_replication.planning import plan_codec
from kafka_replication.planning.plan import REFUSALS, PartitionPlan, Plan, State
from tests.support.json_changes import setting, without

GOLDEN = (Path(__file__).parents[1] / "golden" / "plan" / "1.json").read_text()  # written by commit 33e4a7d
IDS = Ids("Xk4z-cluster_A", "kP9w0ZtuQ6q", "aB3-target_id")


def key(number: int, topic: str = "orders", target: str = "dr.orders") -> PartitionKey:
    return PartitionKey("orders-dr", TopicPartition(topic, number), target)


def covered(*pairs: tuple[int, int]) -> Coverage:
    return Coverage.of(OffsetRange(*pair) for pair in pairs)


BEHIND = PartitionPlan(
    key=key(0),
    state=State.BEHIND,
    ids=IDS,
    generation=1,
    start=0,
    position=40,
    source_end=100,
    watermark=40,
    copy=OffsetRange(40, 100),
    verify=covered((0, 20), (25, 40)),
    leader_epoch=4,
)
IN_SYNC = PartitionPlan(
    key=key(1), state=State.IN_SYNC, ids=IDS, generation=2, start=5, position=100, source_end=100, watermark=100
)
PENDING = PartitionPlan(
    key=key(2),
    state=State.PENDING,
    ids=IDS,
    generation=1,
    start=0,
    position=100,
    source_end=100,
    watermark=None,
    verify=covered((0, 100)),
)
OPENING = PartitionPlan(
    key=key(3),
    state=State.OPENING,
    ids=replace(IDS, target_topic=""),
    generation=1,
    start=7,
    position=7,
    source_end=9000000000,
    watermark=None,
    copy=OffsetRange(7, 9000000000),
)
ADDED = {
    State.UNREADABLE,
    State.UNFIT,
    State.TARGET_TRUNCATED,
    State.CONTRADICTED,
    State.FOREIGN,
    State.REPARTITIONED,
    State.SEALED,
}  # to format 1, after the golden file was written
REFUSED = [
    PartitionPlan(
        key=key(10 + number, "thème", "цель"),
        state=state,
        ids=IDS,
        generation=1,
        start=0,
        position=40,
        source_end=100,
        watermark=40,
        what=f'orders-{10 + number}: "{state.name}"\nwhy',
        remedy="kafka-replication reset … ü",
    )
    for number, state in enumerate(state for state in State if state in REFUSALS - ADDED)
]
STORED = Plan("orders-dr", (BEHIND, IN_SYNC, PENDING, OPENING, *REFUSED))


def test_a_plan_of_format_1_is_read() -> None:
    """A run that was planned by an older release is finished by a newer one."""
    assert plan_codec.decode(GOLDEN, "run-1") == STORED


def test_a_plan_is_written_as_format_1() -> None:
    assert json.loads(plan_codec.encode(STORED)) == json.loads(GOLDEN)


TEXT = st.text(max_size=5)
OFFSET = st.integers(0, 2**62)
TOPIC_NAME = st.from_regex(r"[a-z0-9._-]{1,6}", fullmatch=True)
RANGES = st.tuples(OFFSET, OFFSET).map(lambda pair: OffsetRange(min(pair), max(pair) + 1))
ROWS = st.builds(
    PartitionPlan,
    key=st.builds(PartitionKey, TOPIC_NAME, st.builds(TopicPartition, TOPIC_NAME, st.integers(0, 99)), TOPIC_NAME),
    state=st.sampled_from(State),
    ids=st.builds(Ids, TEXT, TEXT, TEXT),
    generation=OFFSET,
    start=OFFSET,
    position=OFFSET,
    source_end=OFFSET,
    watermark=st.none() | OFFSET,
    copy=st.none() | RANGES,
    verify=st.lists(RANGES, max_size=3).map(Coverage.of),
    leader_epoch=st.none() | st.integers(0, 99),
    what=TEXT,
    remedy=TEXT,
    engine=TEXT,
    engine_why=TEXT,
)


@given(st.builds(Plan, TEXT, st.lists(ROWS, max_size=3).map(tuple), settings=st.dictionaries(TEXT, TEXT, max_size=2)))
def test_a_stored_plan_is_the_plan(made: Plan) -> None:
    again = plan_codec.decode(plan_codec.encode(made), "run-1")
    assert again == made
    assert all(isinstance(each.state, State) for each in again.partitions)


def test_unknown_optional_fields_are_passed_over() -> None:
    stored = json.loads(GOLDEN)
    stored["planned_by"] = "9.9"
    stored["partitions"][0]["hint"] = 7
    assert plan_codec.decode(json.dumps(stored), "run-1") == STORED


def test_a_plan_of_a_newer_format_is_refused_by_name() -> None:
    with pytest.raises(PlanUnreadable) as caught:
        plan_codec.decode(json.dumps({"format": 2, "replication": "orders-dr", "ranges": []}), "run-7")
    for part in ("run-7", "format 2", "up to 1"):
        assert part in caught.value.what
    assert "upgrade" in caught.value.remedy and "new run" in caught.value.remedy
    assert not caught.value.retriable


WRONG = {
    "no partitions": without("partitions"),
    "no format": without("format"),
    "a format that is text": setting("format", to="1"),
    "no state": without("partitions", 0, "state"),
    "a state that is a list": setting("partitions", 0, "state", to=["behind"]),
    "an unknown state": setting("partitions", 0, "state", to="ahead"),
    "no watermark": without("partitions", 0, "watermark"),
    "a position that is text": setting("partitions", 0, "position", to="40"),
    "a position below zero": setting("partitions", 0, "position", to=-1),
    "a copy of one number": setting("partitions", 0, "copy", to=[40]),
    "a copy that runs backwards": setting("partitions", 0, "copy", to=[100, 40]),
    "no copy": without("partitions", 0, "copy"),
    "no coverage": setting("partitions", 0, "verify", to=None),
    "a key without a topic": without("partitions", 0, "key", "source", "topic"),
    "a key with an empty topic": setting("partitions", 0, "key", "source", "topic", to=""),
    "partitions that are none": setting("partitions", to=7),
}


@pytest.mark.parametrize("change", WRONG.values(), ids=WRONG)
def test_a_malformed_plan_names_its_run_and_says_how_to_go_on(change: Callable[[Any], None]) -> None:
    stored = json.loads(GOLDEN)
    change(stored)
    with pytest.raises(PlanUnreadable) as caught:
        plan_codec.decode(json.dumps(stored), "run-7")
    assert "run-7" in caught.value.what and "format" in caught.value.what
    assert "new run" in caught.value.remedy


@pytest.mark.parametrize("text", ["", "{", "7", "null", "[]", "{}", '{"format":true}'])
def test_what_is_no_plan_names_its_run_and_says_how_to_go_on(text: str) -> None:
    with pytest.raises(PlanUnreadable) as caught:
        plan_codec.decode(text, "run-7")
    assert "run-7" in caught.value.what and "new run" in caught.value.remedy
