"""The load: numbered records over 6 partitions, with committed and aborted transactions, compaction holes, nulls, headers, tombstones.

Every record's value begins with its own number, so that no two are alike; the seed decides the rest, so that a load can be made again.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import count, islice

from confluent_kafka import Producer

from kafka_replication.kafka.partitioner import partition_of_key
from kafka_replication.model.choices import MURMUR2
from tests.faults import profiles
from tests.faults.profiles import Profile
from tests.support.checker import Record, high_watermark, read
from tests.support.scenario import Cluster, Rec, send
from tests.support.waiting import wait_until

PARTITIONS = 6
BLOCKS = 8
# Of one partition: 8 blocks of 60 make about 10 chunks of 50, of which a range takes 2-5 s.
BLOCK_RECORDS = 60 * profiles.current().longer
FIRST_TIME = 1_700_000_000_000


@dataclass(frozen=True)
class Load:
    """What lies in a source topic. ``records`` is what a ``read_committed`` reader sees, by partition: (offset, record).

    ``wanted`` is what the target topic must have of these, each with the offset of its source record; ``aside`` what the
    quarantine topic must have. A profile that sets records aside does it with those that the target has ``refused``, too.
    """

    topic: str
    records: dict[int, list[tuple[int, Record]]]
    ends: dict[int, int]
    profile: Profile = field(default_factory=profiles.current)
    refused: Callable[[Record], bool] | None = None

    @cached_property
    def wanted(self) -> dict[int, list[tuple[int, Record]]]:
        return {
            partition: [
                (offset, made)
                for offset, record in (newest_of_each_key(records) if self.profile.newest else records)
                if not self._is_aside(record)
                for made in self.profile.made(record)
            ]
            for partition, records in self.records.items()
        }

    @cached_property
    def aside(self) -> dict[int, list[tuple[int, Record]]]:
        return {
            partition: [(offset, record) for offset, record in records if self._is_aside(record)]
            for partition, records in self.records.items()
        }

    def _is_aside(self, record: Record) -> bool:
        if self.profile.aside is None:
            return False
        return self.profile.aside(record) or (self.refused is not None and self.refused(record))

    @property
    def count(self) -> int:
        """Records that the target topic must have."""
        return sum(map(len, self.wanted.values()))

    def wanted_below(self, partition: int, offset: int) -> int:
        return sum(at < offset for at, _ in self.wanted.get(partition, ()))


def newest_of_each_key(records: Sequence[tuple[int, Record]]) -> list[tuple[int, Record]]:
    return sorted({record.key: (offset, record) for offset, record in records}.values(), key=lambda one: one[0])


@cache
def _keys(partition: int) -> list[bytes]:
    """Some that Java's producers put into this partition, fewer than it has records."""
    all_ = (b"key-%d" % number for number in count())
    return list(islice((key for key in all_ if partition_of_key(MURMUR2, key, PARTITIONS) == partition), BLOCK_RECORDS))


def numbered(dice: random.Random, partition: int, first: int, many: int) -> Iterator[Rec]:
    """Records ``first``, ``first + 1``, ...; some without key, some tombstones, some with headers (also empty and null ones)."""
    for number in range(first, first + many):
        key = b"key-%d-%d" % (partition, number)
        if profiles.current().newest:
            key = dice.choice(_keys(partition))
        value: bytes | None = b"%d/%d " % (partition, number) + dice.randbytes(dice.randrange(10, 300))
        headers: tuple[tuple[str, bytes | None], ...] = ()
        kind = dice.randrange(10)
        if kind == 0:
            value = None
        elif kind == 1:
            headers = (("number", b"%d" % number), ("empty", b""), ("null", None), ("number", b"again"))
        elif kind == 2:
            value = b""
        yield Rec(key, value, headers, FIRST_TIME + number)


def with_null_keys(records: Iterator[Rec], dice: random.Random) -> Iterator[Rec]:
    """Some records lose their key; those keep a value, or nothing would tell them apart."""
    for each in records:
        yield Rec(None, each.value, each.headers, each.timestamp) if each.value and dice.randrange(6) == 0 else each


def fill(
    source: Cluster, topic: str, seed: int, *, blocks: int = BLOCKS, first: int = 0, null_keys: bool = True
) -> None:
    """Blocks of plain, committed and aborted records, the latter two in transactions over all partitions."""
    dice = random.Random(seed)
    settings = profiles.current().load
    plain, transactional = source.producer(**settings), source.transactional(**settings)
    for block in range(blocks):
        kind = ("plain", "committed", "plain", "aborted")[block % 4]
        producer: Producer = plain if kind == "plain" else transactional
        if kind != "plain":
            producer.begin_transaction()
        for partition in range(PARTITIONS):
            records = numbered(dice, partition, first + block * BLOCK_RECORDS, BLOCK_RECORDS)
            keyless = null_keys and not profiles.current().newest
            send(producer, topic, with_null_keys(records, dice) if keyless else records, partition)
        if kind == "committed":
            producer.commit_transaction(30)
        elif kind == "aborted":
            producer.abort_transaction(30)


def make(source: Cluster, topic: str, seed: int) -> Load:
    """Create a topic and fill it."""
    source.create(topic, PARTITIONS)
    fill(source, topic, seed)
    return look(source, topic)


def make_compacted(source: Cluster, topic: str, seed: int) -> Load:
    """As `make`, and with holes: of three records with the same key the cleaner leaves the last one. It is switched off afterwards."""
    quick = {
        "cleanup.policy": "compact",
        "segment.ms": "100",
        "min.cleanable.dirty.ratio": "0.001",
        "delete.retention.ms": "86400000",
    }
    source.create(topic, PARTITIONS, quick)
    for partition in range(PARTITIONS):
        for copy in range(3):
            records = [Rec(b"same-%d" % n, b"%d %d/%d" % (copy, partition, n), (), FIRST_TIME + n) for n in range(40)]
            source.produce(topic, records, partition)
            time.sleep(0.15)  # segment.ms: the next record begins a new segment, and only old ones are cleaned
    fill(source, topic, seed, null_keys=False)
    wait_until(lambda: all(_has_holes(source, topic, partition) for partition in range(PARTITIONS)))
    source.set(topic, cleanup_policy="delete")
    fill(source, topic, seed + 1, blocks=2, first=BLOCKS * BLOCK_RECORDS)
    return look(source, topic)


def _has_holes(source: Cluster, topic: str, partition: int) -> bool:
    return (
        sum(
            record.key is not None and record.key.startswith(b"same-")
            for _, record in read(source.bootstrap, topic, partition)
        )
        <= 40
    )


def look(source: Cluster, topic: str) -> Load:
    partitions = range(source.partitions(topic))
    return Load(
        topic,
        {partition: read(source.bootstrap, topic, partition) for partition in partitions},
        {partition: high_watermark(source.bootstrap, topic, partition) for partition in partitions},
    )
