"""The interface of the watermark store. Nothing here touches a database; `kafka_replication.store` does."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Protocol

from kafka_replication.model.errors import Refused
from kafka_replication.model.keys import PartitionKey
from kafka_replication.watermarks.boundaries import BoundaryKey
from kafka_replication.watermarks.values import Lease, RangeOutcome, RunRecord, Watermark, WatermarkChange


class WatermarkStore(Protocol):
    """Watermarks, leases and runs. Every method may raise `Unreachable`; all may be called from any thread or process,
    and each may be repeated after an unknown outcome without doing its work twice."""

    def watermarks(self, replication: str) -> dict[PartitionKey, Watermark]: ...

    def advance_many(self, changes: Collection[WatermarkChange]) -> dict[PartitionKey, Watermark | Refused]:
        """Compare-and-set by the rules of `rules.decide_advance`, in one transaction, at most one change a partition.

        The result of each partition is what is stored afterwards, or its error (`StaleWriter`, `Refused`); an error
        stops no other partition. A partition that does not change is not written.
        """

    def restore_many(self, changes: Collection[WatermarkChange]) -> dict[PartitionKey, Watermark]:
        """Store exactly these, lower or not, by the rules of `rules.decide_restore`: the ledger says so.

        All of them or none. Raises StaleWriter.
        """

    def history(self, key: PartitionKey) -> list[Watermark]:
        """The changes that `prune` left, oldest first."""

    def acquire_lease(self, replication: str, owner: str, holder: str, duration_seconds: float) -> Lease:
        """Take, take over or renew the lease by the rules of `rules.decide_lease`, without waiting. Raises Busy."""

    def renew_lease(self, lease: Lease, duration_seconds: float) -> Lease:
        """Let it end ``duration_seconds`` from now, even when it expired and nobody took it.

        Raises Busy once another attempt has it.
        """

    def hand_over_lease(self, lease: Lease, duration_seconds: float) -> None:
        """Reserve it for the next task of the same run, for ``duration_seconds`` from now.

        Does nothing when it is not (or no longer) the one stored.
        """

    def release_lease(self, lease: Lease) -> None:
        """Give it back; does nothing when it is not (or no longer) the one stored."""

    def lease_of(self, replication: str) -> Lease | None:
        """The lease in force now; None when there is none or it has expired."""

    def start_run(
        self, run_id: str, replication: str, kind: str, plan_json: str, *, instead_of: str | None = None
    ) -> RunRecord:
        """Store the run's plan once; a repeated call returns what is stored, with **its** plan.

        A stored plan that equals ``instead_of`` is replaced, and the run is `planned` again.

        Raises Refused when the id belongs to another replication or kind.
        """

    def run(self, run_id: str) -> RunRecord | None: ...

    def runs(self, replication: str, limit: int = 50) -> list[RunRecord]:
        """The latest runs, newest first."""

    def finish_run(self, run_id: str, state: str) -> RunRecord:
        """Raises BadInput for an unknown run, ValueError for a state that is not in `RUN_STATES`."""

    def record_outcomes(self, outcomes: Collection[RangeOutcome]) -> None:
        """Insert or replace by run, key and range, in one transaction.

        Raises BadInput, and records none, when a run was not started for its outcome's replication.
        """

    def outcomes(self, run_id: str) -> list[RangeOutcome]:
        """Ordered by topic, partition and range."""

    def prune(self, replication: str, older_than_seconds: float) -> int:
        """Delete, in bounded batches, what the replication no longer needs; returns how many rows were deleted.

        These are older runs (that ended, or were planned and never ended, longer ago) with their plans and outcomes,
        and older changes of watermarks, but never the newest one of a partition. The plan of a run that succeeded is
        dropped an hour after its end. A large backlog takes several calls.
        """

    def store_boundaries(
        self,
        replication: str,
        moment: datetime,
        found: Mapping[BoundaryKey, int],
        copied: Mapping[BoundaryKey, int | None] = {},
    ) -> dict[BoundaryKey, int]:
        """The offset of ``moment`` (in ms) in each partition of ``found``, stored once by the rule of
        `decide_boundary` and never changed.
        """

    def newest_boundary(self, replication: str) -> datetime | None:
        """The latest moment that has a boundary in any partition."""

    def close(self) -> None: ...
