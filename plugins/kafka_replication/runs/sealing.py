"""Seals the direction of a replication, so that no run copies any more, and opens it again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial

from kafka_replication.kafka import clients, offsets
from kafka_replication.ledger.account import Change
from kafka_replication.ledger.entries import Entry, Position, Seal
from kafka_replication.ledger.view import LedgerView
from kafka_replication.ledger.writing import apply
from kafka_replication.model.choices import EXACTLY_ONCE
from kafka_replication.model.errors import ReplicationError
from kafka_replication.model.offsets import PartitionKey, opening_id, verified_id
from kafka_replication.model.times import now
from kafka_replication.planning import obstacles
from kafka_replication.planning.live import own
from kafka_replication.planning.snapshot import PartitionOffsets
from kafka_replication.runs import steps
from kafka_replication.runs.run import LeasedRun, Run
from kafka_replication.runtime import background


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The person who decides, and the reason."""

    by: str
    reason: str = ""


def check(run: Run) -> None:
    """Raises Refused."""
    file = run.replication
    if reasons := file.not_one_to_one:
        raise obstacles.CANNOT_BE_SEALED.refused(replication=file.name, settings=" and ".join(reasons))


def selected(run: Run) -> LedgerView:
    """The ledger's entries of the replication's own target topics, for source topics that its file selects."""
    view = own(run.replication, run.view())
    positions = {key: at for key, at in view.positions.items() if run.replication.selects(key.source.topic)}
    return replace(view, positions=positions)


def view_of(run: Run) -> LedgerView:
    """The same of a replication that can be sealed. Raises Refused."""
    view = selected(run)
    if not view.positions:
        raise obstacles.NOTHING_COPIED.refused(replication=run.replication.name)
    if other := [key for key, position in view.positions.items() if position.delivery != EXACTLY_ONCE]:
        delivery = view.positions[other[0]].delivery
        raise obstacles.OTHER_DELIVERY.refused(partition=other[0].source, delivery=delivery)
    return view


def fence(run: LeasedRun) -> None:
    """Fence all that an earlier run may have left at work: what is open hides the ledger, and an opening that hangs
    would commit later.
    """
    name = run.replication.name
    steps.fence_stale_producers(run)
    run.clusters.target.end_sessions({opening_id(name): "opening", verified_id(name): "what is verified"}, run.check)


def ends(run: Run, view: LedgerView) -> dict[PartitionKey, int]:
    """The high watermark of each target partition that answers."""
    admin = clients.shared_admin(run.clusters.target_connection)
    logs = offsets.all_three(admin, [key.target for key in view.positions])
    return {key: log.high_watermark for key in view.positions if isinstance(log := logs[key.target], PartitionOffsets)}


def seal_each(
    run: LeasedRun, keys: Collection[PartitionKey], why: str, asked: Asked, cut: str | None = None
) -> dict[PartitionKey, str]:
    """Seal these partitions. The errors of those that could not be."""

    def sealed(key: PartitionKey) -> str:
        def with_seal(position: Position | None) -> Sequence[Entry]:
            if position is None or position.sealed:
                return ()
            end = ends(run, LedgerView({key: position}))[key]  # nothing of ours is open any more
            by, reason, run_id = asked.by, asked.reason, run.run_id
            seal = Seal(why=why, by=by, reason=reason, target_until=end, run_id=run_id, time=now(), cut=cut)
            return (replace(position, sealed=seal),)

        try:
            run.again_if_fenced(f"sealing {key.target}", lambda: change(run, key, with_seal))
        except (ReplicationError, KeyError) as error:
            return f"it was not sealed: {error}"
        return ""

    return {key: error for key, error in background.at_once(keys, sealed, "seal").items() if error}


def change(run: LeasedRun, key: PartitionKey, make: Callable[[Position | None], Sequence[Entry]]) -> None:
    """Write what is made of the position, with a session that has fenced every copier of the partition."""
    with run.fenced(key) as session:
        run.check()  # whoever takes the lease from now on fences this session before it writes
        if entries := make(session.position()):
            apply(session.ledger, session.transaction, [Change(key=key, write=tuple(entries))])


def open_again(run: LeasedRun, view: LedgerView) -> None:
    """Open each sealed partition of the view again, so that runs go on where they were. Raises Refused if others have
    written to the target since, or if the other direction goes on behind the seal.
    """
    followed = {key: at.followed_by for key, at in view.positions.items() if at.sealed and at.followed_by}
    if followed:
        key, other = next(iter(followed.items()))
        raise obstacles.SEAL_FOLLOWED.refused(partition=key.source, other=other)
    there = ends(run, view)
    seals = {key: position.sealed for key, position in view.positions.items() if position.sealed}
    # Also what retention has removed since, or an open transaction hides, was written by somebody.
    if moved := sorted(key for key, seal in seals.items() if there.get(key) != seal.target_until):
        key = moved[0]
        was, end = seals[key].target_until, there.get(key, "an unknown offset")
        raise obstacles.TARGET_MOVED.refused(count=len(moved), partition=key.target, was=was, end=end)
    for key, seal in seals.items():
        change(run, key, partial(_opened, seal))


def follow(run: LeasedRun, key: PartitionKey, other: str) -> None:
    """Note that the ``other`` replication is about to go on behind the seal, so that it is not opened again. Raises
    Refused if it is not sealed any more.
    """

    def noted(position: Position | None) -> Sequence[Entry]:
        if position is None or position.sealed is None:
            raise obstacles.NOT_SEALED_ANY_MORE.refused(partition=key.source)
        return () if position.followed_by == other else (replace(position, followed_by=other),)

    change(run, key, noted)


def _opened(seal: Seal, position: Position | None) -> Sequence[Entry]:
    """The position without this seal. Another one was made since, and stays."""
    return (replace(position, sealed=None),) if position is not None and position.sealed == seal else ()
