"""The interface of the watermark store. Nothing here touches a database; `kafka_replication.store` does."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Protocol

from kafka_replication.model.keys import PartitionKey
from kafka_replication.watermarks.boundaries import BoundaryKey
from kafka_replication.watermarks.values import Lease, RangeOutcome, RunRecord, Watermark


class WatermarkStore(Protocol):
    """Watermarks, leases and runs. Every method may raise `Unreachable`; all may be called from any thread or process,
    and each may be repeated after an unknown outcome without doing its work twice."""

    def watermarks(self, replication: str) -> dict[PartitionKey, Watermark]: ...

    def advance(
        self,
        key: PartitionKey,
        *,
        generation: int,
        source_topic_id: str,
        target_topic_id: str,
        offset: int,
        expected_version: int | None,
        run_id: str,
    ) -> Watermark:
        """Compare-and-set by the rules of `rules.settle`; returns what is stored afterwards.

        Raises StaleWriter, Refused.
        """

    def restore(
        self,
        key: PartitionKey,
        *,
        generation: int,
        source_topic_id: str,
        target_topic_id: str,
        offset: int,
        expected_version: int | None,
        run_id: str,
    ) -> Watermark:
        """Store exactly this, lower or not, by `settle_restored`'s rules: the ledger says so. Raises StaleWriter."""

    def history(self, key: PartitionKey) -> list[Watermark]:
        """Every change ever made, oldest first."""

    def acquire_lease(self, replication: str, owner: str, duration_seconds: float) -> Lease:
        """Take, take over or renew the lease by `settle_lease`'s rules, at once. Raises Busy."""

    def renew_lease(self, lease: Lease, duration_seconds: float) -> Lease:
        """Let it end ``duration_seconds`` from now, even when it expired and nobody took it.

        Raises Busy once it changed hands.
        """

    def release_lease(self, lease: Lease) -> None:
        """Give it back; does nothing when it is not (or no longer) the one stored."""

    def lease_of(self, replication: str) -> Lease | None:
        """The lease in force now; None when there is none or it has expired."""

    def start_run(
        self, run_id: str, replication: str, kind: str, plan_json: str, *, instead_of: str | None = None
    ) -> RunRecord:
        """Store the run's plan once; a repeated call returns what is stored, with **its** plan, unless that is the one
        ``instead_of``.

        Raises Refused when the id belongs to another replication or kind.
        """

    def run(self, run_id: str) -> RunRecord | None: ...

    def runs(self, replication: str, limit: int = 50) -> list[RunRecord]:
        """The latest runs, newest first."""

    def finish_run(self, run_id: str, state: str) -> RunRecord:
        """Raises BadInput for an unknown run, ValueError for a state that is not in `RUN_STATES`."""

    def record_outcome(self, outcome: RangeOutcome) -> None:
        """Insert or replace by run, key and range.

        Raises BadInput when the run was not started for that replication.
        """

    def outcomes(self, run_id: str) -> list[RangeOutcome]:
        """Ordered by topic, partition and range."""

    def last_verified(self, replication: str) -> dict[PartitionKey, datetime]:
        """When an outcome with ``digest_ok`` was last recorded; partitions never verified are absent."""

    def settle_boundaries(
        self,
        replication: str,
        moment: datetime,
        found: Mapping[BoundaryKey, int],
        copied: Mapping[BoundaryKey, int | None] = {},
    ) -> dict[BoundaryKey, int]:
        """What ``moment`` (in ms) is in each partition of ``found``: stored once by `settle_boundary`'s rule, never
        changed.
        """

    def newest_boundary(self, replication: str) -> datetime | None:
        """The latest moment that has a boundary in any partition."""

    def close(self) -> None: ...
