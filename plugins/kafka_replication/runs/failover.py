"""Gives the source up: seals the direction, verifies what was copied, and moves groups to the best proved places.

Never asks the source. What it had is known from the last look at it, which the store keeps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from kafka_replication.documents import GroupRow, StatusRow, place
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.offsets import PartitionKey
from kafka_replication.model.times import to_text
from kafka_replication.reporting.failover import FailoverDocument, FailoverRow, FailoverState
from kafka_replication.runs import groups, sealing, source_ends, steps
from kafka_replication.runs.leasing import EVERYTHING, leased
from kafka_replication.runs.run import Run
from kafka_replication.runs.sealing import Asked
from kafka_replication.spark.launcher import Launcher

FAILOVER = "failover"


def preview(run: Run) -> FailoverDocument:
    """The document of a dry run. Changes nothing. Raises Refused, Unreachable, LedgerUnreadable."""
    sealing.check(run)
    view, looked = sealing.view_of(run), _looked(run)
    moved = _groups(run, looked, apply=False)
    return _document(run, view, looked, moved, state="sealed" if view.is_sealed else "can be sealed", applied=False)


def failover(run: Run, asked: Asked, spark: Launcher) -> FailoverDocument:
    """Seal every partition, so that no run copies any more; then verify what was copied, and move the groups. May be
    repeated after a crash at any moment.

    A run at work loses its lease, and stops. Raises Refused for a replication that cannot be sealed, Unreachable, and
    LedgerUnreadable.
    """
    sealing.check(run)
    run.store.revoke_leases(run.replication.name)
    with leased(run, EVERYTHING) as leased_run:
        sealing.fence(leased_run)
        view = sealing.view_of(run)
        errors = sealing.seal_each(leased_run, view.positions, FAILOVER, asked)
        view = sealing.selected(run)
        with spark:
            results = steps.verify(leased_run, [key for key in view.positions if view[key].pending()], spark)
        errors |= {result.key: result.error for result in results if result.error and result.key not in errors}
        steps.advance(leased_run, list(view.positions))
        looked = _looked(run)
        moved = _groups(leased_run, looked, apply=True)
    document = _document(run, sealing.selected(run), looked, moved, state="sealed", applied=True)
    rows = tuple(replace(row, error=errors.get(row.key, row.error)) for row in document.partitions)
    return replace(document, partitions=rows)


def undo(run: Run) -> FailoverDocument:
    """Open a sealed direction again, so that runs go on where they were, and give back what a cut-over has denied to
    producers. Raises Refused if others have written to the target since, and as `failover` does.
    """
    sealing.check(run)
    with leased(run, EVERYTHING) as leased_run:
        sealing.fence(leased_run)
        sealing.open_again(leased_run, sealing.view_of(run))
        source_ends.give_back(leased_run)
    return _document(run, sealing.selected(run), _looked(run), (), state="opened again", applied=True)


Looked = Mapping[PartitionKey, StatusRow]


def _groups(run: Run, looked: Looked, *, apply: bool) -> Sequence[GroupRow]:
    ends = {row.source: row.source_end for row in looked.values() if row.source_end is not None}
    return groups.move_as_seen(run, ends, apply=apply).groups


def _document(
    run: Run, view: LedgerView, looked: Looked, moved: Sequence[GroupRow], *, state: FailoverState, applied: bool
) -> FailoverDocument:
    seen = run.store.front([run.replication.name])
    at = seen[0].standing.at if seen and looked else None
    ends, lost, rows = sealing.ends(run, view), run.comparison.lost_now(view, list(view.positions)), list[FailoverRow]()
    for key, position in sorted(view.positions.items()):
        account, source_end = view[key], looked[key].source_end if key in looked else None
        error = "" if key in ends else f"{key.target} on the target does not answer"
        if key in lost:
            error = f"{key.target} on the target does not show our last record: it lost data, also what was verified"
        rows.append(
            FailoverRow(
                **place(key),
                verified_until=account.watermark(),
                verified_at=account.verified.time,
                not_verified=sum(range_.span for range_ in account.pending()),
                beyond=None if source_end is None else max(0, source_end - position.next_offset),
                target_until=ends.get(key),
                seal=position.sealed,
                error=error,
            )
        )
    for key, row in sorted(looked.items()):
        if key not in view.positions:  # it was never opened
            beyond = None if row.source_end is None or row.log_start is None else row.source_end - row.log_start
            rows.append(
                FailoverRow(
                    **place(key), verified_until=0, verified_at="", not_verified=0, beyond=beyond, target_until=None
                )
            )
    return FailoverDocument(
        replication=run.replication.name,
        state=state,
        applied=applied,
        looked_at=to_text(at) if at else None,
        partitions=rows,
        groups=moved,
    )


def _looked(run: Run) -> Looked:
    """The partitions as somebody looked at them the last time."""
    rows = run.store.standing_partitions(run.replication.name)
    name, target = run.replication.name, run.replication.target_name
    return {
        PartitionKey(name, row.source, row.target_topic): row for row in rows if row.target_topic == target(row.topic)
    }
