"""What is copied (task, chunk, result), and the interface of a copy engine, which reads the source and fills chunks."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from kafka_replication.ledger.entries import Ids, KafkaSegments, Placement, Position
from kafka_replication.model.errors import Refused
from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.offsets import OffsetRange
from kafka_replication.sinks.port import Sink, SinkSession

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyTask:
    """One range of one partition, as planned. What is left of it, the ledger says after fencing."""

    key: PartitionKey
    range: OffsetRange
    ids: Ids
    generation: int
    run_id: str
    position: int | None = None  # the ledger's next offset when the range was planned; None: where the range starts


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """What an engine wrote to the sink in one chunk, not committed yet."""

    range: OffsetRange
    count: int
    bytes: int
    digest: str
    placement: Placement
    leader_epoch: int | None

    @property
    def target_end(self) -> int:
        """One past the highest target offset; 0 without records, or where the target has no offsets."""
        segments = self.placement.segments if isinstance(self.placement, KafkaSegments) else ()
        return max((segment.last + 1 for segment in segments), default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyResult:
    """The outcome of one range. ``copied`` counts the records of this call only; no ``error`` means that the whole
    range is on the target.
    """

    key: PartitionKey
    range: OffsetRange
    copied: int = 0
    bytes: int = 0
    chunks: int = 0
    sessions: int = 0
    seconds: float = 0.0
    error: str | None = None
    remedy: str = ""
    fenced: bool = False
    retriable: bool = False


class SourceReader(Protocol):
    """Reads one source partition for one session. Any error ends it."""

    def check_ids(self, ids: Ids) -> None:
        """Raise Refused unless the source topic still is the one with this id."""

    def copy_chunk(self, left: OffsetRange, position: Position, target: SinkSession, most_records: int) -> Chunk:
        """Begin a chunk of ``target`` and write the next records of ``left`` to it, in order, from ``left.from_`` on.

        The chunk ends at ``most_records``, at the engine's other bounds, or where ``left`` ends, whichever comes first.
        Its range covers all that was read, offsets without a visible record too.

        Raises RefusedAt for a record that cannot be copied unchanged, GapFound, Stalled, Unreachable, Refused, Fenced.
        """


class CopyEngine(Protocol):
    """One way to copy. Which one copied a chunk, and what its digest means, is named in the chunk's receipt."""

    @property
    def name(self) -> str:
        """With a version, as in ``record/1``; it changes when the engine copies differently."""

    @property
    def digest_kind(self) -> str:
        """The kind of the digests that its chunks have."""

    def supports(self, task: CopyTask, sink: Sink) -> str | None:
        """None where this engine can copy the range into the sink, else the reason why not. Raises Unreachable."""

    def reader(self, task: CopyTask) -> AbstractContextManager[SourceReader]:
        """A new reader, with connections of its own."""


def choose(engines: Sequence[CopyEngine], task: CopyTask, sink: Sink) -> CopyEngine:
    """The first engine that supports the range. Raises Refused with every engine's reason."""
    reasons = []
    for engine in engines:
        reason = engine.supports(task, sink)
        if reason is None:
            return engine
        log.info("%s %s: engine %s cannot copy it: %s", task.key.source, task.range, engine.name, reason)
        reasons.append(f"{engine.name}: {reason}")
    raise Refused(
        f"{task.key.source} {task.range}: no copy engine supports it ({'; '.join(reasons)})",
        "set copy.engine to an engine that supports it",
    )
