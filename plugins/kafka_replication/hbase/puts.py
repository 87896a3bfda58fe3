"""Writes rows, many in one call. The gateway has one answer about all of them: if it is an error, some are written, and
all are sent again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kafka_replication.hbase.client import Answer, Client
from kafka_replication.hbase.tables import Tables
from kafka_replication.model.errors import NotReady, Stalled, Unexpected, Unreachable
from kafka_replication.model.failures import Failure, FailureKind
from kafka_replication.model.harmless import harmless
from kafka_replication.targets.record_store import Item
from kafka_replication.targets.resend import Outcome, Resend

TOO_LARGE = ("exceeds limit of", "KeyValue size too large")
# What a cell may have by default. The gateway's own client refuses more without a reason that it would tell.
CELL_BYTES = 10 << 20


@dataclass(slots=True, kw_only=True)
class Puts:
    """Writes rows of one table. An answer may take as long as a copy may stall: the gateway repeats by itself what
    regions refuse for now. A call without an answer is sent again, and the gateway may still carry out the first one,
    at any later time.
    """

    client: Client
    table: str
    resend: Resend

    def write(self, items: Sequence[Item]) -> tuple[Failure, ...]:
        """Write them all. Returns the refused ones. Raises Stalled or NotReady, which name what was waited for, and
        Refused if there is no table any more.
        """
        return self.resend.write(self.table, items, self._once)

    def _once(self, batch: Sequence[Item]) -> Outcome[Item]:
        try:
            puts = [item.request for item in batch]
            self.client.call("putMultiple", self.table.encode(), puts, seconds=self.resend.stall_seconds, repeats=False)
        except Answer as answer:
            return self._judged(batch, answer)
        except Unreachable as error:
            self.resend.unanswered = True
            return Outcome(tuple(batch), error.what)
        return Outcome()

    def _judged(self, batch: Sequence[Item], answer: Answer) -> Outcome[Item]:
        too_large = any(text in answer.reason for text in TOO_LARGE)
        if too_large or (answer.inside and any(one.size > CELL_BYTES for one in batch)):
            if len(batch) > 1:
                return self._by_halves(batch)
            told = harmless(answer.reason)
            what = f"{self.table} refuses it: its {batch[0].size} bytes are too many for a cell: {told}"
            return Outcome(refused=(Failure(batch[0].offset, FailureKind.TOO_LARGE, what, "cell_too_large"),))
        if answer.inside:
            raise Unexpected(answer.what, "see the log of the Thrift2 gateway") from answer
        error = Tables(self.client).judged(self.table, answer)
        if isinstance(error, (NotReady, Stalled)):
            return Outcome(tuple(batch), error.what, blocked="disabled" in error.what)
        raise error from answer

    def _by_halves(self, batch: Sequence[Item]) -> Outcome[Item]:
        """The same rows in two calls, at once: one of them is too large, and keeps the others from being written."""
        middle = len(batch) // 2
        parts = [self._once(batch[:middle]), self._once(batch[middle:])]
        return Outcome(
            tuple(one for part in parts for one in part.again),
            next((part.why for part in parts if part.why), ""),
            tuple(failure for part in parts for failure in part.refused),
            any(part.blocked for part in parts),
        )
