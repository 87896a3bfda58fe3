"""Plan a backfill, and describe its effect before it starts. Pure: no call to a cluster or the store.

`plan_backfill` takes values and returns values. The result has ordinary `PartitionPlan`s, so that copying, verifying
and reporting do not distinguish backfills. ``copy`` is the requested range: the copier leaves out what the ledger
covers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from kafka_replication.config import Replication
from kafka_replication.ledger.entries import Ids, Position
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.errors import BadInput, Refused
from kafka_replication.model.offsets import MAX_OFFSET, Coverage, OffsetRange, PartitionKey, TopicPartition
from kafka_replication.planning.backfill_request import BackfillRequest, Point, check_order
from kafka_replication.planning.live import Planner, as_compared, own
from kafka_replication.planning.partitioning_changes import reach, spread_before
from kafka_replication.planning.plan import PartitionPlan, Plan, State
from kafka_replication.planning.snapshot import Snapshot, Topic
from kafka_replication.planning.target_retention import Retention
from kafka_replication.planning.topic_settings import created_config

Times = Mapping[datetime, Mapping[TopicPartition, int]]  # the offsets that ListOffsets returns for each time


@dataclass(frozen=True, slots=True)
class Sample:
    """A sample of the first records of a range: ``records`` records in ``span`` offsets.

    ``oldest`` is their lowest timestamp, in ms.
    """

    records: int
    span: int
    bytes: int
    oldest: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillLine:
    """The effect of a backfill on one partition; ``plan`` is its work.

    ``gone`` offsets can no longer be read and are not on the target. ``left`` would be copied: about ``records``
    records with ``bytes`` in total, estimated from a sample. ``newer`` counts offsets that are on the target already,
    although they come after the copies in the source. Copies that were on the target once: ``again``, a part of
    ``left``; ``lost_on_both_sides``, which the source no longer has; ``withheld``, of chunks with records that were
    retried (see `recopy`). The verification of ``given_up`` was given up. ``keeps`` is the retention of the target in
    ms (None: for ever); ``oldest`` is a timestamp in ms.
    """

    plan: PartitionPlan
    asked: OffsetRange
    covered: Coverage = Coverage()  # noqa: RUF009 - an immutable value
    gone: Coverage = Coverage()  # noqa: RUF009
    left: Coverage = Coverage()  # noqa: RUF009
    again: Coverage = Coverage()  # noqa: RUF009
    lost_on_both_sides: Coverage = Coverage()  # noqa: RUF009
    withheld: Coverage = Coverage()  # noqa: RUF009
    given_up: Coverage = Coverage()  # noqa: RUF009
    newer: int = 0
    records: int | None = None
    bytes: int | None = None
    oldest: int | None = None
    keeps: int | None = None

    @property
    def key(self) -> PartitionKey:
        return self.plan.key

    @property
    def kept_until(self) -> int | None:
        """The time at which the target may delete the oldest record, in ms; None if never, or if it is not known."""
        return None if self.oldest is None or self.keeps is None else self.oldest + self.keeps


@dataclass(frozen=True, slots=True)
class BackfillPlan:
    """All lines of a request, including refused ones."""

    replication: str
    lines: tuple[BackfillLine, ...]

    @property
    def plan(self) -> Plan:
        return Plan(self.replication, tuple(line.plan for line in self.lines))

    @property
    def refused(self) -> tuple[BackfillLine, ...]:
        return tuple(line for line in self.lines if line.plan.refused)

    def estimated(self, samples: Mapping[TopicPartition, Sample]) -> BackfillPlan:
        """This plan with an estimate for each partition that has a sample."""
        return replace(self, lines=tuple(_estimated(line, samples.get(line.key.source)) for line in self.lines))

    def replanned(self, plan: Plan) -> BackfillPlan:
        """The same lines with these plans of their partitions."""
        plans = {planned.key: planned for planned in plan.partitions}
        return replace(self, lines=tuple(replace(line, plan=plans[line.key]) for line in self.lines))


def raise_refused(plan: Plan) -> None:
    """Raise Refused if the plan refuses a partition. It names all of them."""
    if plan.refused:
        raise Refused(
            "; ".join(planned.what for planned in plan.refused),
            "; ".join(dict.fromkeys(planned.remedy for planned in plan.refused)),
        )


def one_topic(replication: Replication, request: BackfillRequest) -> Replication:
    """The replication for this request: with another target topic, it has only the requested source topic."""
    if request.target_topic is None:
        return replication
    topics = replication.topics.model_copy(
        update={"include": request.topics, "exclude": (), "rename": request.target_topic}
    )
    return replication.model_copy(update={"topics": topics})


def resolve(request: BackfillRequest, source: Mapping[str, Topic], times: Times) -> dict[TopicPartition, OffsetRange]:
    """The requested offset range of each partition. Two times, or an open end, can give an empty range. Raises
    BadInput.
    """
    ranges: dict[TopicPartition, OffsetRange] = {}
    for partition in partitions_of(request, source):
        log = source[partition.topic].offsets(partition.partition)
        first, end = log.log_start, log.last_stable
        from_ = first if request.from_ is None else _offset("from", partition, request.from_, end, times)
        until = end if request.until is None else _offset("until", partition, request.until, end, times)
        points = (request.from_, request.until)
        if None not in points and any(isinstance(point, int) for point in points):
            check_order(f"{partition}: ", from_, until)
        ranges[partition] = OffsetRange(from_, max(from_, until))
    return ranges


def partitions_of(request: BackfillRequest, source: Mapping[str, Topic]) -> list[TopicPartition]:
    """All requested partitions. Raises BadInput for one that the source does not have."""
    partitions = []
    for name in request.topics:
        topic = source.get(name)
        if topic is None:
            raise BadInput(f"topic: '{name}' does not exist on the source", "correct it, or grant Describe on it")
        for number in request.partitions:
            if number not in topic.partitions:
                raise BadInput(
                    f"partition: {name} has no partition {number}; it has {len(topic.partitions)}, from 0 on",
                    "correct it",
                )
        partitions += [TopicPartition(name, number) for number in request.partitions or sorted(topic.partitions)]
    return partitions


def _offset(field_: str, partition: TopicPartition, point: Point, end: int, times: Times) -> int:
    if isinstance(point, datetime):
        return times[point][partition]
    if point > end:
        raise BadInput(
            f"{field_}: {point} lies past the end of {partition};"
            f" allowed are offsets up to {end}, its last stable offset",
            "correct it",
        )
    return point


def plan_backfill(
    replication: Replication,
    snapshot: Snapshot,
    ledger: LedgerView,
    watermarks: Mapping[PartitionKey, int],
    asked: Mapping[TopicPartition, OffsetRange],
    *,
    opens: bool,
    live: Plan | None = None,
    again: Mapping[PartitionKey, Coverage] | None = None,
) -> BackfillPlan:
    """One line for each requested partition.

    ``opens``: a partition that was never opened starts at the start of its range, not at the start of live copying.
    ``live`` is the plan of live copying now, if that opens the targets. ``again`` is to be copied a second time.
    """
    ledger = as_compared(ledger, snapshot)
    view = own(replication, ledger)
    planner = Planner(
        replication=replication,
        snapshot=snapshot,
        ledger=view,
        watermarks=watermarks,
        spread_before=spread_before(view.positions),
        reach=reach(view.positions),
    )
    by_live = {planned.key: planned for planned in live.partitions} if live else {}
    lines = []
    for partition, range_ in asked.items():
        key = PartitionKey(replication.name, partition, replication.target_topic(partition.topic))
        entry = _entry(planner, key, range_, by_live.get(key), opens=opens)
        lines.append(_line(planner, ledger, entry, range_, (again or {}).get(key, Coverage())))
    return BackfillPlan(replication.name, tuple(lines))


def _entry(
    planner: Planner, key: PartitionKey, asked: OffsetRange, live: PartitionPlan | None, *, opens: bool
) -> PartitionPlan:
    """The state of the partition before its work is added: refused, not opened yet, or in sync."""
    source, target = planner.snapshot.source[key.source.topic], planner.snapshot.target.get(key.target_topic)
    ids = Ids(planner.snapshot.source_cluster, source.topic_id, target.topic_id if target else "")
    position = planner.ledger.positions.get(key)
    if position is None:
        if not opens and live is not None:
            return replace(live, copy=None)
        fresh = replace(replace(planner, ledger=LedgerView()).unopened(key, source, target, ids), copy=None)
        return fresh if fresh.refused else replace(fresh, start=asked.from_, position=asked.from_)
    refusal = planner.refusal(key, position, source, target, ids)
    # An overrun stops live copying, but the requested range may still be readable.
    if refusal and refusal.kind == State.OVERRUN:
        readable = replace(position, next_offset=source.offsets(key.source.partition).log_start)
        refusal = planner.refusal(key, readable, source, target, ids)
    if refusal:
        return planner.refused(key, refusal, position, source)
    return planner.entry(key, State.IN_SYNC, position, source, verify=planner.ledger[key].pending())


def _line(
    planner: Planner, ledger: LedgerView, entry: PartitionPlan, asked: OffsetRange, again: Coverage
) -> BackfillLine:
    """``ledger`` has also the entries of backfills to other target topics, which that of the ``planner`` has not."""
    topic, position = planner.snapshot.source[entry.key.source.topic], planner.ledger.positions.get(entry.key)
    log_start = topic.offsets(entry.key.source.partition).log_start
    removed = ledger[entry.key].gone() if position else Coverage()
    coverage = position.coverage if position else Coverage()
    # Offsets that were on the target once are no gap at the source.
    missing = Coverage(coverage.union(removed).missing_from(asked))
    gone = missing.within(OffsetRange(0, log_start))
    waiting = removed.subtract(coverage).subtract(Coverage.of([OffsetRange(0, log_start)])).within(asked)
    left = missing.subtract(gone).union(again).union(waiting)
    coverage = coverage.subtract(removed)
    not_again = removed.within(asked).subtract(left)
    plan = entry
    if not entry.refused and gone:
        what = f"{entry.key.source}: offsets {gone} can no longer be read, the log now starts at {log_start}"
        remedy = _from(asked, log_start)
        plan = replace(entry, state=State.OVERRUN, verify=Coverage(), what=what, remedy=remedy)
    elif not entry.refused and left:
        state = State.OPENING if entry.state is State.OPENING else State.BEHIND
        copy = OffsetRange(min(asked.from_, left.ranges[0].from_), max(asked.until, left.ranges[-1].until))
        # Pending offsets inside the range are reported with it, so that no offset is in two lines of a report.
        plan = replace(entry, state=state, copy=copy, verify=entry.verify.subtract(Coverage.of([copy])))
    elif entry.state is State.IN_SYNC and entry.verify:
        plan = replace(entry, state=State.PENDING)
    return BackfillLine(
        plan=plan,
        asked=asked,
        covered=coverage.within(asked),
        gone=gone,
        left=left,
        again=again.union(waiting),
        lost_on_both_sides=not_again.within(OffsetRange(0, log_start)),
        withheld=not_again.within(OffsetRange(log_start, MAX_OFFSET)),
        given_up=ledger.of(entry.key, entry.generation).unproven().within(asked).subtract(removed),
        keeps=_keeps(planner, topic, entry.key.target_topic),
        newer=sum(max(0, range_.until - max(range_.from_, left.ranges[0].from_)) for range_ in coverage) if left else 0,
    )


def _from(asked: OffsetRange, log_start: int) -> str:
    if log_start >= asked.until:
        return "restore them at the source; no offset of this range can be copied now"
    return f"restore them at the source, or request only readable offsets: from {log_start}"


def _estimated(line: BackfillLine, sample: Sample | None) -> BackfillLine:
    """Extrapolate the sample to all offsets that are left."""
    if sample is None or not sample.span:
        return line
    records = round(line.left.span * sample.records / sample.span)
    size = round(line.left.span * sample.bytes / sample.span)
    return replace(line, records=records, bytes=size, oldest=sample.oldest)


def _keeps(planner: Planner, source: Topic, target_topic: str) -> int | None:
    """The target's ``retention.ms``. For a topic that does not exist yet: the value that it will get."""
    target, settings = planner.snapshot.target.get(target_topic), planner.replication.target_topics.of(source.name)
    return Retention.in_config(target.config if target else created_config(source.config, settings)).millis


def next_slice(
    plan: Plan, positions: Mapping[PartitionKey, Position], most: int | None, without: Iterable[PartitionKey] = ()
) -> Plan:
    """The next part of a backfill: for each partition at most ``most`` offsets from the first one not on the target."""
    skipped, parts = set(without), []
    for planned in plan.to_copy:
        position = positions.get(planned.key) if planned.key not in skipped else None
        if planned.copy and position and (left := position.left_of(planned.copy)):
            until = planned.copy.until if most is None else min(planned.copy.until, left[0].from_ + most)
            parts.append(replace(planned, copy=OffsetRange(left[0].from_, until), verify=Coverage()))
    return Plan(plan.replication, tuple(parts))
