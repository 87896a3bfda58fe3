"""Plans a run of live copying: the offset ranges to copy and to verify, or the reason why a partition is refused.

`plan` is pure: it takes values and returns values. The plan is advisory: a copier decides again after fencing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from kafka_replication.config import Replication
from kafka_replication.ledger.entries import Ids, Position
from kafka_replication.ledger.view import LedgerView, copied_until
from kafka_replication.model.choices import EXACTLY_ONCE, LATEST, LOSSY
from kafka_replication.model.errors import ReplicationError
from kafka_replication.model.offsets import Coverage, OffsetRange, PartitionKey, TopicPartition
from kafka_replication.model.trouble import Trouble
from kafka_replication.planning import partitioning_changes, preflight, refusals, target_retention
from kafka_replication.planning.plan import PartitionPlan, Plan, State
from kafka_replication.planning.refusals import is_for, start_of
from kafka_replication.planning.snapshot import Snapshot, Topic


def plan(
    replication: Replication, snapshot: Snapshot, ledger: LedgerView, watermarks: Mapping[PartitionKey, int]
) -> Plan:
    """One entry for each selected source partition, and for each known partition whose topic is gone."""
    ledger = as_compared(ledger, snapshot)
    own_entries = own(replication, ledger)
    planner = Planner(
        replication=replication,
        snapshot=snapshot,
        ledger=own_entries,
        watermarks=watermarks,
        known=frozenset(key.source.topic for key in own_entries.positions),
        unfit=preflight.unfit(replication, snapshot),
        spread_before=partitioning_changes.spread_before(own_entries.positions),
        reach=partitioning_changes.reach(own_entries.positions),
    )
    planned = tuple(planner.all())
    lost = next((partition for partition in planned if partition.state is State.LEDGER_LOST), None)
    if lost is not None and not own_entries.positions:
        planned = tuple(
            refusals.without_ledger(partition, lost.what) if partition.state is State.OPENING else partition
            for partition in planned
        )
    return Plan(replication.name, (*planned, *planner.pending_elsewhere(ledger)))


def as_compared(ledger: LedgerView, snapshot: Snapshot) -> LedgerView:
    """The ledger with the snapshot's results about copies that are gone."""
    return replace(ledger, removed={**ledger.removed, **snapshot.removed}) if snapshot.removed else ledger


def without_source(replication: Replication, ledger: LedgerView, problem: Trouble) -> Snapshot:
    """A snapshot of both sides from the ledger, while the source cluster does not answer because of ``problem``."""
    positions = own(replication, ledger).positions
    selected = {key: position for key, position in positions.items() if replication.selects(key.source.topic)}
    numbers: dict[str, set[int]] = {}
    for key in selected:
        numbers.setdefault(key.source.topic, set()).add(key.source.partition)
    source, target = dict[str, Topic](), dict[str, Topic]()
    for key, position in selected.items():
        name, copy, ids = key.source.topic, key.target_topic, position.ids
        partitions = dict.fromkeys(sorted(numbers[name]), problem)  # of which none answers now
        source[name] = Topic(name=name, topic_id=ids.source_topic, partitions=partitions, replication_factor=0)
        target[copy] = Topic(name=copy, topic_id=ids.target_topic, partitions=partitions, replication_factor=0)
    cluster = next((position.ids.source_cluster for position in selected.values()), "")
    return Snapshot(source_cluster=cluster, target_cluster="", source=source, target=target)


def own(replication: Replication, ledger: LedgerView) -> LedgerView:
    """The ledger entries for the replication's own target topics, without those of backfills to other target topics."""

    def is_own(key: PartitionKey) -> bool:
        topic = key.source.topic
        return not replication.selects(topic) or replication.target_name(topic) == key.target_topic

    positions = {key: position for key, position in ledger.positions.items() if is_own(key)}
    return LedgerView(
        positions,
        {key: verified for key, verified in ledger.verified.items() if key in positions},
        {key: approved for key, approved in ledger.gaps.items() if key in positions},
        starts={key: start for key, start in ledger.starts.items() if is_own(key)},
        deleted={key: deleted for key, deleted in ledger.deleted.items() if key in positions},
        removed={key: removed for key, removed in ledger.removed.items() if key in positions},
        handled={key: handled for key, handled in ledger.handled.items() if key in positions},
        owners=ledger.owners,
    )


def refuse_occupied(
    new: Collection[PartitionPlan],
    occupied: Mapping[PartitionKey, tuple[TopicPartition, int]],
    unknown: Mapping[PartitionKey, ReplicationError],
) -> dict[PartitionKey, PartitionPlan]:
    """The ``new`` partitions that may not be opened: their target has records, or could not be searched for records.

    ``occupied`` has the place of the first record.
    """
    refused = {}
    for planned in new:
        if planned.key in occupied:
            refused[planned.key] = refusals.occupied(planned, *occupied[planned.key])
        elif planned.key in unknown:
            refused[planned.key] = refusals.not_openable(planned, unknown[planned.key])
    return refused


