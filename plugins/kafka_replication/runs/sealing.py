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
from kafka_replication.model.errors import Refused, ReplicationError
from kafka_replication.model.offsets import PartitionKey, opening_id, verified_id
from kafka_replication.model.times import now
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
        raise Refused(
            f"{file.name}: a direction with this {' and '.join(reasons)} cannot be sealed",
            "only a Kafka target with partitioning: keep, delivery: exactly_once and one writer can",
        )


def selected(run: Run) -> LedgerView:
    """The ledger's entries of the replication's own target topics, for source topics that its file selects."""
    view = own(run.replication, run.view())
    positions = {key: at for key, at in view.positions.items() if run.replication.selects(key.source.topic)}
    return replace(view, positions=positions)


def view_of(run: Run) -> LedgerView:
    """The same of a replication that can be sealed. Raises Refused."""
    view = selected(run)
    if not view.positions:
        raise Refused(f"{run.replication.name}: nothing was copied yet", "the target has nothing to fail over to")
    if other := [key for key, position in view.positions.items() if position.delivery != EXACTLY_ONCE]:
        raise Refused(
            f"{other[0].source}: its records were copied with delivery {view.positions[other[0]].delivery}",
            "only what was copied with exactly_once can be sealed: let a run copy with it first, or reset the topic",
        )
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


def seal_each(run: LeasedRun, keys: Collection[PartitionKey], why: str, asked: Asked) -> dict[PartitionKey, str]:
    """Seal these partitions. The errors of those that could not be."""

    def sealed(key: PartitionKey) -> str:
        def with_seal(position: Position | None) -> Sequence[Entry]:
            if position is None or position.sealed:
                return ()
            end = ends(run, LedgerView({key: position}))[key]  # nothing of ours is open any more
            seal = Seal(why=why, by=asked.by, reason=asked.reason, target_until=end, run_id=run.run_id, time=now())
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
        raise Refused(
            f"{key.source}: the replication {other} goes on behind this seal, in the other direction: records would go"
            " round",
            f"end {other} first: seal it (kafka-replication cutover or failover), and go back with kafka-replication"
            " failback, which names it first",
        )
    there = ends(run, view)
    seals = {key: position.sealed for key, position in view.positions.items() if position.sealed}
    # Also what retention has removed since, or an open transaction hides, was written by somebody.
    if moved := sorted(key for key, seal in seals.items() if there.get(key) != seal.target_until):
        key = moved[0]
        raise Refused(
            f"{len(moved)} target partitions do not end where they were sealed; the first is {key.target}: it ended"
            f" at {seals[key].target_until} and ends at {there.get(key, 'an unknown offset')}. Others have written"
            " there, or it lost data, or it does not answer: a copy cannot go on",
            "bring their records back first (kafka-replication failback), or keep the target as it is",
        )
    for key, seal in seals.items():
        change(run, key, partial(_opened, seal))


def follow(run: LeasedRun, key: PartitionKey, other: str) -> None:
    """Note that the ``other`` replication is about to go on behind the seal, so that it is not opened again. Raises
    Refused if it is not sealed any more.
    """

    def noted(position: Position | None) -> Sequence[Entry]:
        if position is None or position.sealed is None:
            raise Refused(f"{key.source}: it is not sealed any more", "another command is at work: call this one again")
        return () if position.followed_by == other else (replace(position, followed_by=other),)

    change(run, key, noted)


def _opened(seal: Seal, position: Position | None) -> Sequence[Entry]:
    """The position without this seal. Another one was made since, and stays."""
    return (replace(position, sealed=None),) if position is not None and position.sealed == seal else ()
