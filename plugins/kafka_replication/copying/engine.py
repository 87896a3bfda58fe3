"""The values of copying (task, chunk, result), and the interface of an engine, which reads the source into chunks.

Limits the records of the next chunk: fewer after a failure, half as many during the search for a refused record.

Decides which of several engines copies the next part of a range, and up to which offset.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

from kafka_replication.copying.sink import Sink, SinkSession
from kafka_replication.ledger.entries import FailedRecord, Ids, Position, Transform
from kafka_replication.ledger.offset_map import OffsetMap, WrittenOffsets
from kafka_replication.ledger.placement import KafkaPartitions, KafkaSegments, Placement, chooser_of, end_of
from kafka_replication.model.choices import Turn
from kafka_replication.model.errors import Refused
from kafka_replication.model.offsets import Coverage, OffsetRange, PartitionKey

log = logging.getLogger(__name__)
MOST_TURNS = 3  # that a result tells; the log of the task has all


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyTask:
    """One range of one partition, as planned. After fencing, the ledger says which part of it is not copied yet."""

    key: PartitionKey
    range: OffsetRange
    ids: Ids
    generation: int
    run_id: str
    most_failed: int = 0  # records of this generation that may be set aside in all, with those of earlier runs
    position: int | None = None  # the ledger's next offset when the range was planned; None: where the range starts
    missing: Coverage = field(default_factory=Coverage)  # what the target had lost before that, and is not copied now
    planned_engine: str = ""  # that the plan chose for a range of which this may be a part
    hands_over: bool = False  # records that its client would change are for another engine: see `OnlyAsStored`


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """The part of a range that an engine wrote to the sink in one chunk, before its commit.

    ``count``, ``bytes`` and ``digest`` are of the records that it wrote, which come from ``copied`` source records.
    ``bytes`` are those of keys, values and headers, without compression.
    """

    range: OffsetRange
    count: int
    bytes: int
    digest: str
    placement: Placement
    leader_epoch: int | None
    failures: tuple[FailedRecord, ...] = ()  # records that were read and set aside
    sources: int | None = None  # None: as many as ``count``
    filtered: int = 0
    transform: Transform | None = None
    offsets: WrittenOffsets = field(default_factory=WrittenOffsets)  # of the source, that have a record

    @property
    def offset_map(self) -> OffsetMap | None:
        """For a chunk with holes whose records lie in one partition of Kafka, one for each offset; else None."""
        in_order = isinstance(self.placement, KafkaSegments | KafkaPartitions) and chooser_of(self.placement) is None
        if not in_order or not self.copied == self.count == self.offsets.count:
            return None
        return self.offsets.map(self.range.from_, self.range.until)

    @property
    def copied(self) -> int:
        return self.count if self.sources is None else self.sources

    @property
    def read(self) -> int:
        """The number of source records that the chunk is about."""
        return self.copied + self.filtered + len(self.failures)

    @property
    def target_end(self) -> int:
        """One past the highest target offset; 0 if there are no records, or if the target has no offsets."""
        return end_of(self.placement)

    def moved(self, position: Position) -> Position:
        """The position after this chunk."""
        moved = position.adding(self.range, self.leader_epoch, self.target_end).placed(self.placement)
        return replace(moved, transform=self.transform)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """The place where the copy of a range ended with an error, and the tries since the last commit."""

    offset: int  # of the refused record, or the first one that is not copied
    key_digest: str = ""  # of this record, as in `FailedRecord`; empty also if no record was read
    attempts: int  # sessions in a row that committed nothing
    seconds: float
    error_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyResult:
    """The outcome of one range. ``copied`` counts only the source records of this call. If ``error`` is None, the whole
    range is on the target.
    """

    key: PartitionKey
    range: OffsetRange
    copied: int = 0
    bytes: int = 0
    chunks: int = 0
    sessions: int = 0
    failed: int = 0  # records that were set aside
    receipts_from: int | None = None  # where the receipts of its chunks begin in their topic, if that is known
    seconds: float = 0.0
    throttled: float = 0.0  # seconds for which quotas or a target that was not ready made the copy wait
    error: str | None = None
    remedy: str = ""
    stop: Stop | None = None  # None without an error, or if its worker died
    fenced: bool = False
    retriable: bool = False
    turns: tuple[Turn, ...] = ()  # the first of those that other engines than the chosen one had

    def with_turn(self, turn: Turn) -> CopyResult:
        return replace(self, turns=(*self.turns, turn)[:MOST_TURNS])

    def joined_to(self, before: CopyResult) -> CopyResult:
        """Both results of one range added together. This is the later one."""
        return replace(
            self,
            copied=before.copied + self.copied,
            bytes=before.bytes + self.bytes,
            chunks=before.chunks + self.chunks,
            sessions=before.sessions + self.sessions,
            failed=before.failed + self.failed,
            seconds=before.seconds + self.seconds,
            throttled=before.throttled + self.throttled,
            turns=(*before.turns, *self.turns)[:MOST_TURNS],
        )


class HandOver(Exception):
    """Raised if an engine cannot copy the offsets before ``until`` unchanged. This shows only when they are read.
    Another engine copies them in its own session.
    """

    def __init__(self, until: int, why: str) -> None:
        super().__init__(why)
        self.until = until


class OnlyAsStored(HandOver):
    """Raised if an engine's client would change the record before ``until``, which may be the first one left."""


