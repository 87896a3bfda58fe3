"""Foresees losses by retention: records that the source drops before they are copied, and copies that an existing
target drops soon after they are made. Pure.

Kafka drops whole segments, the oldest first, once the newest record of a segment is older than ``retention.ms``, and
stops at the first segment that is not. So nothing at or behind the first record of the log that is young enough is
dropped. Records before it are dropped at the earliest when they are ``retention.ms`` old. It also drops the oldest
segments as long as what remains has ``retention.bytes``. So a record stays while what lies behind it has less; until
when follows from how fast records come. Each offset of a partition is taken to have as many bytes as any other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from kafka_replication.config import Replication
from kafka_replication.ledger.entries import Position
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.offsets import Coverage, OffsetRange
from kafka_replication.model.times import DAY_MILLIS
from kafka_replication.planning.plan import Plan, State
from kafka_replication.planning.retention.losses import Limit, SizeLoss, SourceLoss, TargetLoss
from kafka_replication.planning.retention.target_retention import Retention
from kafka_replication.planning.snapshot import Snapshot, Topic
from kafka_replication.planning.topics.created_topics import created_config
from kafka_replication.watermarks.values import Watermark

_SHARE: Final = 4  # of a short retention
_OTHER_SOURCE: Final = frozenset(
    {State.SOURCE_RECREATED, State.OVERRUN, State.LATE_GAP, State.TRUNCATED, State.VANISHED, State.DELETED}
)


def soon(keeps: int) -> int:
    """The time ahead that is looked at, for a topic that keeps records for ``keeps``; both in ms."""
    return min(DAY_MILLIS, keeps // _SHARE)


def young_from(keeps: int, now: int) -> int:
    """The earliest timestamp of a record that is not dropped soon; all in ms."""
    return max(0, now - keeps + soon(keeps))


def seconds_until_loss(*, age: float, keeps: float, came: int, copied: int, elapsed: float) -> float | None:
    """The seconds until copying is overtaken by a source that keeps records for ``keeps`` seconds; None for never.

    The oldest record that is not copied is ``age`` seconds old, and with it and since then ``came`` offsets came. Of
    late, ``copied`` offsets were copied in ``elapsed`` seconds. If both go on like this, the oldest record that is
    not copied gets older by ``1 - share`` seconds in each second, where ``share`` is the part of what comes that is
    copied.
    """
    left = keeps - age
    if left <= 0:
        return 0.0
    share = copied * age / (elapsed * came) if age > 0 else 0.0
    return left / (1 - share) if share < 1 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """The offsets of one partition that are not copied: all that are ``left`` of one that was opened, up to ``end``,
    and the part ``to_copy`` that a run would copy.

    The source keeps its records for ``source_keeps`` ms, the target for ``target_keeps``; at most ``source_bytes`` of
    a partition, and ``target_bytes``. None: for ever, or this is not known. ``log`` are the offsets that the
    source has.
    """

    key: PartitionKey
    generation: int
    left: Coverage
    to_copy: Coverage
    end: int
    log: OffsetRange
    source_keeps: int | None
    target_keeps: int | None
    source_bytes: int | None = None
    target_bytes: int | None = None

    @property
    def needs_size(self) -> bool:
        """True if the size of the source's partition decides about losses."""
        return bool((self.left and self.source_bytes is not None) or (self.to_copy and self.target_bytes is not None))

    def bytes_behind(self, size: int) -> int:
        """The bytes at and behind the first offset that is left, if the partition has ``size`` bytes."""
        return self._share(size, self.log.until - self.first)

    def bytes_that_wait(self, size: int) -> int:
        """The bytes of all that is not copied, if the partition has ``size`` bytes."""
        return self._share(size, self.left.union(self.to_copy).span)

    def _share(self, size: int, offsets: int) -> int:
        return round(size * offsets / max(1, self.log.span))

    def may_outgrow(self, size: int | None) -> bool:
        """True if the source's `retention.bytes` is so near that its time has to be looked at. Less than a quarter of
        the time that it takes to fill it can be left only where less than a quarter of it is free.
        """
        if size is None or self.source_bytes is None or not self.left:
            return False
        return self.bytes_behind(size) * _SHARE >= self.source_bytes * (_SHARE - 1)

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


def waiting(replication: Replication, plan: Plan, snapshot: Snapshot, view: LedgerView) -> list[Waiting]:
    """The partitions of the plan with offsets that are not copied, also of those that wait for a person. Left out are
    partitions whose source is not what it was, or has lost records: that is said of them.
    """
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
            generation=planned.generation,
            left=_left(position, offsets.readable) if position and is_own else Coverage(),
            to_copy=_not_copied(position, planned.copy),
            end=offsets.last_stable,
            log=OffsetRange(offsets.log_start, offsets.high_watermark),
            source_keeps=_keeps(source.config),
            target_keeps=_target_keeps(replication, snapshot, planned.key, source),
            source_bytes=_most(source.config),
            target_bytes=_target_most(replication, snapshot, planned.key, source),
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
            generation=watermark.generation,
            left=Coverage.of([OffsetRange(from_, max(from_, offsets.last_stable))]),
            to_copy=Coverage(),
            end=offsets.last_stable,
            log=OffsetRange(offsets.log_start, offsets.high_watermark),
            source_keeps=_keeps(topic.config),
            target_keeps=None,
            source_bytes=_most(topic.config),
        )


