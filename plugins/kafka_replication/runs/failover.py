"""Gives the source up: seals the direction, verifies what was copied, and moves groups to the best proved places.

Never asks the source. What it had is known from the last look at it, which the store keeps.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from kafka_replication.documents import GroupRow, StatusRow, place
from kafka_replication.ledger.account import Change
from kafka_replication.ledger.entries import Position, Seal
from kafka_replication.ledger.view import LedgerView
from kafka_replication.ledger.writing import apply
from kafka_replication.model.errors import Refused, ReplicationError
from kafka_replication.model.offsets import PartitionKey
from kafka_replication.model.times import now, to_text
from kafka_replication.planning import refusals
from kafka_replication.planning.live import own
from kafka_replication.reporting.failover import FailoverDocument, FailoverRow, FailoverState
from kafka_replication.runs import groups, steps
from kafka_replication.runs.leasing import EVERYTHING, leased
from kafka_replication.runs.run import LeasedRun, Run
from kafka_replication.runtime import background
from kafka_replication.spark.launcher import Launcher

log = logging.getLogger(__name__)
FAILOVER = "failover"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The person who gives the source up, and the reason."""

    by: str
    reason: str = ""


def preview(run: Run) -> FailoverDocument:
    """The document of a dry run. Changes nothing. Raises Refused, Unreachable, LedgerUnreadable."""
    _check(run)
    view = _view(run)
    sealed = all(position.sealed for position in view.positions.values())
    return _document(run, view, _groups(run, apply=False), state="sealed" if sealed else "can be sealed", applied=False)


def failover(run: Run, asked: Asked, spark: Launcher) -> FailoverDocument:
    """Seal every partition, so that no run copies any more; then verify what was copied, and move the groups. May be
    repeated after a crash at any moment.

    A run at work loses its lease, and stops. Raises Refused for a replication that cannot be sealed, Unreachable, and
    LedgerUnreadable.
    """
    _check(run)
    run.store.revoke_leases(run.replication.name)
    with leased(run, EVERYTHING) as leased_run:
        steps.fence_stale_producers(leased_run)  # first: what a dead copier left open hides the ledger
        view = _view(run)
        errors = _seal_each(leased_run, list(view.positions), asked)
        view = own(run.replication, run.view())
        with spark:
            steps.verify(leased_run, [key for key in view.positions if view[key].pending()], spark)
        steps.advance(leased_run, list(view.positions))
        moved = _groups(leased_run, apply=True)
    document = _document(run, own(run.replication, run.view()), moved, state="sealed", applied=True)
    rows = tuple(replace(row, error=errors.get(row.key, row.error)) for row in document.partitions)
    return replace(document, partitions=rows)


def undo(run: Run) -> FailoverDocument:
    """Open a sealed direction again, so that runs go on where they were. Raises Refused if others have written to the
    target since, and as `failover` does.
    """
    _check(run)
    with leased(run, EVERYTHING) as leased_run:
        steps.fence_stale_producers(leased_run)
        view = _view(run)
        if written := run.comparison.foreign_now(view, list(view.positions)):
            key, offset = next(iter(sorted(written.items())))
            raise Refused(
                f"others have written to {len(written)} target partitions since they were sealed, first to {key.target}"
                f" at offset {offset}: a copy cannot go on behind their records",
                "keep the target as it is; to go back to the source, replicate it under another name",
            )
        for key in view.positions:
            _change(leased_run, key, lambda position: replace(position, sealed=None))
    return _document(run, own(run.replication, run.view()), (), state="opened again", applied=True)


def _check(run: Run) -> None:
    """Raises Refused."""
    file = run.replication
    if reasons := refusals.not_one_to_one(file):
        raise Refused(
            f"{file.name}: a direction with this {' and '.join(reasons)} cannot be sealed",
            "only a Kafka target with partitioning: keep, delivery: exactly_once and one writer can",
        )


def _view(run: Run) -> LedgerView:
    """The ledger's entries of the replication's own target topics. Raises Refused."""
    view = own(run.replication, run.view())
    if not view.positions:
        raise Refused(f"{run.replication.name}: nothing was copied yet", "the target has nothing to fail over to")
    return view


def _seal_each(run: LeasedRun, keys: list[PartitionKey], asked: Asked) -> Mapping[PartitionKey, str]:
    """Seal these partitions. The errors of those that could not be."""
    standing = run.clusters.target.standing

    def sealed(key: PartitionKey) -> str:
        def with_seal(position: Position) -> Position:
            if position.sealed:
                return position
            end = standing.logs([key.target])[key.target].until  # nothing of ours is open any more
            return replace(
                position,
                sealed=Seal(
                    why=FAILOVER, by=asked.by, reason=asked.reason, target_until=end, run_id=run.run_id, time=now()
                ),
            )

        try:
            run.again_if_fenced(f"sealing {key.target}", lambda: _change(run, key, with_seal))
        except (ReplicationError, KeyError) as error:
            return f"it was not sealed: {error}"
        return ""

    return {key: error for key, error in background.at_once(keys, sealed, "seal").items() if error}


def _change(run: LeasedRun, key: PartitionKey, change: Callable[[Position], Position]) -> None:
    """Write the position as ``change`` makes it, with a session that has fenced every copier of the partition."""
    with run.fenced(key) as session:
        position = session.position()
        if position is not None and (new := change(position)) != position:
            apply(session.ledger, session.transaction, [Change(key=key, write=(new,))])


def _groups(run: Run, *, apply: bool) -> tuple[GroupRow, ...]:
    ends = {row.source: row.source_end for row in _looked(run).values() if row.source_end is not None}
    return tuple(groups.move_as_seen(run, ends, apply=apply).groups)


def _document(
    run: Run, view: LedgerView, moved: Sequence[GroupRow], *, state: FailoverState, applied: bool
) -> FailoverDocument:
    looked = _looked(run)
    seen = run.store.front([run.replication.name])
    at = seen[0].standing.at if seen and looked else None
    logs = run.clusters.target.standing.logs({key.target for key in view.positions})
    rows = []
    for key, position in sorted(view.positions.items()):
        account, log_ = view[key], logs.get(key.target)
        end = looked[key].source_end if key in looked else None
        rows.append(
            FailoverRow(
                **place(key),
                verified_until=account.watermark(),
                verified_at=account.verified.time,
                not_verified=sum(range_.span for range_ in account.pending()),
                beyond=None if end is None else max(0, end - position.next_offset),
                target_until=log_.until if log_ else None,
                seal=position.sealed,
                error="" if log_ else f"{key.target} on the target does not answer",
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


def _looked(run: Run) -> Mapping[PartitionKey, StatusRow]:
    """The partitions as somebody looked at them the last time."""
    rows = run.store.standing_partitions(run.replication.name)
    return {PartitionKey(run.replication.name, row.source, row.target_topic): row for row in rows}
