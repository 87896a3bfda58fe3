"""What can be read of a replication file with mistakes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_replication.config import Replication
from kafka_replication.config.reading import INSTEAD_OF_ITS_SCHEDULE, readable_part

LINES = [
    "name: orders",
    "source: {connection: s}",
    "target: {connection: t}",
    "topics: {include: [orders]}",
    "schedule: '*/2 * * * *'",
    "alerts: {apprise: oncall, lag: {records: 5}}",
    "retries: {attempts: 2}",
]
EVERY_TWO = "*/2 * * * *"


def rest(changes: dict[str, str], more: str = "") -> Replication:
    text = "\n".join(changes.get(line.partition(":")[0], line) for line in LINES) + f"\n{more}\n"
    found = readable_part(text.encode(), "of-the-file")
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("changes", "more"),
    [
        ({}, "shedulee: x"),
        ({}, "copy: {chunk_records: many}"),
        ({}, "copy: {transaction_timeout: 901}"),
        ({}, "copy: {chunk_records: 1"),
        ({}, "retention: [1"),
        ({}, "description: me\n\tx: 1"),
        ({}, "name: again"),
        ({"alerts": "alerts: {apprise: oncall, lag: {records: -5}}"}, ""),
        ({"source": "source: {conection: s}"}, ""),
        ({"topics": "topics: {include: ['^(']}"}, ""),
    ],
)
def test_a_mistake_elsewhere_leaves_name_schedule_and_alerts(changes: dict[str, str], more: str) -> None:
    found = rest(changes, more)
    assert (found.name, found.schedule) == ("orders", EVERY_TWO)
    assert found.retries.attempts == 2
    assert found.alerts.apprise == "oncall"


@pytest.mark.parametrize("line", ["schedule: '99 * * * *'", "shedule: '*/2 * * * *'", "schedule: ['", "schedule: 5"])
def test_a_schedule_that_cannot_be_read_is_no_reason_never_to_run(line: str) -> None:
    found = rest({"schedule": line})
    assert found.schedule == INSTEAD_OF_ITS_SCHEDULE
    assert rest({"schedule": ""}).schedule is None


@pytest.mark.parametrize("line", ["name: Orders DR", "nmae: orders", "name: [orders", "name: 5"])
def test_a_name_that_cannot_be_read_is_that_of_the_file(line: str) -> None:
    found = rest({"name": line})
    assert (found.name, found.schedule, found.alerts.apprise) == ("of-the-file", EVERY_TWO, "oncall")


def test_without_any_name_there_is_nothing() -> None:
    assert readable_part(b"{", "Not A Name") is None
    assert readable_part(b"name: X\n", "Not A Name") is None


@given(st.lists(st.tuples(st.integers(0, 300), st.sampled_from(list("{}[]:'\"\n\t #&*!-x0,\x00\xff"))), max_size=6))
def test_whatever_the_mistake_it_ends_and_never_raises(edits: list[tuple[int, str]]) -> None:
    text: Any = list("\n".join(LINES))
    for at, character in edits:
        text.insert(at, character)
    found = readable_part("".join(text).encode("utf-8"), "of-the-file")
    assert found is not None and found.name
