"""The judge of a drill: reads both sides with a plain consumer, and counts. Nothing of the product."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from stack.drill_member import QUIET
from stack.drill_work import PARTITIONS, At, Notes, Numbered, from_value
from stack.errors import StackError

SECONDS = 120  # to read one side
Logs = Mapping[At, Sequence[tuple[int, Numbered]]]  # of one side: offsets and records, in the order of the log


def read(bootstrap: str) -> Logs:
    """All records of all partitions of a side that a reader of committed records sees."""
    reader = _reader(bootstrap, "drill-judge")
    logs: dict[At, list[tuple[int, Numbered]]] = {at: [] for at in PARTITIONS}
    open_, deadline = set(PARTITIONS), time.monotonic() + SECONDS
    try:
        reader.list_topics(timeout=30)
        reader.assign([TopicPartition(at.topic, at.partition, OFFSET_BEGINNING) for at in PARTITIONS])
        while open_:
            if time.monotonic() > deadline:
                what = ", ".join(f"{at.topic}-{at.partition}" for at in sorted(open_))
                raise StackError(f"{what} cannot be read to the end", "an open transaction may hide records")
            for message in reader.consume(1_000, 0.5):
                at, offset = At(message.topic() or "", message.partition() or 0), message.offset() or 0
                if (error := message.error()) is None:
                    logs[at].append((offset, from_value(message.value())))
                elif error.code() != KafkaError._PARTITION_EOF:
                    raise KafkaException(error)
                elif offset >= reader.get_watermark_offsets(TopicPartition(*at), cached=True)[1]:
                    open_.discard(at)
    finally:
        reader.close()
    return logs


def places(bootstrap: str, group: str) -> dict[At, int]:
    """The committed offsets of a group."""
    reader = _reader(bootstrap, group)
    try:
        asked = [TopicPartition(at.topic, at.partition) for at in PARTITIONS]
        found = reader.committed(asked, timeout=30)
    finally:
        reader.close()
    return {At(one.topic, one.partition): one.offset for one in found if one.offset >= 0}


def _reader(bootstrap: str, group: str) -> Consumer:
    settings = {"bootstrap.servers": bootstrap, "group.id": group, "isolation.level": "read_committed"}
    return Consumer({**settings, "enable.auto.commit": False, "enable.partition.eof": True, **QUIET})


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One side, counted against the notes of the producers."""

    logs: Logs
    missed: Sequence[Numbered]  # acknowledged, and not there
    repeated: Sequence[Numbered]
    foreign: Sequence[Numbered]  # never sent, aborted, or in another partition
    unordered: Sequence[Numbered]  # behind a later one of the same producer session

    @property
    def records(self) -> set[Numbered]:
        return {record for log in self.logs.values() for _, record in log}

    def problems(self, name: str) -> list[str]:
        kinds = {"missed": self.missed, "repeated": self.repeated, "foreign": self.foreign, "unordered": self.unordered}
        return [f"{name}: {len(those)} {kind}: {shown(those)}" for kind, those in kinds.items() if those]


def count(bootstrap: str, notes: Notes) -> Side:
    """Read a side, and count. Producers must not be at work."""
    logs = read(bootstrap)
    seen = Counter(record for log in logs.values() for _, record in log)
    unordered, last = list[Numbered](), dict[tuple[At, int], int]()
    for at, log in logs.items():
        met = set[Numbered]()
        for _, record in log:
            session = at, notes.session_of.get(record, 0)
            if record not in met and record.number < last.get(session, -1):
                unordered.append(record)
            met.add(record)
            last[session] = max(record.number, last.get(session, -1))
    return Side(
        logs=logs,
        missed=sorted(notes.acknowledged - seen.keys()),
        repeated=sorted(record for record, times in seen.items() if times > 1),
        foreign=sorted(
            {r for at, log in logs.items() for _, r in log if r not in notes.session_of or r.at != at}
            | (notes.aborted & seen.keys())
        ),
        unordered=unordered,
    )


def skipped(notes: Notes, group: str, side: Side, at_places: Mapping[At, int]) -> list[Numbered]:
    """The records of a side below the places of a group that no consumer of the group ever got."""
    read_ = notes.read_by(group)
    return [r for at, log in side.logs.items() for offset, r in log if offset < at_places.get(at, 0) and not read_[r]]


def repeated_in(notes: Notes, group: str, phase: int) -> Counter[Numbered]:
    """How often the group got records in this phase that it had got before."""
    before = notes.read_by(group, before=phase)
    here = Counter(one.record for one in notes.consumed[group] if one.phase == phase)
    again = {record: times - (0 if before[record] else 1) for record, times in here.items()}
    return Counter({record: times for record, times in again.items() if times})


def shown(records: Sequence[Numbered], most: int = 4) -> str:
    """Some of them, and where: numbers that follow each other as one range."""
    ranges = list[list[int]]()
    lines = list[str]()
    for at in sorted({record.at for record in records}):
        ranges = []
        for number in sorted(record.number for record in records if record.at == at):
            if ranges and ranges[-1][1] == number - 1:
                ranges[-1][1] = number
            else:
                ranges.append([number, number])
        texts = [f"{first}..{last}" if first < last else str(first) for first, last in ranges[:most]]
        lines.append(f"{at.topic}-{at.partition}: {', '.join(texts)}" + (" ..." if len(ranges) > most else ""))
    return "; ".join(lines)