@dataclass(frozen=True, slots=True, kw_only=True)
class Planner:
    """Plans single partitions for `plan` and `plan_backfill`."""

    replication: Replication
    snapshot: Snapshot
    ledger: LedgerView
    watermarks: Mapping[PartitionKey, int]
    known: frozenset[str] = frozenset()  # source topics with a partition that was opened
    unfit: Mapping[str, Trouble] = field(default_factory=dict)  # source topics that are refused as a whole
    spread_before: partitioning_changes.SpreadBefore = field(default_factory=dict)
    reach: partitioning_changes.Reach = field(default_factory=dict)

    def all(self) -> Iterator[PartitionPlan]:
        for name in sorted(self.snapshot.source):
            for number in sorted(self.snapshot.source[name].partitions):
                key = PartitionKey(
                    self.replication.name, TopicPartition(name, number), self.replication.target_name(name)
                )
                yield self.one(key)
        for key, position in self.gone():
            yield self.vanished(key, position)

    def gone(self) -> Iterator[tuple[PartitionKey, Position]]:
        """The known partitions that the source has no longer."""
        for key, position in sorted(self.ledger.positions.items(), key=lambda item: item[0]):
            topic, source = key.source.topic, self.snapshot.source.get(key.source.topic)
            is_there = source is not None and key.source.partition in source.partitions
            # The topic belongs to the replication, and to the part of it that is in the snapshot.
            wanted = self.replication.selects(topic) and (not self.snapshot.only or topic in self.snapshot.only)
            if not is_there and wanted and not self.left_behind(key, position):
                yield key, position

    def left_behind(self, key: PartitionKey, position: Position) -> bool:
        """True if the topic was re-created with fewer partitions and reset, so that it no longer has this partition."""
        source = self.snapshot.source.get(key.source.topic)
        others = (
            other.ids.source_topic for at, other in self.ledger.positions.items() if at.source.topic == key.source.topic
        )
        return source is not None and position.ids.source_topic != source.topic_id and source.topic_id in others

    def pending_elsewhere(self, ledger: LedgerView) -> Iterator[PartitionPlan]:
        """The unverified work of backfills to other target topics, unless those topics were deleted since."""
        for key, position in sorted(ledger.positions.items(), key=lambda item: item[0]):
            target = self.snapshot.target.get(key.target_topic)
            if key in self.ledger.positions or target is None or target.topic_id != position.ids.target_topic:
                continue
            left, missed = ledger[key].pending(), ledger[key].missed()
            if left or missed:
                state = State.PENDING if left else State.REMOVED
                remedy = target_retention.remedy(key, missed, left, None) if missed else ""
                gone = {"removed": ledger[key].gone(), "missed": missed, "remedy": remedy}
                yield self._known(key, state, position, position.next_offset, verify=left, **gone)

    def one(self, key: PartitionKey) -> PartitionPlan:
        source = self.snapshot.source[key.source.topic]
        target = self.snapshot.target.get(key.target_topic)
        ids = Ids(self.snapshot.source_cluster, source.topic_id, target.topic_id if target else "")
        position = self.ledger.positions.get(key)
        if position is None:
            return self.unopened(key, source, target, ids)
        refusal = self.refusal(key, position, source, target, ids)
        if refusal:
            return self.refused(key, refusal, position, source)
        return self.work(key, position, source)

    def work(self, key: PartitionKey, position: Position, source: Topic) -> PartitionPlan:
        log_start = source.offsets(key.source.partition).log_start
        # What the target lost at its end comes first, so that the order is kept; unless the source lost it since, too.
        first = copied_until(position)
        copy = self.next_range(key, first if first >= log_start else position.next_offset, source)
        account = self.ledger[key]
        copied, removed, missed = account.pending(), account.gone(), account.missed()
        if copy:
            missed = missed.subtract(Coverage.of([copy]))
        at_rest = State.REMOVED if missed else State.PARTLY_REMOVED if removed else State.IN_SYNC
        state = State.BEHIND if copy else State.PENDING if copied else at_rest
        remedy = target_retention.remedy(key, missed, copied, log_start) if missed else ""
        gone = {"removed": removed, "missed": missed, "remedy": remedy}
        target = self.snapshot.target.get(key.target_topic)
        partitions = len(target.partitions) if target else 0
        note = partitioning_changes.note_of_change(self.replication.placing, key, position, partitions)
        return self.entry(key, state, position, source, copy=copy, verify=copied, what=note, **gone)

    def next_range(self, key: PartitionKey, from_: int, source: Topic) -> OffsetRange | None:
        until = source.offsets(key.source.partition).last_stable
        until = min(until, self.snapshot.until.get(key.source, until))
        if self.replication.max_records_per_run is not None:
            until = min(until, from_ + self.replication.max_records_per_run)
        return OffsetRange(from_, until) if from_ < until else None

    def unopened(self, key: PartitionKey, source: Topic, target: Topic | None, ids: Ids) -> PartitionPlan:
        start = self.start(key)
        fresh = Position(generation=1, ids=ids, start=start or 0, next_offset=start or 0)
        refusal = self.refusal_to_open(key, source, target) or partitioning_changes.refusal_beside(
            self.replication.placing, key, ids, self.spread_before
        )
        if refusal:
            return self.refused(key, refusal, fresh, source)
        return self.entry(key, State.OPENING, fresh, source, copy=self.next_range(key, fresh.start, source))

    def is_late(self, key: PartitionKey) -> bool:
        """True if the partition appeared after the first opening."""
        return self.ledger.begun and not is_for(self.ledger.starts.get(key), self.snapshot, key)

    def start(self, key: PartitionKey) -> int | None:
        """The start of a partition that was never opened; None if it is not known now."""
        if not self.is_late(key):
            return start_of(self.replication, self.snapshot, self.ledger.starts.get(key), key)
        offsets = self.snapshot.source[key.source.topic].readable.get(key.source.partition)
        return offsets.log_start if offsets else None

    def refusal_to_open(self, key: PartitionKey, source: Topic, target: Topic | None) -> Trouble | None:
        """The first reason why this partition cannot be opened; None if it can."""
        number = key.source.partition
        if at := next((position for position in self.ledger.positions.values() if position.sealed), None):
            assert at.sealed is not None
            return refusals.sealed(key, at.sealed, at.followed_by)
        if key in self.watermarks:
            return refusals.ledger_lost(key, self.watermarks[key])
        if target is None and not self.replication.target_topics.create:
            return refusals.target_missing(key)
        if key.source.topic in self.unfit:
            return self.unfit[key.source.topic]
        placing = self.replication.placing
        if problem := source.problem_of(number) or partitioning_changes.problem_of(placing, key, target):
            return replace(problem, kind=State.UNREADABLE)
        if owner := self.owner(key, target):
            return refusals.owned(key, owner)
        if refusal := self._refusal_of_partitions(key, source, target) or self._refusal_of_lost_end(key, target):
            return refusal
        log_start, grown = source.offsets(number).log_start, key.source.topic in self.known
        if self.is_late(key) and log_start > 0 and (grown or self.replication.start_from != "earliest"):
            return refusals.late_gap(key, log_start)
        return None

    def _refusal_of_partitions(self, key: PartitionKey, source: Topic, target: Topic | None) -> Trouble | None:
        """The refusal because of the target's number of partitions: the present one, or that after missing ones are
        created.
        """
        partitioning = self.replication.placing
        partitions = set(target.partitions) if target else set(range(partitioning.stated or len(source.partitions)))
        if self.replication.adds_partitions:
            partitions |= source.partitions.keys()
        elif target and self.replication.target.shape == LATEST and key.source.partition not in partitions:
            return refusals.keys_moved(key, source, len(partitions))
        return partitioning_changes.refusal_of_partitions(partitioning, key, source, partitions)

    def owner(self, key: PartitionKey, target: Topic | None) -> str | None:
        """The other replication of this ledger that copies to the target topic, or this one if it copies another topic
        there. A re-created topic has no owner.
        """
        if self.replication.placing.shared:
            return None
        for other, position in self.ledger.positions.items():
            same = (other.target_topic, position.ids.target_topic) == (key.target_topic, target and target.topic_id)
            if same and other.source.topic != key.source.topic:
                return f"{other.replication}, which copies {other.source.topic} to it"
        owners = self.ledger.owners.get(key.target_topic, ())
        return next((owner.replication for owner in owners if target and owner.topic_id == target.topic_id), None)

    def refusal(
        self, key: PartitionKey, position: Position, source: Topic, target: Topic | None, ids: Ids
    ) -> Trouble | None:
        """The first reason why this position cannot be continued, most fundamental first; None if it can."""
        if position.sealed:
            return refusals.sealed(key, position.sealed, position.followed_by)
        if contradictions := self.ledger[key].contradictions():
            return refusals.contradicted(key, contradictions)
        number, was = key.source.partition, position.ids
        unfit, problem = self.unfit.get(key.source.topic), source.problem_of(number)
        if source.topic_id and (was.source_cluster, was.source_topic) != (ids.source_cluster, ids.source_topic):
            return refusals.source_recreated(key, position, ids)
        if target is None or (target.topic_id and was.target_topic != ids.target_topic):
            return refusals.target_recreated(key, position, ids.target_topic)
        if self.watermarks.get(key, 0) > position.next_offset:
            return refusals.ledger_lost(key, self.watermarks[key], position.next_offset)
        if unfit:
            return unfit
        if problem := problem or partitioning_changes.problem_of(self.replication.placing, key, target):
            return replace(problem, kind=State.UNREADABLE)
        offsets = source.offsets(number)
        first_gap = refusals.first_gap(position, offsets.log_start)
        if first_gap:
            return refusals.overrun(key, first_gap, offsets.log_start)
        # The last stable offset never decreases, and neither does the high watermark, which is at or above it.
        if offsets.last_stable < position.next_offset:
            return refusals.truncated(key, position, offsets.last_stable)
        return self.refusal_of_target(key, position, source, target)

    def refusal_of_target(self, key: PartitionKey, position: Position, source: Topic, target: Topic) -> Trouble | None:
        """The refusal if the target's partitions, or their ends, are not those that the ledger knows."""
        partitioning, partitions = self.replication.placing, target.partitions
        if refusal := partitioning_changes.refusal_of_change(
            partitioning, key, position, len(partitions), self.spread_before
        ):
            return refusal
        if refusal := partitioning_changes.refusal_of_partitions(partitioning, key, source, partitions):
            return refusal
        for number, ours in position.ends(key.source.partition).items():
            if position.delivery in LOSSY:  # it may have less than was sent, not less than was read back
                ours = self.ledger[key].verified.judged_until or 0
            end = target.offsets(number).high_watermark if ours else 0
            if end < ours or number in self.snapshot.lost.get(key, ()):
                mends = position.delivery == self.replication.delivery == EXACTLY_ONCE
                return refusals.target_truncated(key, number, ours, end, self.replication.mend if mends else None)
        if refusal := self._refusal_of_lost_end(key, target):
            return refusal
        if key in self.snapshot.foreign:
            return refusals.foreign(key, position, self.snapshot.foreign[key])
        return None

    def _refusal_of_lost_end(self, key: PartitionKey, target: Topic | None) -> Trouble | None:
        """The refusal if a target partition lost records of other source partitions: if we wrote there, it would grow
        over their place, and nobody would notice any more.
        """
        placing = self.replication.placing
        if placing.sole or target is None:
            return None
        lost = {n for one, some in self.snapshot.lost.items() if one.target_topic == key.target_topic for n in some}
        for number in placing.targets(key.source.partition, target.partitions):
            there, ours = target.readable.get(number), self.reach.get((target.topic_id, number), 0)
            if there is not None and (there.high_watermark < ours or number in lost):
                return refusals.target_truncated(key, number, ours, there.high_watermark, self.replication.mend)
        return None

    def vanished(self, key: PartitionKey, position: Position) -> PartitionPlan:
        """The plan of a partition that is gone. It is deleted if the whole topic is gone, a pattern had selected it,
        and other topics exist: its copies stay, and are verified, and one run notes it. If no topic at all is visible,
        the client has probably lost its rights.
        """
        topic, end = key.source.topic, position.next_offset
        if not self.snapshot.source or topic in {*self.snapshot.source, *self.replication.topics.include}:
            refusal = refusals.vanished(key.source, position)
            return self._known(key, State.VANISHED, position, end).refusing(refusal)
        noted, verify = self.ledger.deleted.get(key), self.ledger[key].pending()
        is_new = noted is None or noted.source_topic != position.ids.source_topic
        what = refusals.deleted(key) if is_new else ""
        return self._known(key, State.DELETED, position, end, verify=verify, what=what)

    def refused(self, key: PartitionKey, refusal: Trouble, position: Position, source: Topic) -> PartitionPlan:
        # Records of others lie behind ours, which can be read back all the same.
        verify = self.ledger[key].pending() if refusal.kind == State.FOREIGN else Coverage()
        return replace(self.entry(key, State.IN_SYNC, position, source).refusing(refusal), verify=verify)

    def entry(self, key: PartitionKey, state: State, position: Position, source: Topic, **more: Any) -> PartitionPlan:
        offsets = source.readable.get(key.source.partition)
        source_end = offsets.last_stable if offsets else position.next_offset
        return self._known(key, state, position, source_end, leader_epoch=position.leader_epoch, **more)

    def _known(
        self, key: PartitionKey, state: State, position: Position, source_end: int, **more: Any
    ) -> PartitionPlan:
        return PartitionPlan(
            key=key,
            state=state,
            ids=position.ids,
            generation=position.generation,
            start=position.start,
            position=position.next_offset,
            source_end=source_end,
            watermark=self.watermarks.get(key),
            **more,
        )
