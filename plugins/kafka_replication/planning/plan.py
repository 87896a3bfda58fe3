"""The plan of a run, as values. `live` and `backfill` create plans, `plan_codec` encodes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from enum import StrEnum

from kafka_replication.ledger.entries import Ids
from kafka_replication.model.engine_choice import EngineChoice
from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.offsets import Coverage, OffsetRange


class State(StrEnum):
    """The state of one partition, as the planner sees it."""

    IN_SYNC = "in sync"
    BEHIND = "behind"
    PENDING = "pending verification"
    OPENING = "not opened yet"
    SOURCE_RECREATED = "source topic re-created"
    TARGET_RECREATED = "target topic re-created"
    OVERRUN = "retention overran"
    TRUNCATED = "source truncated"
    LEDGER_LOST = "ledger lost"
    LATE_GAP = "appeared late, with a gap"
    FEWER_PARTITIONS = "fewer target partitions"
    REPARTITIONED = "partitioning changed"
    TARGET_MISSING = "target topic missing"
    VANISHED = "topic vanished"
    NOT_OPENED = "could not be opened"
    UNREADABLE = "does not answer"
    UNFIT = "topic cannot be used"
    DELETED = "source topic deleted"
    REMOVED = "removed from the target"
    PARTLY_REMOVED = "in sync, partly removed"
    TARGET_TRUNCATED = "target truncated"
    FOREIGN = "foreign records"
    CONTRADICTED = "ledger contradicts itself"


REFUSALS = frozenset(State) - {
    State.IN_SYNC,
    State.BEHIND,
    State.PENDING,
    State.OPENING,
    State.DELETED,
    State.REMOVED,
    State.PARTLY_REMOVED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionPlan:
    """The work of this run in one partition. All offsets are those of the source.

    ``removed`` were copied and are no longer on the target. Neither the target's retention nor an approval explains
    why ``missed``, a part of them, is not there.
    """

    key: PartitionKey
    state: State
    ids: Ids
    generation: int
    start: int
    position: int
    source_end: int
    watermark: int | None
    copy: OffsetRange | None = None
    verify: Coverage = Coverage()  # noqa: RUF009 - an immutable value
    leader_epoch: int | None = None
    removed: Coverage = Coverage()  # noqa: RUF009
    missed: Coverage = Coverage()  # noqa: RUF009
    what: str = ""
    remedy: str = ""
    engine: EngineChoice | None = None  # that begins with the copy; None: nothing is copied, or an older plan

    @property
    def refused(self) -> bool:
        return self.state in REFUSALS

    @property
    def ranges(self) -> list[OffsetRange]:
        """The ranges that a report lists for this partition."""
        if self.state is State.TARGET_RECREATED:  # with all copies
            return [OffsetRange(self.start, max(self.position, self.source_end))]
        if self.refused:
            return [OffsetRange(self.position, max(self.position, self.source_end))]
        return [*self.verify, *([self.copy] if self.copy else [])]

    def __str__(self) -> str:
        return f"{self.key.source} -> {self.key.target_topic}: {self.state}" + (
            f", copy {self.copy}" if self.copy else ""
        )


@dataclass(frozen=True, slots=True)
class Plan:
    """The bounded work of one run. It is stored with the run, so that a retried task works on the same ranges."""

    replication: str
    partitions: tuple[PartitionPlan, ...]
    _: KW_ONLY
    # For each ledger partition, the offset in the receipts topic from which this run needs receipts.
    receipts_from: Mapping[int, int] = field(default_factory=dict)
    left_to_others: tuple[str, ...] = ()  # the topics that other runs are at work on, as text for people
    changes: tuple[str, ...] = ()  # filters and transforms that changed, as text for people
    # What it depends on in the file, by the name of the setting, without defaults. Empty: an older plan, or a preview.
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def to_copy(self) -> tuple[PartitionPlan, ...]:
        """The partitions to copy. The longest comes first, so that the last task to start is a short one."""
        return tuple(sorted((p for p in self.partitions if p.copy), key=lambda p: -(p.copy.span if p.copy else 0)))

    @property
    def refused(self) -> tuple[PartitionPlan, ...]:
        return tuple(p for p in self.partitions if p.refused)

    @property
    def pending(self) -> tuple[PartitionPlan, ...]:
        return tuple(p for p in self.partitions if p.verify)

    @property
    def to_account_for(self) -> tuple[PartitionPlan, ...]:
        """The partitions that a report lists: those to copy, to verify, refused, or with copies that are missed."""
        return tuple(p for p in self.partitions if p.copy or p.verify or p.refused or p.missed)

    @property
    def workable(self) -> tuple[PartitionKey, ...]:
        """The partitions that the plan does not refuse, and those whose existing copies it verifies."""
        return tuple(p.key for p in self.partitions if p.verify or not p.refused)

    @property
    def notes(self) -> tuple[str, ...]:
        """The notes of the report about the plan. They are no failures."""
        about_partitions = dict.fromkeys(p.what for p in self.partitions if p.what and not p.refused)
        return (*self.left_to_others, *self.changes, *about_partitions)

    def changed(self, settings: Mapping[str, str]) -> list[str]:
        """The names of those of today's ``settings`` that are not the ones it was made with; none for an older plan."""
        names = self.settings.keys() | settings.keys() if self.settings else ()
        return sorted(name for name in names if self.settings.get(name) != settings.get(name))

    @property
    def idle(self) -> bool:
        return not (self.to_copy or self.pending)
