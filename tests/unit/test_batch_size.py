"""Batches are as large as one in a round trip has to be, and as the topic and the connection allow."""

from __future__ import annotations

import pytest

from kafka_replication.kafka import chunk_writer as module
from kafka_replication.kafka.chunk_writer import FRAMING, LEAST, MOST, batch_size

MIB = 1 << 20


@pytest.mark.parametrize(
    ("seconds", "size"), [(0.0, LEAST), (0.001, LEAST), (0.05, 3_200_000), (0.2, 12_800_000), (9.0, MOST)]
)
def test_the_longer_the_way_the_larger_a_batch(monkeypatch: pytest.MonkeyPatch, seconds: float, size: int) -> None:
    monkeypatch.setattr(module, "round_trip", lambda config: seconds)
    assert batch_size({"bootstrap.servers": "x"}, 64 * MIB) == size


@pytest.mark.parametrize(
    ("limit", "settings", "size"),
    [
        (64 * MIB, {}, 12_800_000),
        (8 * MIB, {}, 8 * MIB - FRAMING),
        (MIB + 12, {}, MIB + 12 - FRAMING),
        (100, {}, FRAMING),
        (64 * MIB, {"batch.size": "500000"}, 500_000),
        (64 * MIB, {"batch.size": 32 * MIB}, 32 * MIB),
        (MIB, {"batch.size": 32 * MIB}, MIB - FRAMING),
    ],
)
def test_the_topic_s_limit_and_the_connection_s_setting_bound_it(
    monkeypatch: pytest.MonkeyPatch, limit: int, settings: dict[str, object], size: int
) -> None:
    monkeypatch.setattr(module, "round_trip", lambda config: 0.2)
    assert batch_size({"bootstrap.servers": "x", **settings}, limit) == size


def test_nothing_is_measured_where_it_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(config: object) -> float:
        raise AssertionError

    monkeypatch.setattr(module, "round_trip", never)
    assert batch_size({"bootstrap.servers": "x"}, 1_048_588) == 1_048_588 - FRAMING
