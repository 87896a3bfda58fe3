"""What the watermark store holds: watermarks, leases, runs and the outcomes of ranges.

Every time in these values is UTC and was read from the **store's** clock: hosts whose clocks disagree still agree on
which lease has expired. Durations are seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.offsets import MAX_OFFSET, OffsetRange
from kafka_replication.model.times import to_text

RUN_STATES: Final = ("planned", "done", "nothing_to_do", "failed")


@dataclass(frozen=True, slots=True)
class Watermark:
    """``offset`` is the next source offset after the last copied and verified one; ``version`` moves by one at every
    change.
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


@dataclass(frozen=True, slots=True)
class Lease:
    """The right of one ``owner`` (a run id) to work on a replication.

    ``token`` grows with every change of hands, never back.
    """

    replication: str
    owner: str
    acquired_at: datetime
    expires_at: datetime
    token: int

    def __post_init__(self) -> None:
        if not self.replication or not self.owner or self.token < 1:
            raise ValueError(f"not a lease: {self.replication!r}, {self.owner!r}, token {self.token}")

    def __str__(self) -> str:
        return f"lease {self.token} of {self.replication}, held by {self.owner} until {to_text(self.expires_at)}"


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One run with the plan it is bound to (JSON text, opaque here). ``state`` is one of `RUN_STATES`."""

    run_id: str
    replication: str
    kind: str
    state: str
    plan: str
    created_at: datetime
    finished_at: datetime | None = None

    def __post_init__(self) -> None:
        if not self.run_id or not self.replication or not self.kind or self.state not in RUN_STATES:
            raise ValueError(f"not a run: {self.run_id!r}, {self.replication!r}, {self.kind!r}, {self.state!r}")


@dataclass(frozen=True, slots=True)
class RangeOutcome:
    """What became of one offset range in one run.

    ``digest_ok`` is None until a verification compared digests; ``level`` names what was compared. ``watermark`` is the
    partition's stored watermark after the run, None where it was not moved. ``seconds`` and ``bytes`` are the copy's.
    ``recorded_at`` is set by the store and takes no part in comparisons.
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
