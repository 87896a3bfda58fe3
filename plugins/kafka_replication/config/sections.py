"""The base class of all sections of a replication, and the types of their fields.

Together with `model` the sections are the only place that knows a default. Times are seconds and sizes bytes. Values
that do not fit raise ``pydantic.ValidationError``. docs/configuration.md is generated from their descriptions.

The sections about how a run works: copying, verifying, Spark, retries, times.

The sections about alerts.

The section about records that cannot be copied.
"""

from __future__ import annotations

import math
import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, field_validator

from kafka_replication.config import names
from kafka_replication.model.choices import FailureKind

DAY = 86_400


def _as_setting(value: object) -> object:
    """Kafka and Spark take settings as text: a number or a boolean in the file becomes its text."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int) else value


def _check_no_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be empty")
    return text


def listed(value: object) -> object:
    """A list. If the file has a single item instead of a list, it is a list with this item."""
    return (value,) if isinstance(value, str) else value


Whole = Annotated[int, Field(strict=True)]
Flag = Annotated[bool, Field(strict=True)]
Text = Annotated[str, AfterValidator(_check_no_blank)]
Tag = Annotated[str, Field(max_length=100), AfterValidator(_check_no_blank)]  # Airflow's TAG_MAX_LEN
Settings = dict[Text, Annotated[str, BeforeValidator(_as_setting, json_schema_input_type=str | int | bool)]]
ConnectionId = Annotated[str, AfterValidator(names.check_connection)]
Principal = Annotated[str, AfterValidator(names.check_principal)]
TopicEntry = Annotated[str, AfterValidator(names.check_topic_entry)]
GroupEntry = Annotated[str, AfterValidator(_check_no_blank), AfterValidator(names.check_expression_if_any)]


class Section(BaseModel):
    """The base of all sections: unknown keys are refused, values do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True, serialize_by_alias=True)


class Copy(Section):
    """The size of chunks and the limits of copying. A chunk is the part of a range that one target transaction carries.
    It ends at the first bound that it reaches: `chunk_records`, 256 MiB, or a minute (at most half of
    `transaction_timeout`).
    """

    engine: Literal["auto", "record", "batch"] = Field(
        default="auto",
        description="The copy engine: `record` decodes and sends each record; it handles every topic. `batch` copies"
        " whole record batches and packs small ones into one; what it cannot copy so, the record engine copies. `auto`"
        " takes for each range the one that carries it faster and unchanged.",
    )
    chunk_records: Whole = Field(default=100_000, ge=1, le=10_000_000, description="Most records in one chunk.")
    transaction_timeout: Whole = Field(
        default=600,
        ge=2,
        le=900,
        description=(
            "Seconds after which the target aborts a transaction that was left open, for example by a crash. "
            "Brokers allow at most 900 unless `transaction.max.timeout.ms` says otherwise."
        ),
    )
    stall_timeout: Whole = Field(
        default=60,
        ge=1,
        le=3600,
        description=(
            "Seconds without any progress (the source sends no record, the target acknowledges none) after which an"
            " attempt to copy or to read back ends. However long a slow target takes, it is progress."
        ),
    )
    throughput_limit: Whole | None = Field(
        default=None,
        ge=1_000,
        description=(
            "Most bytes a second (keys, values and headers, uncompressed) that one run reads from the source, and later"
            " reads back from the target. Each range that is worked on at a time gets an equal share for as long as the"
            " run lasts; so the last ranges do not use what others leave. null means no limit."
        ),
    )

    @property
    def chunk_seconds(self) -> float:
        """The longest time that one chunk may take: at most half of its transaction, so that there is time to commit. A
        chunk that could not be sent in time is sent again in smaller ones.
        """
        return min(60.0, self.transaction_timeout / 2)


class Verify(Section):
    """The way in which copied ranges are read back before the watermark moves."""

    level: Literal["digest", "count"] = Field(
        default="digest",
        description="`digest` compares every byte by means of a digest; `count` compares only the number of records.",
    )


