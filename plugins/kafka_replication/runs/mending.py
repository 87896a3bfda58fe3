"""Brings ledger and target in line again where an outage of the target has left them different.

Kafka can commit a transaction and skip a partition whose leader is down; and a partition may lose the end of
its log. What the snapshot shows of each partition anyway tells whether there is something to mend: its last stable
offset is below its high watermark, or that is below the end of our copies.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from kafka_replication.ledger.account import Change
from kafka_replication.ledger.entries import Position, Receipt, Removed
from kafka_replication.ledger.placement import Part
from kafka_replication.ledger.receipts import Receipts
from kafka_replication.ledger.writing import add, apply
from kafka_replication.model.choices import EXACTLY_ONCE
from kafka_replication.model.errors import Busy, Fenced, OutOfTime, ReplicationError
from kafka_replication.model.offsets import OffsetRange, PartitionKey, TopicPartition, verified_id
from kafka_replication.model.times import now
from kafka_replication.planning.lost_end import NotProven, TakenBack, standing_until, take_back
from kafka_replication.planning.plan import Plan, State
from kafka_replication.planning.snapshot import PartitionOffsets
from kafka_replication.planning.target_retention import offsets_on
from kafka_replication.runs.looking import World
from kafka_replication.runs.run import LeasedRun
from kafka_replication.runtime import background, failpoints
from kafka_replication.runtime.events import Event, log_event

log = logging.getLogger(__name__)
_LOOKED_AT = (State.IN_SYNC, State.BEHIND, State.PENDING, State.REMOVED, State.PARTLY_REMOVED, State.TARGET_TRUNCATED)
# Descriptions of deleted receipts in notes, and in the ledger for each partition; the log has all.
_TOLD, _KEPT = 5, 100
Texts = dict[PartitionKey, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """The damage of one partition, by number of the target partition: the first offset of what an earlier transaction
    of this key left open, and how far our copies stand in each log (``ends``): to its end, or less where some are lost.
    """

    left_open: Mapping[int, int]
    ends: Mapping[int, int]

    def seen_until(self, ours: Mapping[int, int]) -> dict[int, int]:
        """The offsets where our copies end that readers see, where the ledger says that they reach further."""
        seen = {number: min(end, self.left_open.get(number, end)) for number, end in self.ends.items()}
        return {number: end for number, end in seen.items() if end < ours.get(number, 0)}


def mend(run: LeasedRun, plan: Plan, world: World) -> World:
    """Mend what the plan's snapshot shows. A partition that cannot be mended stays as it is: ``left`` says why.

    What a session left half done, because a newer one of its producer ended it or a broker did not answer, is mended
    once more: nobody else ends the transaction that is still open there, and its copier would wait for it in vain.
    Raises Busy, OutOfTime, and what reading the ledger raises.
    """
    half_done = set[PartitionKey]()
    world = _mended(run, plan, world, half_done)
    if half_done:
        again = replace(plan, partitions=tuple(one for one in plan.partitions if one.key in half_done))
        left = {key: why for key, why in world.left.items() if key not in half_done}
        world = _mended(run, again, replace(world, left=left), set())
    for key, text in world.left.items():
        log_event(log, logging.ERROR, Event.NOT_MENDED, "%s: %s", key, text)
    return world


def _mended(run: LeasedRun, plan: Plan, before: World, half_done: set[PartitionKey]) -> World:
    """The same once. Adds to ``half_done`` whose session has ended by an error that may not come again."""
    world = before
    keys = list[PartitionKey]()
    for planned in plan.partitions:
        position = world.view.position(planned.key, planned.generation)
        in_transactions = position is not None and position.delivery == run.replication.delivery == EXACTLY_ONCE
        if in_transactions and planned.state in _LOOKED_AT and run.holds(planned.key.target_topic):
            keys.append(planned.key)
    suspects = _suspects(run, world, keys)
    if not suspects:
        return before
    name = run.replication.name
    # What merely is an open transaction of a dead run ends with that. A run that lost its lease may be about to write
    # that lost copies were verified.
    ids = {key.transactional_id: str(key) for key in suspects} | {verified_id(name): "what is verified"}
    run.clusters.target.end_sessions(ids, run.check)
    view, left = run.view(), dict(before.left)
    suspects = {key: some for key, some in suspects.items() if view.positions.get(key) == world.view.positions[key]}
    # The end of an open transaction has dropped what Kafka had hidden before it in the same partition.
    lost = {**world.snapshot.lost, **run.comparison.lost_now(view, suspects)}
    world = replace(world, view=view, snapshot=replace(world.snapshot, lost=lost))
    receipts = run.clusters.ledger.receipts(dict.fromkeys(suspects))
    damages = _damages(run, world, suspects, receipts, left)
    done = _mend_each(run, world, damages, receipts, left, half_done) if damages else {}
    for key, text in done.items():
        log_event(log, logging.WARNING, Event.MENDED, "%s: %s", key, text)
    if not done and not half_done:
        return replace(before, left=left)
    removed = {key: entry for key, entry in world.snapshot.removed.items() if key not in done}
    lost = {key: numbers for key, numbers in lost.items() if key not in done}
    snapshot = replace(world.snapshot, removed=removed, lost=lost)
    return replace(world, view=run.view(), snapshot=snapshot, mended={**before.mended, **done}, left=left)


def _suspects(run: LeasedRun, world: World, keys: Iterable[PartitionKey]) -> dict[PartitionKey, list[TopicPartition]]:
    """The keys with the target partitions that show less of their copies than the ledger, or hide what may be theirs.

    Where others write, too, what is hidden is mostly theirs: the brokers are asked.
    """
    hides = {key: [at for at, offsets in _there(run, key, world).items() if offsets.is_hiding] for key in keys}
    if not run.replication.placing.sole:
        asked = {at for some in hides.values() for at in some}
        left_open = background.at_once(sorted(asked), run.clusters.target.standing.left_open, "open transactions")
        hides = {key: [at for at in some if key.transactional_id in left_open[at]] for key, some in hides.items()}
    suspects = {key: list(dict.fromkeys([*_lost(key, world), *some])) for key, some in hides.items()}
    return {key: some for key, some in suspects.items() if some}


def _lost(key: PartitionKey, world: World) -> list[TopicPartition]:
    """The target partitions that do not show the last record of the key."""
    return [TopicPartition(key.target_topic, number) for number in sorted(world.snapshot.lost.get(key, ()))]


def _there(run: LeasedRun, key: PartitionKey, world: World) -> dict[TopicPartition, PartitionOffsets]:
    """The target partitions that may have records of the key, as far as the ledger knows or not."""
    position, topic = world.view.positions[key], world.snapshot.target.get(key.target_topic)
    there: Mapping[int, PartitionOffsets] = offsets_on(key, position, topic)
    if not run.replication.placing.sole and topic is not None and topic.topic_id == position.ids.target_topic:
        there = topic.readable
    return {TopicPartition(key.target_topic, number): offsets for number, offsets in there.items()}


def _damages(
    run: LeasedRun,
    world: World,
    suspects: Mapping[PartitionKey, Collection[TopicPartition]],
    receipts: Receipts,
    left: Texts,
) -> dict[PartitionKey, Damage]:
    """The damages that are left once older sessions have ended. A partition of which that is not certain is ``left``.

    Nothing is concluded from the answer of a leader whom not all brokers name: it may have been deposed.
    """
    standing, places = run.clusters.target.standing, {at for some in suspects.values() for at in some}
    hiding = standing.hiding(places)
    doubtful = hiding | {at for key in suspects for at in _lost(key, world)}
    ends, damages = standing.certain_ends(doubtful), dict[PartitionKey, Damage]()
    left_open = background.at_once(sorted(hiding & ends.keys()), standing.left_open, "open transactions")
    for key, some in suspects.items():
        wanted = sorted(doubtful & {*some, *_lost(key, world)})
        if unknown := [at for at in wanted if at not in ends]:
            left[key] = f"{unknown[0]} shows less than was copied, and it is not certain where it ends"
            continue
        begins = {
            at.partition: open_[key.transactional_id]
            for at, open_ in left_open.items()
            if at in some and key.transactional_id in open_
        }
        seen = {number: ends[TopicPartition(key.target_topic, number)] for number in begins}
        try:
            for at in _lost(key, world):  # what is hidden is judged below
                end = min(ends[at], begins.get(at.partition, ends[at]))
                seen[at.partition] = _standing_until(run, world, receipts, key, at, end)
        except ReplicationError as error:
            left[key] = f"what stands on the target could not be read: {error.what}"
            continue
        if seen:
            damages[key] = Damage(left_open=begins, ends=seen)
    return damages


def _standing_until(
    run: LeasedRun, world: World, receipts: Receipts, key: PartitionKey, at: TopicPartition, end: int
) -> int:
    """One past the last record of the key that stands in this target partition, which ends at ``end``."""
    offsets = _there(run, key, world).get(at)
    log_start, standing = offsets.log_start if offsets else 0, run.clusters.target.standing

    def stands(part: Part) -> bool:
        last = OffsetRange(part.until - 1, part.until)
        return part.until <= log_start or standing.first_record(at, last) is not None  # or retention explains it

    parts = (part for one in receipts.of(key, world.view.positions[key].generation) for part in one.parts)
    return standing_until(parts, at.partition, end, stands)


def _mend_each(
    run: LeasedRun,
    world: World,
    damages: Mapping[PartitionKey, Damage],
    receipts: Receipts,
    left: Texts,
    half_done: set[PartitionKey],
) -> Texts:
    """Several partitions at a time. An error of one goes into ``left``; the others are still mended."""
    reading, done = threading.Lock(), Texts()

    def work(key: PartitionKey) -> None:
        run.check()
        try:
            done[key] = _mend_one(run, world, receipts, key, damages[key], reading)
        except (Busy, OutOfTime):
            raise
        except NotProven as why:
            left[key] = str(why)
        except ReplicationError as error:
            left[key] = f"it was not mended: {error.what}"
            if error.retriable or isinstance(error, Fenced):
                half_done.add(key)

    background.at_once(damages, work, "mend")
    hidden = {TopicPartition(key.target_topic, number): key for key in done for number in damages[key].left_open}
    _, failures = run.clusters.target.standing.stable_ends(hidden, run.replication.timeouts.request)
    for at, error in failures.items():
        if done.pop(hidden[at], None):
            left[hidden[at]] = error.what
    return done


def _mend_one(
    run: LeasedRun, world: World, receipts: Receipts, key: PartitionKey, damage: Damage, reading: threading.Lock
) -> str:
    """Returns what was done, for people. ``reading`` guards the run's ledger. Raises NotProven and other
    ReplicationErrors.
    """
    position, hidden_by = world.view.positions[key], run.clusters.target.standing.hidden_by
    seen = damage.seen_until(position.ends(key.source.partition))
    taken = take_back(world.view[key], receipts, seen, (run.run_id, now())) if seen else None
    # If what the key's open transaction hides is exactly what these receipts name, nothing of it is lost, and no
    # aborted record is among it.
    shown = taken is not None and all(
        hidden_by(TopicPartition(key.target_topic, number), key.transactional_id) == taken.at(number)
        for number in {*seen, *damage.left_open}
    )
    out, back = _without_a_gap(key, position, taken, shown=shown)
    if taken is not None and not shown:
        _check_copied_again(world, key, taken)
    gone, text = [described(one) for one in ([] if shown else out.delete)], _text(key, taken, shown=shown)
    text = "; ".join([text, *gone[:_TOLD], *([f"and {len(gone) - _TOLD} more"] if len(gone) > _TOLD else [])])
    if run.replication.mend == "report":
        raise NotProven(f"nothing was mended (mend: report), mend: repair would do this: {text}")
    with run.fenced(key) as session:
        with reading:
            if run.clusters.ledger.position(key) != position:
                raise NotProven("another run has written its position meanwhile")
        session.check_ids(position.ids)
        for receipt in gone:
            log.warning("%s: this receipt is taken out of the ledger, which keeps this text: %s", key, receipt)
        apply(session.ledger, session.transaction, [out])
        failpoints.reached("M1")
        if damage.left_open:  # shown together with their entries, or dropped
            places = [TopicPartition(key.target_topic, number) for number in damage.left_open]
            session.end_left_open(places, (lambda: add(session.ledger, session.transaction, [back])) if shown else None)
    return text


def _check_copied_again(world: World, key: PartitionKey, taken: TakenBack) -> None:
    if taken.standing:
        raise NotProven(
            f"a part of {taken.standing} can be read in other partitions of {key.target_topic}, and would be"
            " doubled if it were copied again"
        )
    log_start = world.snapshot.source[key.source.topic].offsets(key.source.partition).log_start
    if taken.offsets.ranges[0].from_ < log_start:
        raise NotProven(f"the source no longer has all of {taken.offsets}, which would have to be copied again")


def _without_a_gap(
    key: PartitionKey, position: Position, taken: TakenBack | None, *, shown: bool
) -> tuple[Change, Change]:
    """The change to carry out before an open transaction is ended, and the one to carry out with its end.

    First the ledger: from then on, a crash leaves copies behind that the ledger does not count, and the next run drops
    them and copies them again. Copies of which a part stands elsewhere are never taken out, as that would be doubled:
    after a crash they are dropped in part, which is found when they are read back.
    """
    if taken is None or (shown and taken.standing):
        return (same := Change(key=key, write=(position,))), same
    *entries, removed = taken.change.write
    assert isinstance(removed, Removed)
    kept = (*removed.taken_back, *map(described, taken.change.delete))[-_KEPT:]
    noted = replace(removed, taken_back=kept, taken_back_at=now())
    return replace(taken.change, write=(*entries, noted)), taken.back


def described(receipt: Receipt) -> str:
    """A receipt in one line, for people who look for what was there."""
    where = ", ".join(
        f"{part.partition}: {OffsetRange(part.first, part.until)}"
        f"{f' in {len(part.offsets.ranges)} pieces' if len(part.offsets.ranges) > 1 else ''}"
        for part in receipt.parts
    )
    return (
        f"{receipt.range}: {receipt.count} records, {receipt.digest_kind} {receipt.digest}, at target offsets"
        f" ({where or 'none'}), by run {receipt.run_id} at {receipt.time}"
    )


def _text(key: PartitionKey, taken: TakenBack | None, *, shown: bool) -> str:
    if taken is None:
        return f"{key.target_topic} on the target had a transaction that Kafka had not ended there; it is aborted"
    if shown:
        return (
            f"Kafka had completed a commit without the partition of {key.target_topic}; {taken.offsets} can be read now"
        )
    return f"{key.target_topic} on the target no longer shows the end of our copies; {taken.offsets} are copied again"
