"""An independent judge of a copy: reads both sides with a plain client and compares record by record.

It shares no code with the product, so that a mistake there cannot hide here.
"""

from __future__ import annotations

import operator
import time
import uuid
from collections import Counter, defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]  # re-exported without saying so

SAFETY = 300.0  # seconds; a reader that needs longer than this hangs


@dataclass(frozen=True, slots=True)
class Record:
    """Everything that has to survive a copy."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """What is wrong with a copy; every list is empty when nothing is."""

    lost: list[Record] = field(default_factory=list)  # on the source, not on the target
    doubled: list[Record] = field(default_factory=list)  # more often on the target than on the source
    reordered: list[Record] = field(default_factory=list)  # after a record that comes later on the source
    altered: list[tuple[Record, Record]] = field(default_factory=list)  # source, target
    foreign: list[Record] = field(default_factory=list)  # on the target only

    @property
    def clean(self) -> bool:
        return not (self.lost or self.doubled or self.reordered or self.altered or self.foreign)

    def __str__(self) -> str:
        parts = ((name, getattr(self, name)) for name in self.__slots__)
        return (
            "; ".join(f"{len(found)} {name}, such as {found[:2]!r:.300}" for name, found in parts if found) or "clean"
        )


def read(bootstrap: str, topic: str, partition: int, *, committed: bool = True) -> list[tuple[int, Record]]:
    """All records of a partition with their offsets, up to and past its end.

    Fails when the end stays hidden behind an open transaction: what is not visible cannot be judged.
    """
    reader = _consumer(bootstrap, "read_committed" if committed else "read_uncommitted")
    at = TopicPartition(topic, partition, OFFSET_BEGINNING)
    found: list[tuple[int, Record]] = []
    deadline = time.monotonic() + SAFETY
    try:
        reader.list_topics(
            topic, timeout=SAFETY
        )  # a client that has no broker yet asks for the beginning again after 500 ms
        reader.assign([at])
        while time.monotonic() < deadline:
            message = reader.poll(0.2)
            if message is None:
                continue
            error, offset = message.error(), message.offset() or 0
            if error is None:
                found.append(
                    (offset, Record(message.key(), message.value(), _headers(message), message.timestamp()[1]))
                )
            elif error.code() != KafkaError._PARTITION_EOF:
                raise AssertionError(f"reading {topic}-{partition}: {error}")
            elif offset >= reader.get_watermark_offsets(at, cached=True)[1]:  # from the answer that ended here
                return found
    finally:
        reader.close()
    raise AssertionError(
        f"{topic}-{partition} cannot be read to its end: {len(found)} records until now, {_ends(bootstrap, at)}"
    )


def _ends(bootstrap: str, at: TopicPartition) -> str:
    """An open transaction holds the last stable offset below the high watermark; else the reader itself stands still."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.list_topics(timeout=SAFETY)
    names = {"last stable offset": IsolationLevel.READ_COMMITTED, "high watermark": IsolationLevel.READ_UNCOMMITTED}
    asked = {TopicPartition(at.topic, at.partition): OffsetSpec.latest()}  # type: ignore[no-untyped-call]
    ends = {name: admin.list_offsets(asked, isolation_level=level) for name, level in names.items()}
    return ", ".join(f"{name} {next(iter(answer.values())).result(SAFETY).offset}" for name, answer in ends.items())


def _headers(message: Message) -> tuple[tuple[str, bytes | None], ...]:
    try:
        # Called through C: a call that the interpreter has specialised crashes on a name that is not UTF-8.
        found: Any = operator.methodcaller("headers")(message)
    except SystemError:
        return (("(a name that is not UTF-8)", None),)
    return tuple((name, content) for name, content in found or [])


def high_watermark(bootstrap: str, topic: str, partition: int) -> int:
    reader = _consumer(bootstrap, "read_uncommitted")
    deadline = time.monotonic() + SAFETY
    try:
        while True:
            try:
                return int(reader.get_watermark_offsets(TopicPartition(topic, partition), timeout=SAFETY)[1])
            except KafkaException as e:  # a broker that was just told to lead may not know yet
                if e.args[0].code() != KafkaError.NOT_LEADER_FOR_PARTITION or time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
    finally:
        reader.close()


def _consumer(bootstrap: str, isolation: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"checker-{uuid.uuid4()}",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 10,
            "fetch.message.max.bytes": 8 << 20,
        }
    )


def compare(source: Sequence[Record], target: Sequence[Record]) -> Comparison:
    """Judge a target's records, in their order, by the source's."""
    wanted, had = Counter(source), Counter(target)
    lost, extra = list((wanted - had).elements()), list((had - wanted).elements())
    doubled = [record for record in extra if record in wanted]
    altered, foreign = [], []
    for record in (each for each in extra if each not in wanted):
        twin = next((each for each in lost if _is_alike(each, record)), None)
        if twin is None:
            foreign.append(record)
        else:
            lost.remove(twin)
            altered.append((twin, record))
    return Comparison(lost, doubled, _reordered(source, target), altered, foreign)


def _is_alike(one: Record, other: Record) -> bool:
    """Whether two unequal records seem to be the same one, changed: they share a key or a value worth the name."""
    return bool((one.key and one.key == other.key) or (one.value and one.value == other.value))


def _reordered(source: Sequence[Record], target: Sequence[Record]) -> list[Record]:
    places: dict[Record, deque[int]] = defaultdict(deque)
    for place, record in enumerate(source):
        places[record].append(place)
    sequence = [places[record].popleft() for record in target if places[record]]
    return [source[after] for before, after in pairwise(sequence) if after < before]


def check(
    source: str, target: str, topic: str, target_topic: str, partition: int, from_: int = 0, until: int = 2**63
) -> Comparison:
    """Compare a partition's records at source offsets ``from_ <= offset < until`` with the whole target partition."""
    wanted = [record for offset, record in read(source, topic, partition) if from_ <= offset < until]
    return compare(wanted, [record for _, record in read(target, target_topic, partition)])
