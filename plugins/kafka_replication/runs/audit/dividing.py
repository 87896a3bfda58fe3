"""Divides what is audited of a partition into tasks. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from kafka_replication.config import Replication
from kafka_replication.ledger.entries import FailedRecord, Handled, Proof, Receipt
from kafka_replication.ledger.placement import Part
from kafka_replication.ledger.receipts import window_start
from kafka_replication.model.errors import ReplicationError
from kafka_replication.model.offsets import MAX_OFFSET, Coverage, OffsetRange, TopicPartition
from kafka_replication.planning.retention.target_retention import records_below
from kafka_replication.runs.audit.choosing import AuditRequest, Chosen
from kafka_replication.runs.audit.parts import parts
from kafka_replication.runs.audit.sides import Sides, gone
from kafka_replication.runs.audit.target_reading import TargetReading, name_of
from kafka_replication.verification.auditing import Audit, Deliveries, Size, SpreadChunk
from kafka_replication.verification.chunks import Unit, area_of, claimed, set_aside, units
from kafka_replication.verification.matching import Difference, Kind
from kafka_replication.verification.verify import PartDigest


@dataclass(frozen=True, slots=True, kw_only=True)
class Divider:
    """Makes the tasks of all partitions, whose ids are numbers from 0."""

    replication: Replication
    sides: Sides
    request: AuditRequest
    reading: TargetReading
    tasks: list[Audit] = field(default_factory=list)

    def divide(self, chosen: Chosen) -> None:
        """Add the tasks of one partition. What is wrong with it already is added to its result."""
        if chosen.is_given_up:
            return
        retried = list(self.sides.retried(chosen.key))
        if self.request.sample is not None:  # those of its chunks
            mine = Coverage.of(receipt.range for receipt in chosen.receipts)
            retried = [(entry, part) for entry, part in retried if entry.offsets.intersection(mine)]
        try:
            self._spread(chosen)
            plain = any(not receipt.interleaved for receipt in chosen.receipts)
            if plain or (not chosen.receipts and self.replication.placing.sole):
                self._plain(chosen, retried)
        except ReplicationError as error:
            chosen.result.fail(str(error))
            return
        self._set_aside(chosen, retried)

    def _add(self, chosen: Chosen, size: Size, **work: object) -> None:
        """Add a task with this work."""
        topic = chosen.key.target_topic
        here = {part.partition for receipt in chosen.receipts for part in receipt.parts} | {chosen.key.target.partition}
        logs = {number: log for number in sorted(here) if (log := self.sides.log(TopicPartition(topic, number)))}
        task = Audit(id=len(self.tasks), partition=chosen.key, size=size, target_logs=logs)
        self.tasks.append(replace(task, **work))  # type: ignore[arg-type]

    def _set_aside(self, chosen: Chosen, retried: Sequence[tuple[Handled, Part]]) -> None:
        """Records that were set aside: they are in quarantine, or where a retry copied them, and nowhere else."""
        result, view = chosen.result, self.sides.view
        account = view[result.key]
        again, decided = account.retried(), [entry.decided for entry in account.handled]
        quarantined, compared = list[FailedRecord](), list[tuple[int, Part]]()
        for failed in (failed for receipt in chosen.receipts for failed in receipt.failures):
            result.set_aside(failed, is_retried=failed.offset in again)
            if failed.place is not None and not any(failed.offset in offsets for offsets in decided):
                quarantined.append(failed)
        for entry, part in retried:
            log = self.sides.log(TopicPartition(result.key.target_topic, part.partition))
            if lost := records_below(part, log.from_ if log else 0):
                result.retried_and_gone(entry, part, lost)
            else:
                compared.append((entry.offsets.ranges[0].from_, part))
        # A record that was retried although its chunk has it is there twice.
        copied = Coverage.of(receipt.range for receipt in chosen.receipts)
        aside = (offset for receipt in chosen.receipts for offset in set_aside(receipt))
        if twice := again.intersection(copied).subtract(Coverage.of(OffsetRange(one, one + 1) for one in aside)):
            offsets = (offset for range_ in twice for offset in range(range_.from_, range_.until))
            result.differ(Difference(Kind.EXTRA, offset, None, b"%d" % offset) for offset in offsets)
            result.notes.append(f"source offsets {twice} were retried, but the receipts of their chunks do not say why")
        if quarantined or compared:
            self._add(chosen, Size(), quarantined=tuple(quarantined), retried=tuple(compared))

    def _spread(self, chosen: Chosen) -> None:
        """The chunks that lie between those of others: what they have on the target was read before."""
        interleaved = [receipt for receipt in chosen.comparable if receipt.interleaved]
        if not interleaved:
            return
        topic = chosen.key.target_topic
        if topic in self.reading.not_searched:
            chosen.result.note("receipts have expired: records that belong to none were not looked for")
        if topic not in self.sides.target:
            raise gone(chosen.key.target)
        chunks = [chunk for receipt in interleaved if (chunk := self._found(chosen, receipt))]
        for some in parts(chunks, lambda chunk: Size.of(chunk.receipt)):
            self._add(chosen, _total(chunk.receipt for chunk in some), spread=tuple(some))

    def _found(self, chosen: Chosen, receipt: Receipt) -> SpreadChunk | None:
        topic, parts = chosen.key.target_topic, receipt.parts
        for part in parts:
            if error := self.reading.failed.get(TopicPartition(topic, part.partition)):
                chosen.result.fail(error)
                return None
        nothing = PartDigest(0, "")
        found = {part.partition: self.reading.parts.get(name_of(chosen.key, receipt, part), nothing) for part in parts}
        return SpreadChunk(receipt=receipt, by_content=chosen.by_content(receipt), found=found)

    def _plain(self, chosen: Chosen, retried: Sequence[tuple[Handled, Part]]) -> None:
        """The chunks in a target partition that has no other writer, in its order."""
        key, sides = chosen.key, self.sides
        if key.target in sides.failures:
            raise sides.failures[key.target]
        if (topic := sides.target.get(key.target_topic)) is None or key.target not in sides.ends:
            raise gone(key.target)
        log = sides.log(key.target) or OffsetRange(0, 0)
        others = [receipt for receipt in sides.receipts.all(key) if receipt.ids.target_topic == topic.topic_id]
        plain = [receipt for receipt in chosen.comparable if not receipt.interleaved]
        delivered = [receipt for receipt in plain if receipt.proof is Proof.BY_WINDOW]
        window = self._delivered_window(delivered, log)
        work = units(
            [receipt for receipt in plain if receipt.proof is not Proof.BY_WINDOW],
            [*others, *delivered],
            self._searched(chosen, log),
            [range_ for _, part in retried for range_ in part.offsets],
            window,
        )
        how = [replace(unit, by_content=bool(unit.receipt and chosen.by_content(unit.receipt))) for unit in work]
        for some in parts(how, _size):
            self._add(chosen, sum(map(_size, some), Size()), units=tuple(some))
        if delivered and window:
            alone = claimed(receipt for receipt in others if receipt.proof is not Proof.BY_WINDOW)
            elsewhere = sides.view[key].retried_at()
            # A transform goes with transactions alone (`model.combinations`): a chunk that has one is not made again.
            by_content = {one.range for one in delivered if chosen.by_content(one) and one.transform is None}
            deliveries = Deliveries(
                by_content=tuple(receipt for receipt in delivered if receipt.range in by_content),
                by_receipt=tuple(receipt for receipt in delivered if receipt.range not in by_content),
                stretches=Coverage.of([window]).subtract(alone).subtract(elsewhere),
                readable=chosen.readable or OffsetRange(0, 0),
                given_up=sides.view[key].given_up(),
            )
            self._add(chosen, _total(delivered), deliveries=deliveries)

    def _delivered_window(self, receipts: Sequence[Receipt], log: OffsetRange) -> OffsetRange | None:
        """The target offsets in which these chunks and their left-overs lie; None if there are no such chunks.

        A complete audit goes to the end of the log: what was left over last lies there.
        """
        if (first := window_start(receipts)) is None:
            return None
        areas = [area for receipt in receipts if (area := area_of(receipt))]
        until = MAX_OFFSET if self.request.is_complete else max((area.until for area in areas), default=first)
        return OffsetRange(first, max(first, until)).intersection(log)

    def _searched(self, chosen: Chosen, log: OffsetRange) -> OffsetRange | None:
        """The target offsets to search for records of other writers: the whole log, or the requested chunks.

        With ``on_existing_target: append``, records before our first one may be older than the replication, and after a
        reset than its generation. If receipts have expired, records before the first chunk with a receipt belong to
        expired ones, because receipts and records have the same order.
        """
        position, existing = chosen.position, self.replication.on_existing_target
        if self.request.sample is not None or self.replication.placing.shared:
            return None  # nothing is asked of the rest, or others may write there
        if chosen.key.target in self.reading.searched or position.spread:
            return None  # it was read whole already
        complete = self.request.is_complete
        if complete and existing == "refuse" and position.generation == 1:
            if not chosen.some_expired:
                return log
            areas = [area for receipt in self.sides.receipts.all(chosen.key) if (area := area_of(receipt))]
            first = min((area.from_ for area in areas), default=log.until)
            return OffsetRange(first, MAX_OFFSET).intersection(log)
        areas = [area for receipt in chosen.receipts if (area := area_of(receipt))]
        if not areas:
            return None
        until = MAX_OFFSET if complete else max(area.until for area in areas)
        return OffsetRange(min(areas).from_, until).intersection(log)


def _size(unit: Unit) -> Size:
    if unit.receipt is not None:
        return Size.of(unit.receipt)
    return Size(offsets=unit.target.span if unit.target else 0)


def _total(receipts: Iterable[Receipt]) -> Size:
    return sum(map(Size.of, receipts), Size())
