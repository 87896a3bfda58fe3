"""A worker without the packages of the batch engine."""

from __future__ import annotations

import sys

import pytest

from kafka_replication.kafka.read_back import segment_reader
from kafka_replication.ledger.placement import Part
from kafka_replication.model.errors import Refused
from kafka_replication.model.offsets import Coverage, OffsetRange, PartitionKey, TopicPartition
from kafka_replication.verification.digests import BatchDigest


def test_reading_back_whole_batches_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kafka_replication.kafka.batch_scan", None)  # as if kio were missing
    key = PartitionKey("orders-dr", TopicPartition("orders", 3), "orders")
    part = Part(partition=3, offsets=Coverage.of([OffsetRange(0, 5)]), count=5, digest="")
    with (
        segment_reader({}, key, 1.0) as reader,
        pytest.raises(Refused, match="orders-3: what the batch engine") as raised,
    ):
        reader.read(part, BatchDigest())
    assert "kafka-replication[batch]" in raised.value.remedy
