"""Audits a part of one partition: reads it on source and target, and compares the records.

Compares chunks that were written without transactions: what is lost, and what is there more than once.

Compares chunks whose records lie in several target partitions, or between records of others.

A part of a target partition is read once for all source partitions that write there, in the order of its offsets. Only
a chunk whose digests differ is read a second time, record by record.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Any

from kafka_replication.copying.pipeline import Pipeline, change_of
from kafka_replication.copying.sink import Record
from kafka_replication.kafka.cursor import Cursor
from kafka_replication.kafka.partitioner import partitioner
from kafka_replication.ledger.entries import Proof, Receipt
from kafka_replication.ledger.placement import KafkaPartitions
from kafka_replication.model.choices import Partitioning
from kafka_replication.model.errors import BadInput, Refused, ReplicationError
from kafka_replication.model.offsets import OffsetRange, PartitionKey, TopicPartition, consumer_group
from kafka_replication.runtime import stopping
from kafka_replication.targets.port import RecordReader, Target
from kafka_replication.verification.auditing import Audit, Audited, Claim, Deliveries, Findings, SpreadChunk
from kafka_replication.verification.digests import (
    RECORD_DIGESTS,
    Digest,
    Fingerprint,
    Unit,
    area_of,
    chunk_of,
    claimed,
    digest_for,
    equals,
    in_target_order,
    places,
    record_digest,
    record_digest_for,
    set_aside,
)
from kafka_replication.verification.matching import Difference, Kind, Sent, attribute, match
from kafka_replication.verification.newest import Change, Comparison, KeyReader, NewestRecords, key_reader, stands_alone
from kafka_replication.verification.read_back import near_to
from kafka_replication.verification.verify import PartDigest, read_again


def compare_deliveries(
    work: Deliveries, result: Findings, target_log: OffsetRange, source: Cursor, target: RecordReader
) -> None:
    """Add what differs to the result. A chunk that can no longer be made from the source is compared with its receipt.

    The target's log may end before a chunk whose records are lost.
    """
    for receipt in work.by_receipt:
        _by_receipt(receipt, result, target_log, target)
    reproducible = work.by_content
    result.chunks += len(reproducible) + len(work.by_receipt)
    sent = (source.sent(receipt.range, without=set_aside(receipt)) for receipt in in_target_order(reproducible))
    stretches = work.stretches.subtract(claimed(work.by_receipt))
    matched = match(chain.from_iterable(sent), chain.from_iterable(map(target.seen, stretches)), ordered=False)
    # Records of the source that perhaps were never copied.
    near = (source.sent(wanted, lenient=True) for wanted in near_to(reproducible, work.readable, work.given_up))
    copies, foreign = attribute(matched.extra, chain.from_iterable(near))
    # Verification counted the duplicates of these chunks. The source no longer shows which records they are.
    counted = min(len(foreign), sum(receipt.duplicates for receipt in work.by_receipt))
    result.by_content += sum(receipt.range.span for receipt in reproducible)
    result.duplicates += len(copies) + counted
    result.differ(Difference(Kind.EXTRA, None, record.place, record.digest) for record in foreign[counted:])
    # Lost records are differences, but for those that verification has counted already.
    lost = defaultdict[OffsetRange, list[int]](list)
    for offset in sorted({record.offset for record in matched.lost}):
        lost[chunk_of(offset, reproducible)].append(offset)
    for receipt in reproducible:
        offsets = lost[receipt.range]
        accepted = min(receipt.lost_in_delivery, len(offsets))
        result.lost_in_delivery += accepted
        result.differ(Difference(Kind.MISSING, offset, None) for offset in offsets[accepted:])


def _by_receipt(receipt: Receipt, result: Findings, target_log: OffsetRange, target: RecordReader) -> None:
    area, total = area_of(receipt), digest_for(receipt)()
    there = area.intersection(target_log) if area else None
    for _ in target.seen(there, total) if there else ():
        pass
    if receipt.lost_in_delivery or (area and area.span != receipt.count):
        result.lost_in_delivery += receipt.lost_in_delivery
        result.notes.append(
            f"the chunk {receipt.range} was written without a transaction and was not whole, and the source no longer"
            " shows what is missing: it was not compared"
        )
        return
    result.by_receipt += receipt.range.span
    if not equals(total, receipt):
        result.differ_by_receipt(receipt, total.count)


NOTED = 10  # records that differ, with what is found in their place


@dataclass(kw_only=True)
class PartAudit:
    """The audit of one part of a source partition. ``moved`` is called after each chunk, and may raise OutOfTime."""

    task: Audit
    key: PartitionKey
    source: Mapping[str, Any] = field(repr=False)  # the settings of its clients
    target: Target
    pipeline: Pipeline | None  # as the replication's file and the user's functions are today
    stall_seconds: float
    moved: Callable[[], None]
    result: Findings = field(init=False, default_factory=Findings)
    _opened: ExitStack = field(init=False, default_factory=ExitStack)

    def audited(self) -> Audited:
        """The findings. An error ends the audit, and is added to them."""
        try:
            with self._opened:
                self._all()
        except (ReplicationError, SystemError) as error:
            self.result.fail(told(error, self.task.where))
        return Audited(id=self.task.id, findings=self.result)

    def _all(self) -> None:
        task = self.task
        for unit in task.units:
            self._unit(unit)
            self.moved()
        for chunk in task.spread:  # their target partitions were read for all source partitions together
            change = change_of(self.pipeline, self.key, chunk.receipt) if chunk.by_content else None
            compare_spread(
                self.key,
                chunk,
                self.result,
                open_target=self.target.standing.reader,
                logs=task.target_logs,
                source=None if change is None else self._written(chunk.receipt, change),
            )
            self.moved()
        if task.deliveries is not None:
            compare_deliveries(task.deliveries, self.result, self._log, self._source, self._target)
        if task.units or task.deliveries is not None:
            self.result.source_records += self._source.records
            self.result.target_records += self._target.records
        if task.quarantined or task.retried:
            with self.target.sink.verifier(self.key) as reader:
                for failed in task.quarantined:
                    if not reader.quarantined(failed):
                        self.result.differ([Difference(Kind.MISSING, failed.offset, None)])
                        self.result.note(f"source offset {failed.offset} is not in quarantine at {failed.place}")
                for source, part in task.retried:  # compared with their entries
                    there, differences = read_again(reader, part, Fingerprint())
                    self.result.target_records += there.count
                    if differences:
                        self.result.differ([Difference(Kind.ALTERED, source, part.first)])

    @property
    def _log(self) -> OffsetRange:
        """The offsets of the target partition that can be read."""
        return self.task.target_logs.get(self.key.target.partition, OffsetRange(0, 0))

    @cached_property
    def _source(self) -> Cursor:
        group = consumer_group(self.key.replication)
        source = Cursor(dict(self.source), group, self.key.source, self.stall_seconds)
        self._opened.callback(source.close)
        return source

    @cached_property
    def _target(self) -> RecordReader:
        return self._opened.enter_context(self.target.standing.reader(self.key.target))

    def _unit(self, unit: Unit) -> None:
        receipt = unit.receipt
        if receipt is None:
            area = unit.target.intersection(self._log) if unit.target else None
            records = self._target.seen(area) if area else iter(())
            self.result.differ(Difference(Kind.EXTRA, None, record.place, record.digest) for record in records)
            return
        self.result.chunks += 1
        change = change_of(self.pipeline, self.key, receipt) if unit.by_content else None
        if receipt.proof is Proof.BY_KEY:
            self._by_key(receipt, change)
            return
        if change is not None:
            try:
                self._by_content(receipt, change, digest_for(receipt)())
                return
            except SystemError:  # a header name that the client cannot decode: it was copied within its batch
                pass
        total = digest_for(receipt)()
        self.result.by_receipt += receipt.range.span
        for range_ in self._there(receipt):
            self._target.add_to(total, range_)
        if not equals(total, receipt):
            self.result.differ_by_receipt(receipt, total.count)

    def _there(self, receipt: Receipt) -> list[OffsetRange]:
        """The target offsets of the chunk that can be read."""
        ranges = (range_ for part in receipt.parts for range_ in part.offsets)
        return [there for range_ in ranges if (there := range_.intersection(self._log))]

    def _by_content(self, receipt: Receipt, change: Change, total: Digest) -> None:
        """Compare a chunk with what the source has there. Raises SystemError for a record that cannot be decoded."""
        aside = set_aside(receipt)
        sent = self._source.sent(receipt.range, change=change, places=places(receipt.parts), without=aside)
        seen = chain.from_iterable(self._target.seen(range_, total) for range_ in self._there(receipt))
        matched = match(sent, seen, ordered=True)
        self.result.by_content += receipt.range.span
        self.result.differ_from_source(receipt, matched.differences(), intact=equals(total, receipt))

    def _by_key(self, receipt: Receipt, change: Change | None) -> None:
        """Compare a chunk of which the newest record of each key is kept."""
        reader, result, placement = self._keys, self.result, receipt.newest
        if change is None:
            if stands_alone(placement, reader):
                result.by_receipt += receipt.range.span
                result.target_records += placement.keys
                result.superseded += receipt.count - placement.keys
                return
            result.note(
                f"the chunk {receipt.range} was not compared: some of its records are superseded or missing, and the"
                " source no longer shows which"
            )
            return
        made = NewestRecords.of(made for record in self._source.copied(receipt) for made in change(record))
        comparison = Comparison(key=self.key, receipt=receipt, made=made)
        for wrong in comparison.wrong(reader):
            kind = Kind.MISSING if wrong.found is None else Kind.ALTERED
            result.differ([Difference(kind, wrong.offset, wrong.found)])
            if len(result.notes) < NOTED:
                result.note(str(wrong))
        result.by_content += receipt.range.span
        result.target_records += comparison.there
        result.not_at_source += comparison.compacted
        result.superseded += comparison.superseded
        if comparison.is_another and receipt.transform and result.impure is None:
            result.impure = receipt.range

    @cached_property
    def _keys(self) -> KeyReader:
        reader = self._opened.enter_context(self.target.sink.verifier(self.key))
        return key_reader(reader, str(self.key.source))

    def _written(self, receipt: Receipt, change: Change) -> Iterator[Record]:
        """The records that the copier wrote of those of the source, without what it set aside."""
        for record in self._source.copied(receipt):
            self.result.source_records += 1
            yield from change(record)


OpenTarget = Callable[[TopicPartition], AbstractContextManager[RecordReader]]


def read_claims(task: Audit, at: TopicPartition, open_target: OpenTarget, moved: Callable[[], None]) -> Audited:
    """Read the claims, and what lies between them where the task searches. An error is a part of the result.

    ``moved`` is called after each piece, and may raise OutOfTime.
    """
    findings, log = Findings(), task.target_logs[at.partition]
    digests = {
        number: RECORD_DIGESTS[claim.digest_kind]()
        for number, claim in enumerate(task.claims)
        if claim.digest_kind is not None
    }
    try:
        with open_target(at) as reader:
            for number, range_ in pieces(task.claims, log):
                if number in digests:
                    for record in reader.content(range_):
                        digests[number].add(*record[1:])
                elif number is None and task.searched and (between := range_.intersection(task.searched)):
                    extra = reader.seen(between)
                    findings.differ(
                        Difference(Kind.EXTRA, None, record.place, record.digest, at.partition) for record in extra
                    )
                moved()
    except (ReplicationError, SystemError) as error:
        return task.failed(told(error, task.where))
    parts = {number: PartDigest(digest.count, digest.hexdigest()) for number, digest in digests.items()}
    return Audited(id=task.id, findings=findings, parts=parts)


def told(error: ReplicationError | SystemError, where: str) -> str:
    """The text of an error that ends the reading of a part. SystemError: a record that the client cannot decode."""
    if isinstance(error, ReplicationError):
        return str(error)
    stopping.raise_again(error)
    what = f"{where}: a record cannot be decoded, so its chunk was not compared: {error}"
    return str(Refused(what, "find it with another client (is a header name not UTF-8?), and who wrote it"))


def pieces(claims: Sequence[Claim], log: OffsetRange) -> Iterator[tuple[int | None, OffsetRange]]:
    """The ranges of the claims with the numbers of these, and None with the ranges between them; all within the log."""
    places = sorted((range_, number) for number, claim in enumerate(claims) for range_ in claim.offsets)
    position = log.from_
    for range_, number in places:
        if between := OffsetRange(min(position, range_.from_), range_.from_).intersection(log):
            yield None, between
        if there := range_.intersection(log):
            yield number, there
        position = max(position, range_.until)
    if position < log.until:
        yield None, OffsetRange(position, log.until)


def compare_spread(
    key: PartitionKey,
    chunk: SpreadChunk,
    result: Findings,
    *,
    open_target: OpenTarget,
    logs: Mapping[int, OffsetRange],
    source: Iterable[Record] | None,
) -> None:
    """Compare a chunk of one source partition with what was read of the target partitions, and add what differs to the
    result. ``logs`` has what can be read of these. ``source`` are the records of the chunk as the copier wrote them;
    None if the source cannot show them any more.
    """
    receipt, found = chunk.receipt, chunk.found
    placement = receipt.placement
    assert isinstance(placement, KafkaPartitions)
    result.chunks += 1
    result.target_records += sum(part.count for part in found.values())
    intact = all(found.get(part.partition) == PartDigest(part.count, part.digest) for part in placement.parts)
    choose, by = None, placement.by
    if source is not None:
        with suppress(BadInput):
            targets = range(by.partitions)
            today = partitioner(Partitioning(name=by.name), key.source, targets, receipt.ids.source_cluster)
            choose = today.choose if today.by.hash == by.hash else None
        if choose is None:
            result.note(f"{by.name} is no longer the same: chunks that it spread are compared with their receipts")
    if choose is None or source is None:
        result.by_receipt += receipt.range.span
        if not intact:
            result.differ_by_receipt(receipt, sum(part.count for part in found.values()))
        return
    # The records of the chunk as they should lie on the target, by partition.
    sent, digests, new_digest = defaultdict[int, list[Sent]](list), dict[int, Fingerprint](), record_digest_for(receipt)
    for record in source:
        number = choose(record)
        sent[number].append(Sent(record[0], record_digest(*record[1:])))
        if number not in digests:
            digests[number] = new_digest()
        digests[number].add(*record[1:])
    expected = {number: PartDigest(digest.count, digest.hexdigest()) for number, digest in digests.items()}
    if expected != {number: part for number, part in found.items() if part.count}:
        differences = _differences(key, placement, sent, open_target, logs)
        result.differ_from_source(receipt, list(differences), intact=intact)
    result.by_content += receipt.range.span


def _differences(
    key: PartitionKey,
    placement: KafkaPartitions,
    expected: Mapping[int, list[Sent]],
    open_target: OpenTarget,
    logs: Mapping[int, OffsetRange],
) -> Iterator[Difference]:
    """The differences of a chunk, record by record."""
    for part in placement.parts:
        with open_target(TopicPartition(key.target_topic, part.partition)) as reader:
            log = logs.get(part.partition, OffsetRange(0, 0))
            there = (range_.intersection(log) for range_ in part.offsets)
            seen = (record for range_ in there if range_ for record in reader.seen(range_))
            free = places([part])
            sent = (record._replace(place=next(free, None)) for record in expected.get(part.partition, ()))
            matched = match(sent, seen, ordered=True)
            yield from (difference._replace(partition=part.partition) for difference in matched.differences())
    for number in sorted(expected.keys() - {part.partition for part in placement.parts}):
        for record in expected[number]:
            yield Difference(Kind.MISSING, record.offset, None, record.digest, number)
