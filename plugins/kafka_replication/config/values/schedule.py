"""Schedules as text. croniter reads them, as in Airflow, so that a schedule means the same in both.

croniter is imported inside the functions: a Spark worker imports this package but never reads a schedule, and the
worker's image has no croniter.
"""

from __future__ import annotations

from datetime import UTC, datetime

# Airflow's cron presets that croniter does not know by name (airflow/sdk/definitions/timetables/_cron.py) ...
_AIRFLOW_PRESETS = {"@quarterly": "0 0 1 */3 *"}
# ... and the two timetables that a DAG takes by name.
WITHOUT_INTERVALS = ("@once", "@continuous")
PRESETS = (
    *WITHOUT_INTERVALS,
    "@hourly",
    "@daily",
    "@midnight",
    "@weekly",
    "@monthly",
    "@quarterly",
    "@yearly",
    "@annually",
)
SCHEDULE_FORM = (
    f"a cron expression of 5 fields ('minute hour day-of-month month day-of-week', UTC), or one of {', '.join(PRESETS)}"
)

_FIELDS = ("minute", "hour", "day of month", "month", "day of week", "second", "year")
_ALLOWED = {"month": "1 to 12, or jan to dec", "day of week": "0 to 7, or sun to sat", "day of month": "1 to 31, or L"}
# The start date of every DAG. It is fixed, so that a valid file stays valid as time passes.
_FROM = datetime(2024, 1, 1, tzinfo=UTC)


def check_schedule(text: str) -> str:
    """Check that Airflow takes the schedule, and that it names at least one moment from 2024 on.

    Raises ValueError, which names the field that is wrong.
    """
    from croniter import CroniterBadDateError, CroniterError, croniter

    if text in WITHOUT_INTERVALS:
        return text
    try:
        croniter(_AIRFLOW_PRESETS.get(text, text), _FROM).get_next(datetime)
    except CroniterBadDateError:
        raise ValueError("would never run: it names a day that none of its months has, or a year in the past") from None
    except (CroniterError, ValueError, OverflowError) as error:
        raise ValueError(_why(text, error)) from None
    return text


def last_due(text: str | None, before: datetime) -> datetime | None:
    """The last moment before ``before`` at which the schedule was due; None for a schedule without such moments."""
    from croniter import croniter

    if text is None or text in WITHOUT_INTERVALS:
        return None
    due: datetime = croniter(_AIRFLOW_PRESETS.get(text, text), before).get_prev(datetime)
    return due


def next_due(text: str | None, after: datetime) -> datetime | None:
    """The first moment after ``after`` at which the schedule is due; None for a schedule without such moments."""
    from croniter import croniter

    if text is None or text in WITHOUT_INTERVALS:
        return None
    due: datetime = croniter(_AIRFLOW_PRESETS.get(text, text), after).get_next(datetime)
    return due


def _why(text: str, error: Exception) -> str:
    """Name the first field that croniter refuses when all other fields are ``*``, with its allowed values."""
    from croniter import croniter

    fields = text.split()
    if text.startswith("@") or not 5 <= len(fields) <= len(_FIELDS):
        return f"must be {SCHEDULE_FORM}"
    for number, (field, what) in enumerate(zip(fields, _FIELDS, strict=False)):
        stars = ["*"] * len(fields)
        stars[number] = field
        if not croniter.is_valid(" ".join(stars)):
            allowed = _ALLOWED.get(what) or "{} to {}".format(*croniter.RANGES[number])
            return (
                f"{what} field '{field[:40]}' is not valid: allowed are * or {allowed}, a range a-b, a step */n,"
                " or several of these with commas"
            )
    return f"is not a valid cron expression: {error}"