class SourceReader(Protocol):
    """Reads one source partition for one session. Any error ends the session."""

    def check_ids(self, ids: Ids) -> None:
        """Raise Refused if the source topic no longer has this id."""

    @property
    def throttled(self) -> float:
        """The seconds for which the source has made this reader wait, by a quota."""

    def copy_chunk(self, left: OffsetRange, position: Position, target: SinkSession, most_records: int) -> Chunk:
        """Begin a chunk in ``target`` and write the next records of ``left`` to it, in order, starting at
        ``left.from_``.

        The chunk ends at ``most_records``, at another limit of the engine, or at the end of ``left``, whichever comes
        first. Its range includes all offsets that were read, also those without a visible record.

        Raises RefusedAt for a record that cannot be copied unchanged, HandOver unless the engine copies everything,
        GapFound, Stalled, Unreachable, Refused, Fenced.
        """


class CopyEngine(Protocol):
    """One way to copy. The receipt of a chunk names the engine that copied it and the kind of its digest."""

    name: str  # with the version, as in ``record/1``, which changes when the engine copies differently
    digest_kind: str  # that of the digests of its chunks

    def supports(self, task: CopyTask, sink: Sink) -> str | None:
        """None if this engine can copy the range into the sink, else the reason why it cannot. Raises Unreachable."""

    def reader(self, task: CopyTask) -> AbstractContextManager[SourceReader]:
        """A new reader, with connections of its own."""


class ChosenEngine(NamedTuple):
    """An engine, and the reason why an earlier choice is not possible; empty if it is the first choice."""

    engine: CopyEngine
    why: str = ""


def choose(engines: Sequence[CopyEngine], task: CopyTask, sink: Sink) -> ChosenEngine:
    """The first engine that supports the range. Raises Refused, which names the reason of every engine."""
    reasons = list[str]()
    for engine in engines:
        reason = engine.supports(task, sink)
        if reason is None:
            return ChosenEngine(engine, "; ".join(reasons))
        log.info("%s %s: engine %s cannot copy it: %s", task.key.source, task.range, engine.name, reason)
        reasons.append(reason)
    named = "; ".join(f"{engine.name}: {reason}" for engine, reason in zip(engines, reasons, strict=True))
    raise Refused(
        f"{task.key.source} {task.range}: no copy engine supports it ({named})",
        "set copy.engine to an engine that supports it",
    )


# Most bytes of keys, values and headers, uncompressed, in a chunk, which has at least one record: to send one of large
# records, to send it again and to read it back takes no longer than with many small ones.
CHUNK_BYTES = 256 << 20
GROW_AFTER = 4  # committed chunks; so at most one chunk of five fails where twice the size is always too much


