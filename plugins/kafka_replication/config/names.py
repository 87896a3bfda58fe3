"""Checks names, topic patterns and rename templates of a replication file.

Every ``check_`` function returns its argument, or raises ValueError with a text that says what is allowed.

Schedules as text. croniter reads them, as in Airflow, so that a schedule means the same in both.

croniter is imported inside the functions: a Spark worker imports this package but never reads a schedule, and the
worker's image has no croniter.
"""

from __future__ import annotations

import difflib
import re
import warnings
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from functools import lru_cache

from kafka_replication.model import choices
from kafka_replication.model.choices import TARGETS

LEDGER_PREFIX = "kafka-replication."
QUARANTINE_PREFIX = f"{LEDGER_PREFIX}quarantine."
AUDIT_SUFFIX = ".audit"
BACKFILL_SUFFIX = ".backfill"
DRILL_SUFFIX = ".drill"
FAILED_SUFFIX = ".failed"
GROUPS_SUFFIX = ".groups"
REPAIR_SUFFIX = ".repair"
TURN_SUFFIX = ".turn"
DAG_SUFFIXES = {  # of the DAGs beside that of a replication
    BACKFILL_SUFFIX: "the name of its backfill DAG",
    AUDIT_SUFFIX: "how the audit DAG of a replication is called",
    DRILL_SUFFIX: "the name of its DAG for failover drills",
    FAILED_SUFFIX: "the name of its DAG for failed records",
    GROUPS_SUFFIX: "the name of its DAG for consumer groups",
    REPAIR_SUFFIX: "the name of its DAG for gaps and resets",
    TURN_SUFFIX: "the name of its DAG for cut-over, failover and failback",
}
WATCH_DAG = "replications.watch"
NAME_MAX = 200  # Airflow allows 250 for a DAG id; the backfill DAG and the ledger's keys need room for a suffix
TOPIC_MAX = 249  # Kafka: a topic's folder name is topic-partition and must fit 255 bytes
PATTERN_MAX = 1000
CONNECTION_MAX = 250  # Airflow's CONN_ID_MAX_LEN

PROVENANCE = "provenance"  # the transform that is built in
TOPIC_PLACEHOLDER = "{topic}"
KAFKA_INTERNAL = frozenset(
    {"__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata", "__remote_log_metadata"}
)

_NAME = re.compile(r"[a-z0-9._-]+")
_TOPIC = re.compile(r"[a-zA-Z0-9._-]+")
_DATE = re.compile(r"\{[^}]*(yy|%Y|date|time)[^}]*\}|%Y", re.IGNORECASE)
_CONNECTION = re.compile(r"[\w#!()\-.:/\\]+", re.ASCII)


def check_replication_name(name: str) -> str:
    """A name that Airflow takes as a DAG id, and that is safe as a file name and in a ``transactional.id``."""
    if not _NAME.fullmatch(name) or not name.strip("._-"):
        raise ValueError(
            "must be lower-case letters, digits, dots, underscores and dashes, with at least one letter or digit"
        )
    if len(name) > NAME_MAX:
        raise ValueError(f"must be at most {NAME_MAX} characters long, not {len(name)}")
    for suffix, dag in DAG_SUFFIXES.items():
        if name.endswith(suffix):
            raise ValueError(f"must not end in '{suffix}': that is {dag}")
    if name == WATCH_DAG:
        raise ValueError(f"must not be '{WATCH_DAG}': that is the DAG that watches all replications")
    return name


def check_connection(name: str) -> str:
    """An Airflow connection id (``sanitize_conn_id`` in airflow/models/connection.py)."""
    if not _CONNECTION.fullmatch(name) or len(name) > CONNECTION_MAX or "://" in name:
        raise ValueError(
            "must be the id of an Airflow connection: letters, digits and _ - . # ! ( ) : / \\, at most"
            f" {CONNECTION_MAX} of them"
        )
    return name


def check_principal(text: str) -> str:
    """One principal of Kafka, such as ``User:alice``; everybody is none."""
    kind, _, name = text.partition(":")
    if not kind or not name:
        raise ValueError("must be a principal such as User:alice")
    if name == "*":
        raise ValueError("is everybody, on the target as at the source: leave it out")
    return text


def topic_problem(name: str) -> str | None:
    """The reason why Kafka would refuse this topic name, or None (see ``org.apache.kafka.common.internals.Topic``)."""
    if name in {"", ".", ".."}:
        return "is no topic name to Kafka"
    if len(name) > TOPIC_MAX:
        return f"is {len(name)} characters long; Kafka allows a topic name {TOPIC_MAX}"
    if not _TOPIC.fullmatch(name):
        return "is no topic name to Kafka: allowed are letters, digits, dots, underscores and dashes"
    return None


def target_problem(name: str) -> str | None:
    """The reason why a topic of this name must not be written to; None if it may be."""
    if name.startswith(LEDGER_PREFIX):
        return f"starts with '{LEDGER_PREFIX}', which belongs to the ledger"
    if name in KAFKA_INTERNAL:
        return "is an internal topic of Kafka"
    return topic_problem(name)


def is_internal(topic: str) -> bool:
    """True for topics that a pattern never selects: Kafka's own (``__*``) and the ledger's."""
    return topic.startswith(("__", LEDGER_PREFIX))


