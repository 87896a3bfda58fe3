"""Reads a part of a target partition for all source partitions that write there, in the order of its offsets, once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager

from kafka_replication.model.errors import Refused, ReplicationError
from kafka_replication.model.offsets import OffsetRange, TopicPartition
from kafka_replication.runtime import stopping
from kafka_replication.targets.port import RecordReader
from kafka_replication.verification.auditing import Audit, Audited, Claim
from kafka_replication.verification.digests import RECORD_DIGESTS
from kafka_replication.verification.findings import Findings
from kafka_replication.verification.matching import Difference, Kind
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