class ChunkSize:
    """The most records of the next chunk, at most ``most``.

    A chunk that failed while it was sent may have been too large for the time it had, so the next one has half of its
    records. After every `GROW_AFTER` committed chunks the number doubles again.
    """

    def __init__(self, most: int) -> None:
        self._most = self._usual = most
        self._committed = 0  # chunks since the number changed
        self._suspects = 0  # the refused record is one of this many next records; 0: none was refused

    @property
    def records(self) -> int:
        """The size of the next chunk. During the search for a refused record: half of the records it can be.

        Each attempt, committed or refused, halves their number. A refused chunk of one record names the record.
        """
        return max(1, min(self._usual, self._suspects // 2)) if self._suspects else self._usual

    def committed(self, count: int) -> None:
        """A chunk of ``count`` source records was committed."""
        self._suspects = max(0, self._suspects - count)
        self._committed += 1
        if self._committed >= GROW_AFTER:
            self._usual, self._committed = min(self._most, 2 * self._usual), 0

    def failed(self, written: int) -> None:
        """A chunk failed after ``written`` records were given to the target; nothing changes if there were none."""
        if written:
            self._usual, self._committed = max(1, min(self._usual, written) // 2), 0

    def refused(self, among: int) -> bool:
        """Note that the target refused one of the next ``among`` records. Returns True if that narrows the search."""
        narrower = not self._suspects or among < self._suspects
        self._suspects = among
        return narrower

    def stop_searching(self) -> None:
        """End the search: the refused record is known."""
        self._suspects = 0


LEAST = 1_000  # offsets; a session of its own is not worth less
GROWTH = 10
Exact = Callable[[], CopyEngine | None]


@dataclass(slots=True, kw_only=True)
class EngineTurns:
    """``engine`` copies until it hands over to ``fallback``; without a fallback it copies everything. Records that an
    engine would change go to the ``exact`` one, if this range has one. If that cannot copy them either, they are
    refused.
    """

    engine: CopyEngine
    fallback: CopyEngine | None = None
    exact: Exact | None = None
    _fallback_until: int | None = field(init=False, default=None)  # the fallback copies up to here
    _exact_engine: CopyEngine | None = field(init=False, default=None)  # at work, up to the next
    _exact_until: int = field(init=False, default=0)
    _odd_until: int = field(init=False, default=0)  # behind the record that was handed to it
    _refusing_until: int | None = field(init=False, default=None)  # nothing is handed to it up to here
    _most: int = field(init=False, default=LEAST)

    @property
    def now(self) -> CopyEngine:
        if self._exact_engine is not None:
            return self._exact_engine
        return self.engine if self.fallback is None or self._fallback_until is None else self.fallback

    @property
    def until(self) -> int | None:
        """The offset before which the turn ends; None if it ends with the range."""
        if self._exact_engine is not None:
            return self._exact_until
        ends = [until for until in (self._refusing_until, self._fallback_until) if until is not None]
        return min(ends, default=None)

    @property
    def hands_over(self) -> bool:
        """True if the engine has to hand over records that it would change."""
        return self.exact is not None and self._refusing_until is None and self._exact_engine is None

    def ended(self, position: int) -> None:
        """Note that the engine copied everything before ``position``, where its turn ended."""
        if self._exact_engine is not None:
            self._exact_engine = None
            return
        if self._refusing_until is not None and self._refusing_until <= position:
            self._refusing_until = None
        if self._fallback_until is not None and self._fallback_until <= position:
            self._fallback_until = None

    def hand_over(self, asked: HandOver) -> None:
        if self._exact_engine is not None and self._exact_until > self._odd_until:
            self._exact_until = self._odd_until  # this record alone
        elif self._exact_engine is not None:
            self._refuse()
        elif not isinstance(asked, OnlyAsStored):
            self._fallback_until = asked.until
        elif (engine := self.exact() if self.exact else None) is None:
            self.exact = None
        else:
            self._exact_engine, self._odd_until = engine, asked.until
            self._exact_until = asked.until - 1 + self._most
            self._most *= GROWTH

    def give_up(self, until: int) -> bool:
        """Give the range up to ``until`` to another engine, because this one got no further in several sessions. False
        if there is no other one.
        """
        if self._exact_engine is not None:
            self._refuse()
        elif self.fallback is None or self._fallback_until is not None:
            return False
        else:
            self._fallback_until = until
        return True

    def _refuse(self) -> None:
        self._exact_engine, self._refusing_until = None, self._odd_until
