"""The status of every partition of a replication.

The result of the command ``verify``: copies that were read back, and those that are gone or mixed with others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from kafka_replication.documents import GapRow, Pairs, StatusRow, listed, place
from kafka_replication.ledger.account import ASIDE, NONE
from kafka_replication.ledger.entries import Ids
from kafka_replication.ledger.gap import ELSEWHERE
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.choices import EXACTLY_ONCE
from kafka_replication.model.commands import failed_list
from kafka_replication.model.offsets import Coverage, OffsetRange, PartitionKey, TopicPartition
from kafka_replication.model.times import duration, from_millis, now, to_text
from kafka_replication.model.trouble import Trouble
from kafka_replication.planning.foresight import SourceLoss, findings
from kafka_replication.planning.plan import PartitionPlan, Plan, State
from kafka_replication.planning.preflight import withheld_by_open_transaction
from kafka_replication.planning.snapshot import Snapshot, Topic, store_finding, unknown_to_store
from kafka_replication.planning.target_retention import removal_text
from kafka_replication.reporting.adopted import adopted_text
from kafka_replication.reporting.table import Columns, table
from kafka_replication.verification.verify import VerifyResult
from kafka_replication.watermarks.values import Watermark

NOT_IN_STORE = "not in this store"
UNKNOWN = "unknown"  # how copies were verified, while the ledger cannot be read
_COUNTS = ("lost_in_delivery", "duplicates", "superseded", "quarantined", "skipped", "undecided")
_ONE_DAY = 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStatus(StatusRow):
    """The row of one partition, and what is no part of the document. ``hidden_by`` names the transaction that withholds
    offsets, ``repaired`` the receipts that a run took back within a day, because the target lost their copies.
    """

    plan: PartitionPlan
    hidden_by: str = ""
    repaired: tuple[str, ...] = ()
    waiting: int = 0  # of ``undecided``, the quarantined ones: a person said that they are not to be given up
    loss: SourceLoss | None = None  # records that the source will soon drop, although they are not copied

    @property
    def answers(self) -> bool:
        """True if both sides of the partition answered."""
        return self.plan.state is not State.UNREADABLE


def row_of(
    plan: PartitionPlan,
    *,
    log_start: int | None = None,
    high_watermark: int | None = None,
    in_store: bool = True,
    gaps: tuple[GapRow, ...] = (),
    loss: SourceLoss | None = None,
    **more: Any,
) -> PartitionStatus:
    """The row of a partition with this plan; ``more`` are fields of `PartitionStatus`, without which nothing is known
    of its copies, or all is well. A partition is not in sync while the store knows less than the ledger.
    """
    source_end = plan.source_end if plan.state is not State.UNREADABLE or log_start is not None else None
    watermark = plan.start if plan.watermark is None else plan.watermark
    lost = (
        gap.range.span
        for gap in gaps
        if gap.generation == plan.generation and not (gap.copied or gap.kind in ELSEWHERE)
    )
    elsewhere = Coverage.of(gap.range for gap in gaps if gap.generation == plan.generation and gap.kind in ELSEWHERE)
    ahead = None if source_end is None else OffsetRange(min(watermark, source_end), source_end)
    error = plan.what or (removal_text(plan.key, plan.missed, plan.missed) if plan.missed else None)
    unknown = dict.fromkeys(("position", "last_verified", "lag_seconds"))
    usual = {**unknown, **dict.fromkeys(_COUNTS, 0), "verified_by": NONE, "delivery": EXACTLY_ONCE}
    return PartitionStatus(
        **place(plan.key),
        plan=plan,
        state=NOT_IN_STORE if plan.state is State.IN_SYNC and not in_store else str(plan.state),
        in_store=in_store,
        log_start=log_start,
        source_end=source_end,
        high_watermark=high_watermark,
        withheld=0 if high_watermark is None else max(0, high_watermark - plan.source_end),
        watermark=plan.watermark,
        lag=None if ahead is None else ahead.span - elsewhere.within(ahead).span,
        removed=plan.removed.span,
        no_longer_on_target=plan.removed,
        missed=plan.missed,
        lost=sum(lost),
        gaps=gaps,
        error=error,
        remedy=plan.remedy or None,
        loss=loss,
        lost_in_seconds=round(loss.seconds, 3) if loss else None,
        **{**usual, **more},
    )


def status(
    plan: Plan,
    snapshot: Snapshot,
    view: LedgerView,
    losses: Mapping[PartitionKey, SourceLoss] = {},
    settings: Mapping[str, tuple[str, ...]] = {},
) -> list[PartitionStatus]:
    """One row for each partition of the plan. ``settings`` are those that do not follow, by target topic."""
    watermarks = {planned.key: planned.watermark for planned in plan.partitions if planned.watermark is not None}
    unknown, rows = set(unknown_to_store(view, watermarks)), []
    for planned in plan.partitions:
        topic = snapshot.source.get(planned.key.source.topic)
        offsets = topic.readable.get(planned.key.source.partition) if topic else None
        entry, position = view.verified.get(planned.key), view.positions.get(planned.key)
        account = view.of(planned.key, planned.generation)
        quarantined, skipped = account.set_aside()
        rows.append(
            row_of(
                planned,
                log_start=offsets.log_start if offsets else None,
                last_verified=entry.time if entry else None,
                verified_by=account.level,
                position=position.next_offset if position else None,
                high_watermark=offsets.high_watermark if offsets else None,
                hidden_by=offsets.hidden_by if offsets else "",
                gaps=listed({planned.key: view.gaps.get(planned.key, ())}),
                in_store=planned.key not in unknown,
                delivery=account.verified.delivery,
                lost_in_delivery=account.verified.lost_in_delivery,
                duplicates=account.verified.duplicates,
                superseded=account.verified.superseded,
                quarantined=quarantined,
                skipped=skipped,
                undecided=account.undecided(),
                waiting=account.undecided(ASIDE[:1]),
                adopted=position.adopted if position else None,
                seal=position.sealed if position else None,
                repaired=account.removed.taken_back if account.removed.taken_back_at > now(_ONE_DAY) else (),
                loss=losses.get(planned.key),
                settings=settings.get(planned.key.target_topic, ()),
            )
        )
    return rows


def from_watermark(
    watermark: Watermark, source: Topic | None, problem: Trouble, loss: SourceLoss | None = None
) -> PartitionStatus:
    """The row of a partition whose target does not answer, from the store, and from the source if it is known."""
    source_partition = watermark.key.source
    offsets = source.readable.get(source_partition.partition) if source else None
    return row_of(
        PartitionPlan(
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
        verified_by=UNKNOWN,
        loss=loss,
    )


def behind(rows: Iterable[PartitionStatus]) -> dict[TopicPartition, int]:
    """For each source partition with offsets that are not verified: the first of them that can still be read."""
    return {
        row.source: max(row.plan.start if row.watermark is None else row.watermark, row.log_start)
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
        source_partition = row.source
        if row.lag is None:
            return None
        if row.lag <= 0 or (source_partition in times and times[source_partition] is None):
            return 0.0
        millis = times.get(source_partition)
        return None if millis is None else round(max(0.0, (now - from_millis(millis)).total_seconds()), 3)

    return [replace(row, lag_seconds=lag_seconds(row)) for row in rows]


def status_table(rows: list[PartitionStatus]) -> str:
    open_transactions = [
        f"{row.source}: " + withheld_by_open_transaction(row.plan.source_end, row.high_watermark or 0, row.hidden_by)
        for row in rows
        if row.withheld
    ]
    silent = {f"NO ANSWER {row.plan.what}\n  remedy: {row.plan.remedy}": None for row in rows if not row.answers}
    gaps = (str(gap) for row in rows for gap in row.gaps)
    removed = (removal_text(row.key, row.plan.removed, row.plan.missed) for row in rows if row.removed)
    finding = store_finding([row.key for row in rows if not row.in_store], len(rows))
    not_in_store = [f"WARNING {finding.what}\n  remedy: {finding.remedy}"] if finding else []
    delivered = [
        f"{row.source}: the watermark stands on {row.delivery}: {row.lost_in_delivery} records lost in delivery,"
        f" {row.duplicates} duplicates on the target"
        for row in rows
        if row.delivery != EXACTLY_ONCE
    ]
    failed = [
        f"FAILED RECORDS {row.source}: {row.quarantined} quarantined, {row.skipped} skipped; about"
        f" {row.undecided} of them wait for a decision: {failed_list(row.replication)}"
        for row in rows
        if row.quarantined + row.skipped
    ]
    losses = findings(row.loss for row in rows if row.loss)
    differing = dict.fromkeys(
        f"SETTINGS {row.topic} -> {row.target_topic}: {text} (target_topics.follow)"
        for row in rows
        for text in row.settings
    )
    near = [f"WARNING {loss.what}\n  remedy: {loss.remedy}" for loss in losses]
    adopted = (adopted_text(row.key, row.plan.start, row.adopted) for row in rows if row.adopted)
    said = [*silent, *open_transactions, *near, *not_in_store, *delivered, *failed, *differing]
    notes = [*said, *removed, *gaps, *adopted]
    return "\n".join([_columns(rows), *notes])


def _columns(rows: list[PartitionStatus]) -> str:
    """The table itself, without columns that are empty for all of these partitions."""
    columns: Columns[PartitionStatus] = {
        "partition": lambda row: row.source,
        "target": lambda row: row.target_topic,
        "state": lambda row: row.state,
        "log start": lambda row: _text(row.log_start),
        "source end": lambda row: _text(row.source_end),
        "withheld": lambda row: _text(row.withheld),
        "position": lambda row: _text(row.position),
        "watermark": lambda row: _text(row.watermark),
        "lag": lambda row: _text(row.lag),
        "lag time": lambda row: None if (age := row.lag_seconds) is None else duration(age) if age else "0 s",
        "removed": lambda row: _text(row.removed),
        "lost": lambda row: _text(row.lost),
        "failed": lambda row: _text(row.quarantined + row.skipped),
        "last verified": lambda row: f"{row.last_verified[:19]}Z" if row.last_verified else None,
        "verified by": lambda row: row.verified_by,
    }
    say_nothing = {
        "target": all(row.target_topic == row.topic for row in rows),
        "position": all(row.position == row.watermark for row in rows),
        **{name: {columns[name](row) for row in rows} <= {"0", None} for name in _OFTEN_ZERO},
    }
    return table(rows, {name: value_of for name, value_of in columns.items() if not rows or not say_nothing.get(name)})


_OFTEN_ZERO: Final = ("log start", "withheld", "removed", "lost", "failed")


def _text(value: int | None) -> str | None:
    return None if value is None else f"{value:,}"


# The states in which the target contradicts the ledger, or holds copies of another source than the present one,
# whatever was read back.
_CONTRADICTED = frozenset(
    {
        State.TARGET_RECREATED,
        State.TARGET_TRUNCATED,
        State.FOREIGN,
        State.LEDGER_LOST,
        State.SOURCE_RECREATED,
        State.TRUNCATED,
        State.CONTRADICTED,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedRow:
    """The offsets of one partition that were verified now, with so many records; ``watermark`` is null if it stays."""

    topic: str
    partition: int
    verified: Pairs
    records: int
    error: str | None
    remedy: str | None
    watermark: int | None

    def __str__(self) -> str:
        text = f"{self.topic}-{self.partition}: {self.verified} verified, {self.records} records"
        return f"{text}; FAILED {self.error}" if self.error else text


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyDocument:
    """``verify``: what was read back, and which copies a cluster contradicts."""

    replication: str
    ranges: list[VerifiedRow]


def verified_rows(
    results: Sequence[VerifyResult], moved: Mapping[PartitionKey, int], standing: Iterable[PartitionStatus]
) -> list[VerifiedRow]:
    """One row for each result, and one for each other partition in which a cluster contradicts the ledger."""
    contradicted = {row.key: row for row in standing if row.plan.state in _CONTRADICTED or row.plan.missed}
    read_back = {result.key for result in results}
    others = [VerifyResult(key=key, verified=Coverage()) for key in contradicted if key not in read_back]
    rows = list[VerifiedRow]()
    for result in (*results, *others):
        error, remedy = result.error, result.remedy or None
        if not error and (row := contradicted.get(result.key)):
            error, remedy = row.error, row.remedy
        rows.append(
            VerifiedRow(
                topic=result.key.source.topic,
                partition=result.key.source.partition,
                verified=result.verified,
                records=result.records,
                error=error,
                remedy=remedy,
                watermark=moved.get(result.key),
            )
        )
    return rows
