"""A range is verified if receipts cover it exactly, and the records on the target match the receipts.

The receipt names the kind of digest that is compared.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol

from kafka_replication.ledger.entries import FailedRecord, Proof, Receipt
from kafka_replication.ledger.placement import KafkaSegments, Part
from kafka_replication.model.choices import EXACTLY_ONCE, Delivery, weakest_delivery
from kafka_replication.model.errors import GapFound, Refused, ReplicationError, TargetLost, VerificationFailed
from kafka_replication.model.offsets import Coverage, OffsetRange, PartitionKey, TopicPartition
from kafka_replication.verification.digests import (
    BATCH_DIGEST_KIND,
    DIGEST_KIND,
    Digest,
    Fingerprint,
    digest_for,
    record_digest_for,
)
from kafka_replication.verification.matching import Seen, Sent
from kafka_replication.verification.newest import Change, Comparison, NewestRecords, key_reader, stands_alone

# The function that makes the records of a chunk from the source's, as today's filter and transform do. None: the chunk
# was copied with others.
Changes = Callable[[Receipt], Change | None]


def unchanged(receipt: Receipt) -> Change | None:
    """The `Changes` of a replication without filter and transform."""
    return None if receipt.transform else lambda record: (record,)


@dataclass(frozen=True, slots=True)
class VerifyTask:
    """The receipts of one partition that are not verified yet, in source order."""

    key: PartitionKey
    receipts: tuple[Receipt, ...]
    level: str
    changes: Changes = unchanged


@dataclass(frozen=True, slots=True)
class PartDigest:
    """The records that were read back for one part. ``digest`` is empty if only records were counted."""

    count: int
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiptFinding:
    """The finding of verification about the receipt of this range: records that are lost, further copies, and records
    that readers do not find because a newer one of their key is there.

    ``records`` is given where the target has other batches than the receipt of whole batches says, and in these the
    same records as the source: their digest, of the kind `DIGEST_KIND`.
    """

    range: OffsetRange
    lost: int = 0
    duplicates: int = 0
    superseded: int = 0
    records: str | None = None

    def noted(self, receipt: Receipt) -> Receipt:
        """The receipt as it is written then."""
        noted = replace(receipt, lost_in_delivery=self.lost, duplicates=self.duplicates, superseded=self.superseded)
        if self.records is None or not isinstance(receipt.placement, KafkaSegments):
            return noted
        segments = tuple(replace(segment, digest=self.records) for segment in receipt.placement.segments)
        return replace(noted, digest=self.records, digest_kind=DIGEST_KIND, placement=KafkaSegments(segments))


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyResult:
    """The offsets of one partition that were read back and are equal; ``error`` names the first chunk that differs.

    ``receipts_from`` is an offset of the receipts topic: all receipts of the partition below it are verified. The
    ``judged`` has the receipts that say something else than was found. The fields after it are about chunks that were
    written without transactions: ``judged_until`` is the target offset below which every record is explained.
    """

    key: PartitionKey
    verified: Coverage
    records: int = 0
    bytes: int = 0
    seconds: float = 0.0
    error: str | None = None
    remedy: str = ""
    retriable: bool = False
    receipts_from: int | None = None
    judged: tuple[ReceiptFinding, ...] = ()
    lost: int = 0
    duplicates: int = 0
    superseded: int = 0
    delivery: Delivery = EXACTLY_ONCE  # the weakest profile of what was verified
    judged_until: int | None = None

    def joined_to(self, before: VerifyResult) -> VerifyResult:
        """Both results of one partition, the later one being this."""
        return replace(
            self,
            verified=before.verified.union(self.verified),
            records=before.records + self.records,
            bytes=before.bytes + self.bytes,
            seconds=before.seconds + self.seconds,
            judged=(*before.judged, *self.judged),
            lost=before.lost + self.lost,
            duplicates=before.duplicates + self.duplicates,
            superseded=before.superseded + self.superseded,
            delivery=weakest_delivery([before.delivery, self.delivery]),
            judged_until=before.judged_until if self.judged_until is None else self.judged_until,
        )


class TargetReader(Protocol):
    """Reads parts of chunks again, as a ``read_committed`` consumer sees them."""

    def read(self, part: Part, digest: Digest | None) -> PartDigest:
        """Add the records at the part's offsets to ``digest``, which is new and empty. None: only count them.

        Records of others between these offsets are passed over. Call it with the parts of one partition in their order.

        Raises Stalled, which names the last stable offset, or VerificationFailed if the log starts after the part.
        """

    def quarantined(self, failed: FailedRecord) -> bool:
        """True if the quarantine topic has this record at its place, with the content that the receipt says.

        Raises Stalled, Unreachable.
        """


class Sides(Protocol):
    """Both sides of one partition, asked where receipts alone cannot tell.

    Raises GapFound, Stalled, Unreachable, Refused and VerificationFailed; SystemError for a record that the client
    cannot decode.
    """

    def source_log(self) -> OffsetRange:
        """The readable offsets of the source."""

    def source(self, wanted: OffsetRange, without: Container[int] = ()) -> Iterator[Sent]:
        """The source records in ``wanted``, but for those at the offsets ``without``."""

    def around(self, wanted: OffsetRange) -> Iterator[Sent]:
        """The same for records that were perhaps never copied: those that cannot be copied are left out."""

    def source_digest(self, wanted: OffsetRange, digest: Fingerprint) -> PartDigest:
        """Add the records that the source has there to ``digest``, which is new and empty."""

    def written(self, receipt: Receipt, change: Change) -> NewestRecords:
        """The records of the chunk, made anew by ``change`` from those of the source that it did not set aside."""

    def target_log(self, expected: int) -> OffsetRange:
        """The readable offsets of the target, once it has reached ``expected`` or does not grow any more."""

    def check_all_shown(self, until: int) -> None:
        """Raise NotReady if the target may have more than was read of it up to ``until``."""

    def target(self, wanted: OffsetRange) -> Iterator[Seen]: ...


def removed_early(key: PartitionKey, at: TopicPartition, start: int, which: str, remedy: str) -> VerificationFailed:
    """The error about ``which`` of our copies the target partition ``at`` no longer has: it begins at ``start`` now."""
    return VerificationFailed(
        f"{key.source}: unverifiable: {at} on the target now starts at {start}; our records {which} were removed"
        " (retention or deletion) before they could be read back",
        remedy,
    )


def select_receipts(wanted: Coverage, receipts: Iterable[Receipt]) -> tuple[Receipt, ...]:
    """The receipts that cover ``wanted`` exactly, in source order. Raises VerificationFailed for holes or overlaps."""
    chosen = sorted((r for r in receipts if not wanted.missing_from(r.range)), key=lambda r: r.range.from_)
    for before, after in itertools.pairwise(chosen):
        if after.range.from_ < before.range.until:
            raise VerificationFailed(f"the receipts {before.range} and {after.range} overlap", _AUDIT)
    holes = wanted.subtract(Coverage.of(r.range for r in chosen))
    if holes:
        raise VerificationFailed(
            f"no receipt for source offsets {holes}, though the ledger says they are on the target", _AUDIT
        )
    return tuple(chosen)


_AUDIT = "another program changed the receipts topic: compare source and target (kafka-replication audit) first"


def verify(task: VerifyTask, reader: TargetReader, source: Callable[[], Sides] | None = None) -> VerifyResult:
    """Compare chunk by chunk and stop at the first difference. All chunks before it count as verified. Never raises.

    Where other batches are there than a receipt says, their records are compared with the ``source``'s, if it is given.
    """
    done, judged, error = list[Receipt](), list[ReceiptFinding](), None
    try:
        for receipt in task.receipts:
            judged += _compare(task, receipt, reader, source)
            done.append(receipt)
    except ReplicationError as e:
        error = e
    return VerifyResult(
        key=task.key,
        verified=Coverage.of(receipt.range for receipt in done),
        records=sum(receipt.count for receipt in done),
        bytes=sum(receipt.bytes for receipt in done),
        error=error.what if error else None,
        remedy=error.remedy if error else "",
        retriable=error is not None and error.retriable and not isinstance(error, TargetLost),  # the next run mends it
        judged=tuple(judged),
        superseded=sum(one.superseded for one in judged),
    )


def _compare(
    task: VerifyTask, receipt: Receipt, reader: TargetReader, source: Callable[[], Sides] | None
) -> Iterable[ReceiptFinding]:
    if receipt.proof is Proof.BY_KEY:
        find_quarantined(task.key, receipt, reader)
        return [_by_key(task, receipt, reader, source)]
    parts = receipt.parts
    if sum(part.count for part in parts) != receipt.count:
        raise VerificationFailed(
            f"{task.key.source} {receipt.range}: the receipt's segments do not add up to its {receipt.count} records",
            _AUDIT,
        )
    find_quarantined(task.key, receipt, reader)
    make_digest = digest_for(receipt) if task.level == "digest" else None
    for part in parts:
        _, differences = read_again(reader, part, make_digest() if make_digest else None)
        if differences and source is not None and receipt.digest_kind == BATCH_DIGEST_KIND:
            found = _by_content(receipt, part, reader, source())
            if isinstance(found, ReceiptFinding):
                return [found]
            differences.append(found)
        if differences:
            raise VerificationFailed(
                f"{task.key.source} {receipt.range}: the copy at {task.key.target_topic}-{part.partition} offsets "
                f"[{part.first}, {part.until}) differs from its receipt: {', '.join(differences)}",
                "the target was changed or compacted after the copy: stop other writers, compare source and target"
                " (kafka-replication audit), then copy again under another replication name",
            )
    return []


def _by_content(receipt: Receipt, part: Part, reader: TargetReader, source: Sides) -> ReceiptFinding | str:
    """Compare the records of a chunk with the source's, in whatever batches the target stores them now. A text says why
    they are not equal.
    """
    try:
        there = source.source_digest(receipt.range, Fingerprint())
        here = reader.read(part, Fingerprint())
    except (GapFound, Refused) as e:
        return f"and its records cannot be compared with those of the source: {e.what}"
    except SystemError:
        return "and its records cannot be compared with those of the source: a header name is not UTF-8"
    if here != there or here.count != receipt.count:
        what = f"{here.count} records with the digest {here.digest}"
        return f"{what}, where the source has {there.count} with {there.digest}"
    return ReceiptFinding(range=receipt.range, records=here.digest)


def _by_key(
    task: VerifyTask,
    receipt: Receipt,
    reader: TargetReader,
    source: Callable[[], Sides] | None,
) -> ReceiptFinding:
    """Compare a chunk of which the newest record of each key is kept."""
    keys = key_reader(reader, f"{task.key.source} {receipt.range}")
    assert source is not None, "such chunks are compared with the source"
    record_digest_for(receipt)  # raises an error for a digest that this version does not know
    made, why = None, "the filter or the transform is another one now"
    try:
        if (change := task.changes(receipt)) is not None:
            made = source().written(receipt, change)  # the chunk as the source shows it now
    except GapFound as e:
        why = e.what
    if made is None:
        if stands_alone(receipt.newest, keys):
            return ReceiptFinding(range=receipt.range, superseded=receipt.count - receipt.newest.keys)
        raise VerificationFailed(
            f"{task.key.source} {receipt.range}: unverifiable: the source no longer shows what was copied ({why}), and"
            " not all of it is still the newest of its key, so that nothing tells superseded from lost",
            "set filter and transform back if they were changed; otherwise reset the topic, and copy it to a new index",
        )
    comparison = Comparison(key=task.key, receipt=receipt, made=made)
    if comparison.is_another:
        raise VerificationFailed(
            f"{task.key.source} {receipt.range}: the source shows {made.total.count} records with another digest than"
            f" the {receipt.count} that were copied: the transform is not pure, or somebody changed the source",
            "correct the transform, then reset the topic",
        )
    for wrong in comparison.wrong(keys):
        raise VerificationFailed(
            f"{task.key.source} {receipt.range}: {task.key.target_topic} differs from what was copied: {wrong}",
            "somebody else wrote to the target, or records of one key are in several partitions: compare source and"
            " target (kafka-replication audit), stop other writers, then reset the topic",
        )
    return ReceiptFinding(range=receipt.range, superseded=comparison.superseded)


def find_quarantined(key: PartitionKey, receipt: Receipt, reader: TargetReader) -> None:
    """Raises VerificationFailed unless every record that the chunk quarantined is where its receipt says."""
    places = [failed for failed in receipt.failures if failed.place is not None]
    if len(places) != receipt.quarantined or len(receipt.failures) != receipt.quarantined + receipt.skipped:
        raise VerificationFailed(
            f"{key.source} {receipt.range}: the receipt counts {receipt.quarantined} quarantined and"
            f" {receipt.skipped} skipped records, but names {len(places)} and {len(receipt.failures) - len(places)}",
            _AUDIT,
        )
    for failed in places:
        if not reader.quarantined(failed):
            raise VerificationFailed(
                f"{key.source}: the record at offset {failed.offset} is not in quarantine at {failed.place}",
                "find out who deleted or changed the quarantine topic; if the source still has the record, reset the"
                " topic, or accept the loss with kafka-replication approve-gap",
            )


def read_again(reader: TargetReader, part: Part, digest: Digest | None) -> tuple[PartDigest, list[str]]:
    """Read a part of a chunk, or of retried records. Returns what is there, and the differences from what its entry
    says. Without a ``digest``, which is new and of the entry's kind, only the number of records is compared.
    """
    there, differences = reader.read(part, digest), list[str]()
    if there.count != part.count:
        differences.append(f"{there.count} records, not {part.count}")
    if digest is not None and there.digest != part.digest:
        differences.append(f"digest {there.digest}, not {part.digest}")
    return there, differences
