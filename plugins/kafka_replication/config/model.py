"""One replication as typed, frozen values: the only place that knows a default.

Times are seconds and sizes bytes. Values that do not fit raise ``pydantic.ValidationError``; whoever reads files uses
`kafka_replication.config.file`, which turns that into a `ConfigError` with file, line and key.
docs/configuration.md is generated from the descriptions here.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

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
from kafka_replication.config.schedule import WITHOUT_INTERVALS, check_schedule
from kafka_replication.config.time import parse_start
from kafka_replication.model.errors import ConfigError

DAY = 86_400
MIN_COMPACTION_LAG = "min.compaction.lag.ms"


def _as_setting(value: object) -> object:
    """Kafka and Spark take settings as text; a plain number or true in the file means its text."""
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
    """What every part of a replication has in common: unknown keys are refused, values do not change."""

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
    """How a range is copied. A chunk is what one target transaction carries; it ends at whichever bound is met
    first.
    """

    engine: Literal["record"] = Field(
        default="record", description="What copies: `record` decodes and sends each record, and handles every topic."
    )
    chunk_records: Whole = Field(default=100_000, ge=1, le=10_000_000, description="Most records in one chunk.")
    chunk_bytes: Whole = Field(
        default=256 * 1024 * 1024,
        ge=1,
        le=2**40,
        description="Most bytes (keys, values and headers, uncompressed) in one chunk; at least one record.",
    )
    transaction_timeout: Whole = Field(
        default=600,
        ge=2,
        le=900,
        description=(
            "Seconds after which the target aborts a transaction left open, as after a crash. "
            "Brokers allow 900 unless `transaction.max.timeout.ms` says otherwise."
        ),
    )
    chunk_seconds: Whole = Field(
        default=60,
        ge=1,
        validate_default=True,
        description="Longest time in seconds that one chunk may take; at most half of `transaction_timeout`.",
    )
    stall_timeout: Whole = Field(
        default=60, ge=1, le=3600, description="Seconds without any progress after which a copy or a read-back fails."
    )
    attempts: Whole = Field(
        default=500,
        ge=1,
        le=10_000,
        description=(
            "Most attempts in a row that copy nothing, one producer session each, after which a range fails; likewise"
            " for reading back, and for single steps. Pauses between them grow to 5 seconds. `timeouts.run` may end"
            " them earlier."
        ),
    )
    rounds: Whole = Field(
        default=3,
        ge=1,
        le=100,
        description=(
            "How many Spark jobs one run may submit for the ranges that a newer copier took over or whose Spark task"
            " died."
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
        description="`digest` compares every byte through a digest, `count` the number of records only.",
    )


class TargetTopics(Section):
    """What is expected of the target's topics, and how missing ones are created."""

    create: Flag = Field(
        default=True, description="Create topics that the target lacks, with the source's number of partitions."
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
            "so that they can be read back first. Their `segment.ms` is 100 years where the source is compacted, "
            "or it would not hold for old records."
        ),
    )
    config: Settings = Field(
        default_factory=dict,
        description=(
            "Further topic settings of created topics, as in `retention.ms: 604800000`; without it, that is the"
            " source's `retention.ms` + `segment.ms` + a day."
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
    """Where and how wide the copying runs."""

    connection: ConnectionId = Field(
        default="spark_default", description="Id of an Airflow connection of type `spark`."
    )
    parallelism: Whole | None = Field(
        default=None,
        ge=1,
        le=10_000,
        description="Most partitions copied at once; null means as many as Spark has task slots.",
    )
    conf: Settings = Field(
        default_factory=dict,
        description="Further Spark settings, as in `spark.executor.memory: 2g`. They show in Spark's UI: no secrets.",
    )

    @field_validator("conf")
    @classmethod
    def _is_read_by_spark(cls, conf: dict[str, str]) -> dict[str, str]:
        if strangers := sorted(key for key in conf if not key.startswith("spark.")):
            raise ValueError(f"keys must start with 'spark.', or spark-submit ignores them: {', '.join(strangers)}")
        return conf


class Retries(Section):
    """What Airflow does with a failed task whose error a retry can heal."""

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
        description="Longest wait in seconds between two retries; not below `delay`.",
    )

    @field_validator("max_delay")
    @classmethod
    def _is_not_below_delay(cls, max_delay: int, info: ValidationInfo) -> int:
        delay = info.data.get("delay")
        if delay is not None and max_delay < delay:
            raise ValueError(f"max_delay ({max_delay}) must not be below delay ({delay})")
        return max_delay


class Lease(Section):
    """The lease that keeps two runs of one replication apart."""

    duration: Whole = Field(
        default=120,
        ge=1,
        le=DAY,
        description="Seconds after which the lease of a run that died ends; a living run renews it.",
    )
    wait: Whole = Field(
        default=60, ge=0, le=DAY, description="Seconds a run waits for another run's lease before it fails."
    )


class Retention(Section):
    """How long what past runs left is kept. Watermarks and positions are kept for ever."""

    history: Whole = Field(
        default=90 * DAY,
        ge=DAY,
        le=36_500 * DAY,
        description=(
            "Seconds that the store keeps runs with their plans and results, and changes of watermarks. The end of a"
            " run deletes what is older. The plan of a run that succeeded is kept for an hour."
        ),
    )
    receipts: Whole = Field(
        default=90 * DAY,
        ge=DAY,
        le=36_500 * DAY,
        description=(
            "Seconds that the ledger keeps receipts (`retention.ms` of its receipts topic when that is created)."
            " An audit cannot compare older chunks; what is still to be verified must be verified before."
        ),
    )


class Alerts(Section):
    """Who is told that a run failed."""

    callback: Annotated[str, AfterValidator(names.check_callback)] | None = Field(
        default=None,
        description=(
            "A function as `package.module:function`, importable where Airflow runs. It is called once for each failed"
            " run, with Airflow's task context; `context['alert']` holds what failed and the remedies as text. null:"
            " the log says it, nothing more."
        ),
    )


class Timeouts(Section):
    """How long one request, and a run as a whole, may take."""

    request: Whole = Field(default=30, ge=1, le=300, description="Seconds one request to a cluster may take.")
    run: Whole | None = Field(
        default=6 * 3600,
        ge=1,
        description=(
            "Seconds that a run from the command line may take, or one try of an Airflow task; every wait in it ends by"
            " then, with an error that says so. What is committed stays, and the next run goes on from there. null"
            " means no bound."
        ),
    )


class Replication(Section):
    """One file of `dags/replications/`: from which source, which topics, to which target, when and how."""

    name: Annotated[str, AfterValidator(names.check_replication_name)] = Field(
        description=(
            "Name of the replication and id of its DAG: letters a-z, digits, `.`, `_` and `-`, at most 200, not ending "
            "in `.backfill` or `.audit`. The ledger knows a replication by its name: a renamed one starts anew."
        )
    )
    source: Cluster = Field(description="The cluster that is read.")
    target: Cluster = Field(description="The cluster that is written; it also holds the ledger.")
    topics: Topics = Field(description="Which topics are copied.")
    schedule: Annotated[str, AfterValidator(check_schedule)] | None = Field(
        default=None,
        description=(
            "When it runs, in UTC: a cron expression as Airflow takes it (`*/15 * * * *`, `0 6 L * *`, `0 6 * * 1#1`),"
            " or `@once`, `@continuous`, `@hourly`, `@daily` (`@midnight`), `@weekly`, `@monthly`, `@quarterly`,"
            " `@yearly` (`@annually`); null means by hand only."
        ),
    )
    start_from: Annotated[Literal["earliest", "latest"] | datetime, BeforeValidator(parse_start)] = Field(
        default="earliest",
        description=(
            "Where a partition starts that was never replicated: `earliest`, `latest`, or an RFC 3339 time with its"
            " zone (`2030-01-31T06:00:00Z`). Resolved once; what appears later starts at its beginning."
        ),
    )
    progress: Literal["watermark", "interval"] = Field(
        default="watermark",
        validate_default=True,
        description=(
            "`watermark`: a run copies everything since the last one. `interval`: an Airflow run copies what its data"
            " interval holds by the records' timestamps, from the interval that begins at `start_from` (a time) on;"
            " needs a cron `schedule`."
        ),
    )
    on_existing_target: Literal["refuse", "append"] = Field(
        default="refuse",
        description=(
            "What to do when a target partition already holds records as its replication starts: refuse it, or write"
            " after them."
        ),
    )
    max_records_per_run: Whole | None = Field(
        default=None,
        ge=1,
        description=(
            "Longest span of offsets that one run copies per partition; null means all there is as the run starts."
        ),
    )
    copying: Copy = Field(default_factory=Copy, alias="copy", description="How ranges are copied.")
    verify: Verify = Field(default_factory=Verify, description="How copied ranges are read back.")
    target_topics: TargetTopics = Field(
        default_factory=TargetTopics, description="What is expected of the target's topics."
    )
    preflight: Preflight = Field(default_factory=Preflight, description="Checks before anything is copied.")
    spark: Spark = Field(default_factory=Spark, description="Where and how wide the copying runs.")
    retries: Retries = Field(default_factory=Retries, description="Retries of failed Airflow tasks.")
    lease: Lease = Field(default_factory=Lease, description="The lease that keeps two runs apart.")
    timeouts: Timeouts = Field(default_factory=Timeouts, description="How long requests, and a run, may take.")
    retention: Retention = Field(default_factory=Retention, description="How long what past runs left is kept.")
    alerts: Alerts = Field(default_factory=Alerts, description="Who is told that a run failed.")
    owner: Text = Field(default="airflow", description="Owner shown in Airflow.")
    tags: tuple[Tag, ...] = Field(
        default=("kafka-replication",), description="Tags of the DAG, at most 100 characters each."
    )
    description: str = Field(default="", description="Markdown shown on the DAG's page (`doc_md`).")

    @field_validator("tags")
    @classmethod
    def _are_distinct(cls, tags: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(tags))

    @field_validator("topics")
    @classmethod
    def _are_not_copied_onto_themselves(cls, topics: Topics, info: ValidationInfo) -> Topics:
        source, target = info.data.get("source"), info.data.get("target")
        if source is not None and source == target and topics.rename == names.TOPIC_PLACEHOLDER:
            raise ValueError(
                f"source and target are the same connection '{source.connection}' and topics keep their names: "
                "every topic would be copied onto itself; give topics.rename, or another target.connection"
            )
        return topics

    @field_validator("progress")
    @classmethod
    def _has_intervals(cls, progress: str, info: ValidationInfo) -> str:
        if progress == "interval" and "schedule" in info.data and info.data["schedule"] in (None, *WITHOUT_INTERVALS):
            raise ValueError("interval needs a schedule that makes intervals, such as '@hourly' or '0 6 * * *'")
        if progress == "interval" and isinstance(info.data.get("start_from"), str):
            raise ValueError(
                "interval needs a time as start_from, such as 2030-01-31T06:00:00Z: the first interval begins there"
            )
        return progress

    def selects(self, topic: str) -> bool:
        """True if a source topic of this name is to be replicated. Patterns never select internal topics."""
        return self.topics.selects(topic)

    def target_topic(self, source_topic: str) -> str:
        """The target topic's name. Raises ConfigError if Kafka would refuse it or it is not ours to write."""
        target = self.topics.target_name(source_topic)
        if problem := names.target_problem(target):
            raise ConfigError(
                f"replication {self.name}: source topic '{source_topic}' would be written to '{target}', which"
                f" {problem}",
                "change topics.rename, or exclude the topic",
            )
        return target
