"""A session that decides about failed records of one partition, and what is left to decide there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from kafka_replication.ledger.entries import Position
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.errors import Refused
from kafka_replication.model.keys import PartitionKey
from kafka_replication.runs.run import LeasedRun
from kafka_replication.targets.port import DecidingSession
from kafka_replication.watermarks.failed import FailedRow, rows_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome for one failed record. ``why`` says why it stays as it was; ``target`` is its new target offset."""

    row: FailedRow
    why: str = ""
    before: str = ""  # who had decided the same before
    target: str = ""  # where it is on the target now
    behind_newer: bool = False  # records that are newer at the source lie before it on the target

    @property
    def done(self) -> bool:
        return not self.why


@dataclass(frozen=True, slots=True, kw_only=True)
class Fenced:
    """A session of the partition's own producer, and what the ledger says since it has fenced every earlier one: as
    long as it commits, nobody else decides about the partition's records.
    """

    run: LeasedRun
    session: DecidingSession
    view: LedgerView  # of after fencing
    position: Position  # with what this session has committed


@contextmanager
def fenced(run: LeasedRun, view: LedgerView, key: PartitionKey) -> Iterator[Fenced]:
    """A session that has fenced every earlier one. ``view`` is of before: it says which target that was."""
    run.check()
    before = view.positions.get(key)
    if before is None:
        raise Refused(f"{key.source}: the ledger has no position for {key}", "restore the ledger topics of the target")
    with run.clusters.target.deciding(key, before.ids) as session:
        session.fence()
        view = run.view()
        position = view.position(key, before.generation)
        if position is None:
            raise Refused(f"{key.source}: its position changed meanwhile", "list the failed records again")
        session.check_ids(position.ids)
        yield Fenced(run=run, session=session, view=view, position=position)


def left_of(held: Fenced, rows: Sequence[FailedRow], wanted: Sequence[str]) -> tuple[list[FailedRow], list[Outcome]]:
    """The records about which can still be decided, and outcomes for the rest: those in a ``wanted`` state are done."""
    view, key = held.view, rows[0].key
    again = any(row.offset in view.of(key, row.generation).removed.again for row in rows)
    ours = rows_of(view, key, held.run.clusters.ledger.receipts({key: None}) if again else None, rows)
    left, done = list[FailedRow](), list[Outcome]()
    for row in (ours.get(row.id, row) for row in rows):
        if row.generation != held.position.generation:
            done.append(Outcome(row=row, why="it is of an earlier generation: the topic was reset since then"))
        elif row.state in wanted:
            done.append(Outcome(row=row, before=row.decided_by))
        elif not row.is_open:
            done.append(Outcome(row=row, why=f"it was {row.state} {row.decided_by}"))
        elif row.id not in ours:
            done.append(Outcome(row=row, why="its range was given back to a backfill, which copies it again"))
        else:
            left.append(row)
    return left, done
