"""What a run demands of both clusters: all in which live runs, data intervals and backfills differ before they copy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.offsets import OffsetRange, TopicPartition
from kafka_replication.planning.plan import Plan
from kafka_replication.planning.snapshot import Snapshot
from kafka_replication.runs.run import LeasedRun, Request

Ranges = Mapping[TopicPartition, OffsetRange]


@dataclass(frozen=True, slots=True)
class World:
    """Both clusters and the ledger, as a run knows them now. The snapshot has the rights that are denied."""

    snapshot: Snapshot
    view: LedgerView


@dataclass(frozen=True, slots=True)
class Planned:
    """The plan of a demand, and the text that shows it in the log, if it is more than the plan's own table."""

    plan: Plan
    text: Callable[[], str] | None = None


class Demand(Protocol):
    """One kind of run.

    ``opens_live``: new partitions start where live copying starts, not where their range does. ``whole``: all of the
    demanded topics or nothing, so one refused partition refuses the run.
    """

    @property
    def kind(self) -> Literal["live", "interval", "backfill"]: ...

    @property
    def opens_live(self) -> bool: ...

    @property
    def whole(self) -> bool: ...

    @property
    def request(self) -> Request:
        """Which topics are looked at."""

    def ranges(self, run: LeasedRun, world: World) -> Ranges:
        """The offsets that are demanded, resolved once; none for live copying, which goes on from its positions."""

    def plan(self, run: LeasedRun, world: World, ranges: Ranges, opening: Plan) -> Planned:
        """The plan of these ranges in this world. ``opening`` is the plan by which partitions were opened; it has no
        partition while this run decides which ones it opens.
        """
