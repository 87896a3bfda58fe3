"""The transaction that writes ledger entries and, with most sinks, the copied records too.

A port's guarantee is ``atomic``, as described here, or ``ordered``: its `commit` sends the entries in their order,
those of one topic together, and those of the next one when all before are acknowledged. An ordered port fences nobody,
and a crash or an error in `commit` can leave the first entries written.
"""

from __future__ import annotations

from typing import Protocol


class TransactionPort(Protocol):
    """One producer session under one stable transactional id, from fencing its predecessors to the first error.

    What an implementation guarantees:

    - All records sent between `begin` and `commit` become visible to ``read_committed`` readers together, or none does.
    - After `fence` returns, no earlier session of the same id can commit, and all that it committed is visible.
    - A session that was fenced never commits again: its calls raise Fenced.

    After any error only `close` may be called. After an error in `commit` the outcome is unknown: open a new session,
    fence, and read the ledger to learn it. All calls raise Fenced (a newer session took over; do not fence it in turn),
    Unreachable (a new session may succeed) or another ReplicationError, for which no retry helps.
    """

    def fence(self) -> None:
        """End every earlier session of this id, and wait until its open transaction is committed or aborted."""

    def begin(self) -> None:
        """Begin a transaction. Call it after `fence`, and only while no transaction is open."""

    def send(self, topic: str, partition: int, key: bytes, value: bytes | None) -> None:
        """Add one record to the open transaction. Returns before it is acknowledged. None deletes what the key has."""

    def flush(self) -> None:
        """Wait until all sent records are acknowledged. Raises Stalled if none is during the stall time-out."""

    def commit(self) -> None:
        """Flush and commit. If it returns, the transaction is committed."""

    def close(self) -> None:
        """Abort an open transaction, so that no reader has to wait for its time-out. Never raises."""
