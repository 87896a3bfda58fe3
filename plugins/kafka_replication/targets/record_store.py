"""A store without transactions that is to be a target. It writes a `RecordStore` and its `Records`; the session, the
ledger, the catalogue and all that reads back are built on them once (`stored_target`).

A store has topics with partitions, whatever its own words for them are (an index, a table, a folder). Writing a record
again writes the same place again. A session has a number, higher than that of every earlier one, and what a later
session wrote has to stay as it is, whenever an earlier one writes.
"""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple, TypeVar

import xxhash

from kafka_replication.copying.sink import Record
from kafka_replication.ledger.entries import Ids, Place, Position
from kafka_replication.model.choices import Failure, FailureKind
from kafka_replication.model.errors import NotReady, Refused, ReplicationError, Stalled
from kafka_replication.model.offsets import Coverage, OffsetRange, PartitionKey
from kafka_replication.model.rights import Login
from kafka_replication.model.trouble import Trouble
from kafka_replication.runtime.deadline import NEVER, Deadline, StallClock, backoff
from kafka_replication.targets.journal import JournalStorage
from kafka_replication.targets.keyed import NoPlace
from kafka_replication.targets.port import TargetSettings, ToCreate

log = logging.getLogger(__name__)
C = TypeVar("C")
MOST_FOREIGN = 1_000  # records of others that are counted and shown one by one
COPIES = 2  # of each record, where the target tells nothing of them: so many that nobody is warned
Leftover = tuple[int, str]  # offset and place of a record that an earlier session wrote and did not commit


class Item(NamedTuple):  # made for each record, at half the cost of a data class
    """The request that writes the record of an offset, or its part of one; its size in bytes."""

    offset: int
    request: Any
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """A topic as the store describes it. ``problem``: no record may be written; without ``readable`` its ends cannot be
    read either.
    """

    id: str | None  # another one after it was created again
    partitions: int
    copies: int = COPIES
    config: Mapping[str, str] = field(default_factory=dict)
    problem: Trouble | None = None
    readable: bool = True


def place_of(topic: str, key: PartitionKey, generation: int, offset: int) -> Place:
    """The place of a record in the quarantine ``topic``: a partition for each key and generation, and the offset."""
    number = xxhash.xxh32_intdigest(key.entry("quarantine", generation))
    return Place(topic, number & 0x7FFFFFFF, offset)


