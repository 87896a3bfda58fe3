"""Which target partition a record goes to, and what the receipt says about it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from kafka_replication import transforms
from kafka_replication.copying.sink import Record, RefusedAt
from kafka_replication.kafka.partitioner import partitioner
from kafka_replication.model.choices import FailureKind, Partitioning
from kafka_replication.model.errors import BadInput, Refused
from kafka_replication.model.offsets import TopicPartition

AT = TopicPartition("orders", 5)


def record(offset: int, key: bytes | None = None) -> Record:
    return offset, 1, key, b"v", None


def chosen(name: str, records: list[Record], count: int, **more: Any) -> list[int]:
    choose = partitioner(Partitioning(name=name, **more), AT, range(count), "abc").choose
    assert [choose(one) for one in records] == [choose(one) for one in records]  # pure
    return [choose(one) for one in records]


# As `org.apache.kafka.common.utils.Utils.murmur2` gives them: the values of its own test, UtilsTest.testMurmur2.
MURMUR2 = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize("count", [1, 3, 12, 1000])
def test_by_key_is_java_s_murmur2(count: int) -> None:
    records = [record(0, key) for key in MURMUR2]
    assert chosen("by_key", records, count) == [(hash_ & 0x7FFFFFFF) % count for hash_ in MURMUR2.values()]


@pytest.mark.parametrize("name", ["by_key", "round_robin"])
@pytest.mark.parametrize("step", [1, 2, 3, 10, 11])
@pytest.mark.parametrize("count", [2, 3, 4, 12])
def test_records_without_a_key_are_spread_evenly_whatever_lies_between_their_offsets(
    name: str, step: int, count: int
) -> None:
    """With transactions of one record, every second offset is a marker."""
    spread = Counter(chosen(name, [record(offset) for offset in range(0, 12_000 * step, step)], count))
    assert set(spread) == set(range(count))
    assert max(spread.values()) <= 1.1 * min(spread.values())


def test_an_empty_key_is_a_key() -> None:
    assert len(set(chosen("by_key", [record(offset, b"") for offset in range(0, 1000, 60)], 7))) == 1


def test_keep() -> None:
    assert chosen("keep", [record(0), record(99, b"k")], 6, shared=True) == [5, 5]


def test_a_partition_that_the_target_lacks_is_refused() -> None:
    with pytest.raises(Refused, match="partitioning keep writes to target partition 5 of 5"):
        partitioner(Partitioning(shared=True), AT, range(5))


def test_what_a_receipt_says() -> None:
    assert str(partitioner(Partitioning(name="by_key"), AT, range(3)).by) == "by_key over 3 partitions"
    mine = partitioner(Partitioning(name=f"{__name__}:first_byte"), AT, range(3)).by
    assert mine.hash.startswith("sha256:") and mine.name.endswith(":first_byte")


def first_byte(record: transforms.Record, partitions: int) -> Any:
    assert (record.source.cluster, record.source.topic, partitions) == ("abc", "orders", 3)
    return {b"a": 0, b"b": 2, b"c": 3, b"d": -1, b"e": "1", b"f": True}[record.key or b""]


def test_a_function_chooses() -> None:
    assert chosen(f"{__name__}:first_byte", [record(0, b"a"), record(1, b"b")], 3) == [0, 2]


@pytest.mark.parametrize(
    ("key", "why"),
    [
        (b"c", "it returned 3"),
        (b"d", "it returned -1"),
        (b"e", "it returned str"),
        (b"f", "it returned True"),
        (b"secret", "it raised KeyError"),
    ],
)
def test_a_function_that_fails_is_named_and_the_record_is_not_shown(key: bytes, why: str) -> None:
    name = f"{__name__}:first_byte"
    with pytest.raises(RefusedAt) as caught:
        chosen(name, [record(0, b"a"), record(41, key)], 3)
    assert caught.value.what.startswith(f"orders-5: the partitioning {name} gives no partition from 0 to 2")
    assert caught.value.what.endswith(f"offset 41: {why}") and "secret" not in caught.value.what
    assert (caught.value.offset, caught.value.kind) == (41, FailureKind.TRANSFORM)


@pytest.mark.parametrize("name", ["no.such.module:f", f"{__name__}:nothing", f"{__name__}:AT"])
def test_a_function_that_is_none_is_named(name: str) -> None:
    with pytest.raises(BadInput, match=name):
        partitioner(Partitioning(name=name), AT, range(3))
