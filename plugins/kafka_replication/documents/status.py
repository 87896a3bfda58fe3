"""The documents of ``status``, ``verify`` and ``ledger``."""

from __future__ import annotations

from typing import Any

from typing_extensions import TypedDict

from kafka_replication.documents.common import GapRow, Pairs, PartitionRow
from kafka_replication.model.delivery import Delivery
from kafka_replication.model.targets import Promise


class ProgressRow(TypedDict):
    """The progress of a run. A range is done once it is verified, an offset once it is on the target or given up.

    ``records`` and ``bytes`` are committed by this attempt of the run, ``seconds`` is its age, ``throttled`` the
    time for which quotas or a target that was not ready made its ranges wait, ``waiting`` what it waits for.
    ``seconds_left`` is an estimate; null if there is none.
    """

    ranges: int
    ranges_done: int
    offsets: int
    offsets_done: int
    slowest: str | None
    slowest_percent: int | None
    records: int
    bytes: int
    seconds: float
    bytes_per_second: float
    seconds_left: float | None
    throttled: float
    waiting: str | None
    percent: int


class RunAtWorkRow(TypedDict):
    """A run that works now; ``target_topics`` is null for all topics, ``progress`` before it copies."""

    run_id: str
    progress: ProgressRow | None
    target_topics: list[str] | None


class RecentRunRow(TypedDict):
    """One of the latest runs. ``state``: ``running``, ``expected``, ``died``, or how it ended."""

    run_id: str
    kind: str
    state: str
    planned_at: str
    ended_at: str | None


class StatusRow(PartitionRow):
    """The status of one partition, in source offsets. ``lag`` is the distance from the watermark to ``source_end``.

    What is not known because a cluster does not answer, or because nothing was copied, is null. ``in_store`` is false
    where the store knows less than the ledger. ``withheld`` offsets are hidden by an open transaction.
    ``lost_in_seconds`` says when the source will drop records that are not copied, if that is near.
    """

    state: str
    in_store: bool
    log_start: int | None
    source_end: int | None
    high_watermark: int | None
    withheld: int
    position: int | None
    watermark: int | None
    lag: int | None
    lag_seconds: float | None
    removed: int
    no_longer_on_target: Pairs
    missed: Pairs
    last_verified: str | None
    verified_by: str
    delivery: Delivery
    lost_in_delivery: int
    duplicates: int
    superseded: int
    lost: int
    quarantined: int
    skipped: int
    undecided: int
    gaps: list[GapRow]
    error: str | None
    remedy: str | None
    lost_in_seconds: float | None


class StatusDocument(TypedDict):
    """``status``: ``problems`` says why the exit code is 1, ``running`` is the first of ``at_work``, ``promise`` as in
    ``run``.
    """

    replication: str
    promise: Promise
    running: RunAtWorkRow | None
    at_work: list[RunAtWorkRow]
    runs: list[RecentRunRow]
    problems: list[str]
    partitions: list[StatusRow]


class VerifiedRow(TypedDict):
    """The offsets of one partition that were verified now, with so many records; ``watermark`` is null if it stays."""

    topic: str
    partition: int
    verified: Pairs
    records: int
    error: str | None
    remedy: str | None
    watermark: int | None


class VerifyDocument(TypedDict):
    """``verify``: what was read back, and which copies a cluster contradicts."""

    replication: str
    ranges: list[VerifiedRow]


class LedgerRow(PartitionRow):
    """The entries of one partition as the ledger has them: docs/protocol.md describes each, with its format.

    ``taken_back`` describes the newest receipts that a run deleted, because the target had lost what they are about.
    """

    position: dict[str, Any]
    verified: dict[str, Any] | None
    gaps: list[dict[str, Any]]
    receipts: list[dict[str, Any]]
    taken_back: list[str]


class LedgerDocument(TypedDict):
    """``ledger``: the entries of the replication."""

    replication: str
    partitions: list[LedgerRow]


class RebuiltRow(PartitionRow):
    """A watermark of the store before and after; ``before`` is null if the store had none."""

    before: int | None
    after: int
    generation: int
    version: int


class RebuiltDocument(TypedDict):
    """``ledger --rebuild-store``: the watermarks that it restored."""

    replication: str
    partitions: list[RebuiltRow]
