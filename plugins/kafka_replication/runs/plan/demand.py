"""The demand of a run on both clusters: all in which live runs, intervals and backfills differ before they copy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal, Protocol

from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.offsets import OffsetRange, TopicPartition
from kafka_replication.planning.live import plan
from kafka_replication.planning.plan import Plan
from kafka_replication.planning.snapshot import Snapshot
from kafka_replication.runs.plan.permission_checks import Answers
from kafka_replication.runs.run import Request, Run

Ranges = Mapping[TopicPartition, OffsetRange]


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Both clusters and the ledger, as a run knows them now. A step that changes something returns the world after it:
    the same value is the same world, and is looked at and planned once.

    The snapshot has the rights that are denied by ``answers``. ``receipt_ends`` are older than ``view``: receipts that
    the view does not cover are at or above them. A preview has none.
    """

    snapshot: Snapshot
    view: LedgerView
    receipt_ends: Mapping[int, int]
    answers: Answers = field(default_factory=Answers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """The plan of a demand in a world. ``opening`` is the plan by which partitions are opened, if that is another one;
    ``text`` shows the plan in the log, if it is more than the plan's own table.
    """

    plan: Plan
    world: World
    ranges: Ranges = field(default_factory=dict)
    opening: Plan | None = None
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
        """The request that names the topics to look at."""

    def ranges(self, run: Run, world: World) -> Ranges:
        """The offsets that are demanded, resolved once; none for live copying, which goes on from its positions."""

    def plan(self, run: Run, world: World, ranges: Ranges) -> Planned:
        """The plan of these ranges in this world."""


@dataclass(frozen=True, slots=True)
class Live:
    """Live copying: every partition goes on from its position. One that is refused holds back no other."""

    request: Request
    kind: ClassVar[Literal["live"]] = "live"
    opens_live: ClassVar[bool] = True
    whole: ClassVar[bool] = False

    def ranges(self, run: Run, world: World) -> Ranges:  # noqa: ARG002 - see `Demand`
        return {}

    def plan(self, run: Run, world: World, ranges: Ranges) -> Planned:  # noqa: ARG002
        made = plan(run.replication, world.snapshot, world.view, run.watermarks(world.view))
        return Planned(plan=made, world=world)
