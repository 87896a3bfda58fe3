"""The plan of a run, as values. `live` and `backfill` create plans, `plan_codec` encodes them.

Notes about a filter or transform that is not the one that earlier records were copied with. Pure.

Finds the offset from which a run needs receipts. Verified ranges need none: reading does not grow with history.

Decides which receipts a ledger need not keep any longer. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import ConfigDict, Field, PlainSerializer

from kafka_replication.ledger.entries import Ids, Receipt, Transform, how
from kafka_replication.ledger.values import JsonCoverage, JsonRange, Number
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.choices import EngineChoice
from kafka_replication.model.offsets import Coverage, OffsetRange, PartitionKey
from kafka_replication.model.trouble import Trouble


class State(StrEnum):
    """The state of one partition, as the planner sees it. Stored plans have its text: one may be added, none changes.
    An older version refuses a plan with a text that it does not know by name.
    """

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
    SEALED = "sealed"


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
    """The plan of one partition, in offsets of the source: ``copy`` is the range to copy, ``verify`` what is to be read
    back.

    ``what`` and ``remedy`` are empty if nothing is refused. ``removed`` were copied and are no longer on the target;
    neither the target's retention nor an approval explains why ``missed``, a part of them, is not there. ``engine``
    begins with the copy, for the reason ``engine_why``. These four are left out of JSON if there are none.
    """

    OPTIONAL: ClassVar = frozenset({"removed", "missed", "engine", "engine_why"})

    key: PartitionKey
    state: Annotated[State, PlainSerializer(str, return_type=str)]
    ids: Ids
    generation: Number
    start: Number
    position: Number
    source_end: Number
    watermark: Number | None
    copy: JsonRange | None = None
    verify: JsonCoverage = Coverage()  # noqa: RUF009 - an immutable value
    leader_epoch: int | None = None
    removed: JsonCoverage = Coverage()  # noqa: RUF009
    missed: JsonCoverage = Coverage()  # noqa: RUF009
    what: str = ""
    remedy: str = ""
    engine: str = ""  # empty: nothing is copied, or an older plan
    engine_why: str = ""

    @property
    def choice(self) -> EngineChoice | None:
        return EngineChoice(self.engine, self.engine_why) if self.engine else None

    @property
    def refused(self) -> bool:
        return self.state in REFUSALS

    def saying(self, *texts: str) -> PartitionPlan:
        """The plan of the partition with these texts for people, too; empty ones are left out."""
        return replace(self, what="; ".join(filter(None, [self.what, *texts])))

    def refusing(self, trouble: Trouble) -> PartitionPlan:
        """The plan of the partition if it is refused because of this trouble, whose kind is its state then."""
        state, what, remedy = State(trouble.kind), trouble.what, trouble.remedy
        return replace(self, state=state, copy=None, verify=Coverage(), what=what, remedy=remedy)

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
    """The bounded work of one run. It is stored with the run, so that a retried task works on the same ranges.

    ``receipts_from`` has the offset of the receipts topic from which it needs receipts, for each ledger partition,
    ``settings`` what the plan depends on in the file. What is `OPTIONAL` is left out of JSON if there is none.
    """

    __pydantic_config__: ClassVar = ConfigDict(strict=True, extra="ignore")
    OPTIONAL: ClassVar = frozenset({"receipts_from", "notes", "changes", "settings"})

    format: int = field(default=1, kw_only=True)  # the one that is written and read
    replication: str
    partitions: tuple[PartitionPlan, ...]
    _: KW_ONLY
    receipts_from: Mapping[int, Number] = field(default_factory=dict)
    # The settings of target topics that were changed, and the topics that other runs are at work on, for people.
    said: Annotated[tuple[str, ...], Field(alias="notes")] = ()
    changes: tuple[str, ...] = ()  # filters and transforms that changed, as text for people
    # By the name of the setting, without defaults. Empty: an older plan, or a preview.
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
        return (*self.said, *self.changes, *about_partitions)

    def changed(self, settings: Mapping[str, str]) -> list[str]:
        """The names of those of today's ``settings`` that are not the ones it was made with; none for an older plan."""
        names = self.settings.keys() | settings.keys() if self.settings else ()
        return sorted(name for name in names if self.settings.get(name) != settings.get(name))

    @property
    def idle(self) -> bool:
        return not (self.to_copy or self.pending)

    @property
    def is_sealed(self) -> bool:
        """True if a seal refuses all of its partitions."""
        return bool(self.partitions) and all(p.state is State.SEALED for p in self.partitions)


def changes(plan: Plan, ledger: LedgerView, today: Transform | None) -> tuple[str, ...]:
    """One note for each earlier filter or transform that the records of this plan follow, if it is not ``today``'s.

    The position stores the one that the last chunk was copied with. So the first run with a new one notes the change,
    and later runs do not.
    """
    earlier: dict[Transform | None, list[str]] = {}
    for planned in plan.to_copy:
        position = ledger.positions.get(planned.key)
        if position is not None and position.coverage and position.transform != today:
            earlier.setdefault(position.transform, []).append(f"{planned.key.source} from {planned.position}")
    return tuple(
        f"filter or transform changed: records are copied {how(today)} now, earlier ones were copied {how(before)}"
        f" ({', '.join(sorted(places)[:5])}{' and others' if len(places) > 5 else ''})"
        for before, places in earlier.items()
    )


def receipts_from(plan: Plan, view: LedgerView, ends: Mapping[int, int]) -> dict[int, int]:
    """For each ledger partition the offset from which this plan needs receipts to verify and to report.

    ``ends`` must be taken before ``view`` is read: receipts that the view does not cover are then at or above them.
    """
    offsets: dict[int, int] = {}
    for planned in plan.to_account_for:
        partition = planned.key.ledger_partition
        needed, account = ends[partition], view.of(planned.key, planned.generation)
        verified = account.verified_or_waived()
        if view.position(planned.key, planned.generation) is None:
            pass  # opened after the view was read, or refused: there are no receipts
        elif any(verified.within(range_) for range_ in planned.ranges):
            needed = 0  # a backfill over copied offsets reports their receipts
        elif account.pending():
            needed = account.receipts_from() or 0
        offsets[partition] = min(offsets.get(partition, ends[partition]), needed)
    return offsets


def may_go(view: LedgerView, before: str) -> Callable[[PartitionKey, Receipt], bool]:
    """True of a receipt that was written ``before`` this time, and about which nothing is left to do: its range is
    verified or given up, or of an earlier generation, and it set no record aside.
    """

    def decide(key: PartitionKey, receipt: Receipt) -> bool:
        position = view.positions.get(key)
        if position is None or receipt.time >= before or receipt.failures:
            return False
        if receipt.generation != position.generation:
            return receipt.generation < position.generation
        return view[key].verified_or_waived().contains(receipt.range)

    return decide
