"""The sections about clusters and topics.

The steps of a replication that leave out or change records, as its file has them. They go to Spark with the job.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator

from kafka_replication.config import names
from kafka_replication.config.sections import ConnectionId, Flag, Principal, Section, Settings, Text, TopicEntry, Whole
from kafka_replication.model.choices import KAFKA, LATEST, MURMUR2, OPENSEARCH, RECORDS, KeyHash, Shape


class Cluster(Section):
    """A Kafka cluster, named by the Airflow connection that leads to it."""

    connection: ConnectionId = Field(
        description="Id of an Airflow connection of type `kafka`; for a target of type `opensearch` or `hbase`, of that"
        " type. Client settings and secrets live there, never here."
    )


class Documents(Section):
    """The documents that a target of type `opensearch` stores."""

    value: Literal["json", "base64"] = Field(
        default="json",
        description=(
            "`json`: the value is a JSON object, and its fields are those of the document; a record with another value"
            " cannot be copied (`failures.policy`). `base64`: the value's bytes are kept in `kafka.value`."
        ),
    )


class TargetCluster(Cluster):
    """The target: a Kafka cluster, or another kind of target."""

    type: Annotated[str, AfterValidator(names.check_target_type)] = Field(
        default=KAFKA,
        description=(
            "What the target is: `kafka`, `opensearch` (see [opensearch.md](opensearch.md)), `hbase` (see"
            " [hbase.md](hbase.md)), or `package.module:Class` of a kind of target that is installed where Airflow and"
            " Spark run (see [own-target.md](own-target.md))."
        ),
    )
    shape: Shape = Field(
        default=RECORDS,
        description=(
            "`records`: every record is kept, as one document, for example. `latest`: for each key its newest record,"
            " for `type: opensearch` and `hbase`. See [latest.md](latest.md)."
        ),
    )
    partitioner: KeyHash = Field(
        default=MURMUR2,
        description=(
            "For `shape: latest`: how the producers of the source topics choose the partition of a key. `murmur2`: as"
            " Java's clients do; `crc32`: as librdkafka does. A record in another partition cannot be copied."
        ),
    )
    documents: Documents = Field(
        default_factory=Documents, description="How records become documents, for `type: opensearch` only."
    )

    @model_validator(mode="after")
    def _has_documents(self) -> TargetCluster:
        if self.documents != Documents() and self.type != OPENSEARCH:
            raise ValueError(f"documents is for 'type: {OPENSEARCH}', not for '{self.type}': remove it")
        return self

    @model_validator(mode="after")
    def _keeps_this_shape(self) -> TargetCluster:
        if self.shape != LATEST and self.partitioner != MURMUR2:
            raise ValueError(f"partitioner is for 'shape: {LATEST}' only: remove it")
        return self


class Topics(Section):
    """The topics to copy, and their names on the target."""

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
    rename: Annotated[str | dict[str, str], BeforeValidator(names.check_rename)] = Field(
        default=names.TOPIC_PLACEHOLDER,
        description=(
            "Name of the target topic. Text: `{topic}` stands for the source topic's name, as in `dr.{topic}`. A"
            " mapping: the first entry that matches gives the name, of a topic (`orders: sales`), or by an expression"
            " that starts with `^`, whose match is replaced (`'^old[.](.*)$': 'new.\\1'`); topics that none matches"
            " keep their names. Two source topics that get the same name are refused."
        ),
    )

    exclude_from: tuple[Text, ...] = Field(
        default=(),
        description=(
            "Cluster ids. Records that came from one of these clusters, as the headers of `transform: provenance` say,"
            " are left out. In both directions of a two-way replication, each with the id of its target, no record goes"
            " back to where it came from."
        ),
    )

    @model_validator(mode="after")
    def _names_are_usable(self) -> Topics:
        for entry in self.include:
            if names.is_pattern(entry):
                continue
            if not self.selects(entry):
                raise ValueError(f"include names '{entry}', but exclude leaves it out: remove one of the two")
            target = self.target_name(entry)
            if problem := names.target_problem(target):
                raise ValueError(f"topic '{entry}' would be written to '{target}', which {problem}: change rename")
            if other := next((o for o in self.named if o != entry and self.target_name(o) == target), None):
                raise ValueError(f"topics '{entry}' and '{other}' would both be written to '{target}': change rename")
        return self

    @property
    def named(self) -> tuple[str, ...]:
        """The names in `include`, in their order; its other entries are patterns."""
        return tuple(entry for entry in self.include if not names.is_pattern(entry))

    def selects(self, topic: str) -> bool:
        """True if a source topic of this name belongs to the replication."""
        return any(_matches(entry, topic) for entry in self.include) and not any(
            _matches(entry, topic) for entry in self.exclude
        )

    def target_name(self, source_topic: str) -> str:
        """The name that `rename` gives, unchecked."""
        if isinstance(self.rename, str):
            return self.rename.replace(names.TOPIC_PLACEHOLDER, source_topic)
        for entry, name in self.rename.items():
            if entry == source_topic:
                return name
            if names.is_pattern(entry) and (match := names.compiled(entry).match(source_topic)):
                return match.expand(name) + source_topic[match.end() :]
        return source_topic


def _matches(entry: str, topic: str) -> bool:
    return names.fits(entry, topic) and not (names.is_pattern(entry) and names.is_internal(topic))


def _check_partitions(value: object) -> object:
    if value in ("follow", "refuse") or (type(value) is int and 1 <= value <= 100_000):
        return value
    raise ValueError("must be follow, refuse, or the number of partitions of created topics")


class TargetTopics(Section):
    """Requirements on target topics, and settings for the creation of missing ones."""

    create: Flag = Field(
        default=True,
        description=(
            "Create missing target topics, with the source's number of partitions unless `partitions` is a number."
        ),
    )
    partitions: Annotated[Literal["follow", "refuse"] | int, BeforeValidator(_check_partitions)] = Field(
        default="follow",
        description=(
            "What to do when the source topic has more partitions than the target topic, for example because partitions"
            " were added: add them to the target (`follow`), or refuse the partitions that have no target (`refuse`)."
            " A number: target topics are created with so many, and none is ever added. `follow` adds none with a"
            " `partitioning` other than `keep`."
        ),
    )
    replication_factor: Whole | None = Field(
        default=None,
        ge=1,
        le=32_767,
        description="Replication factor of created topics; null means the target's own default.",
    )
    follow: Literal["off", "report", "apply"] = Field(
        default="report",
        description=(
            "What to do when settings of a source topic change, and its target differs then: `report` it (`check`,"
            " `plan`, `status`, the page), change the target (`apply`; each run does it before it copies), or do not"
            " look (`off`). See [partitioning.md](partitioning.md#settings-that-follow-the-source)."
        ),
    )
    follow_except: tuple[TopicEntry, ...] = Field(
        default=(),
        description=(
            "Names of settings that may differ, or regular expressions that start with `^`, beside those that are"
            " never followed."
        ),
    )
    config: Settings = Field(
        default_factory=dict,
        description=(
            "Further settings of created topics, for example `retention.ms: 604800000`. With `follow` existing topics"
            " have to have them, too. The default of `retention.ms`"
            " is the source's `retention.ms` + `segment.ms` + a day. That of `min.compaction.lag.ms` is 7 days, so that"
            " records can be read back first; if the source topic is compacted, that of `segment.ms` is 100 years,"
            " because the lag does not protect old records otherwise."
        ),
    )

    overrides: dict[TopicEntry, Settings] = Field(
        default_factory=dict,
        description=(
            "`config` for some topics, by the names of source topics or expressions that start with `^`:"
            " `'^audit[.]': {retention.ms: -1}`. All entries that match count, on top of `config`; of two that have the"
            " same setting the later one."
        ),
    )

    @field_validator("config", "overrides")
    @classmethod
    def _keeps_timestamps(cls, given: dict[str, Any]) -> dict[str, Any]:
        for config in (given, *given.values()):
            if isinstance(config, dict) and config.get("message.timestamp.type", "CreateTime") != "CreateTime":
                raise ValueError(
                    "message.timestamp.type must be CreateTime: the target would replace the records' timestamps"
                )
        return given

    def of(self, source_topic: str) -> TargetTopics:
        """These settings with the `config` that the target of this source topic gets."""
        config = dict(self.config)
        for entry, own in self.overrides.items():
            config |= own if _matches(entry, source_topic) else {}
        return self if config == self.config else self.model_copy(update={"config": config})

    def leaves_alone(self, setting: str) -> bool:
        """True if the setting of this name may differ from that of the source topic."""
        return any(_matches(entry, setting) for entry in self.follow_except)


class Acls(Section):
    """The rights on copied topics and groups that `kafka-replication acls` carries over from the source."""

    principals: dict[Principal, Principal] = Field(
        default_factory=dict,
        description=(
            "Principals with another name on the target, as in `User:alice: User:alice-dr`. All others keep theirs."
        ),
    )
    writes: Flag = Field(
        default=False,
        description=(
            "Carry over every operation. `false`: `Read`, `Describe` and `DescribeConfigs` only, and what reads of"
            " `All`, so that nobody writes to the copies. Denials are always carried over."
        ),
    )
    remove: Flag = Field(
        default=False,
        description=(
            "Remove rules on the copies that the source does not have. Those of the principals of replications stay."
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineDefinition:
    """First ``exclude_from`` (cluster ids), then ``filter`` (an expression), then each of ``transform`` in order."""

    filter: str | None = None
    transform: tuple[str, ...] = ()
    exclude_from: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """True if there is a step."""
        return bool(self.filter or self.transform or self.exclude_from)

    @property
    def modules(self) -> tuple[str, ...]:
        """The modules of the user's functions."""
        return tuple(dict.fromkeys(name.partition(":")[0] for name in self.transform if ":" in name))