def is_pattern(entry: str) -> bool:
    """True for a regular expression, that is an entry that starts with ``^`` (librdkafka's convention)."""
    return entry.startswith("^")


@lru_cache(maxsize=4096)
def compiled(pattern: str) -> re.Pattern[str]:
    """The compiled pattern. Raises ValueError for one that Python's ``re`` refuses or warns about."""
    if len(pattern) > PATTERN_MAX:
        raise ValueError(f"regular expression of {len(pattern)} characters; allowed are {PATTERN_MAX}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # a warning ("possible nested set") points to a mistake in the pattern
            return re.compile(pattern)
    except (re.error, OverflowError, RecursionError, Warning) as error:
        raise ValueError(f"is not a regular expression that Python's re can read: {error}") from None


def fits(entry: str, name: str) -> bool:
    """True if the entry is this name, or an expression that matches it from its start."""
    return compiled(entry).match(name) is not None if is_pattern(entry) else entry == name


def check_topic_entry(entry: str) -> str:
    """A topic name, or a regular expression that starts with ``^``."""
    if is_pattern(entry):
        compiled(entry)
    elif problem := topic_problem(entry):
        raise ValueError(f"{problem}; a regular expression must start with ^{_meant(entry)}")
    return entry


def check_expression_if_any(entry: str) -> str:
    """Any name, or a regular expression that starts with ``^``."""
    if is_pattern(entry):
        compiled(entry)
    return entry


def _meant(entry: str) -> str:
    """The regular expression that the author of ``audit.*`` may have meant."""
    plain = entry.replace("*", "")
    if "*" not in entry or not _TOPIC.fullmatch(plain):
        return ""
    return f", did you mean '^{'.*'.join(map(re.escape, entry.split('*')))}'?"


def check_rename(rename: object) -> object:
    """A template such as ``dr.{topic}``, or a mapping of topic entries to new names. What is neither is returned."""
    if isinstance(rename, str):
        _check_template(rename)
    for entry, name in rename.items() if isinstance(rename, Mapping) else ():
        if not (isinstance(entry, str) and isinstance(name, str)):
            continue
        try:
            check_topic_entry(entry)
            if is_pattern(entry):
                compiled(entry).sub(name, "")
        except (ValueError, re.error, IndexError) as error:
            raise ValueError(f"'{entry}': {error}") from None
        if _DATE.search(name):
            raise ValueError(_NO_DATE)
        if not is_pattern(entry) and (problem := target_problem(name)):
            raise ValueError(f"'{entry}' would be written to '{name}', which {problem}")
    return rename


_NO_DATE = (
    "cannot have a date: one topic or index gets all records of its source topic; docs/opensearch.md says why,"
    " under 'What is refused'"
)


def _check_template(template: str) -> None:
    """Kafka must accept every target name that the template makes."""
    if TOPIC_PLACEHOLDER not in template:
        raise ValueError(f"must contain {TOPIC_PLACEHOLDER}, or every topic would land in one")
    if _DATE.search(template):
        raise ValueError(_NO_DATE)
    if problem := target_problem(template.replace(TOPIC_PLACEHOLDER, "t")):
        raise ValueError(
            f"would give target topics a name that {problem}; outside {TOPIC_PLACEHOLDER} only letters, digits, . _ -"
            " may stand"
        )


def check_callback(text: str) -> str:
    """Raises ValueError unless it reads ``package.module:function``.

    Whether the function exists is checked later, where Airflow can import it.
    """
    if not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", text, re.ASCII):
        raise ValueError("must read package.module:function")
    return text


def check_transform(text: str) -> str:
    """Raises ValueError unless it is ``provenance`` or reads ``package.module:function``.

    Whether the function exists is checked later, where Spark can import it.
    """
    if text == PROVENANCE:
        return text
    try:
        return check_callback(text)
    except ValueError as error:
        raise ValueError(f"{error}, or be {PROVENANCE}") from None


def check_target_type(text: str) -> str:
    """Raises ValueError unless it is a kind of target that is built in, or reads ``package.module:Class``."""
    return _built_in_or_named(text, TARGETS, "Class")


def check_partitioning(text: str) -> str:
    """Raises ValueError unless it is a partitioning that is built in, or reads ``package.module:function``."""
    return _built_in_or_named(text, choices.BUILT_IN, "function")


def _built_in_or_named(text: str, built_in: Collection[str], what: str) -> str:
    if text in built_in:
        return text
    try:
        return check_callback(text)
    except ValueError:
        question = did_you_mean(text.lower(), built_in)
        raise ValueError(f"must be {', '.join(built_in)} or package.module:{what}{question}") from None


def did_you_mean(text: str, known: Collection[str]) -> str:
    """The question after the first 200 characters of a word that is like a known one; empty if it is like none."""
    near = difflib.get_close_matches(text[:200], known, n=1)
    return f", did you mean '{near[0]}'?" if near else ""


def check_class(text: str) -> str:
    """Raises ValueError unless it reads ``package.module.Class``. Whether the class exists is checked later."""
    if not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+", text, re.ASCII):
        raise ValueError("must read package.module.Class")
    return text


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
