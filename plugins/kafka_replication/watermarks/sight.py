"""Values that the store keeps for people alone: each replication as it was last looked at, and samples over time.

Nothing here decides what is copied.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import IntEnum
from typing import Final, Literal, TypeVar

from kafka_replication.alerting.open_causes import OpenCause
from kafka_replication.documents import Seconds, StatusRow
from kafka_replication.model.times import DAY_MILLIS, duration, floor_millis, from_millis
from kafka_replication.watermarks.values import RangeOutcome, RunRecord

N = TypeVar("N", int, float)
HOUR_MILLIS: Final = 3_600_000


class Span(IntEnum):
    """The time that one sample stands for, in milliseconds."""

    MINUTE = 60_000
    HOUR = HOUR_MILLIS
    DAY = DAY_MILLIS


# A sample is joined with its neighbours once it is this old: minutes for a day, hours for a month, then days until
# `retention.history` is over. So a replication never has more than 1,440 + 744 + 36,500 of them, beside those of the
# runs of the last day.
KEPT: Final[Mapping[Span, int]] = {Span.MINUTE: DAY_MILLIS, Span.HOUR: 31 * DAY_MILLIS}
COARSER: Final[Mapping[Span, Span]] = {Span.MINUTE: Span.HOUR, Span.HOUR: Span.DAY}


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The parts of the replication's file that a page shows. ``schedule`` is None for runs by hand."""

    source: str
    target: str
    schedule: str | None = None
    topics: tuple[str, ...] = ()
    by_interval: bool = False  # a run copies a data interval, not what is new


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The amounts of the newest run that copied something. ``seconds`` lie between its plan and ``at``, its end."""

    run_id: str
    records: int
    bytes: int
    seconds: float
    at: datetime

    @property
    def bytes_per_second(self) -> float:
        return self.bytes / self.seconds if self.seconds else 0.0


@dataclass(frozen=True, slots=True)
class Lag:
    """The distance to the end of the source: offsets of all partitions together, and the age in seconds of the oldest
    record that is not verified on the target. None is not known.
    """

    records: int | None = None
    seconds: float | None = None


UNKNOWN: Final = Lag()


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A replication as it stood at ``at``, which is None while nobody has looked."""

    replication: str
    facts: Facts | None = None
    at: datetime | None = None
    partitions: int = 0
    lag: Lag = UNKNOWN
    work: Work | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The measures within ``span`` from ``at`` on: the largest lag, and the sums of what runs copied that ended then.

    The lag is None where nobody looked.
    """

    at: datetime
    span: Span
    lag: Lag = UNKNOWN
    records: int = 0
    bytes: int = 0
    seconds: float = 0.0

    def joined(self, other: Sample) -> Sample:
        """Both as one sample of the same time."""
        return replace(
            self,
            lag=Lag(_larger(self.lag.records, other.lag.records), _larger(self.lag.seconds, other.lag.seconds)),
            records=self.records + other.records,
            bytes=self.bytes + other.bytes,
            seconds=self.seconds + other.seconds,
        )

    def within(self, span: Span) -> Sample:
        """The sample as a part of the coarser one that contains it."""
        return replace(self, at=begin_of(self.at, span), span=span)


@dataclass(frozen=True, slots=True, kw_only=True)
class PastAlert:
    """A cause that somebody was told of, and that is over."""

    kind: str
    subject: str
    since: datetime
    ended_at: datetime
    what: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Look:
    """The time when Airflow's watch looked last. ``paused``: the schedule was switched off then."""

    at: datetime
    paused: bool


Since = Literal["oldest record", "last verification", "last look"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Drill:
    """The result of a failover that had been at ``at``, RFC 3339 UTC. ``records`` counts the offsets that were at the
    source and not verified on the target; of ``unknown`` partitions it is not known.

    ``seconds`` is the age of what ``since`` names: of the oldest of these records; else the time since the last
    verification of a partition, or since the last look at a source that did not answer. Null is not known.
    ``groups_exact`` of ``groups_moved`` consumer groups would go on at an exact place.
    """

    at: str
    records: int
    unknown: int
    seconds: Seconds | None
    since: Since
    groups_exact: int
    groups_moved: int

    @property
    def time(self) -> datetime:
        return datetime.fromisoformat(self.at)

    @property
    def sentence(self) -> str:
        """The result in one sentence, without its time."""
        which = {"oldest record": "the age of the oldest of them", "last look": "since the last look at the source"}
        seconds = "of an unknown age" if self.seconds is None else "0 s"
        if self.seconds:
            seconds = f"{duration(self.seconds)} ({which.get(self.since, 'since the last verification')})"
        said = f"if the source died now: {self.records:,} records, {seconds}"
        if self.groups_moved:
            said += f", {self.groups_exact} of {self.groups_moved} groups exact"
        return said + (f"; of {self.unknown} partitions it is not known" if self.unknown else "")


# The sums of each replication. What is copied counts when it is, runs and ranges when the run ends.
RECORDS, BYTES, RETRIES, THROTTLED, RUNS, RANGES = "records", "bytes", "retries", "throttled_seconds", "runs", "ranges"
VERIFIED, FAILED = "verified", "failed"  # the outcomes of a range


@dataclass(frozen=True, slots=True)
class Total:
    """The name of a sum that only grows. ``kind`` is that of a run, ``outcome`` that of a run or a range."""

    name: str
    kind: str = ""
    outcome: str = ""


Totals = Mapping[Total, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """All that the front page needs of one replication, read at one time."""

    standing: Standing
    last_verified: datetime | None = None
    causes: tuple[OpenCause, ...] = ()
    look: Look | None = None
    newest: RunRecord | None = None  # without its plan
    at_work: tuple[RunRecord, ...] = ()  # the runs that have a lease, without their plans
    undecided: int = 0  # records that were set aside, and about which nobody has decided
    drill: Drill | None = None  # the last one


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateRow:
    """A certificate that the store keeps. Its files are called ``name`` with ``.json`` and ``.html``. ``signed_by`` is
    the fingerprint of the key; None: not signed.
    """

    name: str
    time: datetime
    about: str
    verified: bool
    verdict: str
    signed_by: str | None


@dataclass(frozen=True, slots=True)
class CopiedRange:
    """One range that a run of this kind has worked on."""

    outcome: RangeOutcome
    kind: str


def begin_of(moment: datetime, span: Span) -> datetime:
    """The beginning of the minute, hour or day (UTC) that has this moment."""
    return from_millis(floor_millis(moment) // span * span)


def lag_of(rows: Sequence[StatusRow]) -> Lag:
    """The lag of these partitions together; it is not known if that of any of them is not."""
    offsets = [row.lag for row in rows if row.lag is not None]
    ages = [row.lag_seconds for row in rows if row.lag_seconds is not None]
    return Lag(
        sum(offsets) if len(offsets) == len(rows) else None,
        max(ages, default=0.0) if len(ages) == len(rows) else None,
    )


def thinned(samples: Iterable[Sample], span: Span) -> list[Sample]:
    """These samples as samples of ``span``, oldest first."""
    joined = dict[datetime, Sample]()
    for sample in samples:
        coarser = sample.within(span)
        joined[coarser.at] = joined[coarser.at].joined(coarser) if coarser.at in joined else coarser
    return [joined[at] for at in sorted(joined)]


def _larger(one: N | None, other: N | None) -> N | None:
    return max((value for value in (one, other) if value is not None), default=None)
