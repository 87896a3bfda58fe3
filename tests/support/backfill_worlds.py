"""One partition before a backfill, for tests of its plan: what both clusters, the ledger and the store say of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from kafka_replication.config import Replication
from kafka_replication.ledger.entries import Ids, Position, Verified
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.offsets import Coverage, OffsetRange, PartitionKey, TopicPartition
from kafka_replication.planning.backfill_plan import (
    BackfillLine,
    BackfillPlan,
    Sample,
    one_topic,
    plan_backfill,
)
from kafka_replication.planning.backfill_request import BackfillRequest
from kafka_replication.planning.live import plan
from kafka_replication.planning.snapshot import PartitionOffsets, Snapshot, Topic

AT = TopicPartition("orders", 0)
KEY = PartitionKey("orders-dr", AT, "orders")
IDS = Ids("SRC", "s", "t")
DAY = 86_400_000
NOW = datetime(2024, 1, 31, tzinfo=UTC)
NOW_MS = int(NOW.timestamp() * 1000)
OWN = BackfillRequest(topics=("orders",), from_=0, until=1)
OTHER = replace(OWN, target_topic="again")


def replication(**more: Any) -> Replication:
    return Replication.model_validate(
        {
            "name": "orders-dr",
            "source": {"connection": "here"},
            "target": {"connection": "there"},
            "topics": {"include": ["orders"]},
            **more,
        }
    )


def covered(*pairs: tuple[int, int]) -> Coverage:
    return Coverage.of(OffsetRange(*pair) for pair in pairs)


def position(start: int, next_offset: int, *more: tuple[int, int]) -> Position:
    return Position(
        generation=1,
        ids=IDS,
        start=start,
        next_offset=next_offset,
        coverage=covered((start, next_offset), *more),
        leader_epoch=4,
        target_end=next_offset,
    )


@dataclass(frozen=True)
class Case:
    """One partition [log start 30, end 1000); without more, live copying started at 400 and is at 600, all of it verified."""

    position: Position | None = field(default_factory=lambda: position(400, 600))
    verified: Coverage | None = None
    target: Mapping[str, str] | None = field(default_factory=lambda: {"retention.ms": str(7 * DAY)})
    source: Mapping[str, str] = field(default_factory=lambda: {"retention.ms": "-1"})
    log_start: int = 30
    source_id: str = "s"
    config: Mapping[str, Any] = field(default_factory=dict)
    request: BackfillRequest = OWN
    watermarks: Mapping[PartitionKey, int] = field(default_factory=dict)

    def plan(self, from_: int, until: int, sample: Sample | None = None) -> BackfillPlan:
        config = one_topic(replication(**self.config), self.request)
        source = {
            "orders": Topic(
                name="orders",
                topic_id=self.source_id,
                partitions={0: PartitionOffsets(self.log_start, 1000, 1000)},
                replication_factor=3,
                config=self.source,
            )
        }
        name = self.request.target_topic or "orders"
        target = (
            {}
            if self.target is None
            else {
                name: Topic(
                    name=name,
                    topic_id="t",
                    partitions={0: PartitionOffsets(0, 9999, 9999)},
                    replication_factor=3,
                    config=self.target,
                )
            }
        )
        key = replace(KEY, target_topic=name)
        seen = self.verified if self.verified is not None else self.position.coverage if self.position else Coverage()
        view = (
            LedgerView(
                {key: self.position},
                {key: Verified(generation=1, coverage=seen, level="digest", run_id="run", time="t")},
            )
            if self.position
            else LedgerView()
        )
        snapshot = Snapshot(
            source_cluster="SRC",
            target_cluster="TGT",
            source=source,
            target=target,
            starts={AT: 1000} if config.start_from == "latest" else {},
        )
        live = plan(config, snapshot, view, self.watermarks)
        asked, opens = {AT: OffsetRange(from_, until)}, self.request.target_topic is not None
        made = plan_backfill(config, snapshot, view, self.watermarks, asked, opens=opens, live=live)
        return made.estimated({AT: sample} if sample else {})

    def line(self, from_: int, until: int, sample: Sample | None = None) -> BackfillLine:
        [line] = self.plan(from_, until, sample).lines
        return line
