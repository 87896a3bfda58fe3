"""Losses by retention that were foreseen, and the words about them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.sizes import amount
from kafka_replication.model.times import DAY_MILLIS, duration, from_millis, to_text
from kafka_replication.planning.findings import Finding


@dataclass(frozen=True, slots=True)
class Limit:
    """The setting of a source topic that ends the life of its records, and what it says, in words."""

    setting: str
    words: str

    @classmethod
    def of_time(cls, keeps: int) -> Limit:
        return cls("retention.ms", f"keeps records for {lasting(keeps)} (retention.ms)")

    @classmethod
    def of_size(cls, most: int, behind: int) -> Limit:
        words = f"keeps {amount(most)} of a partition (retention.bytes); it and what lies behind it have about"
        return cls("retention.bytes", f"{words} {amount(behind)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceLoss:
    """Records that the source drops before they are copied, in ``seconds`` if all goes on as it did; 0: at any moment.

    The oldest record that is not copied has the time ``oldest`` and the offset ``first``. ``waiting`` offsets are not
    copied, ``per_second`` were copied of late. Times are in ms.
    """

    key: PartitionKey
    first: int
    oldest: int
    limit: Limit
    waiting: int
    per_second: float
    seconds: float

    @property
    def what(self) -> str:
        seconds = self.seconds
        lost = (
            f"at this rate records are lost in {duration(seconds)}" if seconds else "records may be lost at any moment"
        )
        return (
            f"{lost}: the oldest one of {self.key.source} that is not copied, at offset"
            f" {self.first}, is from {to_text(from_millis(self.oldest))}, and the source"
            f" {self.limit.words}; {self.waiting:,} offsets wait, and of late"
            f" {f'{self.per_second:,.1f} a second were' if self.per_second else 'none was'} copied"
        )

    @property
    def remedy(self) -> str:
        source = f"{self.limit.setting} of {self.key.source.topic} on the source"
        run = "run the replication, more often or without max_records_per_run, and mend what stops it"
        return f"{run}; raise {source} until it has caught up"


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetLoss:
    """Copies that the target drops soon after they are made: up to ``records`` of ``to_copy`` offsets. The first one
    has the time ``oldest`` and the source offset ``first``. Times are in ms.
    """

    key: PartitionKey
    first: int
    oldest: int
    keeps: int
    records: int
    to_copy: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeLoss:
    """More than a partition of the target keeps is not copied to it yet: about ``waits`` of at most ``keeps`` bytes."""

    key: PartitionKey
    waits: int
    keeps: int


def findings(
    source: Iterable[SourceLoss], target: Iterable[TargetLoss], sizes: Iterable[SizeLoss] = ()
) -> Iterator[Finding]:
    """One warning for each topic, side and limit. It is about the partition with the nearest loss, the oldest record,
    or the most bytes.
    """
    for losses in by_topic(source):
        yield _warning(losses[0].key, f"{losses[0].what}{others(losses)}", losses[0].remedy)
    ordered = sorted(target, key=lambda loss: (loss.key.target_topic, loss.key))
    for topic, of_topic in itertools.groupby(ordered, key=lambda loss: loss.key.target_topic):
        copies = sorted(of_topic, key=lambda loss: loss.oldest)
        what = (
            f"{topic} keeps records for {lasting(copies[0].keeps)} (retention.ms), and up to"
            f" {sum(loss.records for loss in copies):,} of the {sum(loss.to_copy for loss in copies):,} offsets to be"
            f" copied to it from {_partitions(copies)} are older or soon will be: the first, at offset"
            f" {copies[0].first} of {copies[0].key.source}, is from {to_text(from_millis(copies[0].oldest))}; they may"
            " be deleted soon after they are copied, and before they are read back"
        )
        yield _warning(copies[0].key, what, f"raise retention.ms of {topic} first")

    by_size = sorted(sizes, key=lambda loss: (loss.key.target_topic, -loss.waits, loss.key))
    for topic, larger in itertools.groupby(by_size, key=lambda loss: loss.key.target_topic):
        first, *more = larger
        too = f" (and of {len(more)} more partitions more than it keeps)" if more else ""
        what = (
            f"{topic} keeps {amount(first.keeps)} of a partition (retention.bytes), and about {amount(first.waits)} of"
            f" {first.key.source} are not copied to it yet{too}: the oldest of them may be deleted"
            " soon after they are copied, and before they are read back"
        )
        yield _warning(first.key, what, f"raise retention.bytes of {topic} first")


def _warning(key: PartitionKey, what: str, remedy: str) -> Finding:
    at = key.source
    return Finding("warning", f"{at.topic} -> {key.target_topic}", what, remedy, topic=at.topic, partition=at.partition)


def _partitions(losses: list[TargetLoss]) -> str:
    return f"{len(losses)} partition{'s' if len(losses) > 1 else ''}"


def by_topic(losses: Iterable[SourceLoss]) -> Iterator[list[SourceLoss]]:
    """The losses of each source topic, the nearest first."""
    ordered = sorted(losses, key=lambda loss: (loss.key.source.topic, loss.seconds, loss.key))
    for _, of_topic in itertools.groupby(ordered, key=lambda loss: loss.key.source.topic):
        yield list(of_topic)


def others(losses: list[SourceLoss]) -> str:
    """The words about all but the first one."""
    return f" (and {len(losses) - 1} other partitions of {losses[0].key.source.topic})" if len(losses) > 1 else ""


def lasting(millis: int) -> str:
    """A retention for people: in days if it has some."""
    return f"{millis / DAY_MILLIS:.3g} days" if millis >= 2 * DAY_MILLIS else duration(millis / 1000)
