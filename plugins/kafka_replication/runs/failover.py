"""Gives the source up: seals the direction, verifies what was copied, and moves groups to the best proved places.

Never asks the source. What it had is known from the last look at it, which the store keeps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from kafka_replication.documents import GroupRow, StatusRow, place
from kafka_replication.kafka import clients, offsets
from kafka_replication.ledger.account import Change
from kafka_replication.ledger.entries import Position, Seal
from kafka_replication.ledger.view import LedgerView
from kafka_replication.ledger.writing import apply
from kafka_replication.model.choices import EXACTLY_ONCE
from kafka_replication.model.errors import Refused, ReplicationError
from kafka_replication.model.offsets import PartitionKey, opening_id, verified_id
from kafka_replication.model.times import now, to_text
from kafka_replication.planning import refusals
from kafka_replication.planning.live import own
from kafka_replication.planning.snapshot import PartitionOffsets
from kafka_replication.reporting.failover import FailoverDocument, FailoverRow, FailoverState
from kafka_replication.runs import groups, steps
from kafka_replication.runs.leasing import EVERYTHING, leased
from kafka_replication.runs.run import LeasedRun, Run
from kafka_replication.runtime import background
from kafka_replication.spark.launcher import Launcher

FAILOVER = "failover"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The person who gives the source up, and the reason."""

    by: str
    reason: str = ""


def preview(run: Run) -> FailoverDocument:
    """The document of a dry run. Changes nothing. Raises Refused, Unreachable, LedgerUnreadable."""
    _check(run)
    view, looked = _view(run), _looked(run)
    sealed = all(position.sealed for position in view.positions.values())
    moved = _groups(run, looked, apply=False)
    return _document(run, view, looked, moved, state="sealed" if sealed else "can be sealed", applied=False)


def failover(run: Run, asked: Asked, spark: Launcher) -> FailoverDocument:
    """Seal every partition, so that no run copies any more; then verify what was copied, and move the groups. May be
    repeated after a crash at any moment.

    A run at work loses its lease, and stops. Raises Refused for a replication that cannot be sealed, Unreachable, and
    LedgerUnreadable.
    """
    _check(run)
    run.store.revoke_leases(run.replication.name)
    with leased(run, EVERYTHING) as leased_run:
        _fence(leased_run)
        view = _view(run)
        errors = _seal_each(leased_run, list(view.positions), asked)
        view = own(run.replication, run.view())
        with spark:
            results = steps.verify(leased_run, [key for key in view.positions if view[key].pending()], spark)
        errors |= {result.key: result.error for result in results if result.error and result.key not in errors}
        steps.advance(leased_run, list(view.positions))
        looked = _looked(run)
        moved = _groups(leased_run, looked, apply=True)
    document = _document(run, own(run.replication, run.view()), looked, moved, state="sealed", applied=True)
    rows = tuple(replace(row, error=errors.get(row.key, row.error)) for row in document.partitions)
    return replace(document, partitions=rows)


def undo(run: Run) -> FailoverDocument:
    """Open a sealed direction again, so that runs go on where they were. Raises Refused if others have written to the
    target since, and as `failover` does.
    """
    _check(run)
    with leased(run, EVERYTHING) as leased_run:
        _fence(leased_run)
        view = _view(run)
        ends = _ends(run, view)
        seals = {key: position.sealed for key, position in view.positions.items() if position.sealed}
        # Also what retention has removed since, or an open transaction hides, was written by somebody.
        if moved := sorted(key for key, seal in seals.items() if ends.get(key) != seal.target_until):
            key = moved[0]
            raise Refused(
                f"{len(moved)} target partitions do not end where they were sealed; the first is {key.target}: it ended"
                f" at {seals[key].target_until} and ends at {ends.get(key, 'an unknown offset')}. Others have written"
                " there, or it lost data, or it does not answer: a copy cannot go on",
                "keep the target as it is; to go back to the source, replicate it under another name",
            )
        for key, seal in seals.items():
            _change(leased_run, key, lambda position, seal=seal: _opened(position, seal))  # type: ignore[misc]
    return _document(run, own(run.replication, run.view()), _looked(run), (), state="opened again", applied=True)


def _opened(position: Position, seal: Seal) -> Position:
    """The position without this seal. Another one was made since, and stays."""
    return replace(position, sealed=None) if position.sealed == seal else position


def _fence(run: LeasedRun) -> None:
    """Fence all that an earlier run may have left at work: what is open hides the ledger, and an opening that hangs
    would commit later.
    """
    name = run.replication.name
    steps.fence_stale_producers(run)
    run.clusters.target.end_sessions({opening_id(name): "opening", verified_id(name): "what is verified"}, run.check)


def _ends(run: Run, view: LedgerView) -> dict[PartitionKey, int]:
    """The high watermark of each target partition that answers."""
    admin = clients.shared_admin(run.clusters.target_connection)
    logs = offsets.all_three(admin, [key.target for key in view.positions])
    return {key: log.high_watermark for key in view.positions if isinstance(log := logs[key.target], PartitionOffsets)}


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
    if other := [key for key, position in view.positions.items() if position.delivery != EXACTLY_ONCE]:
        raise Refused(
            f"{other[0].source}: its records were copied with delivery {view.positions[other[0]].delivery}",
            "only what was copied with exactly_once can be sealed: let a run copy with it first, or reset the topic",
        )
    return view


def _seal_each(run: LeasedRun, keys: list[PartitionKey], asked: Asked) -> dict[PartitionKey, str]:
    """Seal these partitions. The errors of those that could not be."""

    def sealed(key: PartitionKey) -> str:
        def with_seal(position: Position) -> Position:
            if position.sealed:
                return position
            end = _ends(run, LedgerView({key: position}))[key]  # nothing of ours is open any more
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
        run.check()  # whoever takes the lease from now on fences this session before it writes
        position = session.position()
        if position is not None and (new := change(position)) != position:
            apply(session.ledger, session.transaction, [Change(key=key, write=(new,))])


Looked = Mapping[PartitionKey, StatusRow]


def _groups(run: Run, looked: Looked, *, apply: bool) -> Sequence[GroupRow]:
    ends = {row.source: row.source_end for row in looked.values() if row.source_end is not None}
    return groups.move_as_seen(run, ends, apply=apply).groups


def _document(
    run: Run, view: LedgerView, looked: Looked, moved: Sequence[GroupRow], *, state: FailoverState, applied: bool
) -> FailoverDocument:
    seen = run.store.front([run.replication.name])
    at = seen[0].standing.at if seen and looked else None
    ends, lost, rows = _ends(run, view), run.comparison.lost_now(view, list(view.positions)), list[FailoverRow]()
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
    return {PartitionKey(run.replication.name, row.source, row.target_topic): row for row in rows}
