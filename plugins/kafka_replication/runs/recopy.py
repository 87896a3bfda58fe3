"""Gives source offsets back whose copies are gone from the target, in one transaction of the partition's own id."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any

from kafka_replication.copying.sink import SinkSession
from kafka_replication.kafka.cursor import Cursor
from kafka_replication.kafka.reading import headers_of, offset_of
from kafka_replication.ledger.entries import Receipt
from kafka_replication.ledger.placement import KafkaSegments, Part, Segment
from kafka_replication.ledger.view import LedgerView
from kafka_replication.ledger.writing import apply
from kafka_replication.model.choices import EXACTLY_ONCE
from kafka_replication.model.errors import Refused, ReplicationError, Unreachable
from kafka_replication.model.offsets import (
    Coverage,
    OffsetRange,
    PartitionKey,
    TopicPartition,
    consumer_group,
    verified_id,
)
from kafka_replication.model.times import now
from kafka_replication.planning.live import as_compared
from kafka_replication.planning.recopy import Remainder, give_back, is_gone, is_gone_in_part, to_copy_again
from kafka_replication.planning.snapshot import Snapshot
from kafka_replication.runs.run import LeasedRun, Run
from kafka_replication.verification.digests import DIGEST_KIND, BatchDigest, Fingerprint, digest_for, equals

log = logging.getLogger(__name__)


def offsets_to_copy_again(
    run: Run, view: LedgerView, snapshot: Snapshot, wanted: Mapping[PartitionKey, OffsetRange]
) -> dict[PartitionKey, Coverage]:
    """For each partition the offsets of the range that are gone from the target and still at the source.

    ``view`` must know what the snapshot shows of removed copies. All receipts are read of partitions that miss some.
    """
    keys = {key for key, range_ in wanted.items() if key in view.positions and view[key].gone().within(range_)}
    if not keys:
        return {}
    receipts = run.clusters.ledger.receipts(dict.fromkeys(keys))
    return {
        key: to_copy_again(
            view[key],
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
        with closing(run.clusters.target.writer(verified_id(run.replication.name), "what is verified")) as writer:
            writer.fence()
    for key, offsets in wanted.items():
        with run.fenced(key) as session:
            _give_back(run, session, snapshot, offsets)


def _give_back(run: LeasedRun, session: SinkSession, snapshot: Snapshot, wanted: Coverage) -> None:
    key, view = session.key, as_compared(run.view(), snapshot)
    moved = Refused(f"{key.source}: its position changed meanwhile", "start the backfill again")
    if key not in view.positions:
        raise moved
    account, entry = view[key], view[key].removed
    session.check_ids(account.position.ids)
    receipts = run.clusters.ledger.receipts({key: None}).of(key, account.position.generation)
    if not entry.time:  # nothing was ever missing
        return
    asked = [receipt for receipt in receipts if wanted.within(receipt.range)]
    _refuse_standing(
        run, key, [one for one in asked if is_gone(one, entry) and entry.lost_above_start.within(one.range)]
    )
    cut = (_remainder(run, key, receipt) for receipt in asked if is_gone_in_part(receipt, entry))
    remainders = [remainder for remainder in cut if remainder is not None]
    offsets, change = give_back(account, receipts, wanted, remainders, (run.run_id, now()))
    if change.write or change.delete:
        if not apply(session.ledger, session.transaction, [change]):
            raise moved
        log.info("%s: %s are not on the target any more and will be copied again", key, offsets)


def _refuse_standing(run: LeasedRun, key: PartitionKey, gone: Iterable[Receipt]) -> None:
    """Raise Refused if the target shows a record of one of these chunks, whose copies an audit found to be gone."""
    for receipt in gone:
        run.check()
        if run.replication.delivery != EXACTLY_ONCE:
            raise Refused(
                f"{key.source}: {receipt.range} is gone from the middle of {key.target_topic}, and is copied again with"
                f" {EXACTLY_ONCE} alone",
                f"set delivery to {EXACTLY_ONCE} for this backfill",
            )
        for part in receipt.parts:
            at = TopicPartition(key.target_topic, part.partition)
            wanted = _readable(run, at, part)
            if wanted and run.clusters.target.standing.first_record(at, wanted) is not None:
                raise Refused(
                    f"{key.source}: an audit found {receipt.range} gone from {key.target_topic}, which shows"
                    " records of it now: they would be doubled",
                    "audit the partition again once all replicas of the target are back",
                )


def _readable(run: LeasedRun, at: TopicPartition, part: Part) -> OffsetRange | None:
    """The offsets of the part that the target's log has now. Raises Unreachable."""
    there = run.clusters.target.standing.logs([at]).get(at)
    if there is None:
        raise Unreachable(f"{at} on the target does not answer", "start the backfill again")
    return OffsetRange(part.first, part.until).intersection(there)


