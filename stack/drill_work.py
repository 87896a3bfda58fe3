"""Producers and consumers at work in a drill, and the notes of what they wrote and read. Nothing of the product."""

from __future__ import annotations

import random
import signal
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from stack.drill_member import QUIET
from stack.folders import REPOSITORY
from stack.processes import ProcessRecord, end, launch, since

TOPICS: Mapping[str, int] = {"drill.orders": 3, "drill.clicks": 2}
GROUPS = ("drill-billing", "drill-audit")
PACES = (30, 80, 200)  # records that a consumer takes at a time, at most: slower than the producers, as fast, faster
PER_SECOND = 120  # records of one producer
SECONDS = 60  # for what was sent, or is to be committed, at the end


class At(NamedTuple):
    """A partition; on both sides the same."""

    topic: str
    partition: int


class Numbered(NamedTuple):
    """One record, by its number in its partition."""

    at: At
    number: int


class Consumed(NamedTuple):
    """A record as a consumer got it: in which phase of the drill, on which side, at which offset."""

    phase: int
    side: str
    offset: int
    record: Numbered


PARTITIONS = [At(topic, partition) for topic, count in TOPICS.items() for partition in range(count)]


@dataclass(kw_only=True)
class Notes:
    """All that was written and read, by who did it."""

    numbers: Counter[At] = field(default_factory=Counter)
    session_of: dict[Numbered, int] = field(default_factory=dict)  # all that was sent, with its producer session
    acknowledged: set[Numbered] = field(default_factory=set)
    aborted: set[Numbered] = field(default_factory=set)
    consumed: dict[str, list[Consumed]] = field(default_factory=lambda: defaultdict(list))  # by group
    committed: dict[tuple[str, str, At], int] = field(default_factory=dict)  # group, side: the last one that was done
    sessions: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def read_by(self, group: str, before: int | None = None) -> Counter[Numbered]:
        """How often the group got each record, up to a phase."""
        return Counter(one.record for one in self.consumed[group] if before is None or one.phase < before)


def to_value(record: Numbered) -> bytes:
    return b"%s %d %d " % (record.at.topic.encode(), record.at.partition, record.number) + b"x" * 60


def from_value(value: bytes | None) -> Numbered:
    topic, partition, number, *_ = (value or b"").split()
    return Numbered(At(topic.decode(), int(partition)), int(number))


