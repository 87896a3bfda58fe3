"""Gives source offsets back whose copies are gone from the target, in one transaction of the partition's own id."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from typing import Any

from kafka_replication.kafka.read.cursor import Cursor
from kafka_replication.kafka.read.scan import headers_of, offset_of
from kafka_replication.ledger.entries import Entry, Receipt, Removed
from kafka_replication.ledger.placement import KafkaSegments, Segment
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.errors import Refused, ReplicationError
from kafka_replication.model.keys import PartitionKey, consumer_group, verified_id
from kafka_replication.model.offsets import Coverage, OffsetRange
from kafka_replication.model.times import now
from kafka_replication.planning.backfill.recopy import GivenBack, Remainder, give_back, is_gone_in_part, to_copy_again
from kafka_replication.planning.live import as_compared
from kafka_replication.planning.snapshot import Snapshot
from kafka_replication.runs.run import LeasedRun, Run
from kafka_replication.targets.port import EntrySession
from kafka_replication.verification.digest import DIGEST_KIND, BatchDigest, Fingerprint
from kafka_replication.verification.digests import RecordDigest, digest_for, equals

log = logging.getLogger(__name__)
_QUEUED = 10_000  # entries; the producer's queue is bounded


def offsets_to_copy_again(
    run: Run, view: LedgerView, snapshot: Snapshot, wanted: Mapping[PartitionKey, OffsetRange]
) -> dict[PartitionKey, Coverage]:
    """For each partition the offsets of the range that are gone from the target and still at the source.

    ``view`` must know what the snapshot shows of removed copies. All receipts are read of partitions that miss some.
    """
    keys = {key for key, range_ in wanted.items() if key in view.positions and view.gone(key).within(range_)}
    if not keys:
        return {}
    receipts = run.clusters.ledger.receipts(dict.fromkeys(keys))
    return {
        key: to_copy_again(
            key,
            view,
            receipts.of(key, view.positions[key].generation),
            wanted[key],
            snapshot.source[key.source.topic].offsets(key.source.partition).log_start,
        )
        for key in sorted(keys)
    }


def give_back_each(run: LeasedRun, snapshot: Snapshot, wanted: Mapping[PartitionKey, Coverage]) -> None:
    """Give these offsets back, partition by partition. After a crash, the same call does what is left.

    ``snapshot`` shows what was removed. Raises Refused if a topic was re-created, and Fenced.
    """
    if wanted:
        # A run that lost its lease may be about to write that the lost copies were verified.
        with closing(run.writer(verified_id(run.replication.name), "what is verified")) as writer:
            writer.fence()
    for key, offsets in wanted.items():
        run.check()
        with closing(run.session(key)) as session:
            session.fence()
            _give_back(run, session, snapshot, offsets)


def _give_back(run: LeasedRun, session: EntrySession, snapshot: Snapshot, wanted: Coverage) -> None:
    key, view = session.key, as_compared(run.view(), snapshot)
    position = session.position()
    if position is None or position != view.positions.get(key):
        raise Refused(f"{key.source}: its position changed meanwhile", "start the backfill again")
    session.check_ids(position.ids)
    receipts = run.clusters.ledger.receipts({key: None}).of(key, position.generation)
    entry = view.removal(key, position.generation)
    if entry is None:
        return
    given = give_back(key, view, receipts, wanted, _remainder(run, key, receipts, entry), (run.run_id, now()))
    if given.offsets or given.left_over:
        _write(session, given)
        log.info("%s: %s are not on the target any more and will be copied again", key, given.offsets)


def _write(session: EntrySession, given: GivenBack) -> None:
    """The receipts go last: after a crash without transactions, what was already given back tells which are left over.
    Without them nothing would tell what is gone, or how many records of it were set aside.
    """
    entries = sorted(given.entries, key=lambda entry: not isinstance(entry, Receipt)) if given.offsets else ()
    session.transaction.begin()
    add_entries(session, entries, (*given.deleted, *given.left_over))
    session.transaction.commit()


def add_entries(session: EntrySession, entries: Iterable[Entry], deleted: Iterable[Receipt]) -> None:
    """Add the entries to the open transaction of the session, then the deletion of these receipts."""
    for entry in entries:
        session.ledger.write(session.transaction, session.key, entry)
    for number, receipt in enumerate(deleted, 1):
        session.ledger.delete(session.transaction, session.key, receipt)
        if number % _QUEUED == 0:
            session.transaction.flush()


def _remainder(run: LeasedRun, key: PartitionKey, receipts: Iterable[Receipt], entry: Removed) -> Remainder | None:
    """The chunk that is gone in part, if the source still has it as it was copied: only then it is known which of its
    offsets the target has.
    """
    cut = next((receipt for receipt in receipts if is_gone_in_part(receipt, entry)), None)
    if (
        cut is None
        or cut.interleaved
        or len(cut.parts) != 1
        or cut.transform
        or cut.filtered + cut.quarantined + cut.skipped
    ):
        return None
    (part,) = cut.parts
    removed = entry.target_start - part.first
    stall, group = run.replication.copying.stall_timeout, consumer_group(key.replication)
    rest = Fingerprint()  # what is left of a batch has no digest of batches
    try:
        whole = digest_for(cut)()
        with closing(Cursor(run.clusters.source, group, key.source, stall)) as source:
            if isinstance(whole, BatchDigest):
                source.add_to(whole, cut.range)
                first = _digested(source.read(cut.range), None, rest, removed)
            else:
                first = _digested(source.read(cut.range), whole, rest, removed)
    except (ReplicationError, SystemError) as error:  # the latter for a record that the client cannot decode
        log.warning("%s %s: which part of it is gone was not found out: %s", key.source, cut.range, error)
        return None
    if first is None or not equals(whole, cut):
        log.warning("%s %s: the source changed since it was copied; its first records stay lost", key.source, cut.range)
        return None
    kept = Segment(
        partition=part.partition,
        first=entry.target_start,
        last=part.until - 1,
        count=rest.count,
        digest=rest.hexdigest(),
    )
    receipt = replace(
        cut,
        range=OffsetRange(first, cut.range.until),
        count=rest.count,
        bytes=rest.bytes,
        digest=rest.hexdigest(),
        digest_kind=DIGEST_KIND,
        placement=KafkaSegments((kept,)),
        offset_map=tuple(mapped for mapped in cut.offset_map if mapped.source_offset >= first),
    )
    return Remainder(cut.range, first, receipt)


def _digested(records: Iterator[Any], whole: RecordDigest | None, rest: Fingerprint, removed: int) -> int | None:
    """Add all records to ``whole``, if there is one, and those after the first ``removed`` to ``rest``. Returns the
    offset of the first of these.
    """
    first = None
    for number, message in enumerate(records):
        fields = message.timestamp()[1], message.key(), message.value(), headers_of(message)
        if whole is not None:
            whole.add(*fields)
        if number >= removed:
            rest.add(*fields)
            first = offset_of(message) if first is None else first
    return first
