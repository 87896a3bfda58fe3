"""A simulated source and target: what transactions leave in a log and a ledger, and what goes wrong at which call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from kafka_replication.copying.sink import Record
from kafka_replication.ledger.entries import Ids, Position, Receipt
from kafka_replication.model.choices import FailureKind
from kafka_replication.model.errors import Fenced, Stalled, Unreachable
from kafka_replication.model.offsets import Coverage, PartitionKey, TopicPartition
from kafka_replication.verification.verify import select_receipts

KEY = PartitionKey("orders-dr", TopicPartition("orders", 0), "orders")
IDS = Ids("SRC", "s-orders", "t-orders")


def record_of(offset: int) -> Record:
    return (offset, 1, b"k%d" % offset, None, None)


class Killed(BaseException):
    """The process dies here; nothing of it runs any more, its transaction stays open."""


@dataclass
class Slot:
    """One offset of the target's log: a record (by its source offset) or a transaction's marker."""

    record: int | None
    state: Literal["open", "prepared", "committed", "aborted"]


@dataclass
class Target:
    """A partition and its ledger as transactions leave them. Only `fence` settles what a dead session left behind."""

    log: list[Slot] = field(default_factory=list)
    position: Position | None = None
    receipts: dict[int, Receipt] = field(default_factory=dict)
    epoch: int = 0
    in_doubt: tuple[list[Slot], Position, Receipt] | None = (
        None  # the coordinator has PrepareCommit, nobody sees it yet
    )
    open: list[Slot] = field(default_factory=list)

    def settle(self) -> None:
        """What `init_transactions` does to the transaction of this id: complete what was prepared, abort what was open."""
        if self.in_doubt:
            self.apply(*self.in_doubt)
        elif self.open:
            self.end("aborted")

    def apply(self, slots: list[Slot], position: Position, receipt: Receipt) -> None:
        self.position = position
        self.receipts[receipt.range.from_] = receipt
        self.end("committed")
        self.in_doubt = None

    def end(self, state: Literal["committed", "aborted"]) -> None:
        for slot in self.open:
            slot.state = state
        self.open = []
        self.log.append(Slot(None, state))  # the marker takes an offset of its own

    def visible(self) -> list[int]:
        """What a `read_committed` reader sees."""
        return [slot.record for slot in self.log if slot.state == "committed" and slot.record is not None]


@dataclass
class World:
    """The source's visible offsets, the target, and what goes wrong at which call."""

    records: list[int]
    target: Target = field(default_factory=Target)
    chunk: int = 3
    faults: dict[int, str] = field(default_factory=dict)  # call number -> kind
    refused_late: set[int] = field(default_factory=set)  # the broker refuses, some time after the client took it
    refused_at_once: set[int] = field(default_factory=set)  # the client itself refuses
    kinds: dict[int, FailureKind] = field(default_factory=dict)  # of refused records
    ids: Ids = IDS
    calls: int = 0
    most: int = 10_000  # records that the target takes in the time of a chunk
    sizes: list[int] = field(default_factory=list)  # records of each chunk that was begun
    trace: list[str] = field(default_factory=list)
    during: Callable[[str], None] = lambda call: None

    def call(self, name: str) -> str | None:
        """Count one call; raise here, or return the fault that the call itself has to play."""
        self.trace.append(name)
        fault = self.faults.pop(self.calls, None)
        self.calls += 1
        self.during(name)
        match fault:
            case "killed":
                raise Killed
            case "fenced":
                raise Fenced("orders-0: a newer copier took over", "")
            case "unreachable":
                raise Unreachable(f"orders-0: {name} was not answered", "run again")
            case "stalled":
                raise Stalled(f"orders-0: {name} made no progress", "run again")
        return fault


def opened(start: int = 0, **more: Any) -> Target:
    return Target(position=Position(generation=1, ids=IDS, start=start, next_offset=start), **more)


def assert_consistent(world: World) -> None:
    """What readers of the target see is what the ledger says (once an answer that got lost takes effect), each record once."""
    target = world.target
    if target.in_doubt:
        return  # not decided yet, neither way
    assert target.position is not None
    coverage = target.position.coverage
    aside = {failed.offset for receipt in target.receipts.values() for failed in receipt.failures}
    expected = [offset for offset in world.records if any(offset in each for each in coverage) and offset not in aside]
    assert target.visible() == expected
    receipts = select_receipts(coverage, target.receipts.values())
    assert Coverage.of(each.range for each in receipts) == coverage
    for receipt in receipts:
        failed = [each.offset for each in receipt.failures]
        inside = [offset for offset in world.records if offset in receipt.range and offset not in failed]
        assert receipt.count == len(inside)
        assert receipt.quarantined + receipt.skipped == len(failed) == len(set(failed))
        assert [target.log[at].record for each in receipt.parts for at in range(each.first, each.until)] == inside