class Groups(Section):
    """The consumer groups whose committed offsets are translated and committed on the target."""

    include: tuple[GroupEntry, ...] = Field(
        default=(),
        description=(
            "Names of consumer groups, or regular expressions that start with `^`. A run that has verified what it"
            " copied moves those that committed offsets of the replication's topics; nothing is moved by default."
        ),
    )
    exclude: tuple[GroupEntry, ...] = Field(
        default=(),
        description="Names or expressions of groups to leave out, whatever `include` says. Same form as `include`.",
    )
    interval: Whole | None = Field(
        default=None,
        ge=10,
        description=(
            "Seconds after which the DAG `<name>.groups` moves them again, between runs, too; null: with each run, and"
            " by hand. It is idle where no group has moved."
        ),
    )

    def selects(self, group: str) -> bool:
        """True if the committed offsets of a group of this name are to be moved."""
        return any(names.fits(entry, group) for entry in self.include) and not any(
            names.fits(entry, group) for entry in self.exclude
        )


class Spark(Section):
    """The Spark connection, and the number of partitions that are copied at once."""

    connection: ConnectionId = Field(
        default="spark_default", description="Id of an Airflow connection of type `spark`."
    )
    parallelism: Whole | None = Field(
        default=None,
        ge=1,
        le=10_000,
        description=(
            "Most partitions copied at once; null means one in each of Spark's task slots, or up to 8 if their ranges"
            " are small."
        ),
    )
    conf: Settings = Field(
        default_factory=dict,
        description=(
            "Further Spark settings, for example `spark.executor.memory: 2g`. Spark's UI shows them, so write no"
            " secrets here."
        ),
    )

    @field_validator("conf")
    @classmethod
    def _is_read_by_spark(cls, conf: dict[str, str]) -> dict[str, str]:
        if unknown := sorted(key for key in conf if not key.startswith("spark.")):
            raise ValueError(f"keys must start with 'spark.', or spark-submit ignores them: {', '.join(unknown)}")
        return conf


class Retries(Section):
    """Airflow's retries of a failed task whose error is retriable."""

    attempts: Whole = Field(
        default=3,
        ge=0,
        le=100,
        description=(
            "How many times a failed task is run again (Airflow's `retries`), the first time after 30 seconds. The wait"
            " doubles with each further time, up to 10 minutes."
        ),
    )


class Retention(Section):
    """The time for which the data of past runs is kept. Watermarks and positions are kept for ever."""

    history: Whole = Field(
        default=90 * DAY,
        ge=DAY,
        le=36_500 * DAY,
        description=(
            "Seconds that the store keeps runs with their plans and results, and failed records after they were retried"
            " or discarded. Each run deletes older ones when it ends. The plan of a run that succeeded is kept for an"
            " hour."
        ),
    )
    receipts: Whole = Field(
        default=90 * DAY,
        ge=DAY,
        le=36_500 * DAY,
        description=(
            "Seconds that the ledger keeps receipts (`retention.ms` of its receipts topic when that is created; in"
            " OpenSearch and HBase runs delete older ones that are verified)."
            " An audit cannot compare older chunks. Copied ranges must be verified before their receipts expire."
        ),
    )


class Timeouts(Section):
    """The longest times for one request, and for a run as a whole."""

    request: Whole = Field(default=30, ge=1, le=300, description="Seconds one request to a cluster may take.")
    run: Whole | None = Field(
        default=6 * 3600,
        ge=1,
        description=(
            "Seconds that a run from the command line, or one try of an Airflow task, may take. Every wait ends by then"
            " with an error that says so. Committed chunks stay, and the next run continues after them. null means no"
            " limit."
        ),
    )


class Lag(Section):
    """Limits for the target's distance behind the source. Beyond one `status` exits with 1, and an alert is sent."""

    records: Whole | None = Field(
        default=None,
        ge=1,
        description=(
            "Most offsets of one partition between the watermark and the end of the source; null means no limit."
        ),
    )
    seconds: Whole | None = Field(
        default=None,
        ge=1,
        description=(
            "Greatest age in seconds of the oldest record that is not yet verified on the target; null means no limit."
            " Choose more than the time between two runs."
        ),
    )


class Notifier(Section):
    """An Airflow notifier."""

    class_: Annotated[str, AfterValidator(names.check_class)] = Field(
        alias="class", description="The class, written `package.module.Class`, that Airflow can import."
    )
    arguments: dict[Text, Any] = Field(
        default_factory=dict,
        description=(
            "Its arguments, with Airflow's templates: `{{ alert_title }}` is the alert's first line and `{{ alert }}`"
            " its text. Write no secrets here; notifiers take connections."
        ),
    )


