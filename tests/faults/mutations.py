"""Three engines that are broken on purpose: each must make the harness fail, or the harness proves nothing."""

from __future__ import annotations

import time
from collections.abc import Callable

from kafka_replication.kafka import clients
from kafka_replication.kafka.commit import Atomic
from kafka_replication.kafka.session import KafkaSession
from kafka_replication.ledger import codec
from kafka_replication.ledger.entries import POSITIONS, RECEIPTS, Position, Receipt
from kafka_replication.planning.plan import Plan
from kafka_replication.runs import steps
from kafka_replication.runs.bookkeeping import change_to
from kafka_replication.runs.run import LeasedRun
from kafka_replication.runtime import failpoints
from kafka_replication.spark.launcher import Launcher


def position_before_fencing() -> None:
    """The position is read before `init_transactions`: whoever is at work may commit in between.

    The look at the target that follows would notice it, as a second line of defence; this engine does not look.
    """
    fence, position = KafkaSession.fence, KafkaSession.position
    read: dict[int, Position | None] = {}

    def stale_fence(self: KafkaSession) -> None:
        read[id(self)] = position(self)
        time.sleep(1.0)  # the moment in which the other one commits, made long enough to be hit
        fence(self)

    def stale_position(self: KafkaSession) -> Position | None:
        return read[id(self)]

    def blind(self: KafkaSession, position: Position) -> None:
        pass

    KafkaSession.check_target = blind  # type: ignore[method-assign]
    KafkaSession.fence = stale_fence  # type: ignore[method-assign]
    KafkaSession.position = stale_position  # type: ignore[method-assign]


def receipt_outside() -> None:
    """Receipt and position are written after the commit, without a transaction."""

    def careless(self: Atomic, position: Position, receipt: Receipt) -> None:
        self.transaction.flush()
        self.sender.guard("commit_transaction", lambda: self.sender.producer.commit_transaction(30))
        failpoints.reached("P2")
        other = clients.producer(self.target)
        other.produce(
            RECEIPTS,
            key=codec.key_of(self.key, receipt),
            value=codec.encode(receipt),
            partition=self.key.ledger_partition,
        )
        other.produce(
            POSITIONS,
            key=self.key.entry("position"),
            value=codec.encode(position),
            partition=self.key.ledger_partition,
        )
        other.flush(30)

    Atomic.commit = careless  # type: ignore[method-assign]


def watermark_before_verification() -> None:
    """The watermark is stored before anything is copied or read back."""
    replicate = steps.replicate

    def hasty(run: LeasedRun, plan: Plan, spark: Launcher) -> steps.Replicated:
        stored, positions = run.store.watermarks(run.replication.name), run.view().positions
        run.store.advance_many(
            [
                change_to(p.key, positions[p.key], p.copy.until, stored.get(p.key), run.run_id)
                for p in plan.to_copy
                if p.copy
            ]
        )
        return replicate(run, plan, spark)

    steps.replicate = hasty


ALL: dict[str, Callable[[], None]] = {
    each.__name__.replace("_", "-"): each
    for each in (position_before_fencing, receipt_outside, watermark_before_verification)
}


def apply(name: str | None) -> None:
    """Break this process's engine; nothing happens without a name."""
    if name is not None:
        ALL[name]()
