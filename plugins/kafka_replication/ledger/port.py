"""The ledger as the rest of the package sees it: the one place that reads and writes entries.

`kafka_replication.kafka.ledger` implements it on the target's two topics. `tests/contract/ledger` holds every
implementation to what is promised here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from kafka_replication.config import Replication
from kafka_replication.ledger.entries import Entry, Position
from kafka_replication.ledger.receipts import Receipts
from kafka_replication.ledger.transaction import TransactionPort
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.keys import PartitionKey


class Ledger(Protocol):
    """The ledger of one replication, for as long as one step or one worker needs it.

    Every read returns what is committed when it is called, never less: it first waits until no open transaction can
    hide a committed entry. An object remembers what it has read, and reads on from there.
    Reading raises LedgerUnreadable for an entry of this replication that this version cannot read, Stalled where a
    transaction stays open too long, and Unreachable.
    """

    def exists(self) -> bool:
        """Whether the ledger was created. Raises Refused where it is not as it must be."""

    def ensure(self, replication: Replication) -> None:
        """Create what is missing. Raises Refused where the ledger is not as it must be."""

    def view(self) -> LedgerView:
        """Every position, verified coverage and approved gap of this replication; empty where no ledger exists."""

    def position(self, key: PartitionKey) -> Position | None:
        """The newest position of ``key``; None where the partition was never opened.

        A copier calls it after fencing: only then no earlier producer can commit another one.
        """

    def receipts(self, wanted: Mapping[PartitionKey, int | None]) -> Receipts:
        """The newest receipts of these keys, of every generation, from the given offset of the key's receipts partition
        on. None: from the log start.
        """

    def receipt_ends(self) -> Mapping[int, int]:
        """For each ledger partition the offset below which no receipt can be added any more."""

    def undecided(self) -> set[PartitionKey]:
        """Keys of this replication with an entry in an open transaction: a dead run left it, or a live one is about to
        commit it.
        """

    def write(self, transaction: TransactionPort, key: PartitionKey, entry: Entry) -> None:
        """Add the entry to a transaction that the caller opened, and commits."""
