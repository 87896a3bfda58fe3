"""Topics with odd contents, each from a number: everything that Kafka stores, and what clients seldom write.

Topic number n of a group has its records in partition n, the last one, because Java's console consumer prints no topic.
"""

from __future__ import annotations

import gzip
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from confluent_kafka import Producer
from kafka import codec as kafka_codec  # kafka-python's codecs: others than the product's

from tests.support.raw_produce import FRAME, RawProducer, RawRecord, raw_batch
from tests.support.scenario import Cluster, Rec, send

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
NAMES = ("none", "gzip", "snappy", "lz4", "zstd")
LATEST = 2**63 - 1
NOW = 1_700_000_000_000
HUGE = 5_000_000  # bytes
LONG = 5_200  # records; `auto` begins with the batch engine
EVERYWHERE = {
    "max.message.bytes": str(40 << 20),
    "message.timestamp.after.max.ms": str(LATEST),
    "segment.ms": str(LATEST),  # else each far time rolls the log
}


class Kind(StrEnum):
    """The treatment that the broker gives to a topic."""

    PLAIN = "plain"
    APPENDED = "appended"  # LogAppendTime
    TRIMMED = "trimmed"  # its first records are deleted
    COMPACTED = "compacted"


CONFIG = {
    Kind.APPENDED: {"message.timestamp.type": "LogAppendTime"},
    Kind.COMPACTED: {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.01"},
}


@dataclass(frozen=True, slots=True)
class Packed:
    """A batch as it is stored, byte by byte."""

    codec: int
    records: tuple[RawRecord, ...]


@dataclass(frozen=True, slots=True)
class Part:
    """Records that the transactional producer of this number sends; its transaction begins if none is open."""

    producer: int
    records: tuple[Rec, ...]


@dataclass(frozen=True, slots=True)
class End:
    """The end of the transaction of this producer."""

    producer: int
    abort: bool


Step = Packed | Part | End


@dataclass(frozen=True, kw_only=True)
class OddTopic:
    """One topic. ``partition`` is the only one with records."""

    name: str
    seed: int
    partition: int
    kind: Kind
    steps: tuple[Step, ...]

    def __str__(self) -> str:
        return f"{self.name} (seed {self.seed}, {self.kind}, {len(self.steps)} steps)"

    @property
    def config(self) -> dict[str, str]:
        return {**EVERYWHERE, **CONFIG.get(self.kind, {})}

    def _raw(self) -> Iterator[RawRecord]:
        yield from (record for step in self.steps if isinstance(step, Packed) for record in step.records)

    @property
    def has_bytes(self) -> bool:
        """True if a header name is not UTF-8."""
        return any(b"\xff" in name for record in self._raw() for name, _ in record.headers)

    def appended(self) -> list[RawRecord | Rec]:
        """The records that a ``read_committed`` reader sees if the broker does nothing more."""
        found = list[tuple[int | None, RawRecord | Rec]]()
        for step in self.steps:
            match step:
                case Packed():
                    found += [(None, record) for record in step.records]
                case Part():
                    found += [(step.producer, record) for record in step.records]
                case End():
                    kept = [pair for pair in found if pair[0] != step.producer or not step.abort]
                    found = [(None if owner == step.producer else owner, record) for owner, record in kept]
        return [record for _, record in found]


class _Dice(random.Random):
    """Makes contents."""

    def content(self, few: bool = False) -> bytes | None:
        match self.choices(range(5), (2, 1, 8, 4, 1))[0]:
            case 0:
                return None
            case 1:
                return b""
            case 2:
                return self.randbytes(self.randrange(1, 30 if few else 90))
            case 3:
                return b"abc%d-" % self.randrange(9) * self.randrange(1, 5 if few else 400)
        return b"\0" * self.choice((9, 90) if few else (900, 90_000))

    def headers(self, names: Sequence[bytes]) -> tuple[tuple[bytes, bytes | None], ...]:
        match self.choices(range(3), (6, 4, 1))[0]:
            case 0:
                return ()
            case 1:
                return tuple((self.choice(names), self.content(few=True)) for _ in range(self.randrange(1, 4)))
        return ((self.choice(names), self.content(few=True)),) * self.randrange(2, 80)


@dataclass(frozen=True, kw_only=True)
class _Style:
    """The common features of the records of one topic."""

    dice: _Dice
    keyed: bool  # few keys, and never null, as compaction needs
    names: Sequence[bytes]
    times: Sequence[int]  # from which batches begin
    earliest: int
    steps: Sequence[int]  # between the times of a batch
    huge: bool

    def key(self) -> bytes | None:
        return b"k%d" % self.dice.randrange(5) if self.keyed else self.dice.content(few=True)

    def records(self, count: int) -> tuple[RawRecord, ...]:
        made, time = list[RawRecord](), self.dice.choice(self.times)
        for _ in range(count):
            made.append(RawRecord(self.key(), self.dice.content(), self.dice.headers(self.names), time))
            time = max(self.earliest, min(LATEST, time + self.dice.choice(self.steps)))
            if self.dice.random() < 0.02:
                time = self.dice.choice(self.times)
        if self.huge and count < 4 and self.dice.random() < 0.1:
            value = self.dice.choice((b"\0" * HUGE, b"0123456789abcdef" * (HUGE // 16), self.dice.randbytes(HUGE)))
            made[0] = RawRecord(made[0].key, value, made[0].headers, made[0].timestamp)
        return tuple(made)

    def sent(self, count: int) -> tuple[Rec, ...]:
        """Records that librdkafka's producer can send."""
        return tuple(
            Rec(
                self.key(),
                self.dice.content(),
                tuple((name.decode(), content) for name, content in self.dice.headers([b"", b"h", "\u00e4".encode()])),
                self.dice.choice((1, NOW, LATEST // 2)),
            )
            for _ in range(count)
        )


def _style(dice: _Dice, kind: Kind) -> _Style:
    names = [b"", b"a", b"name", "\u00e4\u4e16".encode()]
    names += dice.choice(([], [], [b"\0", b"a\0b", b"a\0c"], [b"\xff", b"a\xff\xfe"]))
    early: Sequence[int] = (0, -1, -5, -(2**40))
    far = (1, NOW, 2**40, LATEST // 2)
    latest: Sequence[int] = (LATEST, -LATEST - 1)
    if kind == Kind.COMPACTED:  # Kafka cannot compact a batch with earlier times, nor roll a log after the latest one
        early, latest = (0, -1), ()
    times = dice.choice(((NOW,), (NOW,), far, (*early, *far), (*far, *latest, -1)))
    return _Style(
        dice=dice,
        keyed=kind == Kind.COMPACTED,
        names=names,
        times=times,
        earliest=-1 if kind == Kind.COMPACTED else -LATEST - 1,
        steps=dice.choice(((1,), (0, 1, -1), (100_000, 3, -7), (2**33, -(2**32)))),
        huge=dice.random() < 0.15,
    )


def odd_topic(name: str, seed: int, partition: int) -> OddTopic:
    """The topic of this seed, always the same."""
    dice = _Dice(seed)
    kind = dice.choices(list(Kind), (6, 1, 1, 1))[0]
    style, steps, open_ = _style(dice, kind), list[Step](), set[int]()
    codec, count, is_long = dice.randrange(5), 0, dice.random() < 0.1
    wanted = LONG if is_long else dice.randrange(1, 500)
    while count < wanted:
        if dice.random() < 0.15:
            codec = dice.randrange(5)
        size = dice.choice((1, 1, 1, 2, 3, 8, 40, 130)) if not is_long else dice.choice((8, 20, 90))
        if dice.random() < (0.03 if is_long else 0.15):
            producer = dice.randrange(2)
            steps.append(Part(producer, style.sent(min(size, 9))))
            open_.add(producer)
        else:
            steps.append(Packed(codec, style.records(size)))
        if open_ and dice.random() < 0.4:
            steps.append(End(open_.pop(), dice.random() < 0.5))
        count += size
    steps += [End(producer, dice.random() < 0.5) for producer in sorted(open_)]
    return OddTopic(name=name, seed=seed, partition=partition, kind=kind, steps=tuple(steps))


def _batch(step: Packed, dice: random.Random) -> bytes:
    plain = raw_batch(step.records)
    if step.codec == NONE:
        return plain
    return raw_batch(step.records, attributes=step.codec, payload=_compressed(step.codec, plain[FRAME:], dice))


def _compressed(codec: int, data: bytes, dice: random.Random) -> bytes:
    match codec:
        case 1:
            return gzip.compress(data, dice.choice((1, 6, 9)))
        case 2:  # as Java does it, and as librdkafka does
            return bytes(kafka_codec.snappy_encode(data, xerial_compatible=dice.random() < 0.5))
        case 3:
            return bytes(kafka_codec.lz4_encode(data))
    return bytes(kafka_codec.zstd_encode(data))


class OddProducer:
    """Writes the steps of topics."""

    def __init__(self, cluster: Cluster, dice: random.Random) -> None:
        self._cluster, self._dice = cluster, dice
        self._raw = RawProducer(cluster.bootstrap)
        self._transactional = [
            cluster.transactional(compression_type=dice.choice(NAMES), enable_idempotence=True) for _ in range(2)
        ]

    def produce(self, topic: OddTopic) -> None:
        """All steps, in their order."""
        open_ = dict[int, Producer]()
        for step in topic.steps:
            match step:
                case Packed():
                    self._raw.send(topic.name, topic.partition, _batch(step, self._dice))
                case Part():
                    if step.producer not in open_:
                        open_[step.producer] = self._transactional[step.producer]
                        open_[step.producer].begin_transaction()
                    send(open_[step.producer], topic.name, step.records, topic.partition)
                case End():
                    producer = open_.pop(step.producer)
                    (producer.abort_transaction if step.abort else producer.commit_transaction)(60)

    def close(self) -> None:
        self._raw.close()
