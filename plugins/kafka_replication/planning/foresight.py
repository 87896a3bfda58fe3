"""Foresees losses by retention: records that the source drops before they are copied, and copies that an existing
target drops soon after they are made. Pure.

Kafka drops whole segments, the oldest first, once the newest record of a segment is older than ``retention.ms``, and
stops at the first segment that is not. So nothing at or behind the first record of the log that is young enough is
dropped. Records before it are dropped at the earliest when they are ``retention.ms`` old.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from kafka_replication.config import Replication
from kafka_replication.ledger.entries import Position
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.offsets import Coverage, OffsetRange, PartitionKey
from kafka_replication.model.times import DAY_MILLIS, duration, from_millis, to_text
from kafka_replication.model.trouble import Trouble
from kafka_replication.planning.plan import Plan, State
from kafka_replication.planning.snapshot import Snapshot, Topic
from kafka_replication.planning.target_retention import Retention
from kafka_replication.planning.topic_settings import created_config
from kafka_replication.watermarks.values import Watermark

_SHARE: Final = 4  # of a short retention
_OTHER_SOURCE: Final = frozenset(
    {State.SOURCE_RECREATED, State.OVERRUN, State.LATE_GAP, State.TRUNCATED, State.VANISHED, State.DELETED}
)


def young_from(keeps: int, now: int) -> int:
    """The earliest timestamp of a record that is not dropped soon: not within a day, or within a quarter of a time
    ``keeps`` that is shorter than four days. All in ms.
    """
    return max(0, now - keeps + min(DAY_MILLIS, keeps // _SHARE))


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """The offsets of one partition that are not copied: all that are ``left`` of one that was opened, and the part
    ``to_copy`` that a run would copy.

    The source keeps its records for ``source_keeps`` ms, the target for ``target_keeps``. None: for ever, or this is
    not known.
    """

    key: PartitionKey
    left: Coverage
    to_copy: Coverage
    source_keeps: int | None
    target_keeps: int | None

    @property
    def first(self) -> int:
        """The first offset that is left."""
        return self.left.ranges[0].from_

    @property
    def first_to_copy(self) -> int:
        return self.to_copy.ranges[0].from_

    def source_limit(self, now: int) -> int | None:
        """The timestamp of `young_from` at the source; None if it need not be asked for."""
        return young_from(self.source_keeps, now) if self.left and self.source_keeps is not None else None

    def target_limit(self, now: int, young_at_source: int | None) -> int | None:
        """The same for the target. ``young_at_source`` is the first offset from `source_limit` on, if it is known:
        a target that keeps records longer keeps all that are behind it.
        """
        if not self.to_copy or self.target_keeps is None:
            return None
        limit, stricter = young_from(self.target_keeps, now), self.source_limit(now)
        kept = young_at_source is not None and young_at_source <= self.first_to_copy
        return None if kept and stricter is not None and limit <= stricter else limit


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceLoss:
    """Records that the source drops in ``seconds`` unless they are copied before; 0: at any moment.

    The oldest record that is not copied has the time ``oldest`` and the offset ``first``. ``waiting`` offsets are not
    copied. Times are in ms.
    """

    key: PartitionKey
    first: int
    oldest: int
    keeps: int
    waiting: int
    seconds: float

    @property
    def what(self) -> str:
        when = f"in {duration(self.seconds)} unless they are copied before" if self.seconds else "at any moment"
        return (
            f"records may be lost {when}: the oldest one of {self.key.source} that is not copied, at offset"
            f" {self.first}, is from {to_text(from_millis(self.oldest))}, and the source keeps records for"
            f" {_lasting(self.keeps)} (retention.ms); {self.waiting:,} offsets wait"
        )

    @property
    def remedy(self) -> str:
        run = "run the replication, more often or without max_records_per_run, and mend what stops it"
        return f"{run}; raise retention.ms of {self.key.source.topic} on the source until it has caught up"


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetLoss:
    """Copies that the target drops soon after they are made: up to ``records`` of what is to be copied. The first one
    has the time ``oldest``. Times are in ms.
    """

    of: Waiting
    oldest: int
    keeps: int
    records: int


def waiting(replication: Replication, plan: Plan, snapshot: Snapshot, view: LedgerView) -> list[Waiting]:
    """The partitions of the plan with offsets that are not copied, also of those that wait for a person. Left out are
    partitions whose source is not what it was, or has lost records: the plan says that.
    """
    defaults = snapshot.defaults.config if snapshot.defaults else {}

    def target_keeps(name: str, source: Topic) -> int | None:
        """For a topic that does not exist yet: what it will have."""
        created = {**defaults, **created_config(source.config, replication.target_topics.of(source.name))}
        return Retention.in_config(snapshot.target[name].config if name in snapshot.target else created).millis

    found = []
    for planned in plan.partitions:
        source = snapshot.source.get(planned.key.source.topic)
        offsets = source.readable.get(planned.key.source.partition) if source else None
        if planned.state in _OTHER_SOURCE or source is None or offsets is None:
            continue
        position = view.position(planned.key, planned.generation)
        is_own = planned.key.target_topic == replication.target_name(source.name)
        partition = Waiting(
            key=planned.key,
            left=_left(position, offsets.readable) if position and is_own else Coverage(),
            to_copy=_not_copied(position, planned.copy),
            source_keeps=Retention.in_config(source.config).millis,
            # Not known if functions may change timestamps.
            target_keeps=None if replication.pipeline.modules else target_keeps(planned.key.target_topic, source),
        )
        if partition.left or partition.to_copy:
            found.append(partition)
    return found


def unverified(
    replication: Replication, watermarks: Iterable[Watermark], source: Mapping[str, Topic]
) -> Iterator[Waiting]:
    """The same by the store alone, while the target and its ledger do not answer: what is not verified counts as not
    copied.
    """
    for watermark in watermarks:
        topic = source.get(watermark.key.source.topic)
        offsets = topic.readable.get(watermark.key.source.partition) if topic else None
        is_own = watermark.key.target_topic == replication.target_name(watermark.key.source.topic)
        if topic is None or offsets is None or topic.topic_id != watermark.source_topic_id or not is_own:
            continue
        from_ = max(watermark.offset, offsets.log_start)
        yield Waiting(
            key=watermark.key,
            left=Coverage.of([OffsetRange(from_, max(from_, offsets.last_stable))]),
            to_copy=Coverage(),
            source_keeps=Retention.in_config(topic.config).millis,
            target_keeps=None,
        )


def _left(position: Position, readable: OffsetRange) -> Coverage:
    from_ = max(position.next_offset, readable.from_)
    return _not_copied(position, OffsetRange(from_, max(from_, readable.until)))


def _not_copied(position: Position | None, range_: OffsetRange | None) -> Coverage:
    wanted = Coverage.of([range_] if range_ else [])
    return wanted.subtract(position.coverage) if position else wanted


def source_loss(of: Waiting, *, oldest: int | None, now: int) -> SourceLoss | None:
    """The loss of the oldest record that is left, if its time is known, and near the end of the source's retention."""
    if oldest is None or of.source_keeps is None or oldest >= young_from(of.source_keeps, now):
        return None
    seconds = max(0, oldest + of.source_keeps - now) / 1000
    return SourceLoss(
        key=of.key, first=of.first, oldest=oldest, keeps=of.source_keeps, waiting=of.left.span, seconds=seconds
    )