class Alerts(Section):
    """The people to alert when something is wrong, and the limits from which on it is wrong. See docs/alerts.md."""

    apprise: ConnectionId | None = Field(
        default=None,
        description=(
            "Id of an Airflow connection of type `apprise`: its addresses (mail, chat, pagers, webhooks) get every"
            " alert, from Airflow and from the command line."
        ),
    )
    notifiers: tuple[Notifier, ...] = Field(
        default=(),
        description=(
            "Airflow notifiers that get every alert, from Airflow and, where apache-airflow is installed, from the"
            " command line. Each has a `class`, written `package.module.Class`, and its `arguments`;"
            " `{{ alert_title }}`, `{{ alert }}` and `{{ alert_fields }}` stand for the alert in them."
        ),
    )
    stalled_after: Whole = Field(
        default=600,
        ge=1,
        le=DAY,
        description=(
            "Seconds after which there is an alert about a run without progress, a cluster or store that cannot be"
            " reached, and a scheduled run that did not start."
        ),
    )
    lag: Lag = Field(default_factory=Lag, description="How far the target may be behind the source.")

    @property
    def names_somebody(self) -> bool:
        """True if an alert reaches anybody."""
        return self.apprise is not None or bool(self.notifiers)


class Objectives(Section):
    """The limits of what a failover may cost, as each drill measures it. See docs/failover.md."""

    lag: Whole | None = Field(
        default=None,
        ge=1,
        description=(
            "Greatest age in seconds of the oldest record that a failover would find unverified; null means no limit."
            " A drill that finds more is worse than asked: it fails, and an alert is sent."
        ),
    )
    groups_exact: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description=(
            "The least share of consumer groups, from 0 to 1, that a failover would move to an exact place; null means"
            " no limit. A drill that finds less is worse than asked, too."
        ),
    )
    drill_every: Whole | None = Field(
        default=None,
        ge=60,
        description=(
            "Longest time in seconds between two drills: the DAG `<name>.drill` makes one that often once it is"
            " switched on, and an alert is sent if there was none for so long. null: only by hand, without an alert."
        ),
    )


Policy = Literal["fail", "quarantine", "skip"]
_PERCENT = re.compile(r"(\d{1,3}(?:\.\d{1,6})?)%")


def _check_percent(text: str) -> str:
    match = _PERCENT.fullmatch(text)
    if match is None or float(match[1]) > 100:
        raise ValueError("must be a number of records, or a share of the offsets such as '0.1%'")
    return text


def _kind(meaning: str) -> Any:
    return Field(default=None, description=f"The policy for {meaning}; null means that of `policy`.")


class Failures(Section):
    """The policy for records that cannot be copied, and that for some kinds of them. See docs/failed-records.md."""

    policy: Policy = Field(
        default="fail",
        description=(
            "What to do with a record that cannot be copied. `fail`: copy everything before it, then fail; nothing"
            " after it is copied. `quarantine`: write it to a quarantine topic on the target, in the same transaction"
            " as its neighbours, and go on. `skip`: record its coordinates and the reason, and go on."
        ),
    )
    too_large: Policy | None = _kind("records that are larger than the target topic takes")
    transform: Policy | None = _kind("records on which a filter or a transform fails")
    limit: Annotated[Whole, Field(ge=0)] | Annotated[str, AfterValidator(_check_percent)] = Field(
        default=10_000,
        description=(
            "Most records of each source partition that one run may quarantine or skip: a number, or a share of the"
            " offsets of the partition that it is to copy (`0.1%`, rounded up). A partition fails before more of it is"
            " set aside, and the others go on. There is no limit for all partitions of a run together."
        ),
    )

    def of(self, kind: FailureKind) -> Policy:
        """The policy for failures of this kind."""
        own: Policy | None = getattr(self, kind.value, None)
        return own or self.policy

    @property
    def policies(self) -> frozenset[Policy]:
        """All policies that can apply."""
        return frozenset(map(self.of, FailureKind))

    def most(self, offsets: int) -> int:
        """The limit in records for a partition in which a run is to copy so many offsets."""
        if isinstance(self.limit, int):
            return self.limit
        return math.ceil(offsets * float(self.limit.removesuffix("%")) / 100)
