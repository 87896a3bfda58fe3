"""The sections about how a run works: copying, verifying, Spark, retries, times."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, ValidationInfo, field_validator

from kafka_replication.config.sections.base import DAY, ConnectionId, Section, Settings, Whole


class Copy(Section):
    """The size of chunks and the limits of copying. A chunk is the part of a range that one target transaction carries.
    It ends at the first bound that it reaches: records, seconds, or 256 MiB.
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
    chunk_seconds: Whole = Field(
        default=60,
        ge=1,
        validate_default=True,
        description=(
            "Longest time in seconds that one chunk may take; at most half of `transaction_timeout`. A chunk that could"
            " not be sent in time is sent again in smaller ones."
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
            " to 5 seconds. Ten minutes without progress and `timeouts.run` may end the attempts earlier."
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

    @field_validator("chunk_seconds")
    @classmethod
    def _leaves_time_to_commit(cls, chunk_seconds: int, info: ValidationInfo) -> int:
        timeout = info.data.get("transaction_timeout")  # absent if it was wrong itself
        if timeout is not None and 2 * chunk_seconds > timeout:
            raise ValueError(f"chunk_seconds ({chunk_seconds}) must be at most half of transaction_timeout ({timeout})")
        return chunk_seconds


class Verify(Section):
    """The way in which copied ranges are read back before the watermark moves."""

    level: Literal["digest", "count"] = Field(
        default="digest",
        description="`digest` compares every byte by means of a digest; `count` compares only the number of records.",
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


class Lease(Section):
    """The lease that prevents two runs from working on the same target topics at the same time."""

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


class Dags(Section):
    """Further DAGs of a replication. It always has its own, `.backfill`, `.audit` and `.failed`."""

    repair: bool = Field(
        default=False,
        description="The DAG `<name>.repair`, which approves a gap or starts a topic again, as the commands do.",
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
