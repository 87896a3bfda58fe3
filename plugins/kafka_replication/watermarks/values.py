"""The values in the watermark store: watermarks, leases, runs and the outcomes of ranges.

Every time in these values is UTC and comes from the **store's** clock, so hosts with different clocks agree on which
lease has expired. Durations are seconds.

Sets of target topics: those that a run works on, and those that other runs must leave to it.

The rules for changes in the watermark store, as pure functions that every store calls inside its transaction.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import ClassVar, Final

from kafka_replication.model.errors import Refused, StaleWriter
from kafka_replication.model.offsets import MAX_OFFSET, OffsetRange, PartitionKey
from kafka_replication.model.times import to_text
from kafka_replication.runtime.identity import ProcessIdentity


@dataclass(frozen=True, slots=True)
class TargetTopics:
    """The target topics in ``names``, or with ``all_but`` every topic that is not in ``names``."""

    names: frozenset[str] = frozenset()
    all_but: bool = False

    ALL: ClassVar[TargetTopics]
    NONE: ClassVar[TargetTopics]

    @classmethod
    def of(cls, names: Iterable[str]) -> TargetTopics:
        return cls(frozenset(names))

    def __contains__(self, name: str) -> bool:
        return (name in self.names) != self.all_but

    def __bool__(self) -> bool:
        return self.all_but or bool(self.names)

    def minus(self, other: TargetTopics) -> TargetTopics:
        """The topics that are not in ``other``."""
        match self.all_but, other.all_but:
            case False, False:
                return TargetTopics(self.names - other.names)
            case False, True:
                return TargetTopics(self.names & other.names)
            case True, False:
                return TargetTopics(self.names | other.names, all_but=True)
            case _:
                return TargetTopics(other.names - self.names)

    def both(self, other: TargetTopics) -> TargetTopics:
        """The topics that are in ``other``, too."""
        return self.minus(TargetTopics(other.names, not other.all_but))

    def overlaps(self, other: TargetTopics) -> bool:
        """True if a topic is in both sets."""
        return bool(self.both(other))

    def __str__(self) -> str:
        shown = ", ".join(sorted(self.names)[:5]) + (" and others" if len(self.names) > 5 else "")
        if self.all_but:
            return f"all target topics but {shown}" if self.names else "all target topics"
        return shown or "no target topic"

    def encode(self) -> str:
        """The text that a store keeps."""
        return json.dumps({"all_but" if self.all_but else "only": sorted(self.names)})

    @classmethod
    def decode(cls, text: str) -> TargetTopics:
        (kind, names) = json.loads(text).popitem()
        return cls(frozenset(names), all_but=kind == "all_but")


TargetTopics.ALL = TargetTopics(all_but=True)
TargetTopics.NONE = TargetTopics()


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The topics that an attempt claims. It takes those of ``wants`` that no other attempt has.

    It waits until no other attempt has a topic in ``needs``. When its time to wait is over, ``at_least`` must be free.
    """

    wants: TargetTopics
    needs: TargetTopics
    at_least: TargetTopics

    @classmethod
    def exactly(cls, topics: TargetTopics) -> Scope:
        """All of ``topics``, or nothing."""
        return cls(wants=topics, needs=topics, at_least=topics)

    def impatient(self) -> Scope:
        """The scope of the same attempt after its time to wait is over."""
        return Scope(wants=self.wants, needs=self.at_least, at_least=self.at_least)


SEALED: Final = "sealed"  # a seal refused all partitions of the run
RUN_STATES: Final = ("planned", "done", "nothing_to_do", "failed", "died", SEALED)
ENDED_WELL: Final = ("done", "nothing_to_do", SEALED)  # a seal was meant to be


