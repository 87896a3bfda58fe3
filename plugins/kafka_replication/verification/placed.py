"""Reads back chunks in several target partitions that were written without transactions.

Their receipts say where each record was acknowledged. A chunk that is there is verified. One that is not is left to
who compares the whole topic (`explaining`): its records can only be counted together with those of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from kafka_replication.ledger.entries import Receipt
from kafka_replication.ledger.placement import ends_of
from kafka_replication.model.delivery import LOSSY, weakest_delivery
from kafka_replication.model.errors import ReplicationError, Unreachable
from kafka_replication.model.offsets import Coverage
from kafka_replication.verification.verify import (
    TargetReader,
    VerifyResult,
    VerifyTask,
    find_quarantined,
    verify,
)

TargetEnd = Callable[[int, int], int]  # of a target partition that should reach an offset


def verify_placed(task: VerifyTask, reader: TargetReader, target_end: TargetEnd) -> VerifyResult:
    """What of the receipts is where they say. An error is about something else than missing records. Never raises."""
    there, error = list[Receipt](), dict[str, object]()
    try:
        ends = _ends(task.receipts, target_end)
        for receipt in task.receipts:
            if _is_there(task, receipt, reader, ends):
                there.append(receipt)
    except ReplicationError as e:
        error = {"error": e.what, "remedy": e.remedy, "retriable": e.retriable}
    return VerifyResult(
        key=task.key,
        verified=Coverage.of(receipt.range for receipt in there),
        records=sum(receipt.count for receipt in there),
        bytes=sum(receipt.bytes for receipt in there),
        delivery=weakest_delivery(receipt.delivery for receipt in there),
        **error,  # type: ignore[arg-type]
    )


def _ends(receipts: Iterable[Receipt], target_end: TargetEnd) -> Mapping[int, int]:
    """The ends of the target partitions in which records can be lost."""
    expected = ends_of(part for receipt in receipts if receipt.delivery in LOSSY for part in receipt.parts)
    return {partition: target_end(partition, until) for partition, until in expected.items()}


def _is_there(task: VerifyTask, receipt: Receipt, reader: TargetReader, ends: Mapping[int, int]) -> bool:
    find_quarantined(task.key, receipt, reader)
    if not all(part.offsets.span == part.count for part in receipt.parts):  # not each has a place of its own
        return False
    if any(ends.get(part.partition, part.until) < part.until for part in receipt.parts):
        return False
    result = verify(VerifyTask(task.key, (receipt,), task.level), reader)
    if result.error and result.retriable:
        raise Unreachable(result.error, result.remedy)
    return result.error is None
