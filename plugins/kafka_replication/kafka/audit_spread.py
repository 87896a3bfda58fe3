"""Compares chunks whose records lie in several target partitions, or between records of others.

`target_partition` has read each target partition once for all source partitions. Only a chunk whose digests differ is
read a second time here, record by record.

Reads a part of a target partition for all source partitions that write there, in the order of its offsets, once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress

from kafka_replication.copying.sink import Record
from kafka_replication.kafka.partitioner import partitioner
from kafka_replication.ledger.placement import KafkaPartitions
from kafka_replication.model.choices import Partitioning
from kafka_replication.model.errors import BadInput, Refused, ReplicationError
from kafka_replication.model.offsets import OffsetRange, PartitionKey, TopicPartition
from kafka_replication.runtime import stopping
from kafka_replication.targets.port import RecordReader
from kafka_replication.verification.auditing import Audit, Audited, Claim, Findings, SpreadChunk
from kafka_replication.verification.digests import RECORD_DIGESTS, Fingerprint, places, record_digest, record_digest_for
from kafka_replication.verification.matching import Difference, Kind, Sent, match
from kafka_replication.verification.verify import PartDigest

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
                    findings.differ(Difference(Kind.EXTRA, None, one.place, one.digest, at.partition) for one in extra)
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
            sent = (one._replace(place=next(free, None)) for one in expected.get(part.partition, ()))
            matched = match(sent, seen, ordered=True)
            yield from (one._replace(partition=part.partition) for one in matched.differences())
    for number in sorted(expected.keys() - {part.partition for part in placement.parts}):
        for record in expected[number]:
            yield Difference(Kind.MISSING, record.offset, None, record.digest, number)