def _left(position: Position, readable: OffsetRange) -> Coverage:
    from_ = max(position.next_offset, readable.from_)
    return _not_copied(position, OffsetRange(from_, max(from_, readable.until)))


def _not_copied(position: Position | None, range_: OffsetRange | None) -> Coverage:
    wanted = Coverage.of([range_] if range_ else [])
    return wanted.subtract(position.coverage) if position else wanted


def _keeps(config: Mapping[str, str]) -> int | None:
    return Retention.in_config(config).millis


def _most(source: Mapping[str, str]) -> int | None:
    """With tiered storage, brokers tell only the size of what is on their disks."""
    tiered = source.get("remote.storage.enable") == "true"
    return None if tiered else Retention.in_config(source).bytes


def _target_most(replication: Replication, snapshot: Snapshot, key: PartitionKey, source: Topic) -> int | None:
    """The same for the target: only where a partition there gets the records of one at the source, as they are."""
    target, tiered = snapshot.target.get(key.target_topic), source.config.get("remote.storage.enable") == "true"
    if tiered or replication.pipeline or not replication.placing.keeps:
        return None
    if target is not None:
        return Retention.in_config(target.config).bytes
    defaults = snapshot.defaults.config if snapshot.defaults else {}
    return Retention.in_config({**defaults, **created_config(source.config, replication.target_topics)}).bytes


def _target_keeps(replication: Replication, snapshot: Snapshot, key: PartitionKey, source: Topic) -> int | None:
    """For a topic that does not exist yet: what it will have. Not known if functions may change timestamps."""
    if replication.pipeline.modules:
        return None
    target = snapshot.target.get(key.target_topic)
    if target is not None:
        return _keeps(target.config)
    defaults = snapshot.defaults.config if snapshot.defaults else {}
    return _keeps({**defaults, **created_config(source.config, replication.target_topics)})


def source_loss(
    of: Waiting, *, oldest: int | None, now: int, since: int | None, offset_then: int, size: int | None = None
) -> SourceLoss | None:
    """The nearest loss that can be foreseen: the time of the oldest record that is not copied is known, and what was
    copied before ``since``, in ms. The rate must have been measured for at least as long as it is said to go on.
    ``size`` is that of the source's partition, in bytes; None if it is not known.
    """
    if oldest is None or since is None or since >= now:
        return None
    elapsed, copied = (now - since) / 1000, max(0, of.first - offset_then)
    nearest: tuple[float, Limit] | None = None
    for keeps, limit in _limits(of, now - oldest, size):
        seconds = seconds_until_loss(
            age=(now - oldest) / 1000, keeps=keeps / 1000, came=of.end - of.first, copied=copied, elapsed=elapsed
        )
        if seconds is None or seconds > min(soon(keeps) / 1000, elapsed):
            continue
        if nearest is None or seconds < nearest[0]:
            nearest = seconds, limit
    if nearest is None:
        return None
    return SourceLoss(
        key=of.key,
        first=of.first,
        oldest=oldest,
        limit=nearest[1],
        waiting=of.left.span,
        per_second=copied / elapsed,
        seconds=nearest[0],
    )


def _limits(of: Waiting, age: int, size: int | None) -> Iterator[tuple[int, Limit]]:
    """The limits of the source, each with the age in ms at which it drops the oldest record that is left, now of this
    ``age``: by size, that at which records that come as they did since then fill `retention.bytes`.
    """
    if of.source_keeps is not None:
        yield of.source_keeps, Limit.of_time(of.source_keeps)
    if size is not None and of.source_bytes is not None and age > 0 and (behind := of.bytes_behind(size)):
        yield round(age * of.source_bytes / behind), Limit.of_size(of.source_bytes, behind)


def target_loss(of: Waiting, *, oldest: int | None, young: int) -> TargetLoss | None:
    """The loss of records before the first ``young`` offset, if the time of the oldest one is known."""
    old = of.to_copy.within(OffsetRange(of.first_to_copy, max(young, of.first_to_copy)))
    if oldest is None or of.target_keeps is None or not old:
        return None
    return TargetLoss(
        key=of.key,
        first=of.first_to_copy,
        oldest=oldest,
        keeps=of.target_keeps,
        records=old.span,
        to_copy=of.to_copy.span,
    )


def size_loss(of: Waiting, size: int | None) -> SizeLoss | None:
    """The loss by the target's `retention.bytes`. What stands there already is dropped first, as it always is: only
    what is not copied yet is looked at.
    """
    if size is None or of.target_bytes is None or not of.to_copy:
        return None
    waits = of.bytes_that_wait(size)
    return SizeLoss(key=of.key, waits=waits, keeps=of.target_bytes) if waits > of.target_bytes else None
