"""Carries out changes of the ledger."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from kafka_replication.ledger.account import Change
from kafka_replication.ledger.port import Ledger, TransactionPort

QUEUED: Final = 10_000  # deletions; the producer's queue is bounded


def apply(ledger: Ledger, transaction: TransactionPort, changes: Sequence[Change], *, begun: bool = False) -> bool:
    """Carry out these changes in one transaction of a writer that has fenced every earlier one of its id. False if a
    position is another one than its change expects: then nothing is written.

    ``begun``: the transaction is open already, and has records that belong to the changes.
    """
    if any(one.expects is not None and ledger.position(one.key) != one.expects for one in changes):
        return False
    if not begun:
        transaction.begin()
    add(ledger, transaction, changes)
    transaction.commit()
    return True


def add(ledger: Ledger, transaction: TransactionPort, changes: Iterable[Change]) -> None:
    """Add these changes to the open transaction."""
    for change in changes:
        for entry in change.write:
            ledger.write(transaction, change.key, entry)
        for number, receipt in enumerate(change.delete, 1):
            ledger.delete(transaction, change.key, receipt)
            if number % QUEUED == 0:
                transaction.flush()
