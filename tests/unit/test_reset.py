"""Which partitions a reset starts anew, so that one that died half-way is finished and not begun again."""

from __future__ import annotations

from kafka_replication.ledger.entries import Ids, Position
from kafka_replication.model.offsets import PartitionKey, TopicPartition
from kafka_replication.runs.reset import to_reset

NOW = Ids("SRC", "new", "t")
BEFORE = Position(generation=1, ids=Ids("SRC", "old", "t"), start=0, next_offset=40)
AFTER = Position(generation=2, ids=NOW, start=0, next_offset=12)
KEYS = [PartitionKey("orders-dr", TopicPartition("orders", number), "orders") for number in range(3)]


def test_all_partitions_of_a_recreated_topic() -> None:
    assert to_reset(KEYS, dict.fromkeys(KEYS, BEFORE), NOW) == KEYS


def test_all_partitions_where_nothing_was_recreated() -> None:
    assert to_reset(KEYS, dict.fromkeys(KEYS, AFTER), NOW) == KEYS


def test_what_a_reset_that_died_left_over() -> None:
    assert to_reset(KEYS, {KEYS[0]: AFTER, KEYS[1]: BEFORE}, NOW) == KEYS[1:]


def test_partitions_that_were_never_opened() -> None:
    assert to_reset(KEYS, {}, NOW) == KEYS
