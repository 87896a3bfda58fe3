"""Receipts and gaps of one partition, for tests of reports."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kafka_replication.ledger.entries import Gap, Ids, Receipt
from kafka_replication.ledger.placement import KafkaSegments
from kafka_replication.model.offsets import OffsetRange, PartitionKey, TopicPartition
from kafka_replication.reporting.arithmetic import Copied, shares

KEY = PartitionKey("orders-dr", TopicPartition("orders", 3), "dr.orders")
IDS = Ids("SRC", "s", "t")


def receipt(from_: int, until: int, count: int, run_id: str = "run-2", generation: int = 1, **left_out: Any) -> Receipt:
    return Receipt(
        generation=generation,
        range=OffsetRange(from_, until),
        count=count,
        bytes=10 * count,
        digest="d",
        digest_kind="kind",
        engine="engine",
        placement=KafkaSegments(),
        ids=IDS,
        run_id=run_id,
        time="time",
        **left_out,
    )


def gap(kind: str, from_: int, until: int, generation: int = 1) -> Gap:
    return Gap(
        generation=generation,
        kind=kind,
        range=OffsetRange(from_, until),
        reason="too late",
        approved_by="ann",
        ids=IDS,
        run_id="run-1",
        time="time",
    )


def copied_in(range_: OffsetRange, receipts: Iterable[Receipt]) -> Copied:
    """The sums of ``receipts`` inside ``range_``."""
    return sum((part for _, part in shares(range_, receipts)[0]), Copied())
