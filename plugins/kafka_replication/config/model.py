"""One replication as a typed, frozen value: the top level of a file. `sections` has those below it.

Values that do not fit raise ``pydantic.ValidationError``. Code that reads files uses `config.reading`, which turns
that into a `ConfigError` with file, line and key.
docs/configuration.md is generated from the descriptions here.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from kafka_replication.config import names
from kafka_replication.config.expression import check_expression, parse_start
from kafka_replication.config.names import WITHOUT_INTERVALS, check_schedule
from kafka_replication.config.sections import (
    DAY,
    Alerts,
    Copy,
    Failures,
    Groups,
    Objectives,
    Retention,
    Retries,
    Section,
    Spark,
    Tag,
    Timeouts,
    Verify,
    Whole,
    listed,
)
from kafka_replication.config.topics import Acls, Cluster, PipelineDefinition, TargetCluster, TargetTopics, Topics
from kafka_replication.model import combinations
from kafka_replication.model.choices import (
    EXACTLY_ONCE,
    KAFKA,
    KEEP,
    LATEST,
    LOSSY,
    TARGETS,
    Delivery,
    Partitioning,
    name_problem,
)
from kafka_replication.model.errors import ConfigError

__all__ = ["COMBINATION", "DAY", "RENAME", "Copy", "Replication", "Section", "TargetTopics"]
Transforms = Annotated[
    tuple[Annotated[str, AfterValidator(names.check_transform)], ...],
    BeforeValidator(listed, json_schema_input_type=str | tuple[str, ...]),
]
COMBINATION = "combination"  # the type of an error about two keys that do not go together
RENAME = "change topics.rename, or exclude the topic"


class Replication(Section):
    """One file of `dags/replications/`: the source, the topics, the target, the schedule and the way to copy."""

    name: Annotated[str, AfterValidator(names.check_replication_name)] = Field(
        description=(
            "Name of the replication and id of its DAG: letters a-z, digits, `.`, `_` and `-`, at most 200, not ending "
            "in `.backfill`, `.audit`, `.drill`, `.failed`, `.groups`, `.repair` or `.turn`. The ledger identifies a"
            " replication by its name: a renamed one starts from the beginning."
        )
    )
    source: Cluster = Field(description="The cluster that is read.")
    target: TargetCluster = Field(description="The cluster that is written; it also holds the ledger.")
    topics: Topics = Field(description="Which topics are copied.")
    schedule: Annotated[str, AfterValidator(check_schedule)] | None = Field(
        default=None,
        description=(
            "When the replication runs, in UTC: a cron expression as Airflow takes it (`*/15 * * * *`, `0 6 L * *`, `0"
            " 6 * * 1#1`), or `@once`, `@continuous`, `@hourly`, `@daily` (`@midnight`), `@weekly`, `@monthly`,"
            " `@quarterly`, `@yearly` (`@annually`); null means that it runs only when triggered."
        ),
    )
    start_from: Annotated[Literal["earliest", "latest"] | datetime, BeforeValidator(parse_start)] = Field(
        default="earliest",
        description=(
            "Where a partition that was never replicated starts: `earliest`, `latest`, or an RFC 3339 time with its"
            " zone (`2030-01-31T06:00:00Z`). It is resolved to an offset once. A topic or partition that appears later"
            " starts at its log start offset."
        ),
    )
    progress: Literal["watermark", "interval"] = Field(
        default="watermark",
        validate_default=True,
        description=(
            "`watermark`: a run copies everything since the last run. `interval`: an Airflow run copies the records"
            " whose timestamps lie in its data interval. The first interval begins at `start_from`, which must be a"
            " time; `schedule` must be a cron expression."
        ),
    )
    filter: Annotated[str, AfterValidator(check_expression)] | None = Field(
        default=None,
        description=(
            "Which records are copied: a JMESPath expression over each record, such as `headers.type == 'order'`, which"
            " is true for those that stay. It sees `key`, `value`, `headers`, `timestamp`, `tombstone`, `topic`,"
            " `partition`, `offset` and `size`. null means all. See filters-and-transforms.md."
        ),
    )
    transform: Transforms = Field(
        default=(),
        description=(
            "What changes each record that the filter keeps: one or several of `package.module:function` and"
            " `provenance`, one after the other. A function takes a record and returns one, several or none."
            " `provenance` adds headers that say where the record came from. See filters-and-transforms.md."
        ),
    )
    on_existing_target: Literal["refuse", "append", "share"] = Field(
        default="refuse",
        description=(
            "What to do when a target partition already holds records when its replication starts: refuse the"
            " partition, or write after these records (`append`). With both, nobody else may write there afterwards."
            " `share`: others may write to the target topics at any time, other replications among them; our records"
            " are told apart by exact offsets. See docs/partitioning.md."
        ),
    )
    partitioning: Annotated[str, AfterValidator(names.check_partitioning)] = Field(
        default=KEEP,
        description=(
            "Which target partition a record goes to: `keep` (that of the same number), `by_key` (as Java's producer"
            " chooses it), `round_robin`, or a function of yours, written `package.module:function`. With all but"
            " `keep`, a target topic may have any number of partitions. It cannot be changed from or to `keep` once"
            " records were copied. See docs/partitioning.md."
        ),
    )
    delivery: Delivery = Field(
        default=EXACTLY_ONCE,
        description=(
            "What is promised about the records on the target. `exactly_once`: transactions. `at_least_once`: every"
            " record is acknowledged by all in-sync replicas, without transactions; after a crash some are there twice."
            " `leader_ack`: the leader alone acknowledges; what it had not passed on when it died is lost."
            " `fire_and_forget`: nothing is acknowledged or sent again. docs/delivery.md compares them."
        ),
    )
    mend: Literal["repair", "report"] = Field(
        default="repair",
        description=(
            "What a run does where the target no longer shows copies that the ledger has, after an outage. `repair`:"
            " it takes their receipts out of the ledger, which keeps a description of each (`kafka-replication"
            " ledger`), and copies them again. `report`: it says what it would do and refuses the partition, so that"
            " nothing is deleted from the ledger or written to that partition until a person has looked."
        ),
    )
    accept_loss: float = Field(
        default=0.0,
        ge=0,
        le=1,
        validate_default=True,
        description=(
            "The share of records, from 0 to 1, that `leader_ack` and `fire_and_forget` may lose. What was lost is"
            " counted when the records are read back. If it is more, the partition is not verified, and the run fails."
        ),
    )
    max_records_per_run: Whole | None = Field(
        default=None,
        ge=1,
        description=(
            "Longest span of offsets that one run copies per partition; null means everything up to the end of the"
            " partition when the run starts."
        ),
    )
    copying: Copy = Field(default_factory=Copy, alias="copy", description="How ranges are copied.")
    verify: Verify = Field(default_factory=Verify, description="How copied ranges are read back.")
    failures: Failures = Field(default_factory=Failures, description="What happens to records that cannot be copied.")
    target_topics: TargetTopics = Field(
        default_factory=TargetTopics, description="What is expected of the target's topics."
    )
    groups: Groups = Field(
        default_factory=Groups, description="Which consumer groups go on at the same place on the target."
    )
    acls: Acls = Field(
        default_factory=Acls, description="Which rights on the copies `kafka-replication acls` carries over."
    )
    spark: Spark = Field(
        default_factory=Spark, description="Where Spark runs, and how many partitions it copies at once."
    )
    retries: Retries = Field(default_factory=Retries, description="Retries of failed Airflow tasks.")
    timeouts: Timeouts = Field(default_factory=Timeouts, description="How long requests and a run may take.")
    retention: Retention = Field(default_factory=Retention, description="How long the data of past runs is kept.")
    alerts: Alerts = Field(default_factory=Alerts, description="Who is alerted when something goes wrong.")
    objectives: Objectives = Field(
        default_factory=Objectives, description="What a failover may cost, and how often a drill measures it."
    )
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
        if (
            source is not None
            and target is not None
            and (source.connection, KAFKA) == (target.connection, target.type)
            and topics.rename == names.TOPIC_PLACEHOLDER
        ):
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

    @field_validator("groups")
    @classmethod
    def _can_be_moved(cls, groups: Groups, info: ValidationInfo) -> Groups:
        target, partitioning = info.data.get("target"), info.data.get("partitioning")
        if groups.include and target is not None and target.type != KAFKA:
            raise ValueError(f"a target of type '{target.type}' has no consumer groups: remove it")
        if groups.include and partitioning not in (KEEP, None):
            raise ValueError(
                f"with 'partitioning: {partitioning}' the records of a partition lie in several ones, and no place in"
                f" them stands for an offset: write 'partitioning: {KEEP}', or remove it"
            )
        return groups

    @field_validator("accept_loss")
    @classmethod
    def _can_be_lost(cls, accept_loss: float, info: ValidationInfo) -> float:
        delivery = info.data.get("delivery", EXACTLY_ONCE)
        if accept_loss and delivery not in LOSSY:
            raise ValueError(f"{delivery} loses nothing: accept_loss is for {' and '.join(sorted(LOSSY))}")
        return accept_loss

    @model_validator(mode="after")
    def _goes_together(self) -> Replication:
        if rule := combinations.refusal(self.chosen):
            (axis, values), (other, others) = rule.one, rule.other
            written = ", ".join(sorted(values.intersection(self.chosen[axis])))
            there = ", ".join(sorted(others.intersection(self.chosen[other])))
            text = f"{written} does not go with '{other}: {there}': {rule.why}; {rule.instead}"
            raise PydanticCustomError(COMBINATION, "{text}", {"text": text, "place": axis})
        return self

    @model_validator(mode="after")
    def _has_drills(self) -> Replication:
        if self.objectives != Objectives() and (wrong := self.not_one_to_one):
            text = f"are for directions that can be sealed, not with this {' and '.join(wrong)}: remove the section"
            raise PydanticCustomError(COMBINATION, "{text}", {"text": text, "place": "objectives"})
        return self

    @property
    def chosen(self) -> Mapping[combinations.Axis, Collection[str]]:
        """The values of this file on each axis of `combinations.AXES`."""
        return {
            "delivery": (self.delivery,),
            "partitioning": (self.placing.kind,),
            "on_existing_target": (self.on_existing_target,),
            "copy.engine": (self.copying.engine,),
            "failures": self.failures.policies,
            "pipeline": (combinations.CHANGED if self.pipeline else combinations.NONE,),
            "target.type": (self.target.type if self.target.type in TARGETS else combinations.OWN,),
            "target.shape": (self.target.shape,),
        }

    @property
    def pipeline(self) -> PipelineDefinition:
        """The steps of the replication that leave out or change records."""
        return PipelineDefinition(
            filter=self.filter, transform=self.transform, exclude_from=tuple(sorted(set(self.topics.exclude_from)))
        )

    @property
    def planned_with(self) -> dict[str, str]:
        """The settings that a plan depends on, beside the pipeline, as JSON. Without defaults, so that a setting that a
        later version adds changes nothing.
        """
        parts: Any = dict.fromkeys(("target", "on_existing_target", "partitioning", "delivery"), True)
        parts |= {"source": {"connection"}, "topics": {"rename"}, "target_topics": {"partitions"}}
        chosen = self.model_dump(mode="json", include=parts, exclude_defaults=True)
        if isinstance(self.topics.rename, dict):  # its order counts
            chosen["topics"] = {"rename": [*self.topics.rename.items()]}
        return {name: json.dumps(value, sort_keys=True) for name, value in chosen.items() if value}

    @property
    def quarantine_topic(self) -> str:
        """The topic on the target for the records that are set aside."""
        return f"{names.QUARANTINE_PREFIX}{self.name}"

    @property
    def adds_partitions(self) -> bool:
        """True if target topics get the partitions that the source gets. Where the newest record of each key is kept,
        they do not: keys would move, and offsets of two partitions have no order.
        """
        return self.target_topics.partitions == "follow" and self.placing.keeps and self.target.shape != LATEST

    @property
    def placing(self) -> Partitioning:
        """The partitioning of the file: the choice of target partitions, and whether others write to them."""
        stated = self.target_topics.partitions
        return Partitioning(
            name=self.partitioning,
            shared=self.on_existing_target == "share",
            stated=stated if isinstance(stated, int) else None,
        )

    @property
    def not_one_to_one(self) -> list[str]:
        """The keys because of which a source partition is not all of one target partition, exactly once. A direction
        that has some cannot be sealed.
        """
        wrong = {
            "target.type": self.target.type != KAFKA,
            "partitioning": not self.placing.keeps,
            "on_existing_target": self.placing.shared,
            "delivery": self.delivery != EXACTLY_ONCE,
        }
        return [key for key, is_wrong in wrong.items() if is_wrong]

    def selects(self, topic: str) -> bool:
        """True if a source topic of this name is to be replicated. Patterns never select internal topics, and nothing
        selects the replication's quarantine topic.
        """
        return self.topics.selects(topic) and topic != self.quarantine_topic

    def target_name(self, source_topic: str) -> str:
        """The target topic's name, unchecked."""
        return self.topics.target_name(source_topic)

    def target_topic(self, source_topic: str) -> str:
        """The target topic's name. Raises ConfigError if Kafka would refuse it, or if it must not be written to."""
        if problem := self.target_problem(source_topic):
            raise ConfigError(f"replication {self.name}: {problem}", RENAME)
        return self.target_name(source_topic)

    def target_problem(self, source_topic: str) -> str | None:
        """The reason why the target topic of this name must not be written to; None if it may be."""
        target = self.target_name(source_topic)
        problem = names.target_problem(target) or name_problem(self.target.type, target)
        return f"source topic '{source_topic}' would be written to '{target}', which {problem}" if problem else None
