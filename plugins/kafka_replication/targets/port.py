"""The interface of a target: everything that runs, backfills, audits, retries, `check` and `status` do to one.

A kind of target is one package that implements `Target`, and one line in `kafka_replication.model.choices`. What
only copies uses the part of it that is in `kafka_replication.copying.sink`. A target has topics with partitions,
whatever its own words for them are (an index, a table, a folder), and records have offsets there: where it numbers
nothing itself, that of the source.

Finds a kind of target by its name in the file.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, cast

from kafka_replication.config import Replication
from kafka_replication.copying.sink import Record, Sink, SinkSession
from kafka_replication.copying.steps import named
from kafka_replication.ledger.entries import FailedRecord, Ids
from kafka_replication.ledger.port import Ledger, TransactionPort
from kafka_replication.model.choices import Promise, implementation
from kafka_replication.model.errors import ReplicationError
from kafka_replication.model.offsets import Coverage, OffsetRange, PartitionKey, TopicPartition
from kafka_replication.model.rights import DenyRule, Login
from kafka_replication.planning.snapshot import Snapshot, Topic
from kafka_replication.runtime.deadline import Deadline
from kafka_replication.verification.digests import Digest
from kafka_replication.verification.matching import Seen

Failures = Mapping[TopicPartition, ReplicationError]  # why nothing is known of a partition of the target


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetSettings:
    """The file of the replication, and its connection to the target: what `TargetKind.checked` returned.

    ``ledger_seconds``: for how long reading the ledger waits for a transaction that hides entries; None: as long as one
    lasts. ``shared``: many targets of one process share their clients, as the threads of a worker do.
    """

    replication: Replication
    connection: Mapping[str, Any] = field(repr=False)
    ledger_seconds: float | None = None
    shared: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ToCreate:
    """A topic to create. ``replication_factor`` None is the target's default."""

    name: str
    partitions: int
    replication_factor: int | None = None
    config: Mapping[str, str] = field(default_factory=dict)


class Catalogue(ABC):
    """The topics of a target, and what it lets this client do: everything, if it says no more. All methods raise
    Unreachable and NotAdmitted.
    """

    @abstractmethod
    def cluster_id(self) -> str:
        """The id of the cluster. Two names of one cluster have one id."""

    @abstractmethod
    def look(self, replication: Replication, wanted: Collection[str], others: Collection[str] = ()) -> Snapshot:
        """A snapshot of the target alone: the topics to be written to, the topics ``others``, the ledger's and the
        quarantine. A topic or partition that does not answer has a `Trouble`.
        """

    @abstractmethod
    def topics(self, names: Iterable[str]) -> dict[str, Topic]:
        """Those of these topics that exist. Raises the error of one that cannot be described."""

    @abstractmethod
    def partitions(self, names: Iterable[str]) -> dict[str, frozenset[int]]:
        """The numbers of the partitions of those of these topics that exist."""

    @abstractmethod
    def create(self, topic: ToCreate) -> None:
        """Create the topic, and wait until it can be used. One that exists stays as it is.

        Raises Refused, NotAuthorized, Stalled.
        """

    @abstractmethod
    def add_partitions(self, name: str, partitions: int) -> None:
        """Give the topic this number of partitions. Raises Refused."""

    def change_settings(
        self, wanted: Mapping[str, Mapping[str, str | None]]
    ) -> dict[tuple[str, str], ReplicationError]:
        """Change these settings of each topic, None: back to the default. Returns the errors by topic and setting; the
        other settings are changed. Only for topics whose configuration the target tells.
        """
        return {}

    def may_read(self, seconds: float) -> bool:
        """False if this client is certain to be refused as a reader."""
        return True

    def deny_rules(self, seconds: float) -> frozenset[DenyRule] | None:
        """The rules by which the target denies something; None if it does not show them."""
        return frozenset()

    def check_writing(self) -> None:  # noqa: B027
        """Ask for what a session needs, without fencing any. Raises NotAuthorized, Refused."""

    def refusals(self, topics: Iterable[ToCreate], seconds: float) -> dict[str, ReplicationError]:
        """The errors with which the target would not create these topics, by name. Creates nothing."""
        return {}


class RecordReader(Protocol):
    """Reads bounded parts of one partition, as readers of the target see them. Raises GapFound, Stalled, Unreachable.

    ``records`` is how many `seen` and `add_to` have read.
    """

    records: int

    def content(self, wanted: OffsetRange) -> Iterator[Record]:
        """The records in ``wanted``, with their offsets on the target."""

    def seen(self, wanted: OffsetRange, total: Digest | None = None) -> Iterator[Seen]:
        """The offset and digest of each record in ``wanted``. ``total`` is a digest of all of them."""

    def add_to(self, total: Digest, wanted: OffsetRange) -> None:
        """Add what is in ``wanted``."""


