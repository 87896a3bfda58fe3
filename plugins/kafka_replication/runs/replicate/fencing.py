"""End transactions that earlier runs of this replication left open on the target."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from contextlib import closing
from functools import partial

from kafka_replication.ledger.entries import Deleted, Entry, Removed, Start, Verified
from kafka_replication.ledger.placement import Part
from kafka_replication.model.delivery import EXACTLY_ONCE
from kafka_replication.model.keys import PartitionKey, opening_id, verified_id
from kafka_replication.model.offsets import OffsetRange, TopicPartition
from kafka_replication.planning.lost_end import counts
from kafka_replication.runs.run import LeasedRun
from kafka_replication.runtime.events import Event, log_event

log = logging.getLogger(__name__)


def fence_stale_producers(run: LeasedRun) -> Mapping[PartitionKey, str]:
    """Fence producers of dead or hanging runs that have an entry of this run's target topics in an open transaction.

    Without this, the ledger could not be read until those transactions time out, after 10 minutes by default. Producers
    of other target topics are left alone: they may be at work. A run at work whose opening is fenced here repeats it. A
    producer that cannot be fenced is only logged: the copier of its partition fences it again, or fails alone.

    What is hidden after that belongs to transactions that Kafka has ended without the ledger's partition; it is
    completed. Returns what was, for people.
    """
    undecided = sorted(key for key in run.clusters.ledger.undecided() if run.holds(key.target_topic))
    ids = {key.transactional_id: str(key) for key in undecided}
    if undecided:
        ids |= {opening_id(run.replication.name): "opening", verified_id(run.replication.name): "what is verified"}
    _fence(run, ids)
    mended = _complete(run, ids) if undecided and run.replication.delivery == EXACTLY_ONCE else {}
    _fence(run, {key.transactional_id: str(key) for key in _suspects(run) if key not in undecided})
    return mended


def _complete(run: LeasedRun, fenced: Collection[str]) -> dict[PartitionKey, str]:
    """Complete what Kafka has left of ended transactions of these ids in the ledger's partitions. Safe to repeat after
    a crash.
    """
    standing, hidden = run.clusters.target.standing, dict[PartitionKey, list[Entry]]()
    if not any(standing.left_open(at).keys() & set(fenced) for at in run.clusters.ledger.hidden()):
        return {}
    for key, entry in run.clusters.ledger.undecided_entries():
        if run.holds(key.target_topic):
            hidden.setdefault(key, []).append(entry)
    if not hidden:
        return {}
    counted = _counted(run, hidden)
    # Two other writers write again what counts: from then on it stays, whatever becomes of the hidden entries. What
    # they have left open themselves ends with this; the one whose entries can be found out again comes first.
    all_ = [(key, entry) for key, entries in hidden.items() for entry in entries]
    again = [(key, entry) for key, entry in all_ if key in counted or _is_shared(entry)]
    for writer_id in (verified_id, opening_id) if again else ():
        with closing(run.writer(writer_id(run.replication.name), "completing the ledger")) as writer:
            writer.fence()
            run.check()
            writer.begin()
            for key, entry in again:
                run.clusters.ledger.write(writer, key, entry)
            writer.commit()
    done = {}
    for key, entries in hidden.items():
        run.check()
        with closing(run.session(key)) as session:
            session.fence()
            session.transaction.begin()
            for entry in entries:
                session.ledger.write(session.transaction, key, entry)
            session.transaction.commit() if key in counted else session.transaction.flush()
        fate = "can be read now" if key in counted else "were dropped, as nothing else of that transaction is visible"
        done[key] = f"Kafka had ended a transaction without a part of the ledger; its {len(entries)} entries {fate}"
        log_event(log, logging.WARNING, Event.MENDED, "%s: %s", key, done[key])
    return done


def _is_shared(entry: Entry) -> bool:
    """True for entries that are written for several keys together. They state facts: they may always count."""
    return isinstance(entry, Verified | Start | Deleted | Removed)


def _counted(run: LeasedRun, hidden: Mapping[PartitionKey, Collection[Entry]]) -> set[PartitionKey]:
    """The keys whose hidden entries count."""
    standing = run.clusters.target.standing
    with run.clusters.target.follower()() as visible:
        view, receipts = visible.view(), visible.receipts(dict.fromkeys(hidden))

    def stands(key: PartitionKey, part: Part) -> bool:
        at, last = TopicPartition(key.target_topic, part.partition), OffsetRange(part.until - 1, part.until)
        seen = standing.logs([at]).get(at)
        return seen is not None and seen.until >= last.until and standing.first_record(at, last) is not None

    return {
        key for key, entries in hidden.items() if counts(key, entries, view, receipts.all(key), partial(stands, key))
    }


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
