"""The documents that ``--json`` prints and Airflow's tasks push to XCom are frozen dataclasses, each in the module that
makes it. Here are the parts that several share, and how they become JSON. `api.documents` names all of them.

Keys of a document are only added: none goes, changes its type or its sense. A text or a list of one kind may get values
that are not known today. Offsets are whole numbers; a range is ``[from, until)``, coverage a list of ``[from, until]``
pairs. Times are RFC 3339 in UTC, sizes bytes, durations seconds. ``error`` and ``remedy`` are null if nothing is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import Field, PlainSerializer, TypeAdapter

from kafka_replication.ledger.entries import Gap, Position
from kafka_replication.ledger.gap import ASIDE, RETURNED
from kafka_replication.ledger.values import Adopted, JsonCoverage, JsonRange, Seal
from kafka_replication.model.choices import Delivery
from kafka_replication.model.errors import ReplicationError
from kafka_replication.model.offsets import OffsetRange, PartitionKey, TopicPartition

T = TypeVar("T")
Pair = JsonRange  # [from, until]
Pairs = JsonCoverage  # [[from, until], ...]
Inner = Annotated[T, Field(exclude=True)]  # is no key of the document
Seconds = Annotated[float, PlainSerializer(lambda seconds: round(seconds, 3), return_type=float)]
_ADAPTERS = dict[type[Any], TypeAdapter[Any]]()
From = Annotated[int, Field(alias="from")]


def as_json(document: Any) -> Any:
    """The document as JSON objects and lists. What writes its class is built once, at its first use."""
    return adapter(type(document)).dump_python(document, mode="json", by_alias=True)


def adapter(kind: type[T]) -> TypeAdapter[T]:
    """Reads and writes documents of this class."""
    if kind not in _ADAPTERS:
        _ADAPTERS[kind] = TypeAdapter(kind)
    return _ADAPTERS[kind]


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureDocument:
    """The document of a command that failed. ``error_id`` is stable, ``see`` is the page that explains it."""

    error: str
    error_id: str
    remedy: str
    see: str
    outcome: Literal["failed"] = "failed"

    @classmethod
    def of(cls, error: ReplicationError, **more: Any) -> Self:
        """``more`` are the further fields of a subclass."""
        return cls(error=error.what, error_id=error.id, remedy=error.remedy, see=error.see, **more)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRow:
    """A source partition, and the topic that it is copied to."""

    topic: str
    partition: int
    target_topic: str
    replication: Inner[str] = ""  # empty in a row that was read from JSON

    @property
    def source(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def key(self) -> PartitionKey:
        return PartitionKey(self.replication, self.source, self.target_topic)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanRow(PartitionRow):
    """Source offsets of one partition."""

    from_: From
    until: int

    @property
    def range(self) -> OffsetRange:
        return OffsetRange(self.from_, self.until)


def place(key: PartitionKey, range_: OffsetRange | None = None) -> dict[str, Any]:
    """The fields of a `PartitionRow`; with a range those of a `SpanRow`."""
    fields = {"replication": key.replication, "topic": key.source.topic, "partition": key.source.partition}
    span = {} if range_ is None else {"from_": range_.from_, "until": range_.until}
    return {**fields, "target_topic": key.target_topic, **span}


@dataclass(frozen=True, slots=True, kw_only=True)
class GapRow(SpanRow):
    """Source offsets that are not copied. ``kind``: ``retention``, ``late`` and ``unreadable`` ones were given up by a
    person, ``unverifiable`` ones were copied and could not be read back, ``returned`` ones came from the target, and
    ``aside`` ones were copied to another topic.
    """

    generation: int
    kind: str
    reason: str
    approved_by: str
    time: str
    run_id: str

    @classmethod
    def of(cls, key: PartitionKey, gap: Gap) -> GapRow:
        return cls(
            **place(key, gap.range),
            generation=gap.generation,
            kind=gap.kind,
            reason=gap.reason,
            approved_by=gap.approved_by,
            time=gap.time,
            run_id=gap.run_id,
        )

    @property
    def copied(self) -> bool:
        """True if the records were copied, and only their verification was given up."""
        return self.kind == "unverifiable"

    def __str__(self) -> str:
        if self.kind == ASIDE:
            return f"ASIDE {self.source} {self.range}: {self.reason}, by {self.approved_by} at {self.time}"
        if self.kind == RETURNED:
            return (
                f"RETURNED {self.source} {self.range}: came from {self.target_topic} on the target (generation"
                f" {self.generation}), opened behind it by {self.approved_by} at {self.time}: {self.reason}"
            )
        return (
            f"{'UNPROVEN' if self.copied else 'LOST'} {self.source} {self.range}: {self.range.span} offsets "
            f"({self.kind}, generation {self.generation}), "
            f"given up by {self.approved_by} at {self.time}: {self.reason}"
        )


def listed(gaps: Mapping[PartitionKey, Iterable[Gap]]) -> tuple[GapRow, ...]:
    """All approved gaps, ordered by partition."""
    return tuple(GapRow.of(key, gap) for key in sorted(gaps) for gap in gaps[key])


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusRow(PartitionRow):
    """The status of one partition, in source offsets. ``lag`` is the distance from the watermark to ``source_end``.

    What is not known because a cluster does not answer, or because nothing was copied, is null. ``in_store`` is false
    where the store knows less than the ledger. ``withheld`` offsets are hidden by an open transaction.
    ``lost_in_seconds`` says when the source will drop records that are not copied, if that is near. ``settings`` are
    those of the whole target topic that do not follow the source. ``adopted`` is the copy of another tool that the
    replication goes on behind. ``seal`` says by whom, when and why this direction was sealed; null: it is open.
    """

    state: str
    in_store: bool
    log_start: int | None
    source_end: int | None  # the last stable offset
    high_watermark: int | None
    withheld: int
    position: int | None
    watermark: int | None
    lag: int | None
    lag_seconds: float | None
    removed: int
    no_longer_on_target: Pairs
    missed: Pairs
    last_verified: str | None
    verified_by: str
    delivery: Delivery
    lost_in_delivery: int
    duplicates: int
    superseded: int
    lost: int
    quarantined: int
    skipped: int
    undecided: int
    gaps: tuple[GapRow, ...]
    error: str | None
    remedy: str | None
    lost_in_seconds: float | None
    settings: tuple[str, ...] = ()
    adopted: Adopted | None = None
    seal: Seal | None = None


# moved: committed on the target. planned: would be. in step: is there already. ahead: the group is further there, for
# somebody has read. waiting: the place is not certain now. refused: nothing can be committed.
PlaceState = Literal["moved", "planned", "in step", "ahead", "waiting", "refused"]
# active: has members on the target, and is left alone. left out: is of a kind whose offsets mean something else.
GroupState = Literal["moved", "planned", "in step", "active", "left out", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlaceRow:
    """One partition of a group. ``committed`` and ``lag`` are of the source; -1 is not known. ``place`` is the offset
    in the partition of the same number of ``target_topic`` that stands for it; null if there is none. From there the
    group reads at most ``again`` records that it has read before; 0: the place is exact.
    """

    source: TopicPartition
    target_topic: str
    committed: int
    lag: int
    place: int | None
    again: int
    state: PlaceState
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRow:
    """One consumer group. ``lag`` counts source offsets. ``exact`` is the number of partitions with an exact place.
    ``moved_at`` is when its places were written last, RFC 3339 UTC; empty if never.
    """

    group: str
    kind: str
    state: GroupState
    lag: int
    exact: int
    again: int
    moved_at: str
    why: str
    partitions: tuple[GroupPlaceRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovedDocument:
    """``approve-gap``. ``new`` is false if the gap was recorded before."""

    replication: str
    new: bool
    gap: GapRow


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetRow(PartitionRow):
    """The new generation of one partition, and the source offset where it starts."""

    generation: int
    start: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetDocument:
    """``reset``: the partitions that start again."""

    replication: str
    partitions: Sequence[ResetRow]

    @classmethod
    def of(cls, replication: str, positions: Mapping[PartitionKey, Position]) -> ResetDocument:
        rows = [
            ResetRow(**place(key), generation=position.generation, start=position.start)
            for key, position in sorted(positions.items())
        ]
        return cls(replication=replication, partitions=rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenCauseRow:
    """A cause of trouble that lasts, and of which a person was told. ``subject`` is a source topic, or empty for the
    whole replication; ``where`` names partitions with their offsets.
    """

    kind: str
    subject: str
    since: str
    what: str
    remedy: str
    where: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SentRow:
    """An alert that this look made. ``event`` is ``opened``, ``repeated`` or ``healed``."""

    event: str
    kind: str
    subject: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedRow:
    """One replication. ``watched`` is false if nothing could be found out; the log says why."""

    replication: str
    watched: bool
    open: list[OpenCauseRow]
    sent: list[SentRow]


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchDocument:
    """``watch``: one document for each look."""

    replications: list[WatchedRow]