class Standing(ABC):
    """Looks at what stands on a target, whoever wrote it. Only reads. What it returns leaves out, or gives an error
    for, a partition that does not answer. If it says no more: logs begin at 0 and lose no end, and nothing is hidden.
    """

    # The offsets that a commit takes behind the records of a session, such as that of a transaction's marker.
    commit_takes: ClassVar[int] = 0

    def logs(self, wanted: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetRange]:
        """The readable offsets now, after one request; without the partitions that do not answer soon."""
        return {at: OffsetRange(0, end) for at, end in self.ends(wanted)[0].items()}

    def starts(self, wanted: Iterable[TopicPartition]) -> tuple[dict[TopicPartition, int], Failures]:
        """The offset of the first record that can still be there."""
        return dict.fromkeys(wanted, 0), {}

    @abstractmethod
    def ends(self, wanted: Iterable[TopicPartition]) -> tuple[dict[TopicPartition, int], Failures]:
        """The end of what readers see now."""

    def stable_ends(
        self, wanted: Iterable[TopicPartition], seconds: float | None = None
    ) -> tuple[dict[TopicPartition, int], Failures]:
        """The end of all that was written before, once readers see it. None: wait as long as a session of ours can
        hide records.
        """
        return self.ends(wanted)

    def hiding(self, wanted: Iterable[TopicPartition]) -> set[TopicPartition]:
        """Those in which a session that is not over hides records from readers."""
        return set()

    def left_open(self, at: TopicPartition) -> Mapping[str, int]:
        """The ids of the sessions and writers that hide records in this partition, and the offset where that begins.
        Empty if the target cannot tell, or is of a kind that hides nothing.
        """
        return {}

    def hidden_by(self, at: TopicPartition, session_id: str) -> Coverage:
        """The offsets of the records that this session or writer hides in this partition; empty as for `left_open`."""
        return Coverage()

    def certain_ends(self, wanted: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The end of each log, where it is certain that no other part of the target has more of it; without the others,
        and empty for a kind of target whose logs never lose their ends.
        """
        return {}

    def at_rest(self, at: TopicPartition, expected: int) -> OffsetRange:
        """The readable offsets, once they reach ``expected`` or do not grow any more."""
        ends, failed = self.ends([at])
        if at in failed:
            raise failed[at]
        return OffsetRange(0, ends[at])

    def check_all_shown(self, at: TopicPartition, until: int) -> None:  # noqa: B027
        """Raise NotReady if there may be more records than readers see, who read up to ``until``."""

    @abstractmethod
    def first_record(self, at: TopicPartition, wanted: OffsetRange) -> int | None:
        """The offset of the first record in ``wanted``, or None."""

    @abstractmethod
    def reader(self, at: TopicPartition) -> AbstractContextManager[RecordReader]: ...


class Quarantine(Protocol):
    """Records that were set aside on the target."""

    def records(self, topic: str, key: PartitionKey, generation: int) -> Iterator[tuple[FailedRecord, str]]:
        """The records of this key and generation, and when each was quarantined. Nothing if there is no such topic.

        Raises Stalled.
        """

    def original(self, key: PartitionKey, failed: FailedRecord) -> Record | None:
        """The content of a quarantined record; None if it is not there unchanged."""


class Target(Protocol):
    """The target of one replication, as one process reaches it. Each part connects at its first use, and raises
    Unreachable and NotAdmitted then.
    """

    @property
    def login(self) -> Login:
        """The principal of this client, and the target's name in messages. Does not connect."""

    def connect(self) -> None:
        """Wait for a first answer. Raises Unreachable, NotAdmitted."""

    def check_reachable(self, at: TopicPartition) -> None:
        """Ask what holds this partition, once in the life of a worker. Raises Unreachable, OutOfTime."""

    @property
    def catalogue(self) -> Catalogue: ...

    @property
    def standing(self) -> Standing: ...

    @property
    def ledger(self) -> Ledger:
        """The ledger. It remembers what it has read: every view after the first reads only new entries."""

    def follower(self) -> Callable[[], AbstractContextManager[Ledger]]:
        """Opens a reader of the ledger for another thread, which begins with what this process has read. It waits for
        nothing, and may see an entry late: it shows progress, and decides nothing.
        """

    @property
    def sink(self) -> Sink: ...

    def session(self, key: PartitionKey) -> SinkSession:
        """A session for entries of one key. The caller closes it."""

    def deciding(self, key: PartitionKey, ids: Ids) -> AbstractContextManager[SinkSession]:
        """A session that decides about records of one key: in every profile all or nothing."""

    def writer(self, writer_id: str, what: str) -> TransactionPort:
        """A writer of entries of several keys; one of the same id fences it. Errors name ``what``. The caller closes
        it.
        """

    def end_sessions(self, ids: Mapping[str, str], check: Callable[[], None]) -> None:
        """End what the sessions and writers of these ids have left open. ``ids`` says what messages call each. One that
        cannot be ended is only logged. ``check`` is called before each; what it raises ends all.
        """

    def quarantine(self) -> AbstractContextManager[Quarantine]: ...


class TargetKind(Protocol):
    """A kind of target, as `registry.kind` finds it by its name."""

    @property
    def connection_type(self) -> str:
        """The type of its Airflow connections. For ``kafka`` `checked` gets what a Kafka client is given, for another
        type what `Connections.service` returns.
        """

    @property
    def promise(self) -> Promise:
        """The promise of its targets that keep every record."""

    def checked(self, name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
        """The settings of the connection ``name``, as targets are opened with. Raises BadInput for one that is missing
        or not allowed.
        """

    def __call__(self, settings: TargetSettings, deadline: Deadline) -> Target:
        """A target. Does not connect."""


def kind(name: str) -> TargetKind:
    """The kind of target of this name. Imports its module. Raises BadInput if it cannot be imported here."""
    return cast(TargetKind, named(implementation(name), "kind of target"))
