"""Every version of every kind of ledger entry: its required fields, and how they become a value.

A class in this module never changes after its release. `codec` says when a kind needs a new version.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from kafka_replication.ledger.entries import (
    Deleted,
    Entry,
    Gap,
    Handled,
    Position,
    Receipt,
    Removed,
    Start,
    Verified,
)
from kafka_replication.ledger.fields import (
    JsonCoverage,
    JsonFailed,
    JsonIds,
    JsonMappedOffset,
    JsonPlacement,
    JsonRange,
    JsonSegment,
    JsonSpread,
    JsonTransform,
    Number,
)
from kafka_replication.ledger.placement import KafkaSegments, Placement
from kafka_replication.model.delivery import EXACTLY_ONCE, Delivery
from kafka_replication.model.offsets import Coverage


class EntryFormat(BaseModel, ABC):
    """One version of one kind of entry. Unknown top-level fields are kept."""

    model_config = ConfigDict(extra="allow", strict=True)

    @abstractmethod
    def value(self) -> Entry: ...

    @property
    def unknown(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


class Position1(EntryFormat):
    generation: Number
    ids: JsonIds
    start: Number
    next_offset: Number
    coverage: JsonCoverage
    leader_epoch: int | None
    target_end: Number
    receipts_from: Number | None = None
    delivery: Delivery = EXACTLY_ONCE
    quarantined: Number = 0
    skipped: Number = 0
    transform: JsonTransform | None = None
    spread: JsonSpread | None = None
    sent_from: list[Number] | None = None

    def value(self) -> Position:
        return Position(
            generation=self.generation,
            ids=self.ids.value(),
            start=self.start,
            next_offset=self.next_offset,
            coverage=self.coverage,
            leader_epoch=self.leader_epoch,
            target_end=self.target_end,
            receipts_from=self.receipts_from,
            delivery=self.delivery,
            quarantined=self.quarantined,
            skipped=self.skipped,
            transform=self.transform.value() if self.transform else None,
            spread=self.spread.value() if self.spread else None,
            sent_from=None if self.sent_from is None else tuple(self.sent_from),
            extra=self.unknown,
        )


class Verified1(EntryFormat):
    generation: Number
    coverage: JsonCoverage
    level: Literal["digest", "count"]
    run_id: str
    time: str
    receipts_from: Number | None = None
    delivery: Delivery = EXACTLY_ONCE
    lost_in_delivery: Number = 0
    duplicates: Number = 0
    judged_until: Number | None = None

    def value(self) -> Verified:
        return Verified(
            generation=self.generation,
            coverage=self.coverage,
            level=self.level,
            run_id=self.run_id,
            time=self.time,
            receipts_from=self.receipts_from,
            delivery=self.delivery,
            lost_in_delivery=self.lost_in_delivery,
            duplicates=self.duplicates,
            judged_until=self.judged_until,
            extra=self.unknown,
        )


class Gap1(EntryFormat):
    generation: Number
    kind: str
    range: JsonRange
    reason: str
    approved_by: str
    ids: JsonIds
    run_id: str
    time: str

    def value(self) -> Gap:
        return Gap(
            generation=self.generation,
            kind=self.kind,
            range=self.range,
            reason=self.reason,
            approved_by=self.approved_by,
            ids=self.ids.value(),
            run_id=self.run_id,
            time=self.time,
            extra=self.unknown,
        )


class Start1(EntryFormat):
    source_cluster: str
    source_topic: str
    start_from: str
    offset: Number | None
    time: str

    def value(self) -> Start:
        return Start(
            source_cluster=self.source_cluster,
            source_topic=self.source_topic,
            start_from=self.start_from,
            offset=self.offset,
            time=self.time,
            extra=self.unknown,
        )


class Deleted1(EntryFormat):
    source_topic: str
    run_id: str
    time: str

    def value(self) -> Deleted:
        return Deleted(source_topic=self.source_topic, run_id=self.run_id, time=self.time, extra=self.unknown)


class Removed1(EntryFormat):
    generation: Number
    target_start: Number
    coverage: JsonCoverage
    unexplained: JsonCoverage
    again: JsonCoverage
    passed: Number
    run_id: str
    time: str
    receipts_from: Number | None
    target_starts: list[Number] = Field(default_factory=list)

    def value(self) -> Removed:
        return Removed(
            generation=self.generation,
            target_start=self.target_start,
            coverage=self.coverage,
            unexplained=self.unexplained,
            again=self.again,
            passed=self.passed,
            run_id=self.run_id,
            time=self.time,
            receipts_from=self.receipts_from,
            target_starts=tuple(self.target_starts),
            extra=self.unknown,
        )


class Handled1(EntryFormat):
    generation: Number
    state: str
    quarantined: JsonCoverage
    skipped: JsonCoverage
    ids: JsonIds
    by: str
    reason: str
    run_id: str
    time: str
    count: Number
    digest: str
    digest_kind: str
    placement: JsonPlacement
    not_visible: JsonCoverage = Field(default_factory=Coverage)
    given_back: JsonCoverage = Field(default_factory=Coverage)
    number: Number = 0

    def value(self) -> Handled:
        return Handled(
            generation=self.generation,
            state=self.state,
            quarantined=self.quarantined,
            skipped=self.skipped,
            ids=self.ids.value(),
            by=self.by,
            reason=self.reason,
            run_id=self.run_id,
            time=self.time,
            count=self.count,
            digest=self.digest,
            digest_kind=self.digest_kind,
            placement=self.placement,
            not_visible=self.not_visible,
            given_back=self.given_back,
            number=self.number,
            extra=self.unknown,
        )


class _Receipt(EntryFormat):
    """The fields that all versions of a receipt have."""

    generation: Number
    range: JsonRange
    count: Number
    bytes: Number
    digest: str
    digest_kind: str
    engine: str
    ids: JsonIds
    run_id: str
    time: str
    throttled: Annotated[float, Field(ge=0)] = 0.0
    delivery: Delivery = EXACTLY_ONCE
    after: Number | None = None
    lost_in_delivery: Number = 0
    duplicates: Number = 0
    failures: list[JsonFailed] = []
    sources: Number | None = None

    def receipt(self, placement: Placement, **more: Any) -> Receipt:
        return Receipt(
            generation=self.generation,
            range=self.range,
            count=self.count,
            bytes=self.bytes,
            digest=self.digest,
            digest_kind=self.digest_kind,
            engine=self.engine,
            placement=placement,
            ids=self.ids.value(),
            run_id=self.run_id,
            time=self.time,
            throttled=self.throttled,
            delivery=self.delivery,
            after=self.after,
            lost_in_delivery=self.lost_in_delivery,
            duplicates=self.duplicates,
            failures=tuple(failed.value() for failed in self.failures),
            sources=self.sources,
            extra=self.unknown,
            **more,
        )


class Receipt1(_Receipt):
    """A receipt for a Kafka target; every record was copied unchanged."""

    segments: list[JsonSegment]

    def value(self) -> Receipt:
        return self.receipt(KafkaSegments(tuple(segment.value() for segment in self.segments)))


class Receipt2(_Receipt):
    """A receipt that can also describe omitted records, a transform, other kinds of targets and an offset map."""

    placement: JsonPlacement
    filtered: Number
    quarantined: Number
    skipped: Number
    transform: JsonTransform | None
    offset_map: list[JsonMappedOffset]

    def value(self) -> Receipt:
        return self.receipt(
            self.placement,
            filtered=self.filtered,
            quarantined=self.quarantined,
            skipped=self.skipped,
            transform=self.transform.value() if self.transform else None,
            offset_map=tuple(self.offset_map),
        )
