"""Verifies chunks that were written without transactions: counts what is lost, and what is there more than once.

What lies on the target from the end of the last verified chunk on is explained record by record: it belongs to a chunk
that equals its receipt, or it is compared by content with the source. A record with the content of a source record is
ours: a left-over of an attempt that did not end, or a repeated one. Any other record is another writer's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from kafka_replication.ledger.entries import ONE_WRITER, Receipt, how
from kafka_replication.ledger.receipts import window_start
from kafka_replication.model.delivery import LOSSY, weakest_delivery
from kafka_replication.model.errors import ForeignWriter, ReplicationError, Unreachable, VerificationFailed
from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.offsets import Coverage, OffsetRange, readable
from kafka_replication.verification.chunks import area_of, chunk_of, in_target_order, set_aside
from kafka_replication.verification.matching import Seen, Sent, attribute, match
from kafka_replication.verification.verify import (
    Judged,
    Sides,
    TargetReader,
    VerifyResult,
    VerifyTask,
    find_quarantined,
    removed_early,
    verify,
)

AROUND = 1_000_000  # source offsets before and after what is verified in which the origin of a record is searched


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryTask:
    """The receipts of one partition with an `after` that are not verified yet. ``judged_until`` is the target offset up
    to which everything was explained before; None if nothing was.
    """

    key: PartitionKey
    receipts: tuple[Receipt, ...]
    level: str
    judged_until: int | None
    accept_loss: float  # a share
    others: tuple[Receipt, ...] = ()  # further receipts of the partition, whose chunks are verified by themselves
    retried: Coverage = field(default_factory=Coverage)  # target offsets of records that were copied after their chunk
    given_up: Coverage = field(default_factory=Coverage)  # source offsets that were never copied


def verify_delivery(task: DeliveryTask, reader: TargetReader, sides: Sides) -> VerifyResult:
    """All of the receipts are verified, or none; ``judged`` says what was found out either way. Never raises."""
    try:
        return _judged(task, reader, sides)
    except ReplicationError as e:
        return VerifyResult(key=task.key, verified=Coverage(), error=e.what, remedy=e.remedy, retriable=e.retriable)


def _judged(task: DeliveryTask, reader: TargetReader, sides: Sides) -> VerifyResult:
    receipts = in_target_order(task.receipts)
    window = _to_explain(task, receipts, sides)
    equal, other = list[Receipt](), list[Receipt]()
    for receipt in receipts:
        (equal if _is_equal(task, receipt, reader, window.until) else other).append(receipt)
    areas = Coverage.of(area for receipt in (*equal, *task.others) if (area := area_of(receipt)))
    unexplained = Coverage.of([window]).subtract(areas).subtract(task.retried)
    for receipt in other:  # `_is_equal` has looked for those of the equal ones
        find_quarantined(task.key, receipt, reader)
    sent = chain.from_iterable(source_of(task.key, receipt, sides) for receipt in other)
    seen = chain.from_iterable(sides.target(range_) for range_ in unexplained)
    matched = match(sent, seen, ordered=False)
    if matched.lost:
        sides.check_all_shown(window.until)
    lost = Counter(chunk_of(record.offset, receipts) for record in matched.lost)
    duplicates = Counter(chunk_of(offset, receipts) for offset in _origins(task, receipts, matched.extra, sides))
    result = VerifyResult(
        key=task.key,
        verified=Coverage.of(receipt.range for receipt in receipts),
        records=sum(receipt.count for receipt in receipts) - lost.total(),
        bytes=sum(receipt.bytes for receipt in receipts),
        judged=tuple(
            Judged(range=receipt.range, lost=lost[receipt.range], duplicates=duplicates[receipt.range])
            for receipt in receipts
            if (lost[receipt.range], duplicates[receipt.range]) != (receipt.lost_in_delivery, receipt.duplicates)
        ),
        lost=lost.total(),
        duplicates=duplicates.total(),
        delivery=weakest_delivery(receipt.delivery for receipt in receipts),
        judged_until=window.until,
    )
    if problem := too_many(task.key, receipts, lost, task.accept_loss):
        nothing = replace(result, verified=Coverage(), lost=0, duplicates=0, judged_until=None)
        return replace(nothing, error=problem.what, remedy=problem.remedy)
    return result


def _to_explain(task: DeliveryTask, receipts: Sequence[Receipt], sides: Sides) -> OffsetRange:
    """The target offsets of which every record has to be explained."""
    areas = [area for receipt in receipts if (area := area_of(receipt))]
    log = sides.target_log(max((area.until for area in areas), default=0))
    start = window_start(receipts)
    first = log.until if start is None else start
    if task.judged_until is not None:  # a chunk can lie below it, where the target lost its end since then
        first = min([task.judged_until, *(area.from_ for area in areas)])
    if min((area.from_ for area in areas), default=log.until) < log.from_:
        raise removed_early(
            task.key,
            task.key.target,
            log.from_,
            "before it",
            "raise retention.ms on the target; accept the unverified offsets with kafka-replication approve-gap",
        )
    return readable(max(first, log.from_), log.until)


def _is_equal(task: DeliveryTask, receipt: Receipt, reader: TargetReader, until: int) -> bool:
    """True if the chunk lies where its receipt says, and nothing else does."""
    area = area_of(receipt)
    if area is not None and (area.span != receipt.count or area.until > until):
        return False
    result = verify(VerifyTask(task.key, (receipt,), task.level), reader)
    if result.error and result.retriable:
        raise Unreachable(result.error, result.remedy)
    return result.error is None


def _origins(task: DeliveryTask, receipts: Sequence[Receipt], extra: Sequence[Seen], sides: Sides) -> list[int]:
    """For each record that is there beyond what the receipts say: the source offset of the same content.

    Raises ForeignWriter for a record of which the source has none.
    """
    if not extra:
        return []
    log = sides.source_log()
    near = chain.from_iterable(map(sides.around, near_to(receipts, log, task.given_up)))
    origins, foreign = attribute(extra, near)
    if foreign:
        raise ForeignWriter(
            f"{task.key.target} on the target holds {len(foreign)} records that the source does not have, the first at"
            f" offset {foreign[0].place}",
            ONE_WRITER,
        )
    return origins


def source_of(key: PartitionKey, receipt: Receipt, sides: Sides) -> Iterator[Sent]:
    """The source's records of a chunk. Raises VerificationFailed if that does not tell what the copier wrote."""
    log = sides.source_log()
    if receipt.range.intersection(log) != receipt.range:
        raise VerificationFailed(
            f"{key.source} {receipt.range}: the copy differs from its receipt, and the source, which starts at"
            f" {log.from_} now, cannot show what is missing",
            "accept the unverified offsets with kafka-replication approve-gap",
        )
    if receipt.transform is not None:
        raise VerificationFailed(
            f"{key.source} {receipt.range}: the copy, made {how(receipt.transform)}, differs from its receipt, and the"
            " source alone does not show what is missing",
            "accept the unverified offsets with kafka-replication approve-gap",
        )
    return sides.source(receipt.range, set_aside(receipt))


