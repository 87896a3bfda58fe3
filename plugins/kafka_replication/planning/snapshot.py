"""The state of both clusters at one moment. `kafka.snapshotter` takes it, `planning` uses it.

Compares the watermark store with the ledger. If it has less, it may be another store than that of the runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property

from kafka_replication.ledger.entries import Removed
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.errors import Unreachable
from kafka_replication.model.offsets import OffsetRange, PartitionKey, TopicPartition, readable
from kafka_replication.model.rights import DenyRule, Login, Right, Side
from kafka_replication.model.trouble import Trouble


@dataclass(frozen=True, slots=True)
class PartitionOffsets:
    """The three offsets of one partition (`ListOffsets`, KIP-98), and its leader epoch if it is known. ``hidden_by``
    names the transaction that hides records, for people; empty if it is not known.
    """

    log_start: int
    high_watermark: int
    last_stable: int
    leader_epoch: int | None = None
    _: KW_ONLY
    hidden_by: str = field(default="", compare=False)

    @property
    def readable(self) -> OffsetRange:
        """The offsets that a ``read_committed`` reader can read."""
        return readable(self.log_start, self.last_stable)

    @property
    def is_hiding(self) -> bool:
        """True if an open transaction hides records from ``read_committed`` readers."""
        return self.last_stable < self.high_watermark


@dataclass(frozen=True, kw_only=True)  # no slots: `readable` is kept
class Topic:
    """One topic: its id (KIP-516), its partitions, and its configuration as `DescribeConfigs` returns it, of which
    ``own`` names the settings of the topic itself; the others are defaults of the brokers.

    A partition has its offsets, or the problem that hides them. ``problem`` concerns the topic as a whole: its other
    fields are then incomplete.
    """

    name: str
    topic_id: str
    partitions: Mapping[int, PartitionOffsets | Trouble]
    replication_factor: int
    config: Mapping[str, str] = field(default_factory=dict)
    own: frozenset[str] = frozenset()
    problem: Trouble | None = None

    def problem_of(self, partition: int) -> Trouble | None:
        """The reason why this partition cannot be used now; None if it can be, or if the topic does not have it."""
        there = self.partitions.get(partition)
        return self.problem or (there if isinstance(there, Trouble) else None)

    def offsets(self, partition: int) -> PartitionOffsets:
        """The offsets of a partition of this topic. Raises Unreachable if they are not known."""
        there = self.partitions[partition]
        if isinstance(there, Trouble):
            raise Unreachable(there.what, there.remedy)
        return there

    @cached_property
    def readable(self) -> Mapping[int, PartitionOffsets]:
        """The partitions whose offsets are known. Made once: each partition of the topic is looked up in it."""
        return {number: there for number, there in self.partitions.items() if isinstance(there, PartitionOffsets)}


def without_description(name: str, problem: Trouble, partitions: Iterable[int] = ()) -> Topic:
    """A topic without a description, with the reason and perhaps its partitions."""
    return Topic(
        name=name, topic_id="", partitions=dict.fromkeys(partitions, problem), replication_factor=0, problem=problem
    )


@dataclass(frozen=True, slots=True)
class TopicDefaults:
    """The defaults of the target's brokers for a new topic."""

    replication_factor: int
    config: Mapping[str, str] = field(default_factory=dict)  # with the names of topic settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Source and target. ``starts`` has the current offset of ``start_from`` for partitions that are not opened yet."""

    source_cluster: str
    target_cluster: str
    source: Mapping[str, Topic]
    target: Mapping[str, Topic]
    only: frozenset[str] = frozenset()  # the source topics that were asked for; empty: all that are selected
    starts: Mapping[TopicPartition, int] = field(default_factory=dict)
    until: Mapping[TopicPartition, int] = field(default_factory=dict)  # a requested end, resolved to offsets
    ledger: Mapping[str, Topic] | None = None  # the ledger topics that exist; None: not requested
    quarantine: Topic | None = None  # the quarantine topic; None: not requested, or it does not exist
    defaults: TopicDefaults | None = None  # None: not requested, or the brokers do not allow it
    # The results of the comparison with the ledger: copies that are gone, if they changed since the ledger's entry, the
    # target offset of the first record of another client behind our last one, and the target partitions where our last
    # record is no longer, although nothing explains it.
    removed: Mapping[PartitionKey, Removed] = field(default_factory=dict)
    foreign: Mapping[PartitionKey, int] = field(default_factory=dict)
    lost: Mapping[PartitionKey, frozenset[int]] = field(default_factory=dict)
    denied: frozenset[Right] = frozenset()  # the operations that the brokers deny, among those that were asked for
    # The rules that deny something, by side. A side that does not show its rules to this client is missing.
    deny_rules: Mapping[Side, frozenset[DenyRule]] = field(default_factory=dict)
    logins: Mapping[Side, Login] = field(default_factory=dict)  # who asked
    refused: Sequence[Trouble] = ()  # what else the target would refuse, among what it was asked
    known: bool = False  # the ledger has partitions, so the plan reports topics that are gone


def unknown_to_store(view: LedgerView, watermarks: Mapping[PartitionKey, int]) -> list[PartitionKey]:
    """The partitions whose watermark in the store is below the verified end in the ledger."""
    return sorted(
        key for key, position in view.positions.items() if view[key].watermark() > watermarks.get(key, position.start)
    )


def store_finding(unknown: Sequence[PartitionKey], partitions: int) -> Trouble | None:
    """A warning about the ``unknown`` ones of so many partitions. A run that is at work may be about to store them."""
    if not unknown:
        return None
    what = (
        f"{len(unknown)} of {partitions} partitions are verified further in the ledger than this store knows, such as"
        f" {unknown[0].source}"
    )
    remedy = (
        "name the store of the DAGs (KAFKA_REPLICATION_STORE_URL); if it is this one, the next run restores it, or"
        f" kafka-replication ledger {unknown[0].replication}.yaml --rebuild-store"
    )
    return Trouble("warning", "watermark store", what, remedy)
