"""The transaction that carries ledger entries, and in most sinks the copied records with them."""

from __future__ import annotations

from typing import Protocol


class TransactionPort(Protocol):
    """One producer session under one stable transactional id, from fencing its predecessors to the first error.

    What an implementation guarantees:

    - What is sent between `begin` and `commit` becomes visible to ``read_committed`` readers as a whole or not at all.
    - After `fence` returns, no earlier session of the same id can commit, and whatever it had committed is visible.
    - A session that was fenced never commits again: its calls raise Fenced.

    After any error only `close` may be called. An error out of `commit` leaves the outcome unknown: open a new session,
    fence, and read the ledger to learn it. All calls raise Fenced (a newer session took over; never fence back),
    Unreachable (a new session may succeed) or another ReplicationError that no retry can heal.
    """

    def fence(self) -> None:
        """End every earlier session of this id, and wait until its open transaction is committed or aborted."""

    def begin(self) -> None:
        """Begin a transaction. Only after `fence`, and only while none is open."""

    def send(self, topic: str, partition: int, key: bytes, value: bytes) -> None:
        """Add one record to the open transaction. Returns before it is acknowledged."""

    def flush(self) -> None:
        """Wait until everything sent is acknowledged. Raises Stalled when nothing is for the stall time-out."""

    def commit(self) -> None:
        """Flush and commit. Returning means: committed."""

    def close(self) -> None:
        """Abort what is open, so that no reader has to wait for the transaction's time-out. Never raises."""
