"""Brings ledger and target in line again where an outage of the target has left them different.

Kafka may complete a commit without a partition that has no leader at that moment; and a partition may lose the end of
its log. What the snapshot shows of each partition anyway tells whether there is something to mend: its last stable
offset is below its high watermark, or that is below the end of our copies.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace

from kafka_replication.ledger.entries import Entry, Receipt
from kafka_replication.ledger.receipts import Receipts
from kafka_replication.model.delivery import EXACTLY_ONCE
from kafka_replication.model.errors import Busy, OutOfTime, ReplicationError
from kafka_replication.model.keys import PartitionKey, verified_id
from kafka_replication.model.offsets import OffsetRange, TopicPartition
from kafka_replication.model.times import now
from kafka_replication.planning.lost_end import NotProven, TakenBack, take_back
from kafka_replication.planning.plan import PartitionPlan, Plan, State
from kafka_replication.planning.snapshot import PartitionOffsets
from kafka_replication.planning.target_retention import offsets_on
from kafka_replication.runs.plan.demand import World
from kafka_replication.runs.plan.recopy import add_entries
from kafka_replication.runs.run import LeasedRun
from kafka_replication.runtime import background, failpoints
from kafka_replication.runtime.events import Event, log_event
from kafka_replication.targets.port import EntrySession

log = logging.getLogger(__name__)
AT_ONCE = 8  # partitions; each has a producer for as long as it is mended
_LOOKED_AT = (State.IN_SYNC, State.BEHIND, State.PENDING, State.REMOVED, State.PARTLY_REMOVED, State.TARGET_TRUNCATED)
Texts = dict[PartitionKey, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mended:
    """The world afterwards. ``done`` says of a partition what was mended, ``left`` why something was not."""

    world: World
    done: Mapping[PartitionKey, str] = field(default_factory=dict)
    left: Mapping[PartitionKey, str] = field(default_factory=dict)

    def noted(self, planned: PartitionPlan) -> PartitionPlan:
        """The plan of a partition with what happened to it here."""
        texts = [planned.what, self.done.get(planned.key, ""), self.left.get(planned.key, "")]
        return replace(planned, what="; ".join(filter(None, texts)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """The damage of one partition, by number of the target partition: the first offset of what an earlier transaction
    of this key left open, and the end of the log where it was lost. ``ends`` has the end of each of these logs.
    """

    left_open: Mapping[int, int]
    ends: Mapping[int, int]

    def seen_until(self, ours: Mapping[int, int]) -> dict[int, int]:
        """The offsets where our copies end that readers see, where the ledger says that they reach further."""
        seen = {number: min(end, self.left_open.get(number, end)) for number, end in self.ends.items()}
        return {number: end for number, end in seen.items() if end < ours[number]}

    def only_hidden(self, ours: Mapping[int, int]) -> bool:
        """True if nothing is lost, and what is hidden is exactly what the ledger says."""
        return all(self.ends[number] == ours[number] > begins for number, begins in self.left_open.items()) and all(
            end >= ours[number] for number, end in self.ends.items()
        )


def mend(run: LeasedRun, plan: Plan, world: World) -> Mended:
    """Mend what the plan's snapshot shows. A partition that cannot be mended stays as it is.

    Raises Busy, OutOfTime, and what reading the ledger raises.
    """
    looked_at = [planned.key for planned in plan.partitions if _is_looked_at(run, planned, world)]
    sole = run.replication.placing.sole  # elsewhere, what is hidden may well be somebody else's
    suspects = {key: places for key in looked_at if (places := _suspicious(key, world, sole=sole))}
    dropped = _dropped(run, world, [key for key in looked_at if key not in suspects and world.view.pending(key)])
    suspects |= {key: [key.target] for key in dropped}
    if not suspects:
        return Mended(world=world)
    name = run.replication.name
    # What merely is an open transaction of a dead run ends with that. A run that lost its lease may be about to write
    # that lost copies were verified.
    ids = {key.transactional_id: str(key) for key in suspects} | {verified_id(name): "what is verified"}
    run.clusters.target.end_sessions(ids, run.check)
    view, left = run.view(), Texts()
    suspects = {key: some for key, some in suspects.items() if view.positions.get(key) == world.view.positions[key]}
    dropped = {key: begins for key, begins in dropped.items() if key in suspects}
    world = replace(world, view=view)
    # The end of an open transaction has dropped what Kafka had hidden before it in the same partition.
    dropped |= _dropped(run, world, [key for key in suspects if key not in dropped and view.pending(key)])
    damages = _damages(run, world, suspects, dropped, left)
    done = _mend_each(run, world, damages, left) if damages else {}
    for key, text in done.items():
        log_event(log, logging.WARNING, Event.MENDED, "%s: %s", key, text)
    for key, text in left.items():
        log_event(log, logging.ERROR, Event.NOT_MENDED, "%s: %s", key, text)
    if not done:
        return Mended(world=world, left=left)
    removed = {key: entry for key, entry in world.snapshot.removed.items() if key not in done}
    world = replace(world, view=run.view(), snapshot=replace(world.snapshot, removed=removed))
    return Mended(world=world, done=done, left=left)


def _is_looked_at(run: LeasedRun, planned: PartitionPlan, world: World) -> bool:
    position = world.view.position(planned.key, planned.generation)
    return (
        position is not None
        and position.delivery == run.replication.delivery == EXACTLY_ONCE
        and planned.state in _LOOKED_AT
        and run.holds(planned.key.target_topic)
    )


def _suspicious(key: PartitionKey, world: World, *, sole: bool) -> list[TopicPartition]:
    """The target partitions that show less of our copies than the ledger, or hide what may be one of them."""
    hides = [at for at, offsets in _there(key, world).items() if offsets.is_hiding]
    return [*_short(key, world), *(hides if sole or world.view.pending(key) else ())]


def _short(key: PartitionKey, world: World) -> list[TopicPartition]:
    ours = world.view.positions[key].ends(key.source.partition)
    return [at for at, offsets in _there(key, world).items() if offsets.high_watermark < ours[at.partition]]


def _there(key: PartitionKey, world: World) -> dict[TopicPartition, PartitionOffsets]:
    there = offsets_on(key, world.view.positions[key], world.snapshot.target.get(key.target_topic))
    return {TopicPartition(key.target_topic, number): offsets for number, offsets in there.items()}


def _dropped(run: LeasedRun, world: World, unverified: Collection[PartitionKey]) -> dict[PartitionKey, int]:
    """The target offset from which on nothing of these partitions can be read, although the last receipts say so.

    Something aborted a chunk whose commit Kafka had completed without this partition. Only who copied and did not
    verify is asked about: mostly nobody.
    """
    view, standing, found = world.view, run.clusters.target.standing, dict[PartitionKey, int]()
    if not unverified or not run.replication.placing.sole:
        return found
    receipts = run.clusters.ledger.receipts({key: view.receipts_from(key) for key in unverified})
    logs = standing.logs([key.target for key in unverified])

    def look(key: PartitionKey) -> None:
        topic = world.snapshot.target[key.target_topic]
        there, pending = logs.get(key.target), view.pending(key)
        # Compaction may have removed them.
        if there is None or "compact" in topic.config.get("cleanup.policy", ""):
            return
        known = receipts.of(key, view.positions[key].generation)
        parts = [part for one in known if pending.contains(one.range) for part in one.parts]
        end = there.until
        for part in sorted(parts, key=lambda part: part.first, reverse=True):
            if not there.from_ <= part.first < part.until <= end:
                return
            if standing.first_record(key.target, OffsetRange(part.first, end)) is not None:
                return
            found[key] = end = part.first

    _at_once(unverified, look)
    return found


def _damages(
    run: LeasedRun,
    world: World,
    suspects: Mapping[PartitionKey, Collection[TopicPartition]],
    dropped: Mapping[PartitionKey, int],
    left: Texts,
) -> dict[PartitionKey, Damage]:
    """The damages that are left once older sessions have ended. A partition of which that is not certain is ``left``.

    Nothing is concluded from the answer of a leader whom not all brokers name: it may have been deposed.
    """
    standing, places = run.clusters.target.standing, {at for some in suspects.values() for at in some}
    hiding = standing.hiding(places)
    doubtful = hiding | {at for key in suspects for at in _short(key, world)} | {key.target for key in dropped}
    ends, damages = standing.certain_ends(doubtful), dict[PartitionKey, Damage]()
    left_open = {at: standing.left_open(at) for at in sorted(hiding & ends.keys())}
    for key, some in suspects.items():
        ours, wanted = world.view.positions[key].ends(key.source.partition), sorted(doubtful & {*some})
        if unknown := [at for at in wanted if at not in ends]:
            left[key] = f"{unknown[0]} shows less than was copied, and it is not certain where it ends"
            continue
        seen = {at.partition: min(ends[at], dropped.get(key, ends[at])) for at in wanted}
        begins = {
            at.partition: open_[key.transactional_id]
            for at, open_ in left_open.items()
            if at in some and key.transactional_id in open_
        }
        seen = {number: end for number, end in seen.items() if number in begins or end < ours[number]}
        if seen:
            damages[key] = Damage(left_open=begins, ends=seen)
    return damages


def _mend_each(run: LeasedRun, world: World, damages: Mapping[PartitionKey, Damage], left: Texts) -> Texts:
    """Several partitions at a time. What is wrong with one is ``left``, and stops no other."""
    view = world.view
    wanted = {key: None if damage.ends else view.receipts_from(key) for key, damage in damages.items()}
    mender = _Mender(run, world, run.clusters.ledger.receipts(wanted))
    done = Texts()

    def work(key: PartitionKey) -> None:
        run.check()
        try:
            done[key] = mender.mend(key, damages[key])
        except (Busy, OutOfTime):
            raise
        except NotProven as why:
            left[key] = str(why)
        except ReplicationError as error:
            left[key] = f"it was not mended: {error.what}"

    _at_once(damages, work)
    hidden = {TopicPartition(key.target_topic, number): key for key in done for number in damages[key].left_open}
    _, failures = run.clusters.target.standing.stable_ends(hidden, run.replication.timeouts.request)
    for at, error in failures.items():
        if done.pop(hidden[at], None):
            left[hidden[at]] = error.what
    return done


def _at_once(keys: Iterable[PartitionKey], work: Callable[[PartitionKey], None]) -> None:
    """Call ``work`` with each key, in several threads. Raises what one of them raises."""
    queue = deque(keys)

    def until_empty() -> None:
        while queue:
            try:
                key = queue.popleft()
            except IndexError:  # another thread was faster
                return
            work(key)

    threads = [background.begin(until_empty, "mend") for _ in range(min(AT_ONCE, len(queue)))]
    try:
        for thread in threads:
            thread.result()
    finally:
        queue.clear()


class _Mender:
    """Mends single partitions, in several threads."""

    def __init__(self, run: LeasedRun, world: World, receipts: Receipts) -> None:
        self._run, self._world, self._view, self._receipts = run, world, world.view, receipts
        self._reading = threading.Lock()  # the run's ledger

    def mend(self, key: PartitionKey, damage: Damage) -> str:
        """Returns what was done, for people. Raises NotProven and other ReplicationErrors."""
        position, stamp = self._view.positions[key], (self._run.run_id, now())
        ours = position.ends(key.source.partition)
        seen, restores = damage.seen_until(ours), self._run.replication.placing.sole and damage.only_hidden(ours)
        taken = take_back(key, self._view, self._receipts, seen, stamp) if seen else None
        if taken is not None and not restores:
            self._check_source(key, taken)
        with closing(self._run.session(key)) as session:
            session.fence()
            with self._reading:
                if self._run.clusters.ledger.position(key) != position:
                    raise NotProven("another run has written its position meanwhile")
            session.check_ids(position.ids)
            # First the ledger: from here on, a crash leaves copies behind that the ledger does not count, and the
            # next run drops them and copies them again.
            self._write(
                session, (position,) if taken is None else taken.entries, () if taken is None else taken.deleted
            )
            failpoints.reached("M1")
            if damage.left_open:
                shown = taken if restores else None
                self._settle(session, key, damage, shown)
        return _text(key, taken, shown=restores)

    def _settle(self, session: EntrySession, key: PartitionKey, damage: Damage, shown: TakenBack | None) -> None:
        """Show the copies together with their entries, or drop them."""
        places = [TopicPartition(key.target_topic, number) for number in damage.left_open]
        session.settle(places, None if shown is None else lambda: add_entries(session, shown.before, ()))

    def _write(self, session: EntrySession, entries: Iterable[Entry], deleted: Iterable[Receipt]) -> None:
        session.transaction.begin()
        add_entries(session, entries, deleted)
        session.transaction.commit()

    def _check_source(self, key: PartitionKey, taken: TakenBack) -> None:
        log_start = self._world.snapshot.source[key.source.topic].offsets(key.source.partition).log_start
        if taken.offsets.ranges[0].from_ < log_start:
            raise NotProven(f"the source no longer has all of {taken.offsets}, which would have to be copied again")


def _text(key: PartitionKey, taken: TakenBack | None, *, shown: bool) -> str:
    if taken is None:
        return f"{key.target_topic} on the target had a transaction that Kafka had not ended there; it is aborted"
    if shown:
        return (
            f"Kafka had completed a commit without the partition of {key.target_topic}; {taken.offsets} can be read now"
        )
    return f"{key.target_topic} on the target no longer shows the end of our copies; {taken.offsets} are copied again"