class Records(ABC):
    """The records of one generation of a key in its topic, as readers find them. Those of a store that keeps the newest
    record of each key are a `KeyReader`, too. ``position`` is the newest that was
    committed; without one nothing there is ours, and nothing is written.

    Each method raises Unreachable, and GapFound if the topic is gone.
    """

    several: ClassVar[str] = "the transform makes several records of it, and its place has only the offset"
    takes_back: ClassVar[bool] = True  # what was written and not committed can be removed: nothing was there before
    by_epoch: ClassVar[bool] = False  # the number of who writes has to be small: the epoch, which sessions share

    def __init__(self, key: PartitionKey, position: Position | None) -> None:
        self.key, self.position = key, position
        self.generation = position.generation if position else 0
        self.coverage = position.coverage if position else Coverage()

    @abstractmethod
    def item(self, record: Record, number: int) -> Item:
        """The request by which the session of this number writes the record. Raises NoPlace."""

    @abstractmethod
    def write(self, items: Sequence[Item], resend: Resend) -> tuple[Failure, ...]:
        """Write them, and wait until they are there. Threads may call it. Returns the refused ones."""

    @abstractmethod
    def removal(self, offset: int, number: int) -> Item:
        """The request that takes what earlier sessions wrote at this offset from readers."""

    @abstractmethod
    def scan(self, ranges: Iterable[OffsetRange]) -> Iterator[tuple[Record, bool]]:
        """The records of these source offsets, in their order; False for one that is not at its place."""

    @abstractmethod
    def others(self, written: OffsetRange | None = None) -> Iterator[Record]:
        """The records that are not of this key, or not of its generation: `MOST_FOREIGN` at most. ``written`` are the
        offsets from the first to the last record of the open chunk; what lies among them is read back later.
        """

    def refusal(self, record: Record) -> NoPlace | None:
        """The reason why a record is certain to have no place."""
        try:
            self.item(record, 0)
        except NoPlace as error:
            return error
        return None

    def leftover(self, record: Record) -> Leftover:
        """A record as `uncommitted` has it. Raises NoPlace."""
        return record[0], ""

    def uncommitted(self) -> set[Leftover]:
        """The records that an earlier session wrote and did not commit."""
        outside = Coverage((OffsetRange(0, 1 << 62),)).subtract(self.coverage)
        return {self.leftover(record) for record, _ in self.scan(outside)}

    def has(self, offset: int) -> bool:
        """True if the record of this offset is there; where only the newest of a key is kept, if one as new is."""
        return any(True for _ in self.scan([OffsetRange(offset, offset + 1)]))

    def end(self) -> int:
        """One past the highest committed offset that is there."""
        return max((record[0] + 1 for record, _ in self.scan(self.coverage)), default=0)

    def first(self, wanted: OffsetRange) -> int | None:
        """The offset of the first committed record in ``wanted`` that is there."""
        return next((record[0] for record, _ in self.scan(self.coverage.within(wanted))), None)

    def count(self, ranges: Iterable[OffsetRange]) -> int:
        """The number of records of these source offsets."""
        return sum(1 for _ in self.scan(ranges))

    def foreign(self, written: OffsetRange | None = None) -> int:
        """The number of `others`."""
        return sum(1 for _ in self.others(written))


@dataclass(frozen=True, slots=True, kw_only=True)
class Aside:
    """A record for the quarantine: its place there, and what is said about it, as JSON."""

    key: PartitionKey
    generation: int
    place: Place
    record: Record = field(repr=False)
    about: dict[str, Any] = field(repr=False)


class RecordStore(JournalStorage):
    """A store as one process reaches it for one replication. Threads share it. Nothing connects before its first use.

    Every method that asks raises Unreachable and NotAdmitted.
    """

    noun: ClassVar[str] = "record"  # its own word for a record, in messages
    why_not_batches: ClassVar[str] = "it stores records, not Kafka's batches"
    remedies: ClassVar[Mapping[FailureKind, str]] = {}  # for refused records; that of others is to correct them

    def __init__(self, settings: TargetSettings) -> None:
        """With ``settings.shared`` it shares its connections with others of the process."""
        self.settings, self.replication = settings, settings.replication.name

    @property
    @abstractmethod
    def login(self) -> Login:
        """As that of a `Target`."""

    @abstractmethod
    def cluster_id(self) -> str:
        """As that of a `Catalogue`."""

    @abstractmethod
    def describe(self, topic: str, *, whole: bool = False) -> Description | None:
        """The topic by one request; None if there is none. ``whole``: also what more requests tell of problems."""

    @abstractmethod
    def create(self, topic: ToCreate) -> None:
        """As that of a `Catalogue`."""

    @abstractmethod
    def add_partitions(self, topic: str, partitions: int) -> None:
        """As that of a `Catalogue`."""

    @abstractmethod
    def records(self, key: PartitionKey, position: Position | None) -> Records:
        """Those of a key; does not ask. Without a position its replication may be empty."""

    @abstractmethod
    def set_aside(self, aside: Aside, number: int, resend: Resend) -> tuple[Failure, ...]:
        """Write a record to the quarantine, as `Records.write` does."""

    @abstractmethod
    def aside(self, key: PartitionKey, place: Place) -> Record | None:
        """The record at a place of the quarantine, whatever its content is; None if none is there."""

    @abstractmethod
    def all_aside(self, key: PartitionKey, generation: int, first: Place) -> Iterator[tuple[int, dict[str, Any]]]:
        """The offset of each record of the key in the partition of ``first``, and what is said about it."""

    def check_ids(self, key: PartitionKey, ids: Ids) -> None:
        """Raise Refused unless the target topic is still the one of the plan."""
        there = self.describe(key.target_topic)
        id_ = None if there is None else there.id
        if id_ != ids.target_topic:
            what = "was deleted" if id_ is None else f"was created again: its id is {id_}, not {ids.target_topic}"
            raise Refused(f"{key.target_topic} on the target {what}", "plan again")

    def check(self) -> None:
        """Wait for a first answer. Raises Refused if a server is there that cannot be used."""
        self.cluster_id()

    def refresh(self, topic: str) -> None:
        """Let readers find what was acknowledged."""

    def check_writing(self) -> None:
        """As that of a `Catalogue`."""
        if self.ledger_exists() and (error := self.obstacle()):
            raise error

    def refusals(self, topics: Iterable[ToCreate]) -> dict[str, ReplicationError]:
        """As that of a `Catalogue`."""
        return {}


