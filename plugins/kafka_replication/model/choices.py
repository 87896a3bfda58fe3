"""The kinds of targets: where each is implemented. A file names one as ``target.type``.

The delivery profiles: what a replication promises about the records that it writes. See docs/delivery.md.

The engine that begins with a range, and why, as far as it is known before it is read; and the turns of others.

Chooses the target partitions of a source partition's records.

Failures of records: their kinds, one failure as a value, and the actions about it.

The order of the records of one key, for targets that keep the newest one only.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Final, Literal, NamedTuple

from kafka_replication.model.offsets import OffsetRange

KAFKA: Final = "kafka"
OPENSEARCH: Final = "opensearch"
HBASE: Final = "hbase"


def _index_problem(name: str) -> str | None:
    """The reason why OpenSearch would refuse an index with the name of a topic; None if it takes it."""
    if name != name.lower():
        return "has capital letters, which no index has"
    if name.startswith(("-", "_")):
        return f"begins with '{name[0]}', as no index does"
    return None


def _table_problem(name: str) -> str | None:
    """The reason why HBase would refuse a table with the name of a topic; None if it takes it."""
    if name.startswith((".", "-")):
        return f"begins with '{name[0]}', as no table does"
    return "is a name that HBase keeps for itself" if name == "zookeeper" else None


@dataclass(frozen=True, slots=True)
class BuiltIn:
    """A kind of target of this package: the class that is its `kafka_replication.targets.port.TargetKind`, and what it
    demands of the name of a topic there, beside what Kafka does.
    """

    implementation: str
    name_problem: Callable[[str], str | None] = lambda name: None


# By the word in a file. A kind of somebody else's package is named by its class, ``package.module:Class``.
TARGETS: Final[Mapping[str, BuiltIn]] = {
    KAFKA: BuiltIn("kafka_replication.kafka.target:KafkaTarget"),
    OPENSEARCH: BuiltIn("kafka_replication.opensearch.target:OpenSearchTarget", _index_problem),
    HBASE: BuiltIn("kafka_replication.hbase.target:HBaseTarget", _table_problem),
}

# What a target keeps. records: every record, each at a place of its own. latest: for each key its newest record.
Shape = Literal["records", "latest"]
RECORDS: Final = "records"
LATEST: Final = "latest"
SHAPES: Final[tuple[Shape, ...]] = (RECORDS, LATEST)

# What a target promises. transactional: readers see a chunk's records, its receipt and the new position together, or
# nothing of them. idempotent: readers may see records of a chunk before its commit; writing it again changes nothing,
# and a copier that was replaced cannot change what its successor wrote. latest: the same about the newest record of
# each key; older ones are not there, and what was written and not committed cannot be taken back.
Promise = Literal["transactional", "idempotent", "latest"]
TRANSACTIONAL: Final = "transactional"
IDEMPOTENT: Final = "idempotent"
EARLY: Final = "the target is not transactional: its readers may see records before they are committed"


def implementation(kind: str) -> str:
    """The class of this kind, as ``package.module:Class``."""
    return TARGETS[kind].implementation if kind in TARGETS else kind


def name_problem(kind: str, topic: str) -> str | None:
    """The reason why a target of this kind does not take a topic of this name, which Kafka would take; None if it
    does, or if the kind is not of this package.
    """
    return TARGETS[kind].name_problem(topic) if kind in TARGETS else None


Delivery = Literal["exactly_once", "at_least_once", "leader_ack", "fire_and_forget"]
EXACTLY_ONCE: Final = "exactly_once"
# The profiles, the strongest first.
PROFILES: Final[tuple[Delivery, ...]] = ("exactly_once", "at_least_once", "leader_ack", "fire_and_forget")
# The profiles in which records that were sent may be missing on the target.
LOSSY: Final[frozenset[Delivery]] = frozenset({"leader_ack", "fire_and_forget"})


def weakest_delivery(profiles: Iterable[Delivery]) -> Delivery:
    """The weakest of these profiles; ``exactly_once`` if there are none."""
    return max(profiles, key=PROFILES.index, default=EXACTLY_ONCE)


AUTO: Final = "auto"
BATCH: Final = "batch"  # the faster one, where it can copy
RECORD: Final = "record"  # copies every range
# With `auto` the record engine copies shorter ranges: most of their time goes into connections, of which it has fewer.
SHORT: Final = 5_000  # offsets


class EngineChoice(NamedTuple):
    """The name of an engine, and the reason for it."""

    engine: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """An engine that gets these offsets to copy instead of the chosen one, or of the one before it, and the reason."""

    engine: str  # with its version, as in receipts
    range: OffsetRange
    why: str

    def is_of(self, choice: EngineChoice) -> bool:
        return self.engine.partition("/")[0] == choice.engine


def chosen(engine: str, span: int, why_not_batches: str | None = None) -> EngineChoice:
    """The choice for a range of ``span`` offsets with this `copy.engine`, where whole batches are not possible for this
    reason, or are possible.
    """
    if engine == RECORD:
        return EngineChoice(RECORD, "copy.engine says so")
    if why_not_batches is not None:
        return EngineChoice(RECORD, why_not_batches)
    if engine == BATCH:
        return EngineChoice(BATCH, "copy.engine says so")
    if span < SHORT:
        return EngineChoice(RECORD, f"it has fewer than {SHORT:,} offsets")
    return EngineChoice(BATCH, f"it has {SHORT:,} offsets or more")


KEEP, BY_KEY, ROUND_ROBIN = "keep", "by_key", "round_robin"
BUILT_IN = (KEEP, BY_KEY, ROUND_ROBIN)
FUNCTION = "a function"  # the kind of every other one
BLOCK = 60  # consecutive offsets that `ROUND_ROBIN` and records without a key keep together; 2, 3, 4, 5, 6 divide it


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionedBy:
    """The partitioning of a chunk, as its receipt stores it.

    ``name`` is one of the constants above, or a function as ``package.module:function``; ``hash`` is of its module.
    ``partitions`` is the number of target partitions.
    """

    __pydantic_config__: ClassVar = {"strict": True, "extra": "forbid"}  # it stands in ledger entries

    name: str
    hash: str
    partitions: int

    def __post_init__(self) -> None:
        if self.partitions < 1:
            raise ValueError(f"not a number of partitions: {self.partitions}")

    def __str__(self) -> str:
        return f"{self.name}{f' ({self.hash})' if self.hash else ''} over {self.partitions} partitions"


@dataclass(frozen=True, slots=True, kw_only=True)
class Partitioning:
    """The partitioning in a replication file. ``shared``: others write to the target topics, too. ``stated`` is the
    number of target partitions in the file; None if it has none.
    """

    name: str = KEEP
    shared: bool = False
    stated: int | None = None

    @property
    def keeps(self) -> bool:
        """True if each source partition has its own target partition with the same number."""
        return self.name == KEEP

    @property
    def sole(self) -> bool:
        """True if each target partition has one writer."""
        return self.keeps and not self.shared

    @property
    def kind(self) -> str:
        """Its name, or `FUNCTION`."""
        return self.name if self.name in BUILT_IN else FUNCTION

    def targets(self, source: int, partitions: Collection[int]) -> tuple[int, ...]:
        """The target partitions in which records of this source partition may lie. ``partitions`` are the existing
        ones; with `KEEP` the result may be another one.
        """
        return (source,) if self.keeps else tuple(sorted(partitions))

    def moves_keys(self) -> bool:
        """True if another number of target partitions may move the records of a key to another partition."""
        return self.name not in (KEEP, ROUND_ROBIN)


SOLE = Partitioning()


def block(source: int, offset: int, partitions: int) -> int:
    """The target partition of a record without a key, from its source partition and offset only.

    It changes after each block of offsets, not after each offset: if every second offset were a transaction marker,
    half of an even number of partitions would get all records.
    """
    return (source + offset // BLOCK) % partitions


class FailureKind(StrEnum):
    """The kind of a record's failure. Some are keys of the section ``failures`` of a replication file."""

    TOO_LARGE = "too_large"  # for the target topic, or for the producer
    REFUSED = "refused"  # by the target's broker or client: no key on a compacted topic, timestamp out of bounds
    UNFAITHFUL = "unfaithful"  # the client cannot copy it without changing it
    TRANSFORM = "transform"  # a filter or a transform failed on it


