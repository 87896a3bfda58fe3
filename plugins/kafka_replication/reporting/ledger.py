"""The entries of the ledger for people."""

from __future__ import annotations

from collections.abc import Mapping

from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.keys import PartitionKey
from kafka_replication.reporting.table import table


def ledger_table(view: LedgerView, receipts: Mapping[PartitionKey, int]) -> str:
    """A line for each partition: its source offsets on the target, and those of them that were read back. Then a line
    for each receipt that was deleted because the target lost what it is about.
    """
    head = ("partition", "target", "generation", "start", "position", "on the target", "verified", "receipts")
    rows = [
        (
            str(key.source),
            key.target_topic,
            str(position.generation),
            str(position.start),
            str(position.next_offset),
            str(position.coverage or "-"),
            str(view.read_back(key, position.generation) or "-"),
            str(receipts.get(key, 0)),
        )
        for key, position in sorted(view.positions.items())
    ]
    removals = {key: view.removal(key, position.generation) for key, position in sorted(view.positions.items())}
    gone = [f"TAKEN BACK {key.source} {text}" for key, entry in removals.items() if entry for text in entry.taken_back]
    return "\n".join([table(head, rows), *gone])