@dataclass(kw_only=True)
class Producers:
    """One idempotent producer for each topic, at work until `stop`; with transactions for some topics, a part of which
    it aborts.
    """

    bootstrap: str
    notes: Notes
    in_transactions: Collection[str] = ()
    over: threading.Event = field(default_factory=threading.Event)
    threads: list[threading.Thread] = field(default_factory=list)
    dead: bool = False

    def start(self) -> Producers:
        self.threads = [threading.Thread(target=self._work, args=(topic,), daemon=True) for topic in TOPICS]
        for thread in self.threads:
            thread.start()
        return self

    def stop(self, *, dead: bool = False) -> None:
        """Returns when everything that was sent is acknowledged; or given up, where the side is dead."""
        self.dead = dead
        self.over.set()
        for thread in self.threads:
            thread.join()

    def _work(self, topic: str) -> None:
        settings = {"bootstrap.servers": self.bootstrap, "enable.idempotence": True, "acks": "all", "linger.ms": 5}
        if transactional := topic in self.in_transactions:
            settings |= {"transactional.id": topic, "transaction.timeout.ms": 10_000}
        while not self.over.is_set():  # a producer whose transaction failed is replaced
            producer = Producer({**settings, **QUIET})
            with self.notes.lock:
                self.notes.sessions += 1
                session = self.notes.sessions
            if transactional:
                with suppress(KafkaException):
                    self._write_in_transactions(producer, topic, session)
            else:
                self._write(producer, topic, session)
            with suppress(KafkaException):  # after a fatal error
                producer.flush(0.5 if self.dead else SECONDS)
            producer.purge()  # nothing may arrive when a dead side is back
            with suppress(KafkaException):
                producer.flush(SECONDS)

    def _write(self, producer: Producer, topic: str, session: int) -> None:
        chance = random.Random(session)
        while not self.over.is_set():
            for _ in range(chance.randrange(1, PER_SECOND // 5)):
                self._send(producer, At(topic, chance.randrange(TOPICS[topic])), session, tell=True)
            producer.poll(0)
            self.over.wait(0.1)

    def _write_in_transactions(self, producer: Producer, topic: str, session: int) -> None:
        """Each acknowledged as a whole, and in doubt if its end was not answered. Raises KafkaException."""
        chance = random.Random(session)
        producer.init_transactions(SECONDS)
        while not self.over.is_set():
            producer.begin_transaction()
            sent = [
                self._send(producer, At(topic, chance.randrange(TOPICS[topic])), session, tell=False)
                for _ in range(chance.randrange(1, PER_SECOND // 5))
            ]
            self.over.wait(0.1)
            commit = chance.random() < 0.85
            while not self.dead:
                try:
                    (producer.commit_transaction if commit else producer.abort_transaction)(2)
                except KafkaException as error:
                    if not error.args[0].retriable():
                        raise
                else:
                    (self.notes.acknowledged if commit else self.notes.aborted).update(sent)
                    break

    def _send(self, producer: Producer, at: At, session: int, *, tell: bool) -> Numbered:
        record = Numbered(at, self.notes.numbers[at])
        told = partial(self._told, record) if tell else None
        self.notes.session_of[record] = session
        self.notes.numbers[at] += 1
        producer.produce(at.topic, to_value(record), b"%d" % record.number, at.partition, on_delivery=told)
        return record

    def _told(self, record: Numbered, error: KafkaError | None, _: Message) -> None:
        if error is None:
            self.notes.acknowledged.add(record)


@dataclass(kw_only=True)
class Consumers:
    """One member of each group, which commits as it goes, at work on one side until `stop`. Processes, whose notes lie
    below ``folder``.
    """

    bootstrap: str
    side: str
    phase: int
    notes: Notes
    folder: Path
    paces: Mapping[str, int]  # of each group
    errors: list[str] = field(default_factory=list)
    _read: Counter[str] = field(default_factory=Counter)  # bytes of the file of each group

    def start(self) -> Consumers:
        for group, most in self.paces.items():
            self._file(group).touch()
            words = [self.bootstrap, group, str(most), f"{group} {self.phase}", str(self._file(group)), *TOPICS]
            command = [sys.executable, "-m", "stack.drill_member", *words]
            launch(command, self._file(group).with_suffix(".err"), self._record(group), cwd=REPOSITORY)
        return self

    def stop(self, *, dead: bool = False) -> None:
        """Stop them with a last commit; or kill them, where the side is dead."""
        for group in GROUPS:
            if process := ProcessRecord.read(self._record(group)):
                process.send(signal.SIGKILL if dead else signal.SIGTERM)
        for group in GROUPS:
            process = ProcessRecord.read(self._record(group))
            if process and not process.wait(SECONDS):
                self.errors.append(f"{group} on {self.side} could not commit at its end within {SECONDS} s")
            end(self._record(group), signal.SIGKILL, group, SECONDS)
        self.collect()

    def collect(self) -> None:
        """Take over what the members have noted since the last time."""
        for group in GROUPS:
            text = since(self._file(group), self._read[group])
            text = text[: text.rfind("\n") + 1]
            self._read[group] += len(text)
            for line in text.splitlines():
                kind, topic, partition, offset, *value = line.split()
                at = At(topic, int(partition))
                if kind == "c":
                    self.notes.committed[group, self.side, at] = int(offset)
                else:
                    record = from_value(" ".join(value).encode())
                    self.notes.consumed[group].append(Consumed(self.phase, self.side, int(offset), record))

    def _file(self, group: str) -> Path:
        return self.folder / f"{self.phase}-{group}.notes"

    def _record(self, group: str) -> Path:
        return self._file(group).with_suffix(".pid")


def reached(notes: Notes, phase: int, group: str, places: Mapping[At, int]) -> dict[At, int]:
    """The offsets up to which the group has read in this phase, which began at these places."""
    ends = dict(places)
    for one in notes.consumed[group]:
        if one.phase == phase:
            ends[one.record.at] = max(ends.get(one.record.at, 0), one.offset + 1)
    return ends


def in_doubt(notes: Notes) -> Iterator[Numbered]:
    """Records that were sent and never acknowledged."""
    return (record for record in notes.session_of.keys() - notes.acknowledged - notes.aborted)
