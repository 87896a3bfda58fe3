"""The entries of the ledger for people and for programs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kafka_replication.documents import PartitionRow, place
from kafka_replication.ledger import codec
from kafka_replication.ledger.receipts import Receipts
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.offsets import PartitionKey
from kafka_replication.reporting.adopted import adopted_text
from kafka_replication.reporting.table import Columns, table


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRow(PartitionRow):
    """The entries of one partition as the ledger has them: docs/protocol.md describes each, with its format.

    ``taken_back`` describes the newest receipts that a run deleted, because the target had lost what they are about.
    """

    position: dict[str, Any]
    verified: dict[str, Any] | None
    gaps: list[dict[str, Any]]
    receipts: list[dict[str, Any]]
    taken_back: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerDocument:
    """``ledger``: the entries of the replication."""

    replication: str
    partitions: list[LedgerRow]


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuiltRow(PartitionRow):
    """A watermark of the store before and after; ``before`` is null if the store had none."""

    before: int | None
    after: int
    generation: int
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuiltDocument:
    """``ledger --rebuild-store``: the watermarks that it restored."""

    replication: str
    partitions: list[RebuiltRow]


def ledger_document(replication: str, view: LedgerView, receipts: Receipts) -> LedgerDocument:
    rows = [
        LedgerRow(
            **place(key),
            position=json.loads(codec.encode(position)),
            verified=json.loads(codec.encode(view.verified[key])) if key in view.verified else None,
            gaps=[json.loads(codec.encode(gap)) for gap in view.gaps.get(key, ())],
            receipts=[json.loads(codec.encode(receipt)) for receipt in receipts.all(key)],
            taken_back=view[key].removed.taken_back,
        )
        for key, position in sorted(view.positions.items())
    ]
    return LedgerDocument(replication=replication, partitions=rows)


def ledger_table(view: LedgerView, receipts: Mapping[PartitionKey, int]) -> str:
    """A line for each partition: its source offsets on the target, and those of them that were read back. Then a line
    for each receipt that was deleted because the target lost what it is about, and for each adopted copy.
    """
    columns: Columns[PartitionKey] = {
        "partition": lambda key: key.source,
        "target": lambda key: key.target_topic,
        "generation": lambda key: view.positions[key].generation,
        "start": lambda key: view.positions[key].start,
        "position": lambda key: view.positions[key].next_offset,
        "on the target": lambda key: view.positions[key].coverage or None,
        "verified": lambda key: view[key].verified.coverage or None,
        "receipts": lambda key: receipts.get(key, 0),
    }
    gone = [
        f"TAKEN BACK {key.source} {text}" for key in sorted(view.positions) for text in view[key].removed.taken_back
    ]
    adopted = (
        adopted_text(key, position.start, position.adopted)
        for key, position in sorted(view.positions.items())
        if position.adopted
    )
    return "\n".join([table(sorted(view.positions), columns), *gone, *adopted])