@dataclass(frozen=True, slots=True, kw_only=True)
class Watermark:
    """``offset`` is the next source offset after the last copied and verified one. Every change raises ``version`` by
    one.
    """

    key: PartitionKey
    generation: int
    source_topic_id: str
    target_topic_id: str
    offset: int
    version: int
    updated_at: datetime
    run_id: str

    def __post_init__(self) -> None:
        if not 0 <= self.offset <= MAX_OFFSET or self.generation < 0 or self.version < 1:
            raise ValueError(
                f"not a watermark: offset {self.offset}, generation {self.generation}, version {self.version}"
            )
        if not self.source_topic_id or not self.target_topic_id or not self.run_id:
            raise ValueError(f"a watermark of {self.key} needs both topic ids and a run id")

    def __str__(self) -> str:
        return f"{self.key} at {self.offset} (generation {self.generation}, version {self.version})"


@dataclass(frozen=True, slots=True, kw_only=True)
class WatermarkChange:
    """The watermark that a run wants to store, and the version that it has read (None: there was no watermark)."""

    key: PartitionKey
    generation: int
    source_topic_id: str
    target_topic_id: str
    offset: int
    expected_version: int | None
    run_id: str

    def first(self, now: datetime) -> Watermark:
        """The first watermark of a partition. Raises ValueError."""
        return Watermark(
            key=self.key,
            generation=self.generation,
            source_topic_id=self.source_topic_id,
            target_topic_id=self.target_topic_id,
            offset=self.offset,
            version=1,
            updated_at=now,
            run_id=self.run_id,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The claim of one attempt for a lease. An attempt (``holder``) is one try of a task of the run ``owner``, or one
    command; no two attempts have the same name. ``process`` is the process that works; None if it is not known.
    """

    replication: str
    owner: str
    holder: str
    scope: Scope
    process: ProcessIdentity | None = None

    def __post_init__(self) -> None:
        if not self.replication or not self.owner or not self.holder:
            raise ValueError(f"not a claim: {self.replication!r}, {self.owner!r}, {self.holder!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The right of one attempt (``holder``) of a run (``owner``) to work on some target topics of a replication.

    Between two tasks of a run ``holder`` is None: the lease is reserved for the run's next task. ``token`` grows with
    every holder in the replication. A ``waiting`` one is no lease yet: the attempt is in the queue for ``topics`` since
    ``acquired_at``.
    """

    replication: str
    owner: str
    holder: str | None
    acquired_at: datetime
    expires_at: datetime
    token: int
    topics: TargetTopics = TargetTopics.ALL
    process: ProcessIdentity | None = None
    waiting: bool = False

    def __post_init__(self) -> None:
        if not self.replication or not self.owner or self.holder == "" or self.token < 1:
            raise ValueError(f"not a lease: {self.replication!r}, {self.owner!r}, {self.holder!r}, token {self.token}")

    @property
    def who(self) -> str:
        """The owner with its attempt, for messages."""
        return f"{self.owner} ({self.holder})" if self.holder else self.owner

    def __str__(self) -> str:
        state = "queued for" if self.waiting else "held by" if self.holder else "reserved for"
        return (
            f"lease {self.token} of {self.replication} ({self.topics}), {state} {self.who} until"
            f" {to_text(self.expires_at)}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """One run with its plan. ``state`` is one of `RUN_STATES`; it is `planned` until the run has ended.

    ``alive``: an attempt of the run has a lease, or the run's next task is expected. A planned run that is not alive
    has died, and the next run stores that.

    ``plan`` and ``progress`` are JSON texts that the store does not read. The plan is empty after the store dropped the
    plan of a run that succeeded. There is no progress until the run has begun to copy.
    """

    run_id: str
    replication: str
    kind: str
    state: str
    plan: str
    created_at: datetime
    finished_at: datetime | None = None
    progress: str | None = None
    alive: bool = False

    def __post_init__(self) -> None:
        if not self.run_id or not self.replication or not self.kind or self.state not in RUN_STATES:
            raise ValueError(f"not a run: {self.run_id!r}, {self.replication!r}, {self.kind!r}, {self.state!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeOutcome:
    """The outcome of one offset range in one run.

    ``digest_ok`` is None until a verification compared digests; ``level`` names what was compared. ``watermark`` is the
    partition's stored watermark after the run, or None if it did not move. ``seconds`` and ``bytes`` are those of the
    copy. The store sets ``recorded_at``, and comparisons ignore it.
    """

    run_id: str
    key: PartitionKey
    range: OffsetRange
    copied: int = 0
    not_visible: int = 0
    digest_ok: bool | None = None
    level: str = ""
    watermark: int | None = None
    error: str | None = None
    remedy: str | None = None
    seconds: float = 0.0
    bytes: int = 0
    recorded_at: datetime | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if not self.run_id or min(self.copied, self.not_visible, self.bytes, self.seconds) < 0:
            raise ValueError(
                f"not an outcome of {self.key} {self.range}: {self.copied} copied, {self.not_visible} not visible"
            )


def decide_advance(stored: Watermark | None, change: WatermarkChange, now: datetime) -> Watermark:
    """The watermark to store when a run requests ``change``: ``stored`` itself (nothing changes) or the new one.

    The same generation with the same topic ids and an offset not above the stored one changes nothing, whatever version
    was expected. Any other change must expect the stored version, and only a newer generation may change topic ids or
    move the watermark back. Raises StaleWriter (another run was faster) or Refused (a topic was re-created).
    """
    requested = change.first(now)
    if stored is None:
        return _first(requested, change.expected_version)
    if requested.generation < stored.generation:
        raise StaleWriter(
            f"{requested.key}: generation {requested.generation} is over: {_who(stored)}",
            "run again; it plans with the new generation",
        )
    if requested.generation == stored.generation:
        _same_topics(stored, requested)
        if requested.offset <= stored.offset:
            return stored
    if change.expected_version != stored.version:
        raise StaleWriter(
            f"{requested.key}: {requested.run_id} wants {requested.offset} at version"
            f" {change.expected_version or 'none'}, but {_who(stored)}",
            "run again; it plans from the stored watermark",
        )
    return replace(requested, version=stored.version + 1)


def decide_restore(stored: Watermark | None, change: WatermarkChange, now: datetime) -> Watermark:
    """The watermark of ``change``, higher or lower than ``stored``, with the next version.

    Raises StaleWriter if the stored watermark was moved since it was read.
    """
    requested = change.first(now)
    if stored is None:
        return _first(requested, change.expected_version)
    if replace(requested, version=stored.version, updated_at=stored.updated_at, run_id=stored.run_id) == stored:
        return stored  # also if this call was repeated after an unknown outcome
    if stored.version != change.expected_version:
        raise StaleWriter(
            f"{requested.key}: version {change.expected_version or 'none'} was expected, but {_who(stored)}",
            "run the command again; nothing was changed",
        )
    return replace(requested, version=stored.version + 1)


def _first(requested: Watermark, expected_version: int | None) -> Watermark:
    if expected_version is None:
        return requested
    raise StaleWriter(
        f"{requested.key}: version {expected_version} was expected, but the store holds no watermark: it was lost or"
        " replaced",
        "check the store's url, then rebuild the watermarks from the ledger",
    )


def _same_topics(stored: Watermark, requested: Watermark) -> None:
    for side, had, has in (
        ("source", stored.source_topic_id, requested.source_topic_id),
        ("target", stored.target_topic_id, requested.target_topic_id),
    ):
        if had != has:
            raise Refused(
                f"{requested.key}: the {side} topic was re-created: its id is {has}, but {_who(stored)} for topic id"
                f" {had}",
                "if the new topic is meant, reset the partition, which starts a new generation",
            )


def _who(stored: Watermark) -> str:
    return (
        f"{stored.run_id} stored {stored.offset} (generation {stored.generation}, version {stored.version}) at"
        f" {to_text(stored.updated_at)}"
    )
