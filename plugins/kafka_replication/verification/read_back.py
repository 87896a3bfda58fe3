"""Read back one partition: everything that the ledger says is on the target, and that is not verified yet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field, replace
from functools import cache

from kafka_replication.ledger.entries import Proof, Receipt
from kafka_replication.ledger.port import Ledger
from kafka_replication.ledger.receipts import Receipts
from kafka_replication.model import commands
from kafka_replication.model.errors import ReceiptsExpired, ReplicationError, Unreachable
from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.offsets import Coverage
from kafka_replication.verification.loss_count import DeliveryTask, verify_delivery
from kafka_replication.verification.verify import (
    Changes,
    Sides,
    TargetReader,
    VerifyResult,
    VerifyTask,
    select_receipts,
    unchanged,
    verify,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadBackTask:
    """One partition, as the ledger was when the task was made. The receipts are read when the task runs."""

    key: PartitionKey
    generation: int
    verified: Coverage  # read back and equal already, or given up by approval
    receipts_from: int | None  # all receipts of the key below this offset of the receipts topic are verified
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
