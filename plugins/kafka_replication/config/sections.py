"""The sections of a replication as typed, frozen values. Together with `model` the only place that knows a default.

Times are seconds and sizes bytes. Values that do not fit raise ``pydantic.ValidationError``.
docs/configuration.md is generated from the descriptions here.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from kafka_replication.config import names

DAY = 86_400
MIN_COMPACTION_LAG = "min.compaction.lag.ms"


def _as_setting(value: object) -> object:
    """Kafka and Spark take settings as text: a number or a boolean in the file becomes its text."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int) else value


def _check_no_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be empty")
    return text


Whole = Annotated[int, Field(strict=True)]
Flag = Annotated[bool, Field(strict=True)]
Text = Annotated[str, AfterValidator(_check_no_blank)]
Tag = Annotated[str, Field(max_length=100), AfterValidator(_check_no_blank)]  # Airflow's TAG_MAX_LEN
Settings = dict[Text, Annotated[str, BeforeValidator(_as_setting)]]
ConnectionId = Annotated[str, AfterValidator(names.check_connection)]
TopicEntry = Annotated[str, AfterValidator(names.check_topic_entry)]


class Section(BaseModel):
    """The base of all sections: unknown keys are refused, values do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True, serialize_by_alias=True)


class Cluster(Section):
    """A Kafka cluster, named by the Airflow connection that leads to it."""

    connection: ConnectionId = Field(
        description="Id of an Airflow connection of type `kafka`. Client settings and secrets live there, never here."
    )


class Topics(Section):
    """Which topics are copied, and what they are called on the target."""

    include: tuple[TopicEntry, ...] = Field(
        min_length=1,
        description=(
            "Topic names, or regular expressions that start with `^`. An expression is matched from the "
            "start of the name; end it with `$` to match whole names only. It never selects "
            "Kafka's internal topics (`__*`) or the ledger (`kafka-replication.*`)."
        ),
    )
    exclude: tuple[TopicEntry, ...] = Field(
        default=(),
        description="Names or expressions of topics to leave out, whatever `include` says. Same form as `include`.",
    )
    rename: Annotated[str, AfterValidator(names.check_rename)] = Field(
        default=names.TOPIC_PLACEHOLDER,
        description="Name of the target topic; `{topic}` stands for the source topic's name, as in `dr.{topic}`.",
    )

    @model_validator(mode="after")
    def _names_are_usable(self) -> Topics:
        for entry in self.include:
            if names.is_pattern(entry):
                continue
            if not self.selects(entry):
                raise ValueError(f"include names '{entry}', but exclude leaves it out: remove one of the two")
            if problem := names.target_problem(self.target_name(entry)):
                raise ValueError(
                    f"topic '{entry}' would be written to '{self.target_name(entry)}', which {problem}: change rename"
                )
        return self

    def selects(self, topic: str) -> bool:
        """True if a source topic of this name belongs to the replication."""
        return any(_matches(entry, topic) for entry in self.include) and not any(
            _matches(entry, topic) for entry in self.exclude
        )

    def target_name(self, source_topic: str) -> str:
        """The name that `rename` gives, unchecked."""
        return self.rename.replace(names.TOPIC_PLACEHOLDER, source_topic)


def _matches(entry: str, topic: str) -> bool:
    if not names.is_pattern(entry):
        return entry == topic
    return not names.is_internal(topic) and names.compiled(entry).match(topic) is not None


class Copy(Section):
    """How a range is copied. A chunk is the part of a range that one target transaction carries. It ends at the first
    bound that it reaches.
    """

    engine: Literal["record"] = Field(
        default="record",
        description="The copy engine: `record` decodes and sends each record; it handles every topic.",
    )
    chunk_records: Whole = Field(default=100_000, ge=1, le=10_000_000, description="Most records in one chunk.")
    chunk_bytes: Whole = Field(
        default=256 * 1024 * 1024,
        ge=1,
        le=2**40,
        description="Most bytes (keys, values and headers, uncompressed) in one chunk, which has at least one record.",
    )
    transaction_timeout: Whole = Field(
        default=600,
        ge=2,
        le=900,
        description=(
            "Seconds after which the target aborts a transaction that was left open, for example by a crash. "
            "Brokers allow at most 900 unless `transaction.max.timeout.ms` says otherwise."
        ),
    )
    chunk_seconds: Whole = Field(
        default=60,
        ge=1,
        validate_default=True,
        description=(
            "Longest time in seconds that one chunk may take; at most half of `transaction_timeout` and of"
            " `timeouts.range_without_progress`. A chunk that could not be sent in time is sent again in smaller ones."
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
    attempts: Whole = Field(
        default=500,
        ge=1,
        le=10_000,
        description=(
            "A range fails after this many attempts in a row that copied nothing; each attempt is a new producer"
            " session. The same number applies to reading back and to single steps. The pauses between attempts grow"
            " to 5 seconds. `timeouts.range_without_progress` and `timeouts.run` may end the attempts earlier."
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
    rounds: Whole = Field(
        default=3,
        ge=1,
        le=100,
        description=(
            "How many Spark jobs one run may submit for ranges that a newer copier took over, or whose Spark task died."
        ),
    )

    @field_validator("chunk_seconds")
    @classmethod
    def _leaves_time_to_commit(cls, chunk_seconds: int, info: ValidationInfo) -> int:
        timeout = info.data.get("transaction_timeout")  # absent if it was wrong itself
        if timeout is not None and 2 * chunk_seconds > timeout:
            raise ValueError(f"chunk_seconds ({chunk_seconds}) must be at most half of transaction_timeout ({timeout})")
        return chunk_seconds


class Verify(Section):
    """How copied ranges are read back before the watermark moves."""

    level: Literal["digest", "count"] = Field(
        default="digest",
        description="`digest` compares every byte by means of a digest; `count` compares only the number of records.",
    )


class TargetTopics(Section):
    """What target topics must fulfil, and how missing ones are created."""

    create: Flag = Field(
        default=True, description="Create missing target topics with the source's number of partitions."
    )
    partitions: Literal["follow", "refuse"] = Field(
        default="follow",
        description=(
            "What to do when the source topic has more partitions than the target topic, for example because partitions"
            " were added: add them to the target (`follow`), or refuse the partitions that have no target (`refuse`)."
        ),
    )
    replication_factor: Whole | None = Field(
        default=None,
        ge=1,
        le=32_767,
        description="Replication factor of created topics; null means the target's own default.",
    )
    min_compaction_lag: Whole = Field(
        default=7 * DAY,
        ge=0,
        le=36_500 * DAY,
        description=(
            "Seconds that created topics keep records from compaction (`min.compaction.lag.ms`), "
            "so that they can be read back first. If the source topic is compacted, the created topic's `segment.ms` "
            "is 100 years, because the lag does not protect old records otherwise."
        ),
    )
    config: Settings = Field(
        default_factory=dict,
        description=(
            "Further settings of created topics, for example `retention.ms: 604800000`. The default of `retention.ms`"
            " is the source's `retention.ms` + `segment.ms` + a day."
        ),
    )

    @field_validator("config")
    @classmethod
    def _sets_nothing_twice(cls, config: dict[str, str]) -> dict[str, str]:
        if MIN_COMPACTION_LAG in config:
            raise ValueError(f"must not hold {MIN_COMPACTION_LAG}: set min_compaction_lag, in seconds, instead")
        if config.get("message.timestamp.type", "CreateTime") != "CreateTime":
            raise ValueError(
                "message.timestamp.type must be CreateTime: the target would replace the records' timestamps"
            )
        return config


class Preflight(Section):
    """Checks made before anything is copied."""

    unsafe_target: Literal["warn", "refuse"] = Field(
        default="warn",
        description=(
            "What to do about a target topic that can lose acknowledged records: `min.insync.replicas` below 2, "
            "replication factor 1, or unclean leader election."
        ),
    )


class Spark(Section):
    """Where Spark runs, and how many partitions it copies at once."""

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
    """What Airflow does with a failed task whose error is retriable."""

    attempts: Whole = Field(
        default=3, ge=0, le=100, description="How many times a failed task is run again (Airflow's `retries`)."
    )
    delay: Whole = Field(
        default=30, ge=0, le=DAY, description="Seconds before the first retry; the wait doubles with each further one."
    )
    max_delay: Whole = Field(
        default=600,
        ge=0,
        le=DAY,
        validate_default=True,
        description="Longest wait in seconds between two retries; at least `delay`.",
    )

    @field_validator("max_delay")
    @classmethod
    def _is_not_below_delay(cls, max_delay: int, info: ValidationInfo) -> int:
        delay = info.data.get("delay")
        if delay is not None and max_delay < delay:
            raise ValueError(f"max_delay ({max_delay}) must not be below delay ({delay})")
        return max_delay


class Lease(Section):
    """The lease that prevents two runs from working on the same target topics at the same time."""

    duration: Whole = Field(
        default=15,
        ge=1,
        le=DAY,
        description=(
            "Seconds after which the lease of a run that died ends, if it died on another host. A run that works renews"
            " its lease three times in each duration."
        ),
    )
    wait: Whole = Field(
        default=60,
        ge=0,
        le=DAY,
        description=(
            "Seconds a run waits for target topics that another run works on. Then a live run leaves them to that run;"
            " a backfill fails."
        ),
    )


class Retention(Section):
    """How long the data of past runs is kept. Watermarks and positions are kept for ever."""

    history: Whole = Field(
        default=90 * DAY,
        ge=DAY,
        le=36_500 * DAY,
        description=(
            "Seconds that the store keeps runs with their plans and results, and the history of watermarks. Each run"
            " deletes older ones when it ends. The plan of a run that succeeded is kept for an hour."
        ),
    )
    receipts: Whole = Field(
        default=90 * DAY,
        ge=DAY,
        le=36_500 * DAY,
        description=(
            "Seconds that the ledger keeps receipts (`retention.ms` of its receipts topic when that is created)."
            " An audit cannot compare older chunks. Copied ranges must be verified before their receipts expire."
        ),
    )


class Lag(Section):
    """How far the target may be behind the source. `status` exits with 1, and an alert is sent, beyond it."""

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
    """Who is told when something is wrong, and from when on. See docs/alerts.md."""

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
            " `{{ alert_title }}` and `{{ alert }}` stand for the alert in them."
        ),
    )
    callback: Annotated[str, AfterValidator(names.check_callback)] | None = Field(
        default=None,
        description=(
            "A function, written `package.module:function`, that Airflow can import. It is called once for each failed"
            " run with Airflow's task context; `context['alert']` holds the failures and their remedies as text. With"
            " null, failures are only logged."
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
    unverified_after: Whole = Field(
        default=DAY,
        ge=60,
        le=365 * DAY,
        description=(
            "Seconds after the last verification of a partition after which `status` exits with 1 if copied records of"
            " it are not verified."
        ),
    )
    lag: Lag = Field(default_factory=Lag, description="How far the target may be behind the source.")

    @property
    def names_somebody(self) -> bool:
        """Whether the causes of trouble are told to anybody."""
        return self.apprise is not None or bool(self.notifiers)


class Dags(Section):
    """Which DAGs a replication has beside its own. Neither has a schedule."""

    backfill: bool = Field(default=True, description="The DAG `<name>.backfill`, which copies a range that you name.")
    audit: bool = Field(default=True, description="The DAG `<name>.audit`, which compares both sides again.")


class Timeouts(Section):
    """How long one request, a range that does not move, and a run as a whole may take."""

    request: Whole = Field(default=30, ge=1, le=300, description="Seconds one request to a cluster may take.")
    range_without_progress: Whole = Field(
        default=600,
        ge=1,
        description=(
            "Seconds after which a run gives up a range of which nothing was committed, or nothing verified. The other"
            " ranges go on, and the next run tries again. At least twice `copy.chunk_seconds`."
        ),
    )
    run: Whole | None = Field(
        default=6 * 3600,
        ge=1,
        description=(
            "Seconds that a run from the command line, or one try of an Airflow task, may take. Every wait ends by then"
            " with an error that says so. Committed chunks stay, and the next run continues after them. null means no"
            " limit."
        ),
    )