def client_of(kind: Callable[[Mapping[str, Any], float], C], settings: TargetSettings) -> C:
    """A client of the target's connection: one of this process for all targets with the same, where it is shared."""
    seconds = settings.replication.timeouts.request
    if not settings.shared:
        return kind(settings.connection, seconds)
    client: C = _shared(kind, tuple(sorted(settings.connection.items())), seconds)
    return client


@lru_cache(maxsize=4)
def _shared(kind: Callable[..., Any], connection: tuple[tuple[str, Any], ...], seconds: float) -> Any:
    return kind(dict(connection), seconds)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The answers about the items of one request: what is sent again and why, and what is refused for ever.

    ``blocked``: a person has to remove the reason.
    """

    again: tuple[Item, ...] = ()
    why: str = ""
    refused: tuple[Failure, ...] = ()
    blocked: bool = False


@dataclass(slots=True, kw_only=True)
class Resend:
    """Sends again what is refused for now, for as long as ``stall_seconds`` pass without an acknowledgement."""

    stall_seconds: float
    deadline: Deadline = NEVER
    pause: Callable[[float], None] = field(default=time.sleep)
    waited: float = 0.0  # seconds in pauses, of all threads that write
    unanswered: bool = False  # a request without an answer was sent again: the first one may still be carried out
    _adding: threading.Lock = field(default_factory=threading.Lock, init=False)

    def write(
        self, where: str, items: Sequence[Item], once: Callable[[Sequence[Item]], Outcome]
    ) -> tuple[Failure, ...]:
        """Write them all to ``where`` by ``once``, which makes one request. Returns the refused ones.

        Raises Stalled or NotReady, which name what was waited for, and the errors of ``once``.
        """
        left, refused = [tuple(items)] if items else [], list[Failure]()
        clock, failures = StallClock(self.stall_seconds), 0
        while left:
            batch = left.pop()
            outcome = once(batch)
            refused += outcome.refused
            if len(outcome.again) < len(batch):
                clock.moved()
                failures = 0
            if outcome.again:
                failures += 1
                self._wait(where, outcome, clock, failures)
                middle = (len(outcome.again) + 1) // 2
                left += [half for half in (outcome.again[middle:], outcome.again[:middle]) if half]
        return tuple(refused)

    def _wait(self, where: str, outcome: Outcome, clock: StallClock, failures: int) -> None:
        self.deadline.check(f"writing to {where}: {outcome.why}")
        if clock.is_over():
            what = f"{where} takes nothing for {self.stall_seconds:g} s (copy.stall_timeout): {outcome.why}"
            remedy = "find out what the cluster lacks (disk, memory, what is writable); then it goes on"
            raise (NotReady if outcome.blocked else Stalled)(what, remedy)
        seconds = min(backoff(failures), max(0.1, self.stall_seconds / 4))
        log.warning("%s: %d are sent again in %.1f s: %s", where, len(outcome.again), seconds, outcome.why)
        self.pause(seconds)
        with self._adding:
            self.waited += seconds
