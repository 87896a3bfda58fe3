"""The interface of the watermark store. `kafka_replication.store` implements it with a database."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from kafka_replication.alerting.values import Alert, Decide, Decision, OpenCause
from kafka_replication.documents import StatusRow
from kafka_replication.model.errors import Refused
from kafka_replication.model.keys import PartitionKey
from kafka_replication.watermarks.boundaries import BoundaryKey
from kafka_replication.watermarks.failed import FailedRow
from kafka_replication.watermarks.sight import CopiedRange, Facts, Lag, Look, PastAlert, Sample, Seen, Totals, Work
from kafka_replication.watermarks.topics import TargetTopics
from kafka_replication.watermarks.values import Claim, Lease, RangeOutcome, RunRecord, Watermark, WatermarkChange


class WatermarkStore(Protocol):
    """Watermarks, leases, runs and open alerts. Every method may raise `Unreachable`, may be called from any
    thread or process, and may be repeated after an unknown outcome without doing its work twice.
    """

    def watermarks(self, replication: str) -> dict[PartitionKey, Watermark]: ...

    def advance_many(self, changes: Collection[WatermarkChange]) -> dict[PartitionKey, Watermark | Refused]:
        """Compare-and-set by the rules of `rules.decide_advance`, in one transaction, at most one change per
        partition.

        The result of each partition is the watermark stored afterwards, or its error (`StaleWriter`, `Refused`). An
        error does not stop other partitions. A partition that does not change is not written.
        """

    def restore_many(self, changes: Collection[WatermarkChange]) -> dict[PartitionKey, Watermark]:
        """Store exactly these watermarks, even lower ones, by the rules of `rules.decide_restore`.

        Stores all of them or none. Raises StaleWriter.
        """

    def history(self, key: PartitionKey) -> list[Watermark]:
        """The changes that `prune` has not deleted, oldest first."""

    def acquire_lease(self, claim: Claim, duration_seconds: float) -> Lease:
        """Take, take over or renew a lease by the rules of `lease_rules.decide_lease`, without waiting.

        Stores the end of the replication's runs that died. Raises Busy; the attempt then has a place in the queue for
        ``duration_seconds``, and keeps it if it tries again in time.
        """

    def renew_lease(self, lease: Lease, duration_seconds: float) -> Lease:
        """Let the lease expire ``duration_seconds`` from now, even if it has expired but no other attempt took it.

        Raises Busy if another attempt took it.
        """

    def narrow_lease(self, lease: Lease, topics: TargetTopics, duration_seconds: float) -> Lease:
        """Renew the lease, and leave all but ``topics`` to others. Raises Busy if another attempt took it."""

    def give_way(self, lease: Lease, duration_seconds: float) -> bool:
        """Put a place in the queue behind another attempt that waits for topics of this lease in the lease's stead, in
        one transaction, and return True; False if none waits. The place is kept as that of `acquire_lease` is, and the
        run lives on.

        Raises Busy if another attempt took the lease.
        """

    def hand_over_lease(self, lease: Lease, reserved_seconds: float, expected_seconds: float) -> None:
        """Reserve the lease for the next task of the same run, which counts as alive for ``expected_seconds`` from now;
        or the place in the queue for which the lease was given up.

        Does nothing if the store has another lease.
        """

    def release_lease(self, lease: Lease) -> None:
        """Release the lease, or the place in the queue for which it was given up. Does nothing if the store has another
        lease.
        """

    def leave_queue(self, claim: Claim) -> None:
        """Give up the attempt's place in the queue. Does nothing if it has none."""

    def leases(self, replication: str) -> list[Lease]:
        """The leases, reservations and places in the queue of the replication that have not expired, and whose
        processes are not known to be gone; oldest first.
        """

    def start_run(
        self, run_id: str, replication: str, kind: str, plan_json: str, *, instead_of: str | None = None
    ) -> RunRecord:
        """Store the run's plan once. A repeated call returns the stored run with the **stored** plan.

        A stored plan that equals ``instead_of`` is replaced, and the run is `planned` again, without progress.

        Raises Refused if the id belongs to another replication or kind.
        """

    def run(self, run_id: str) -> RunRecord | None: ...

    def runs(self, replication: str, limit: int = 50) -> list[RunRecord]:
        """The latest runs, newest first."""

    def record_progress(self, run_id: str, progress_json: str) -> None:
        """Store the progress of the run, in place of the earlier one. Does nothing if the store has no such run."""

    def finish_run(self, run_id: str, state: str) -> RunRecord:
        """Store the end of the run. Raises BadInput for an unknown run, ValueError if `RUN_STATES` lacks the state."""

    def record_outcomes(self, outcomes: Collection[RangeOutcome]) -> None:
        """Insert or replace by run, key and range, in one transaction.

        Raises BadInput, and records none, if a run was not started for its outcome's replication.
        """

    def outcomes(self, run_id: str) -> list[RangeOutcome]:
        """The outcomes of the run, ordered by topic, partition and range."""

    def record_failed(self, rows: Collection[FailedRow]) -> None:
        """Insert these failed records. If a row exists, its history gets the new steps."""

    def failed(self, replication: str) -> list[FailedRow]:
        """All failed records of the replication, in order."""

    def prune(self, replication: str, older_than_seconds: float) -> int:
        """Delete old rows of the replication in bounded batches. Returns the number of deleted rows.

        Deletes runs that ended longer ago, or were planned longer ago and never ended, with their plans and outcomes.
        Deletes older changes of watermarks, but never the newest one of a partition, and failed records that were
        retried or discarded longer ago, but never an open one; and samples and past alerts. Drops the plan of a run
        that succeeded an hour after its end. A large backlog takes several calls.
        """

    def store_boundaries(
        self,
        replication: str,
        moment: datetime,
        resolved: Mapping[BoundaryKey, int],
        copied: Mapping[BoundaryKey, int | None] = {},
    ) -> dict[BoundaryKey, int]:
        """The offset of ``moment`` in each partition of ``resolved``. The first call stores it by the rule of
        `decide_boundary`; it never changes.
        """

    def newest_boundary(self, replication: str) -> datetime | None:
        """The latest moment that has a boundary in any partition."""

    def open_causes(self, replication: str) -> list[OpenCause]: ...

    def update_causes(self, replication: str, decide: Decide) -> Decision:
        """Call ``decide`` with the open causes and the time, and remember its result, in one transaction. What it
        decides to tell counts as told: nobody else is given the same.

        ``decide`` may be called more than once.
        """

    def take_back_alerts(self, replication: str, untold: Collection[Alert]) -> None:
        """Remember that none of their ways has taken these alerts; see `values.taken_back`."""

    def record_look(self, replication: str, paused: bool) -> None:
        """Remember that Airflow's watch looks now, and whether the schedule is switched off."""

    def last_look(self, replication: str) -> Look | None:
        """The last look that was recorded."""

    def record_standing(self, replication: str, facts: Facts, lag: Lag, partitions: Sequence[StatusRow]) -> None:
        """Store how the replication stands now, in place of the earlier look, and a sample of its ``lag``."""

    def record_facts(self, replication: str, facts: Facts) -> None:
        """Store these facts of the replication, and leave what was measured as it is."""

    def record_work(self, replication: str, facts: Facts, work: Work) -> None:
        """Store what a run copied that has ended, and a sample of that. A later call for the same run replaces both.

        A run without records is only a sample.
        """

    def add_totals(self, replication: str, totals: Totals, run_id: str, mark: float) -> None:
        """Add these numbers of a run to the sums of the replication. ``mark`` is another number in each call: one that
        is repeated with the same one adds nothing.
        """

    def totals(self) -> dict[str, Totals]:
        """The sums of each replication since this store was made. ``runs`` and ``ranges`` are those that ended: the
        store adds them itself when the state of a run changes to that of an end. A range is counted once in
        a run as failed, and once as verified.
        """

    def front(self, names: Collection[str] | None = None) -> list[Seen]:
        """All that is known of these replications, or of all, by name; read in one transaction."""

    def standing_partitions(self, replication: str) -> list[StatusRow]:
        """The partitions as they stood at the time of the replication's `Standing`."""

    def samples(self, replication: str, since: datetime) -> list[Sample]:
        """The samples whose span ends after ``since``, oldest first."""

    def runs_before(self, replication: str, before: int | None, limit: int) -> list[tuple[int, RunRecord]]:
        """The runs before the one with this number (None: all), newest first, each with its number. Without plans."""

    def copied_ranges(self, key: PartitionKey, limit: int) -> list[CopiedRange]:
        """The newest ranges of one partition that runs worked on, newest first."""

    def failed_page(self, replication: str, states: Collection[str], limit: int) -> list[FailedRow]:
        """The first failed records of the replication in these states, in order."""

    def past_alerts(self, replication: str, limit: int) -> list[PastAlert]:
        """The alerts that ended last, newest first."""

    def close(self) -> None: ...