def too_many(
    key: PartitionKey, receipts: Iterable[Receipt], lost: Counter[OffsetRange], accept_loss: float
) -> VerificationFailed | None:
    """The reason why this loss is not accepted, which counts source records by the range of their receipt; None if it
    is.
    """
    lossy = [receipt for receipt in receipts if receipt.delivery in LOSSY]
    sent, missing = sum(receipt.copied for receipt in lossy), sum(lost[receipt.range] for receipt in lossy)
    if more := lost.total() - missing:
        return VerificationFailed(
            f"{key.source}: {more} records were acknowledged and are not on the target {key.target_topic}",
            "find out what removed them (compaction, an unclean election, truncation); compare source and target"
            " (kafka-replication audit), then copy again under another replication name",
        )
    if missing > accept_loss * sent:
        return VerificationFailed(
            f"{key.source}: {missing} of {sent} records were lost in delivery, which is more than accept_loss"
            f" ({accept_loss:g})",
            f"accept the share {missing / sent:.6f} with accept_loss and run again; or reset the topic and copy it"
            " in a profile that loses nothing",
        )
    return None


def near_to(receipts: Iterable[Receipt], log: OffsetRange, given_up: Coverage) -> Iterator[OffsetRange]:
    """The source offsets in which the origin of a record is searched: those of these chunks, then those around them.
    What was ``given_up`` may be unreadable.
    """
    own = Coverage.of(receipt.range for receipt in receipts)
    around = Coverage.of(OffsetRange(max(0, range_.from_ - AROUND), range_.until + AROUND) for range_ in own)
    for range_ in (*own, *around.subtract(own)):
        if readable := range_.intersection(log):
            yield from Coverage.of([readable]).subtract(given_up)