def target_loss(of: Waiting, *, oldest: int | None, young: int) -> TargetLoss | None:
    """The loss of records before the first ``young`` offset, if the time of the oldest one is known."""
    old = of.to_copy.within(OffsetRange(of.first_to_copy, max(young, of.first_to_copy)))
    if oldest is None or of.target_keeps is None or not old:
        return None
    return TargetLoss(of=of, oldest=oldest, keeps=of.target_keeps, records=old.span)


def findings(source: Iterable[SourceLoss], target: Iterable[TargetLoss] = ()) -> Iterator[Trouble]:
    """One warning for each topic and side. It is about the partition with the nearest loss, or the oldest record."""
    for losses in by_topic(source):
        yield _warning(losses[0].key, f"{losses[0].what}{others(losses)}", losses[0].remedy)
    ordered = sorted(target, key=lambda loss: (loss.of.key.target_topic, loss.of.key))
    for topic, of_topic in itertools.groupby(ordered, key=lambda loss: loss.of.key.target_topic):
        copies = sorted(of_topic, key=lambda loss: loss.oldest)
        key, to_copy = copies[0].of.key, sum(loss.of.to_copy.span for loss in copies)
        what = (
            f"{topic} keeps records for {_lasting(copies[0].keeps)} (retention.ms), and up to"
            f" {sum(loss.records for loss in copies):,} of the {to_copy:,} offsets to be copied"
            f" to it from {len(copies)} partition{'s' if len(copies) > 1 else ''} are older or soon will be: the"
            f" first, at offset {copies[0].of.first_to_copy} of {key.source}, is from"
            f" {to_text(from_millis(copies[0].oldest))}; they may be deleted soon after they are copied, and before"
            " they are read back"
        )
        yield _warning(key, what, f"raise retention.ms of {topic} first")


def _warning(key: PartitionKey, what: str, remedy: str) -> Trouble:
    at = key.source
    return Trouble("warning", f"{at.topic} -> {key.target_topic}", what, remedy, topic=at.topic, partition=at.partition)


def by_topic(losses: Iterable[SourceLoss]) -> Iterator[list[SourceLoss]]:
    """The losses of each source topic, the nearest first."""
    ordered = sorted(losses, key=lambda loss: (loss.key.source.topic, loss.seconds, loss.key))
    for _, of_topic in itertools.groupby(ordered, key=lambda loss: loss.key.source.topic):
        yield list(of_topic)


def others(losses: list[SourceLoss]) -> str:
    """The words about all but the first one."""
    return f" (and {len(losses) - 1} other partitions of {losses[0].key.source.topic})" if len(losses) > 1 else ""


def _lasting(millis: int) -> str:
    """A retention for people: in days if it has some."""
    return f"{millis / DAY_MILLIS:.3g} days" if millis >= 2 * DAY_MILLIS else duration(millis / 1000)
