"""The values in the watermark store: watermarks, leases, runs and the outcomes of ranges.

Every time in these values is UTC and comes from the **store's** clock, so hosts with different clocks agree on which
lease has expired. Durations are seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.offsets import MAX_OFFSET, OffsetRange
from kafka_replication.model.times import to_text
from kafka_replication.runtime.identity import ProcessIdentity
from kafka_replication.watermarks.topics import Scope, TargetTopics

RUN_STATES: Final = ("planned", "done", "nothing_to_do", "failed", "died")


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
