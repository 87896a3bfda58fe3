"""Giving up source offsets that can no longer be read: the exact ones, with a reason and a name, or not at all."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass

from kafka_replication.config import Replication
from kafka_replication.kafka import offsets, topics
from kafka_replication.kafka.session import PartitionSession
from kafka_replication.ledger.entries import Gap, Ids, Position
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.errors import BadInput, GapFound, Refused
from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.offsets import Coverage, OffsetRange, TopicPartition
from kafka_replication.model.times import now
from kafka_replication.planning import gaps
from kafka_replication.planning.live import plan, refuse_occupied
from kafka_replication.planning.plan import PartitionPlan, State
from kafka_replication.runs import steps
from kafka_replication.runs.run import LeasedRun, Request
from kafka_replication.runs.steps.target_topics import create_targets

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Approval:
    """What somebody gives up. Raises BadInput unless it says exactly what, why and who."""

    at: TopicPartition
    range: OffsetRange
    reason: str
    by: str
    target_topic: str | None = None  # None: the replication's own

    def __post_init__(self) -> None:
        if not self.range.span:
            raise BadInput(f"{self.range} holds no offset", "--until is the first offset after the gap")
        for name, text in (("--reason", self.reason), ("--by", self.by)):
            if not text.strip() or len(text) > 1000 or not text.isprintable():
                raise BadInput(f"{name} must be one line of 1 to 1000 printable characters", f"say it with {name}")

    def key(self, replication: Replication) -> PartitionKey:
        return PartitionKey(replication.name, self.at, self.target_topic or replication.target_topic(self.at.topic))


def approve(run: LeasedRun, asked: Approval) -> tuple[Gap, bool]:
    """The recorded gap, and whether it was recorded now; approving what was approved before changes nothing.

    Raises BadInput, Refused, GapFound (other offsets are lost than those
    asked for).
    """
    steps.fence_stale_producers(run)
    view = run.view()
    key = asked.key(run.replication)
    known = _known(view, key, asked.range)
    if known is None:
        found = _state(run, view, key)
        if found.state is State.OVERRUN:
            gap, new = _cross(run, found, asked), True
        elif found.state is State.LATE_GAP:
            gap, new = _open(run, view, found, asked), True
        elif found.refused:
            raise Refused(f"no gap can be approved: {found.what}", found.remedy)
        else:
            gap, new = _give_up_proof(run, found, asked), True
        log.info("%s: gave up %s", key, gap.range)
    else:
        gap, new = known, False
    steps.advance(run, [key])
    return gap, new


def _known(view: LedgerView, key: PartitionKey, asked: OffsetRange) -> Gap | None:
    position = view.positions.get(key)
    return next(
        (
            each
            for each in view.gaps.get(key, ())
            if position and each.generation == position.generation and each.range == asked
        ),
        None,
    )


def _state(run: LeasedRun, view: LedgerView, key: PartitionKey) -> PartitionPlan:
    snapshot = run.snapshot(view, Request(topics=(key.source.topic,)))
    made = plan(run.replication, snapshot, view, run.watermarks(view))
    found = next((each for each in made.partitions if each.key == key), None)
    if found is None:
        raise BadInput(
            f"{run.replication.name} does not replicate {key.source} to {key.target_topic}, or has nothing to give up"
            " there",
            "check --topic, --partition and --target-topic",
        )
    return found


@contextmanager
def _fenced(run: LeasedRun, found: PartitionPlan) -> Iterator[tuple[PartitionSession, Position]]:
    """Under the partition's own transactional id: a copier that is still at work is fenced, or fences this."""
    run.check()
    with closing(run.session(found.key)) as session:
        session.fence()
        position = session.position()
        if position is None or position.generation != found.generation:
            raise Refused(f"{found.key.source}: its position changed meanwhile", "look at the plan, then approve again")
        topics.check_id(run.clusters.source_admin, found.key.source.topic, position.ids.source_topic, "source")
        session.check_ids(position.ids)
        yield session, position


def _cross(run: LeasedRun, found: PartitionPlan, asked: Approval) -> Gap:
    with _fenced(run, found) as (session, position):
        at = found.key.source
        _exactly(found.key, asked.range, gaps.lost(position, offsets.log_starts(run.clusters.source_admin, [at])[at]))
        gap = _gap(run, asked, position.generation, "retention", position.ids)
        session.move(gaps.crossing(position, gap.range), gap)
    return gap


def _give_up_proof(run: LeasedRun, found: PartitionPlan, asked: Approval) -> Gap:
    """Of chunks that were copied, and removed from the target before they were read back.

    The position stays where it is.
    """
    key = found.key
    with _fenced(run, found) as (session, position):
        view = run.view()
        read = run.clusters.ledger.receipts({key: view.receipts_from(key)})
        receipts = read.of(key, position.generation)
        pending = position.coverage.subtract(view.verified_or_waived(key, position.generation))
        missing = pending.subtract(Coverage.of(receipt.range for receipt in receipts))
        expired = missing if read.incomplete(key) else Coverage()
        gone = gaps.unverifiable(pending, receipts, session.target_start(), expired)
        if gone is None:
            raise Refused(
                f"no gap can be approved: {key.source}: nothing is lost after offset {position.next_offset}, and copies"
                " can be verified",
                "run again",
            )
        _exactly(key, asked.range, gone)
        gap = _gap(run, asked, position.generation, "unverifiable", position.ids)
        session.move(position, gap)
    return gap


def _open(run: LeasedRun, view: LedgerView, found: PartitionPlan, asked: Approval) -> Gap:
    """As a run opens partitions, with the gap from offset 0 on in front of the start."""
    key = found.key
    request = Request(topics=(key.source.topic,))
    snapshot = create_targets(run, view, run.snapshot(view, request), request)
    source, target = snapshot.source[key.source.topic], snapshot.target[key.target_topic]
    _exactly(key, asked.range, OffsetRange(0, source.partitions[key.source.partition].log_start))
    ids = Ids(snapshot.source_cluster, source.topic_id, target.topic_id)
    run.check()
    with closing(run.opening()) as opening:
        if key in opening.fence():
            raise Refused(f"{key.source} was opened meanwhile", "look at the plan, then approve again")
        if run.replication.on_existing_target == "refuse":
            for refused in refuse_occupied([found], opening.occupied([key]), first=False).values():
                raise Refused(refused.what, refused.remedy)
        gap = _gap(run, asked, 1, "late", ids)
        position = Position(
            generation=1, ids=ids, start=0, next_offset=gap.range.until, coverage=Coverage((gap.range,))
        )
        opening.commit({key: position}, run.replication.on_existing_target, {key: gap})
    return gap


def _exactly(key: PartitionKey, asked: OffsetRange, lost: OffsetRange | None) -> None:
    if lost is None:
        raise GapFound(
            f"{key.source}: every offset after the position can be read", "run again: nothing needs to be given up"
        )
    if asked != lost:
        raise GapFound(
            f"{key.source}: {asked} was asked for, but lost are exactly {lost}",
            f"if they may be lost: {gaps.command(key, lost)}",
        )


def _gap(run: LeasedRun, asked: Approval, generation: int, kind: str, ids: Ids) -> Gap:
    return Gap(
        generation=generation,
        kind=kind,
        range=asked.range,
        reason=asked.reason.strip(),
        approved_by=asked.by.strip(),
        ids=ids,
        run_id=run.run_id,
        time=now(),
    )
