"""What a place must do to receive records exactly once. The copier and the engines know a target only by this.

Kafka is the first implementation. A store that can set a position only if it is still the expected one (a search
engine with ``if_seq_no``, HBase with ``checkAndPut``) can be another: its `fence` takes a new epoch for the key, its
writes are idempotent (the document id is made of topic, partition and source offset), and its `commit` sets position
and receipt in one conditional write.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from kafka_replication.ledger.entries import Ids, Placement, Position, Receipt
from kafka_replication.model.errors import RecordRefused
from kafka_replication.model.keys import PartitionKey
from kafka_replication.verification.verify import TargetReader

# transactional: readers see a chunk's records, its receipt and the new position together, or nothing of them.
# idempotent: readers may see records of a chunk before its commit; repeating the chunk changes nothing.
Guarantee = Literal["transactional", "idempotent"]


# One decoded source record: offset, timestamp (ms since the epoch), key, value, headers (as the client gives them).
# A plain tuple, because making a named one for every record costs 4 % of a copy.
Record = tuple[int, int, bytes | None, bytes | None, Any]


@dataclass(frozen=True, slots=True)
class TargetState:
    """A target topic (index, table) as it is now. A target that was re-created has another ``id``."""

    id: str
    partitions: frozenset[int]


class RefusedAt(RecordRefused):
    """The target refuses a record: the one at source offset ``offset``, or (None) one of the last ``among`` written."""

    def __init__(self, what: str, remedy: str, offset: int | None, among: int = 1) -> None:
        super().__init__(what, remedy)
        self.offset, self.among = offset, among


class RecordWriter(Protocol):
    """Writes one chunk's records, in the order of the calls."""

    def write(self, records: Sequence[Record]) -> None:
        """Send these records; returns before they are acknowledged, and waits while the client's queue is full.

        Call it without records while the source sends nothing, so that errors are noticed early.

        Raises RefusedAt, Unreachable (Stalled when nothing is acknowledged any more), Fenced.
        """

    def finish(self, digest: str) -> Placement:
        """Wait until every record is acknowledged; where they are on the target. ``digest`` is that of all of them.

        Raises what `write` raises, and ForeignWriter where another writer's records lie between ours.
        """


class SinkSession(Protocol):
    """The one writer of one key. Any error ends it: what was not committed must then never count as copied.

    The copier calls in this order: `fence`, `position`, `check_target`, then for each chunk `begin`, the writer's
    `write` and `finish`, `check_ids`, `commit`.
    """

    def fence(self) -> None:
        """Make every earlier session of this key unable to commit, and decide what such a session left open.

        Must refuse a target that is gone or was re-created (Refused), before it waits for anything of that target.
        """

    def position(self) -> Position | None:
        """The newest committed position, never an older one; None where the partition was never opened. After `fence`.

        Must include every commit that an earlier session was told of, or was not told of, before `fence` returned.
        """

    def check_target(self, position: Position) -> None:
        """Raise ForeignWriter where the target holds records that the ledger does not know, or lacks what it knows."""

    def check_ids(self, ids: Ids) -> None:
        """Raise Refused unless the target still is the one with this id."""

    def begin(self) -> RecordWriter:
        """Begin the next chunk: nothing written before is part of it."""

    def commit(self, position: Position, receipt: Receipt) -> None:
        """Commit the chunk, its receipt and the new position, all of them or none. Returning means: committed.

        Raises Fenced where a newer session exists, also when it fenced this one after `finish`. After any other error
        the outcome is unknown; `fence` and `position` of a new session tell it.
        """


class Sink(Protocol):
    """One target cluster (or store). Sessions of different keys do not disturb each other."""

    @property
    def guarantee(self) -> Guarantee:
        """What readers of the target may rely on."""

    def look(self, names: Collection[str]) -> Mapping[str, TargetState]:
        """Those of the named targets that exist. Raises Unreachable."""

    def session(self, key: PartitionKey, ids: Ids) -> AbstractContextManager[SinkSession]:
        """A new session; leaving it aborts what is open. ``ids`` are those of the plan."""

    def verifier(self, key: PartitionKey) -> AbstractContextManager[TargetReader]:
        """Reads copied records back as the target's readers see them, with connections of its own."""
