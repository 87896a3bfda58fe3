"""End transactions that earlier runs of this replication left open on the target.

Another try of a run carries out the stored plan, once what the target has lost since then is mended.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from contextlib import closing
from dataclasses import replace
from functools import partial

from kafka_replication.ledger.account import Change
from kafka_replication.ledger.entries import Deleted, Entry, Position, Receipt, Removed, Start, Verified
from kafka_replication.ledger.placement import Part
from kafka_replication.ledger.view import LedgerView, copied_until
from kafka_replication.ledger.writing import add, apply
from kafka_replication.model.choices import EXACTLY_ONCE
from kafka_replication.model.offsets import OffsetRange, PartitionKey, TopicPartition, opening_id, verified_id
from kafka_replication.planning import plan_codec
from kafka_replication.planning.lost_end import counts
from kafka_replication.planning.plan import PartitionPlan, Plan
from kafka_replication.runs.looking import Live, World, look
from kafka_replication.runs.mending import mend
from kafka_replication.runs.run import LeasedRun, Request
from kafka_replication.runtime import background
from kafka_replication.runtime.events import Event, log_event

log = logging.getLogger(__name__)
_SHARED = (Verified, Start, Deleted, Removed)  # entries that are written for several keys together
Hidden = dict[PartitionKey, list[Entry]]  # entries of the ledger that readers do not see


def fence_stale_producers(run: LeasedRun) -> Mapping[PartitionKey, str]:
    """Fence producers of dead or hanging runs that have an entry of this run's target topics in an open transaction.

    Without this, the ledger could not be read until those transactions time out, after 10 minutes by default. Producers
    of other target topics are left alone: they may be at work. A run at work whose opening is fenced here repeats it. A
    producer that cannot be fenced is only logged: the copier of its partition fences it again, or fails alone.

    What is hidden after that belongs to transactions that Kafka has ended without the ledger's partition; it is
    completed. What fencing has dropped although it was committed is written again. Returns what was, for people.
    """
    exactly_once, hidden = run.replication.delivery == EXACTLY_ONCE, Hidden()
    undecided = sorted(key for key in run.clusters.ledger.undecided() if run.holds(key.target_topic))
    if undecided and exactly_once:
        hidden = _hidden(run)
    ids = {key.transactional_id: str(key) for key in undecided}
    if undecided:
        ids |= {opening_id(run.replication.name): "opening", verified_id(run.replication.name): "what is verified"}
    _fence(run, ids)
    mended = _complete(run, ids) if undecided and exactly_once else {}
    if lost := {key: entries for key, entries in hidden.items() if key not in mended}:
        mended |= _restore(run, lost)
    _fence(run, {key.transactional_id: str(key) for key in _suspects(run) if key not in undecided})
    return mended


def _complete(run: LeasedRun, fenced: Collection[str]) -> dict[PartitionKey, str]:
    """Complete what Kafka has left of ended transactions of these ids in the ledger's partitions. Safe to repeat after
    a crash.
    """
    standing = run.clusters.target.standing
    left_open = background.at_once(run.clusters.ledger.hidden(), standing.left_open, "open transactions")
    if not any(ids.keys() & set(fenced) for ids in left_open.values()):
        return {}
    if not (hidden := _hidden(run)):
        return {}
    with run.clusters.target.follower()() as visible:
        view, receipts = visible.view(), visible.receipts(dict.fromkeys(hidden))
    counted = {
        key
        for key, entries in hidden.items()
        if counts(key, entries, view, receipts.all(key), partial(_stands, run, key))
    }
    # Two other writers write again what counts: from then on it stays, whatever becomes of the hidden entries. What
    # they have left open themselves ends with this; the one whose entries can be found out again comes first. Entries
    # that are written for several keys together state facts: they may always count.
    all_ = [(key, entry) for key, entries in hidden.items() for entry in entries]
    again = [Change(key=key, write=(entry,)) for key, entry in all_ if key in counted or isinstance(entry, _SHARED)]
    for writer_id in (verified_id, opening_id) if again else ():
        with closing(run.clusters.target.writer(writer_id(run.replication.name), "completing the ledger")) as writer:
            writer.fence()
            run.check()
            apply(run.clusters.ledger, writer, again)
    done = {}
    for key, entries in hidden.items():
        with run.fenced(key) as session:
            change = Change(key=key, write=tuple(entries))
            if key in counted:
                apply(session.ledger, session.transaction, [change])
            else:  # the abort at the end drops what is hidden with what was added
                session.transaction.begin()
                add(session.ledger, session.transaction, [change])
                session.transaction.flush()
        fate = "can be read now" if key in counted else "were dropped, as nothing else of that transaction is visible"
        done[key] = f"Kafka had ended a transaction without a part of the ledger; its {len(entries)} entries {fate}"
        log_event(log, logging.WARNING, Event.MENDED, "%s: %s", key, done[key])
    return done


def _hidden(run: LeasedRun) -> Hidden:
    """The entries in open transactions, and in those that Kafka has ended elsewhere; the newest of each kind."""
    hidden = Hidden()
    for key, entry in run.clusters.ledger.undecided_entries():
        if run.holds(key.target_topic):
            hidden.setdefault(key, []).append(entry)
    return hidden


def _restore(run: LeasedRun, hidden: Hidden) -> dict[PartitionKey, str]:
    """Write again the entries that were ``hidden`` before fencing, and that it has dropped although their chunks count:
    Kafka wrote one end marker for both transactions, so theirs was aborted with the later one.
    """
    dropped = Hidden()
    with run.clusters.target.follower()() as visible:
        view = visible.view()
        for key, entries in hidden.items():
            if key in view.positions:
                dropped[key] = _dropped(run, key, entries, view, lambda key: visible.receipts({key: None}).all(key))
    dropped = {key: entries for key, entries in dropped.items() if entries}
    done = {}
    for key, entries in dropped.items():
        change = Change(key=key, write=tuple(entries), expects=view.positions[key])
        with run.fenced(key) as session:
            if not apply(session.ledger, session.transaction, [change]):
                continue
        done[key] = (
            "Kafka had ended a transaction without a part of the ledger, and the end of the next one dropped that part;"
            f" its {len(entries)} entries were written again, because the rest of it is there"
        )
        log_event(log, logging.WARNING, Event.MENDED, "%s: %s", key, done[key])
    return done


def _dropped(
    run: LeasedRun,
    key: PartitionKey,
    hidden: Collection[Entry],
    view: LedgerView,
    receipts: Callable[[PartitionKey], Collection[Receipt]],
) -> list[Entry]:
    """The ``hidden`` receipts that cannot be read now, of the chunks that a position counts; with the position, if it
    is a hidden one: then all that it adds has a receipt, and records that are on the target. ``receipts`` reads those
    that can be read, which may take a while: it is not called for what a dead run merely left open.
    """
    known, stands = view.positions[key], partial(_stands, run, key)
    said = [one for one in hidden if isinstance(one, Receipt) and one.generation == known.generation]
    for moved in (one for one in hidden if isinstance(one, Position) and one.generation == known.generation):
        if known.coverage.subtract(moved.coverage) or not moved.coverage.subtract(known.coverage):
            continue  # no copier at the known position has moved it so
        counted = [one for one in said if moved.coverage.contains(one.range)]
        added = [one for one in counted if not known.coverage.contains(one.range)]
        if all(any(map(stands, one.parts)) for one in added):
            there = receipts(key)
            entries: list[Entry] = [*(one for one in counted if one not in there), moved]
            if counts(key, entries, view, there, stands):
                return entries
    counted = [one for one in said if known.coverage.contains(one.range)]
    there = receipts(key) if counted else ()
    return [one for one in counted if one not in there]


def _stands(run: LeasedRun, key: PartitionKey, part: Part) -> bool:
    """True if readers of the target see the last record of this part of a chunk."""
    standing = run.clusters.target.standing
    at, last = TopicPartition(key.target_topic, part.partition), OffsetRange(part.until - 1, part.until)
    seen = standing.logs([at]).get(at)
    return seen is not None and seen.until >= last.until and standing.first_record(at, last) is not None


def _suspects(run: LeasedRun) -> list[PartitionKey]:
    """The partitions that may have left records in an open transaction, of target topics with several writers.

    It would hide the records of all of them until it times out. One without an entry in the ledger is not seen there.
    """
    if run.replication.placing.sole:
        return []
    writers: dict[TopicPartition, list[PartitionKey]] = {}
    for key, position in run.view().positions.items():
        if run.holds(key.target_topic):
            for number in position.ends(key.source.partition):
                writers.setdefault(TopicPartition(key.target_topic, number), []).append(key)
    return sorted({key for at in run.clusters.target.standing.hiding(writers) for key in writers[at]})


def _fence(run: LeasedRun, ids: Mapping[str, str]) -> None:
    for what in ids.values():
        log.warning("%s: an earlier run may have left a transaction open; fencing its producer", what)
    run.clusters.target.end_sessions(ids, run.check)


def resumed(run: LeasedRun, plan: Plan) -> Plan:
    """The plan for one more try. What the target lost since the plan was made is mended, as a new run does, and comes
    first in the range of its partition; such a plan replaces the stored one. Where it cannot be mended, the session of
    the partition refuses to append.

    Raises Busy, OutOfTime, Unreachable and what reading the ledger raises.
    """
    if plan.idle:
        return plan
    run.retry("fencing", lambda: fence_stale_producers(run))
    if not run.comparison.lost_now(run.view(), plan.workable):
        return plan
    topics = tuple(sorted({planned.key.source.topic for planned in plan.partitions}))
    world = mend(run, plan, look(run, Live(Request(topics=topics)), opens=False))
    if not world.mended and not world.left:
        return plan
    refusing = run.replication.mend == "report"
    anew = replace(
        plan,
        partitions=tuple(
            world.noted(_with_lost(one, world) if one.key in world.mended else one, refusing=refusing)
            for one in plan.partitions
        ),
    )
    if (stored := run.store.run(run.run_id)) is not None:
        run.store.start_run(
            run.run_id, run.replication.name, stored.kind, plan_codec.encode(anew), instead_of=stored.plan
        )
    return anew


def _with_lost(planned: PartitionPlan, world: World) -> PartitionPlan:
    """The partition with what has to be copied again before its range, and what is left to read back. A range of older
    offsets stays as it is: its session refuses to go on before the lost ones are copied.
    """
    position, first = world.view.positions[planned.key], copied_until(world.view.positions[planned.key])
    copy = planned.copy or OffsetRange(position.next_offset, position.next_offset)
    if first < position.next_offset <= copy.until:
        planned = replace(planned, copy=OffsetRange(min(first, copy.from_), copy.until))
    return replace(planned, verify=world.view[planned.key].pending())