STATES = ("quarantined", "skipped", "retried", "discarded")  # what became of a failed record


class Action(StrEnum):
    """An action of a person about failed records."""

    LIST = "list"
    SHOW = "show"
    RETRY = "retry"
    DISCARD = "discard"


class GroupAction(StrEnum):
    """An action of a person about consumer groups."""

    LIST = "list"
    PLAN = "plan"
    APPLY = "apply"


@dataclass(frozen=True, slots=True)
class Failure:
    """One source record that cannot be copied. ``error`` is the class of the error: Kafka's name, or Python's."""

    offset: int
    kind: FailureKind
    reason: str
    error: str


# How the producers of a topic choose the partition of a key: Java's clients, and librdkafka's.
KeyHash = Literal["murmur2", "crc32"]
MURMUR2: Final = "murmur2"
CRC32: Final = "crc32"

_OFFSET_BITS: Final = 48
MOST_OFFSET: Final = (1 << _OFFSET_BITS) - 1
MOST_GENERATION: Final = (1 << 15) - 1


def version(generation: int, offset: int) -> int:
    """A positive number below 2^63 that is higher for each newer record of a key: of a later generation, or in the same
    one of a later offset. Raises ValueError for numbers that are too large for it.
    """
    if not (0 < generation <= MOST_GENERATION and 0 <= offset <= MOST_OFFSET):
        raise ValueError(f"generation {generation} or offset {offset} is too large for a version of 63 bits")
    return generation << _OFFSET_BITS | offset
