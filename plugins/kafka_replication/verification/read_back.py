"""Read back one partition: everything that the ledger says is on the target, and that is not verified yet.

Verifies chunks that were written without transactions: counts what is lost, and what is there more than once.

What lies on the target from the end of the last verified chunk on is explained record by record: it belongs to a chunk
that equals its receipt, or it is compared by content with the source. A record with the content of a source record is
ours: a left-over of an attempt that did not end, or a repeated one. Any other record is another writer's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import chain

from kafka_replication.ledger.entries import ONE_WRITER, Proof, Receipt, how
from kafka_replication.ledger.port import Ledger
from kafka_replication.ledger.receipts import Receipts, window_start
from kafka_replication.model import commands
from kafka_replication.model.choices import LOSSY, weakest_delivery
from kafka_replication.model.errors import (
    ForeignWriter,
    ReceiptsExpired,
    ReplicationError,
    Unreachable,
    VerificationFailed,
)
from kafka_replication.model.offsets import Coverage, OffsetRange, PartitionKey, readable
from kafka_replication.verification.digests import area_of, chunk_of, in_target_order, set_aside
from kafka_replication.verification.matching import Seen, Sent, attribute, match
from kafka_replication.verification.verify import (
    Changes,
    ReceiptFinding,
    Sides,
    TargetReader,
    VerifyResult,
    VerifyTask,
    find_quarantined,
    removed_early,
    select_receipts,
    unchanged,
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
            ReceiptFinding(range=receipt.range, lost=lost[receipt.range], duplicates=duplicates[receipt.range])
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadBackTask:
    """One partition, as the ledger was when the task was made. The receipts are read when the task runs."""

    key: PartitionKey
    generation: int
    verified: Coverage  # read back and equal already, or given up by approval
    receipts_from: int | None  # all receipts of the key below this offset of the receipts topic are verified
    copied_from: int | None = None  # where the receipts of the copy begin that was just made; None: not known
    level: str
    accept_loss: float = 0.0  # the share of records that profiles which lose records may lose
    judged_until: int | None = None  # see `Verified`
    retried: Coverage = field(default_factory=Coverage)  # target offsets of records that were copied after their chunk
    given_up: Coverage = field(default_factory=Coverage)  # source offsets that were never copied
    kept_seconds: int  # for how long the receipts topic keeps a receipt


class ReadBack:
    """Reads one partition back, in one or more attempts. ``result`` is what all attempts together have verified."""

    def __init__(
        self,
        task: ReadBackTask,
        ledger: Ledger,
        reader: Callable[[], AbstractContextManager[TargetReader]],
        sides: Callable[[], AbstractContextManager[Sides]],
        changes: Changes = unchanged,
    ) -> None:
        self.result = VerifyResult(key=task.key, verified=Coverage())
        self._task, self._ledger, self._reader, self._sides = task, ledger, reader, sides
        self._changes = changes

    def attempt(self) -> None:
        """Read the chunks that are not verified yet, and stop at the first that differs.

        Raises Unreachable and other retriable errors, which another attempt may heal; `result` has every other error.
        """
        task = self._task
        position = self._ledger.position(task.key)
        if position is None or position.generation != task.generation:  # reset since then: there is nothing to verify
            return
        pending = position.coverage.subtract(task.verified.union(self.result.verified))
        if pending:
            self._read(pending)

    def _read(self, pending: Coverage) -> None:
        # Reading starts at the first receipt that can be unverified. If receipts are missing, all are read before an
        # error is raised, because the topic may have been re-created or restored.
        task = self._task
        # Most often it is what was just copied: then it is not read what the others wrote since the plan.
        since = task.receipts_from if task.copied_from is None else task.copied_from
        receipts = self._ledger.receipts({task.key: since})
        if task.copied_from is not None and _without_receipt(task, pending, receipts):
            receipts = self._ledger.receipts({task.key: task.receipts_from})
        if receipts.since[task.key] and _without_receipt(task, pending, receipts):
            receipts = self._ledger.receipts({task.key: None})
        try:
            # The receipts topic may have deleted receipts by age.
            missing = _without_receipt(task, pending, receipts)
            if missing and receipts.incomplete(task.key):
                raise ReceiptsExpired(
                    f"{task.key.source}: receipts of {missing} have expired before they were verified: they are kept"
                    f" for {task.kept_seconds} seconds (retention.receipts)",
                    f"give up verifying these copies: {commands.approve_gap(task.key, missing.ranges[0])}; raise"
                    " retention.receipts, and retention.ms of the receipts topic",
                )
            chosen = select_receipts(pending, receipts.of(task.key, task.generation))
        except ReplicationError as e:
            self.result = replace(self.result, error=e.what, remedy=e.remedy)
            return
        read = self._verify(chosen, receipts)
        result = read.joined_to(self.result)
        verified = task.verified.union(result.verified)
        self.result = replace(result, receipts_from=receipts.unverified_from(task.key, task.generation, verified))
        if read.error and read.retriable:
            raise Unreachable(read.error, read.remedy)

    def _verify(self, chosen: Sequence[Receipt], receipts: Receipts) -> VerifyResult:
        task = self._task
        all_ = receipts.of(task.key, task.generation)
        alone = tuple(receipt for receipt in chosen if receipt.proof is not Proof.BY_WINDOW)
        delivered = tuple(receipt for receipt in chosen if receipt.proof is Proof.BY_WINDOW)
        with self._reader() as reader, ExitStack() as stack:
            source = cache(lambda: stack.enter_context(self._sides()))
            read = verify(VerifyTask(task.key, alone, task.level, self._changes), reader, source)
            if read.error or not delivered:
                return read
            judged_until = task.judged_until if self.result.judged_until is None else self.result.judged_until
            with self._sides() as sides:
                judged = DeliveryTask(
                    key=task.key,
                    receipts=delivered,
                    level=task.level,
                    judged_until=judged_until,
                    accept_loss=task.accept_loss,
                    others=tuple(receipt for receipt in all_ if receipt.proof is not Proof.BY_WINDOW),
                    retried=task.retried,
                    given_up=task.given_up,
                )
                return verify_delivery(judged, reader, sides).joined_to(read)


def _without_receipt(task: ReadBackTask, pending: Coverage, receipts: Receipts) -> Coverage:
    written = receipts.of(task.key, task.generation)
    return pending.subtract(Coverage.of(receipt.range for receipt in written))
