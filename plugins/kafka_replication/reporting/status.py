"""The status of every partition of a replication."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from kafka_replication import documents
from kafka_replication.ledger.entries import Ids, Removed
from kafka_replication.ledger.view import ASIDE, NONE, LedgerView
from kafka_replication.model.commands import failed_list
from kafka_replication.model.delivery import EXACTLY_ONCE, Delivery
from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.offsets import TopicPartition
from kafka_replication.model.times import duration, from_millis, now, to_text
from kafka_replication.planning.checks.preflight import withheld_by_open_transaction
from kafka_replication.planning.partitions.gaps import ApprovedGap, listed
from kafka_replication.planning.plan import PartitionPlan, Plan, State
from kafka_replication.planning.retention.foresight import SourceLoss, findings
from kafka_replication.planning.retention.target_retention import missed_text, removal_text
from kafka_replication.planning.snapshot import Problem, Snapshot, Topic
from kafka_replication.planning.stored import store_finding, unknown_to_store
from kafka_replication.reporting.table import table
from kafka_replication.watermarks.values import Watermark

NOT_IN_STORE = "not in this store"
UNKNOWN = "unknown"
_ONE_DAY = 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStatus:
    """One partition, with source offsets. ``lag`` is the distance from the watermark to the last stable offset.

    ``lag_seconds`` is the age of the oldest record that is not verified on the target. It is 0 if there is none, and
    None if its time is not known. ``level`` says how the copies were verified: ``digest``, ``count``, ``none``, or
    ``unknown`` while the ledger cannot be read. ``delivery`` is the weakest profile of what is verified: the watermark
    stands on that much, with so many records ``lost_in_delivery`` and so many ``duplicates`` on the target. For
    ``superseded`` records a newer one of their key was found when they were verified. ``in_store`` says whether the
    watermark is what the ledger has verified.
    """

    plan: PartitionPlan
    log_start: int | None
    last_verified: str | None
    position: int | None
    high_watermark: int | None = None
    hidden_by: str = ""
    gaps: tuple[ApprovedGap, ...] = ()
    lag_seconds: float | None = None
    level: str = NONE
    in_store: bool = True
    delivery: Delivery = EXACTLY_ONCE
    lost_in_delivery: int = 0
    duplicates: int = 0
    superseded: int = 0
    quarantined: int = 0
    skipped: int = 0
    undecided: int = 0  # of both, those without a decision (retry or discard)
    repaired: tuple[str, ...] = ()  # receipts that a run took back within a day, because the target lost their copies
    waiting: int = 0  # of those, the quarantined ones: a person said that they are not to be given up
    loss: SourceLoss | None = None  # records that the source will soon drop, although they are not copied

    @property
    def state(self) -> str:
        """The state for people. A partition is not in sync while the store knows less than the ledger."""
        return NOT_IN_STORE if self.plan.state is State.IN_SYNC and not self.in_store else str(self.plan.state)

    @property
    def lost(self) -> int:
        """The number of offsets of the current generation that were never copied and were given up by approval."""
        return sum(
            approved.gap.range.span
            for approved in self.gaps
            if approved.gap.generation == self.plan.generation and not approved.gap.copied
        )

    @property
    def problem(self) -> str:
        """The reason why the partition is refused, or the copies that are missing; empty if nothing is wrong."""
        return self.plan.what or (missed_text(self.plan.key, self.plan.missed) if self.plan.missed else "")

    @property
    def answers(self) -> bool:
        """True if both sides of the partition answered."""
        return self.plan.state is not State.UNREADABLE

    @property
    def source_end(self) -> int | None:
        """The last stable offset; None if the source did not answer."""
        return self.plan.source_end if self.answers or self.log_start is not None else None

    @property
    def lag(self) -> int | None:
        if self.source_end is None:
            return None
        return max(0, self.source_end - _watermark(self))

    @property
    def removed(self) -> int:
        """The number of offsets that were copied and are no longer on the target."""
        return self.plan.removed.span

    @property
    def withheld(self) -> int:
        """The number of offsets that an open transaction hides: from the last stable offset to the high watermark."""
        return max(0, self.high_watermark - self.plan.source_end) if self.high_watermark is not None else 0

    def as_json(self) -> documents.StatusRow:
        """The stable interface of ``status --json``."""
        return {
            "topic": self.plan.key.source.topic,
            "partition": self.plan.key.source.partition,
            "target_topic": self.plan.key.target_topic,
            "state": self.state,
            "in_store": self.in_store,
            "log_start": self.log_start,
            "source_end": self.source_end,
            "high_watermark": self.high_watermark,
            "withheld": self.withheld,
            "position": self.position,
            "watermark": self.plan.watermark,
            "lag": self.lag,
            "lag_seconds": None if self.lag_seconds is None else round(self.lag_seconds, 3),
            "removed": self.removed,
            "no_longer_on_target": self.plan.removed.encode(),
            "missed": self.plan.missed.encode(),
            "last_verified": self.last_verified,
            "verified_by": self.level,
            "delivery": self.delivery,
            "lost_in_delivery": self.lost_in_delivery,
            "duplicates": self.duplicates,
            "superseded": self.superseded,
            "lost": self.lost,
            "quarantined": self.quarantined,
            "skipped": self.skipped,
            "undecided": self.undecided,
            "gaps": [gap.as_json() for gap in self.gaps],
            "error": self.problem or None,
            "remedy": self.plan.remedy or None,
            "lost_in_seconds": None if self.loss is None else round(self.loss.seconds, 3),
        }


def status(
    plan: Plan, snapshot: Snapshot, view: LedgerView, losses: Mapping[PartitionKey, SourceLoss] = {}
) -> list[PartitionStatus]:
    """One row for each partition of the plan."""
    watermarks = {planned.key: planned.watermark for planned in plan.partitions if planned.watermark is not None}
    unknown, rows = set(unknown_to_store(view, watermarks)), []
    for planned in plan.partitions:
        topic = snapshot.source.get(planned.key.source.topic)
        offsets = topic.readable.get(planned.key.source.partition) if topic else None
        entry, position = view.verified.get(planned.key), view.positions.get(planned.key)
        delivered = view.delivered(planned.key, planned.generation)
        quarantined, skipped = view.set_aside(planned.key) if position else (0, 0)
        rows.append(
            PartitionStatus(
                plan=planned,
                log_start=offsets.log_start if offsets else None,
                last_verified=entry.time if entry else None,
                level=view.level(planned.key, planned.generation),
                position=position.next_offset if position else None,
                high_watermark=offsets.high_watermark if offsets else None,
                hidden_by=offsets.hidden_by if offsets else "",
                gaps=listed({planned.key: view.gaps.get(planned.key, ())}),
                in_store=planned.key not in unknown,
                delivery=delivered.delivery if delivered else EXACTLY_ONCE,
                lost_in_delivery=delivered.lost_in_delivery if delivered else 0,
                duplicates=delivered.duplicates if delivered else 0,
                superseded=delivered.superseded if delivered else 0,
                quarantined=quarantined,
                skipped=skipped,
                undecided=view.undecided(planned.key) if position else 0,
                waiting=view.undecided(planned.key, ASIDE[:1]) if position else 0,
                repaired=_repaired(view.removal(planned.key, planned.generation)),
                loss=losses.get(planned.key),
            )
        )
    return rows


def _repaired(removal: Removed | None) -> tuple[str, ...]:
    return removal.taken_back if removal is not None and removal.taken_back_at > now(_ONE_DAY) else ()


def from_watermark(
    watermark: Watermark, source: Topic | None, problem: Problem, loss: SourceLoss | None = None
) -> PartitionStatus:
    """The row of a partition whose target does not answer, from the store, and from the source if it is known."""
    source_partition = watermark.key.source
    offsets = source.readable.get(source_partition.partition) if source else None
    return PartitionStatus(
        plan=PartitionPlan(
            key=watermark.key,
            state=State.UNREADABLE,
            ids=Ids("", watermark.source_topic_id, watermark.target_topic_id),
            generation=watermark.generation,
            start=watermark.offset,
            position=watermark.offset,
            source_end=offsets.last_stable if offsets else watermark.offset,
            watermark=watermark.offset,
            what=problem.what,
            remedy=problem.remedy,
        ),
        log_start=offsets.log_start if offsets else None,
        high_watermark=offsets.high_watermark if offsets else None,
        last_verified=to_text(watermark.updated_at),
        position=None,
        level=UNKNOWN,
        loss=loss,
    )


def behind(rows: Iterable[PartitionStatus]) -> dict[TopicPartition, int]:
    """For each source partition with offsets that are not verified: the first of them that can still be read."""
    return {
        row.plan.key.source: max(_watermark(row), row.log_start)
        for row in rows
        if row.log_start is not None and (row.lag or 0) > 0 and row.plan.source_end > row.log_start
    }


def with_times(
    rows: Iterable[PartitionStatus], times: Mapping[TopicPartition, int | None], now: datetime
) -> list[PartitionStatus]:
    """The rows with their ``lag_seconds``. ``times`` has the timestamps, in milliseconds, of the records at the offsets
    of `behind`.
    """

    def lag_seconds(row: PartitionStatus) -> float | None:
        source_partition = row.plan.key.source
        if row.lag is None:
            return None
        if row.lag <= 0 or (source_partition in times and times[source_partition] is None):
            return 0.0
        millis = times.get(source_partition)
        return None if millis is None else max(0.0, (now - from_millis(millis)).total_seconds())

    return [replace(row, lag_seconds=lag_seconds(row)) for row in rows]


def _watermark(row: PartitionStatus) -> int:
    return row.plan.start if row.plan.watermark is None else row.plan.watermark


def status_table(rows: list[PartitionStatus]) -> str:
    open_transactions = [
        f"{row.plan.key.source}: "
        + withheld_by_open_transaction(row.plan.source_end, row.high_watermark or 0, row.hidden_by)
        for row in rows
        if row.withheld
    ]
    silent = {f"NO ANSWER {row.plan.what}\n  remedy: {row.plan.remedy}": None for row in rows if not row.answers}
    gaps = (str(gap) for row in rows for gap in row.gaps)
    removed = (removal_text(row.plan.key, row.plan.removed, row.plan.missed) for row in rows if row.removed)
    not_in_store = [f"WARNING {text}" for text in [_not_in_store(rows)] if text]
    delivered = [_delivered(row) for row in rows if row.delivery != EXACTLY_ONCE]
    failed = [
        f"FAILED RECORDS {row.plan.key.source}: {row.quarantined} quarantined, {row.skipped} skipped; about"
        f" {row.undecided} of them wait for a decision: {failed_list(row.plan.key.replication)}"
        for row in rows
        if row.quarantined + row.skipped
    ]
    losses = findings(row.loss for row in rows if row.loss)
    near = [f"WARNING {loss.what}\n  remedy: {loss.remedy}" for loss in losses]
    notes = [*silent, *open_transactions, *near, *not_in_store, *delivered, *failed, *removed, *gaps]
    return "\n".join([_columns(rows), *notes])


def _columns(rows: list[PartitionStatus]) -> str:
    """The table itself, without columns that are empty for all of these partitions."""
    columns = {
        "partition": [str(row.plan.key.source) for row in rows],
        "target": [row.plan.key.target_topic for row in rows],
        "state": [row.state for row in rows],
        "log start": [_text(row.log_start) for row in rows],
        "source end": [_text(row.source_end) for row in rows],
        "withheld": [_text(row.withheld) for row in rows],
        "position": [_text(row.position) for row in rows],
        "watermark": [_text(row.plan.watermark) for row in rows],
        "lag": [_text(row.lag) for row in rows],
        "lag time": [_age(row.lag_seconds) for row in rows],
        "removed": [_text(row.removed) for row in rows],
        "lost": [_text(row.lost) for row in rows],
        "failed": [_text(row.quarantined + row.skipped) for row in rows],
        "last verified": [_to_the_second(row.last_verified) for row in rows],
        "verified by": [row.level for row in rows],
    }
    say_nothing = {
        "target": all(row.plan.key.target_topic == row.plan.key.source.topic for row in rows),
        "position": columns["position"] == columns["watermark"],
        **{name: set(columns[name]) <= {"0", "-"} for name in ("log start", "withheld", "removed", "lost", "failed")},
    }
    head = [name for name in columns if not rows or not say_nothing.get(name)]
    return table(head, list(zip(*(columns[name] for name in head), strict=True)))


def _delivered(row: PartitionStatus) -> str:
    counts = f"{row.lost_in_delivery} records lost in delivery, {row.duplicates} duplicates on the target"
    return f"{row.plan.key.source}: the watermark stands on {row.delivery}: {counts}"


def _not_in_store(rows: list[PartitionStatus]) -> str:
    finding = store_finding([row.plan.key for row in rows if not row.in_store], len(rows))
    return f"{finding.what}\n  remedy: {finding.remedy}" if finding else ""


def _text(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _age(seconds: float | None) -> str:
    return "-" if seconds is None else duration(seconds) if seconds else "0 s"


def _to_the_second(time: str | None) -> str:
    return f"{time[:19]}Z" if time else "-"