def _remainder(run: LeasedRun, key: PartitionKey, cut: Receipt) -> Remainder | None:
    """The parts of a chunk that is gone in part, if the source still has it as it was copied: only then it is known
    which of its offsets the target has.
    """
    if cut.interleaved or len(cut.parts) != 1 or cut.transform or cut.filtered + cut.quarantined + cut.skipped:
        return None
    (part,) = cut.parts
    stall, group = run.replication.copying.stall_timeout, consumer_group(key.replication)
    pieces = list[_Piece]()  # what is left of a batch has no digest of batches
    try:
        shown = _shown(run, TopicPartition(key.target_topic, part.partition), part)
        whole = digest_for(cut)()
        with closing(Cursor(run.clusters.source, group, key.source, stall)) as source:
            if isinstance(whole, BatchDigest):
                source.add_to(whole, cut.range)
                pieces = _pieces(source.read(cut.range), None, part.first, shown)
            else:
                pieces = _pieces(source.read(cut.range), whole, part.first, shown)
    except (ReplicationError, SystemError) as error:  # the latter for a record that the client cannot decode
        log.warning("%s %s: which part of it is gone was not found out: %s", key.source, cut.range, error)
        return None
    if not pieces or not equals(whole, cut):
        log.warning("%s %s: the source changed since it was copied; what is gone stays lost", key.source, cut.range)
        return None
    bounds = [cut.range.from_, *(piece.first for piece in pieces[1:]), cut.range.until]
    ranged = [(piece, OffsetRange(*bound)) for piece, bound in zip(pieces, itertools.pairwise(bounds), strict=True)]
    return Remainder(
        chunk=cut.range,
        lost=Coverage.of(range_ for piece, range_ in ranged if not piece.stands),
        receipts=tuple(_receipt(cut, part.partition, piece, range_) for piece, range_ in ranged if piece.stands),
    )


@dataclass(slots=True)
class _Piece:
    """Consecutive records of a chunk that the target shows, or lacks: the source offset of the first one, and its place
    on the target.
    """

    stands: bool
    first: int
    place: int
    records: Fingerprint = field(default_factory=Fingerprint)


def _shown(run: LeasedRun, at: TopicPartition, part: Part) -> Coverage:
    """The offsets of the part at which the target shows records. Raises ReplicationError."""
    wanted = _readable(run, at, part)
    if wanted is None:
        return Coverage()
    with run.clusters.target.standing.reader(at) as reader:
        return Coverage.of(OffsetRange(seen.place, seen.place + 1) for seen in reader.seen(wanted))


def _pieces(records: Iterator[Any], whole: Fingerprint | None, place: int, shown: Coverage) -> list[_Piece]:
    """The pieces of a chunk that begins at ``place`` on the target. All records are added to ``whole``, if there is
    one.
    """
    pieces = list[_Piece]()
    for at, message in enumerate(records, place):
        fields = message.timestamp()[1], message.key(), message.value(), headers_of(message)
        if whole is not None:
            whole.add(*fields)
        stands = at in shown
        if not pieces or pieces[-1].stands is not stands:
            pieces.append(_Piece(stands, offset_of(message), at))
        pieces[-1].records.add(*fields)
    return pieces


def _receipt(cut: Receipt, partition: int, piece: _Piece, range_: OffsetRange) -> Receipt:
    """The receipt of a piece that stands."""
    records = piece.records
    kept = Segment(
        partition=partition,
        first=piece.place,
        last=piece.place + records.count - 1,
        count=records.count,
        digest=records.hexdigest(),
    )
    return replace(
        cut,
        range=range_,
        count=records.count,
        bytes=records.bytes,
        digest=records.hexdigest(),
        digest_kind=DIGEST_KIND,
        placement=KafkaSegments((kept,)),
    )
