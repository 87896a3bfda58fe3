"""A schedule of a replication file is taken if, and only if, Airflow takes it and can name its next run."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime

import pytest
from airflow.sdk.exceptions import AirflowTimetableInvalid
from airflow.timetables.trigger import CronTriggerTimetable
from croniter import CroniterError
from hypothesis import given
from hypothesis import strategies as st
from pendulum import instance

from kafka_replication.config.names import PRESETS, WITHOUT_INTERVALS, check_schedule

FIELD = st.from_regex(r"\A(\*|L|\?|[0-9]{1,2}|[0-9]{1,2}-[0-9]{1,2}|mon)(/[0-9]{1,2}|#[0-9]|W)?\Z")
TABLE = [
    "1#1",
    "0 6 * * 1#1",
    "0 6 L * *",
    "@midnight",
    "@annually",
    "@reboot",
    "H * * * *",
    "60 * * * *",
    "0 22-2 * * *",
]
TABLE += [
    "*/0 * * * *",
    "*/90 * * * *",
    "0 0 31 2,4 *",
    "0 0 31 2 1#5",
    "* * * * * *",
    "* * * *",
    "0 0 * * 8",
    "hourly",
    "",
]


def ours(text: str) -> bool:
    with suppress(ValueError):
        return check_schedule(text) == text
    return False


def airflows(text: str) -> bool:
    with suppress(AirflowTimetableInvalid, CroniterError, ValueError):
        timetable = CronTriggerTimetable(text, timezone="UTC")
        timetable.validate()
        return timetable._get_next(instance(datetime(2024, 1, 1, tzinfo=UTC))) is not None
    return False


@pytest.mark.parametrize("text", [*TABLE, *(each for each in PRESETS if each not in WITHOUT_INTERVALS)])
def test_the_table(text: str) -> None:
    assert ours(text) is airflows(text)


@given(st.lists(FIELD, min_size=4, max_size=6).map(" ".join))
def test_any_cron_expression(text: str) -> None:
    assert ours(text) is airflows(text)
