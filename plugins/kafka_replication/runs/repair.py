"""Approve a gap: give up exactly the source offsets that can no longer be read, with a reason and a name.

Rebuild the watermarks in the store from the ledger. The store is a projection of the ledger.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass

from kafka_replication.config import Replication
from kafka_replication.documents import place
from kafka_replication.kafka import offsets, topics
from kafka_replication.kafka.chunk_reader import SecondLook
from kafka_replication.ledger.account import Account
from kafka_replication.ledger.entries import Gap, Ids, Position
from kafka_replication.ledger.view import LedgerView
from kafka_replication.ledger.writing import apply
from kafka_replication.model import commands
from kafka_replication.model.errors import BadInput, GapFound, Refused
from kafka_replication.model.offsets import Coverage, OffsetRange, PartitionKey, TopicPartition, consumer_group
from kafka_replication.model.times import now
from kafka_replication.planning import refusals
from kafka_replication.planning.live import plan, refuse_occupied
from kafka_replication.planning.plan import PartitionPlan, State
from kafka_replication.reporting.ledger import RebuiltRow
from kafka_replication.reporting.table import Columns, table
from kafka_replication.runs import steps
from kafka_replication.runs.bookkeeping import change_to
from kafka_replication.runs.run import LeasedRun, Request
from kafka_replication.runs.target_topics import create_targets
from kafka_replication.targets.start_offsets import Ends, Failed
from kafka_replication.watermarks.values import Watermark

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """The offsets that a person gives up. Raises BadInput if the range, the reason or the name is missing."""

    at: TopicPartition
    range: OffsetRange
    reason: str
    by: str
    target_topic: str | None = None  # None: the replication's own

    def __post_init__(self) -> None:
        if not self.range.span:
            raise BadInput(f"{self.range} is empty", "--until is the first offset after the gap")
        for name, text in (("--reason", self.reason), ("--by", self.by)):
            if not text.strip() or len(text) > 1000 or not text.isprintable():
                raise BadInput(f"{name} must be one line of 1 to 1000 printable characters", f"pass it with {name}")

    def key(self, replication: Replication) -> PartitionKey:
        return PartitionKey(replication.name, self.at, self.target_topic or replication.target_topic(self.at.topic))


def approve(run: LeasedRun, approval: Approval) -> tuple[Gap, bool]:
    """Record the gap. Returns it, and True if it is new: approving the same gap twice changes nothing.

    Raises BadInput, Refused, or GapFound if the approval does not name the lost offsets exactly.
    """
    steps.fence_stale_producers(run)
    view = run.view()
    key = approval.key(run.replication)
    gaps_of_key = view[key].gaps if key in view.positions else ()
    recorded = next((gap for gap in gaps_of_key if gap.range == approval.range), None)
    if (gap := recorded) is None:
        planned = _planned(run, view, key)
        if planned.refused and planned.state not in (State.LATE_GAP, State.OVERRUN):
            raise Refused(f"no gap can be approved: {planned.what}", planned.remedy)
        is_late = planned.state is State.LATE_GAP
        gap = _open(run, view, planned, approval) if is_late else _give_up(run, planned, approval)
        log.info("%s: gave up %s", key, gap.range)
    steps.advance(run, [key])
    return gap, recorded is None


def _planned(run: LeasedRun, view: LedgerView, key: PartitionKey) -> PartitionPlan:
    snapshot = run.snapshot(view, Request(topics=(key.source.topic,)))
    run_plan = plan(run.replication, snapshot, view, run.watermarks(view))
    planned = next((candidate for candidate in run_plan.partitions if candidate.key == key), None)
    if planned is None:
        raise BadInput(
            f"{run.replication.name} does not replicate {key.source} to {key.target_topic}, or has nothing to give up"
            " there",
            "check --topic, --partition and --target-topic",
        )
    return planned


def _give_up(run: LeasedRun, planned: PartitionPlan, approval: Approval) -> Gap:
    """Record the gap with the partition's own transactional id. That fences a running copier, and a later copier fences
    this. The position passes the gap, unless it is about copies that cannot be verified.
    """
    key = planned.key
    with run.fenced(key) as session:
        view = run.view()
        if view.position(key, planned.generation) is None:
            raise Refused(
                f"{key.source}: its position changed meanwhile", "run kafka-replication plan, then approve again"
            )
        position = view[key].position
        topics.check_id(run.clusters.source_admin, key.source.topic, position.ids.source_topic, "source")
        session.check_ids(position.ids)
        if planned.state is State.OVERRUN:
            log_start = offsets.log_starts(run.clusters.source_admin, [key.source])[key.source]
            kind, lost = "retention", refusals.first_gap(position, log_start)
        elif (unreadable := _unreadable(run, key, position, approval.range.from_)) is not None:
            kind, lost = "unreadable", next(iter(position.left_of(unreadable)), None)
        else:
            kind, lost = "unverifiable", _unverifiable(run, planned, view[key], approval.range.from_)
        _check_exact(key, approval.range, lost)
        gap = _gap(run, approval, position.generation, kind, position.ids)
        apply(session.ledger, session.transaction, [view[key].giving_up(gap, run.replication.delivery)])
    return gap


def _unreadable(run: LeasedRun, key: PartitionKey, position: Position, offset: int) -> OffsetRange | None:
    """The offsets of a batch of the source that cannot be read. None if none stops a reader at this offset."""
    if not position.left_of(OffsetRange(offset, offset + 1)):
        return None
    looking = SecondLook(
        source=run.clusters.source,
        admin=run.clusters.source_admin,
        group=consumer_group(run.replication.name),
        at=key.source,
        stall=run.replication.copying.stall_timeout,
    )
    return looking.unreadable(offset)


def _unverifiable(run: LeasedRun, planned: PartitionPlan, account: Account, offset: int) -> OffsetRange:
    """The first chunks that the target deleted before they were read back, or after: then those at this offset."""
    key, position = account.key, account.position
    receipts = run.clusters.ledger.receipts({key: account.receipts_from()})
    ours = [TopicPartition(key.target_topic, number) for number in position.ends(key.source.partition)]
    starts, failures = run.clusters.target.standing.starts(ours)
    for error in failures.values():
        raise error
    unverifiable = account.unverifiable(receipts, {target.partition: start for target, start in starts.items()})
    if unverifiable is None:  # the copies were verified, and then removed from the target
        unverifiable = next((range_ for range_ in planned.missed if range_.from_ == offset), None)
        unverifiable = unverifiable or next(iter(planned.missed), None)
    if unverifiable is None:
        raise Refused(
            f"no gap can be approved: {key.source}: no offset after {position.next_offset} is lost, and all copies"
            " can be verified",
            "run again",
        )
    return unverifiable


def _open(run: LeasedRun, view: LedgerView, planned: PartitionPlan, approval: Approval) -> Gap:
    """Open the partition as a run does, with a gap from offset 0 to its log start."""
    key = planned.key
    request = Request(topics=(key.source.topic,))
    snapshot = create_targets(run, view, run.snapshot(view, request), request)
    source, target = snapshot.source[key.source.topic], snapshot.target[key.target_topic]
    _check_exact(key, approval.range, OffsetRange(0, source.offsets(key.source.partition).log_start))
    ids = Ids(snapshot.source_cluster, source.topic_id, target.topic_id)
    run.check()
    with closing(run.opening()) as opening:
        if key in opening.fence().positions:
            raise Refused(f"{key.source} was opened meanwhile", "run kafka-replication plan, then approve again")
        failures: Failed = {}
        ends = dict[PartitionKey, Ends]()
        if run.replication.on_existing_target == "refuse":
            occupied, failures = opening.records.occupied_each([key], known=view.positions)
            for refused in refuse_occupied([planned], occupied, {}).values():
                raise Refused(refused.what, refused.remedy)
        elif run.replication.on_existing_target == "append":
            ends, failures = opening.records.ends([key])
        for error in failures.values():
            raise error
        gap = _gap(run, approval, 1, "late", ids)
        position = Position(
            generation=1, ids=ids, start=0, next_offset=gap.range.until, coverage=Coverage((gap.range,))
        )
        opening.commit({key: position}, ends, [(key, gap)])
    return gap


def _check_exact(key: PartitionKey, range_: OffsetRange, gap: OffsetRange | None) -> None:
    if gap is None:
        raise GapFound(
            f"{key.source}: every offset after the position can be read", "run again: there is no gap to approve"
        )
    if range_ != gap:
        raise GapFound(
            f"{key.source}: the approval is for {range_}, but exactly {gap} are lost",
            f"to give up these offsets: {commands.approve_gap(key, gap)}",
        )


def _gap(run: LeasedRun, approval: Approval, generation: int, kind: str, ids: Ids) -> Gap:
    return Gap(
        generation=generation,
        kind=kind,
        range=approval.range,
        reason=approval.reason.strip(),
        approved_by=approval.by.strip(),
        ids=ids,
        run_id=run.run_id,
        time=now(),
    )


def rebuild_store(run: LeasedRun, *, force: bool = False) -> list[RebuiltRow]:
    """Set every watermark of the replication to the verified end in the ledger, or change none of them.

    Raises Refused if the store is ahead of the ledger. ``force`` lowers such watermarks, but a partition that is not in
    the ledger at all is still refused.
    """
    run.check()
    view, stored = run.view(), run.store.watermarks(run.replication.name)
    ends = {key: view[key].watermark() for key in view.positions}
    _refuse(stored, view, ends, force=force)
    changes = [
        change_to(key, position, ends[key], stored.get(key), run.run_id) for key, position in view.positions.items()
    ]
    return [
        RebuiltRow(
            **place(key),
            before=stored[key].offset if key in stored else None,
            after=after.offset,
            generation=after.generation,
            version=after.version,
        )
        for key, after in sorted(run.store.restore_many(changes).items())
    ]


def _refuse(
    stored: Mapping[PartitionKey, Watermark], view: LedgerView, ends: Mapping[PartitionKey, int], *, force: bool
) -> None:
    unknown = sorted(stored.keys() - view.positions.keys())
    if unknown:
        raise Refused(
            f"the store knows {', '.join(map(str, unknown))}, the ledger does not: it was lost or is another one",
            "restore the ledger topics of the target, or check the target's connection and the store's url; nothing"
            " was changed",
        )
    ahead = [
        f"{key} at {mark.offset}, where the ledger verified up to {ends[key]}"
        for key, mark in sorted(stored.items())
        if (mark.generation, mark.offset) > (view.positions[key].generation, ends[key])
    ]
    if ahead and not force:
        raise Refused(
            f"the store is ahead of the ledger: {'; '.join(ahead)}",
            "find out which of the two was changed; if it was the store, add --force to lower it. Nothing was changed",
        )


def rebuilt_table(rows: list[RebuiltRow]) -> str:
    columns: Columns[RebuiltRow] = {
        "partition": lambda row: row.source,
        "target": lambda row: row.target_topic,
        "before": lambda row: row.before,
        "after": lambda row: row.after,
        "generation": lambda row: row.generation,
        "version": lambda row: row.version,
    }
    return table(rows, columns)
