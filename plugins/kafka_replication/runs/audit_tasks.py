"""Divides what is audited of a partition into tasks. Pure.

Target partitions that have chunks of several keys, or records of others between ours.

Each of them is read once for all source partitions. Here is decided what is read, and whose it is; a worker reads.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from kafka_replication.config import Replication
from kafka_replication.ledger.entries import FailedRecord, Handled, Proof, Receipt
from kafka_replication.ledger.placement import Part
from kafka_replication.ledger.receipts import window_start
from kafka_replication.model.errors import ReplicationError
from kafka_replication.model.offsets import MAX_OFFSET, Coverage, OffsetRange, PartitionKey, TopicPartition, readable
from kafka_replication.planning.target_retention import records_below
from kafka_replication.reporting.audit import PartitionAudit
from kafka_replication.runs.audit_choosing import AuditedChunks, AuditRequest, Sides, gone, parts
from kafka_replication.verification.auditing import Audit, Audited, Claim, Deliveries, Findings, Size, SpreadChunk
from kafka_replication.verification.digests import Unit, area_of, claimed, set_aside, units
from kafka_replication.verification.matching import Difference, Kind
from kafka_replication.verification.verify import PartDigest

Name = tuple[PartitionKey, int, int, int]  # key, generation, first source offset, target partition


def name_of(key: PartitionKey, receipt: Receipt, part: Part) -> Name:
    return key, receipt.generation, receipt.range.from_, part.partition


@dataclass(frozen=True, slots=True)
class AuditedPart:
    """A part of a chunk, or of a retry, in one target partition. Its digest is wanted, or only its offsets matter."""

    name: Name
    offsets: Coverage
    receipt: Receipt | None = None  # if its digest is wanted

    @property
    def claim(self) -> Claim:
        return Claim(self.offsets, self.receipt.digest_kind if self.receipt else None)

    @property
    def first(self) -> int:
        return self.offsets.ranges[0].from_

    @property
    def size(self) -> Size:
        """The size of reading it."""
        if self.receipt is None:
            return Size()
        span, mean = self.offsets.span, self.receipt.bytes // max(1, self.receipt.count)
        return Size(offsets=span, records=span, bytes=span * mean)


@dataclass(slots=True, kw_only=True)
class TargetReading:
    """The tasks, each for a part of a target partition, and then what they found."""

    tasks: list[Audit] = field(default_factory=list)
    named: dict[int, Sequence[AuditedPart]] = field(default_factory=dict)  # those of a task's claims, by its id
    searched: set[TopicPartition] = field(default_factory=set)  # also what lies between the claims is to be looked at
    failed: dict[TopicPartition, str] = field(default_factory=dict)
    not_searched: set[str] = field(default_factory=set)  # target topics with records of receipts that have expired
    parts: dict[Name, PartDigest] = field(default_factory=dict)
    found: list[tuple[TopicPartition, Findings]] = field(default_factory=list)

    def take(self, task: Audit, result: Audited) -> None:
        at = task.partition
        assert isinstance(at, TopicPartition)
        if result.findings.errors:
            self.failed[at] = result.findings.errors[0]
            return
        self.found.append((at, result.findings))
        self.parts |= {self.named[task.id][number].name: part for number, part in result.parts.items()}

    def report_extra(self, result: PartitionAudit, keys: Collection[PartitionKey]) -> None:
        """Add the records of nobody that are reported with this partition, or why they could not be looked for: those
        in the target partition of its number. The lowest of ``keys`` also reports those of target partitions without
        a source.
        """
        key = result.key
        numbers = {other.source.partition for other in keys if other.target_topic == key.target_topic}
        first = key.source.partition == min(numbers)

        def is_own(at: TopicPartition) -> bool:
            own = at.partition == key.source.partition or (first and at.partition not in numbers)
            return own and at.topic == key.target_topic

        for at, found in self.found:
            if is_own(at):
                result.add(found)
        for at in sorted(filter(is_own, self.searched & self.failed.keys())):
            result.fail(self.failed[at])


def plan_reading(
    replication: Replication, sides: Sides, chosen: Sequence[AuditedChunks], request: AuditRequest
) -> TargetReading:
    """Decide which target partitions are read so.

    If whole topics are audited, records that belong to no receipt are looked for, too. Not if receipts have expired:
    such a record may be of one of them.
    """
    reading, named = TargetReading(), _named(sides, chosen)
    whole = request.partition is None and request.is_complete and not replication.placing.shared
    if whole:
        reading.not_searched |= {one.key.target_topic for one in chosen if sides.receipts.incomplete(one.key)}
    for at, here in sorted(named.items()):
        searches = whole and at.topic not in reading.not_searched
        if searches:
            reading.searched.add(at)
        if (log := sides.log(at)) is None:
            reading.failed[at] = str(sides.failures.get(at) or gone(at))
            continue
        positions = sides.view.positions
        # Earlier generations may have left records there, also such as no receipt names.
        reset = any(position.generation > 1 and key.target_topic == at.topic for key, position in positions.items())
        if replication.on_existing_target == "append" or reset:
            current = (one.first for one in here if positions[one.name[0]].generation == one.name[1])
            log = readable(max(min(current, default=log.until), log.from_), log.until)
        if not searches and not any(one.receipt for one in here):
            continue
        for some, window in divided(here, log):
            if searches or any(one.receipt for one in some):
                number = len(reading.tasks)
                reading.named[number] = some
                reading.tasks.append(
                    Audit(
                        id=number,
                        partition=at,
                        target_logs={at.partition: log},
                        claims=tuple(one.claim for one in some),
                        searched=window if searches else None,
                        size=sum((one.size for one in some), Size()),
                    )
                )
    return reading


def divided(here: Sequence[AuditedPart], log: OffsetRange) -> Iterator[tuple[list[AuditedPart], OffsetRange]]:
    """The claims on one partition in parts, each as large as a task may be, with the window of the log that each part
    covers: from its first claim to that of the next one. Earlier claims that reach into a window come with it, their
    digest unwanted there.
    """
    groups = list(parts(sorted(here, key=lambda one: one.first), lambda one: one.size)) or [[]]
    between = (min(max(log.from_, some[0].first), log.until) for some in groups[1:])
    earlier = list[AuditedPart]()
    for some, (from_, until) in zip(groups, pairwise([log.from_, *between, log.until]), strict=True):
        earlier = [one for one in earlier if one.offsets.ranges[-1].until > from_]
        yield [*some, *(replace(one, receipt=None) for one in earlier)], OffsetRange(from_, until)
        earlier += some


def _named(sides: Sides, chosen: Sequence[AuditedChunks]) -> Mapping[TopicPartition, Sequence[AuditedPart]]:
    """The parts of all chunks in the target topics that have chunks which lie between those of others."""
    named: dict[TopicPartition, list[AuditedPart]] = {}
    topics = set[str]()
    for one in chosen:
        key, topic = one.key, sides.target.get(one.key.target_topic)
        asked = {receipt.range.from_ for receipt in one.comparable}
        for receipt in sides.receipts.all(key):
            if topic is None or receipt.ids.target_topic != topic.topic_id:
                continue
            wanted = receipt.interleaved and receipt.generation == one.position.generation
            wanted = wanted and receipt.range.from_ in asked
            for part in receipt.parts:
                at = TopicPartition(key.target_topic, part.partition)
                mine = AuditedPart(name_of(key, receipt, part), part.offsets, receipt if wanted else None)
                named.setdefault(at, []).append(mine)
                topics |= {at.topic} if receipt.interleaved else set()
        for entry, part in sides.retried(key):
            name = key, entry.generation, -1 - entry.offsets.ranges[0].from_, part.partition
            at = TopicPartition(key.target_topic, part.partition)
            named.setdefault(at, []).append(AuditedPart(name, part.offsets))
    places = named.keys() | sides.ends.keys() | sides.failures.keys()
    return {at: named.get(at, []) for at in places if at.topic in topics}


@dataclass(frozen=True, slots=True, kw_only=True)
class Divider:
    """Makes the tasks of all partitions, whose ids are numbers from 0."""

    replication: Replication
    sides: Sides
    request: AuditRequest
    reading: TargetReading
    tasks: list[Audit] = field(default_factory=list)

    def divide(self, chosen: AuditedChunks) -> None:
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

    def _add(self, chosen: AuditedChunks, size: Size, **work: object) -> None:
        """Add a task with this work."""
        topic = chosen.key.target_topic
        here = {part.partition for receipt in chosen.receipts for part in receipt.parts} | {chosen.key.target.partition}
        logs = {number: log for number in sorted(here) if (log := self.sides.log(TopicPartition(topic, number)))}
        task = Audit(id=len(self.tasks), partition=chosen.key, size=size, target_logs=logs)
        self.tasks.append(replace(task, **work))  # type: ignore[arg-type]

    def _set_aside(self, chosen: AuditedChunks, retried: Sequence[tuple[Handled, Part]]) -> None:
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

    def _spread(self, chosen: AuditedChunks) -> None:
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

    def _found(self, chosen: AuditedChunks, receipt: Receipt) -> SpreadChunk | None:
        topic, parts = chosen.key.target_topic, receipt.parts
        for part in parts:
            if error := self.reading.failed.get(TopicPartition(topic, part.partition)):
                chosen.result.fail(error)
                return None
        nothing = PartDigest(0, "")
        found = {part.partition: self.reading.parts.get(name_of(chosen.key, receipt, part), nothing) for part in parts}
        return SpreadChunk(receipt=receipt, by_content=chosen.by_content(receipt), found=found)

    def _plain(self, chosen: AuditedChunks, retried: Sequence[tuple[Handled, Part]]) -> None:
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

    def _searched(self, chosen: AuditedChunks, log: OffsetRange) -> OffsetRange | None:
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
        log = readable(max(log.from_, min(self.sides.view[chosen.key].others_until, log.until)), log.until)
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
