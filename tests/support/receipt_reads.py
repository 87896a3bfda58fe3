"""How much of the receipts topic the product reads."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from kafka_replication.kafka.ledger import KafkaLedger
from kafka_replication.ledger.receipts import Receipts
from kafka_replication.model.offsets import PartitionKey


@pytest.fixture
def receipts_read_from(monkeypatch: pytest.MonkeyPatch) -> list[int | None]:
    """From where each reading of receipts began; None is the log start."""
    offsets: list[int | None] = []
    read = KafkaLedger.receipts

    def noted(self: KafkaLedger, wanted: Mapping[PartitionKey, int | None]) -> Receipts:
        offsets.extend(wanted.values())
        return read(self, wanted)

    monkeypatch.setattr(KafkaLedger, "receipts", noted)
    return offsets
