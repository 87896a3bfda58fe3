"""Lists the records that failed: from the ledger, and from the store where the ledger's receipts have expired.

A session that decides about failed records of one partition, and what is left to decide there.

The content of a record that was set aside: from the source while it has it, else from the quarantine.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from kafka_replication.copying.sink import Record, SinkSession, digest_of
from kafka_replication.kafka import AdminClient, clients, offsets, topics
from kafka_replication.kafka.cursor import Cursor
from kafka_replication.ledger.account import Account
from kafka_replication.ledger.entries import FailedRecord, Ids
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.choices import STATES, FailureKind
from kafka_replication.model.errors import GapFound, Refused
from kafka_replication.model.offsets import MAX_OFFSET, Coverage, OffsetRange, PartitionKey, consumer_group
from kafka_replication.runs.reporting import store
from kafka_replication.runs.run import LeasedRun, Run
from kafka_replication.targets.port import Quarantine
from kafka_replication.watermarks.failed import (
    OPEN,
    QUARANTINED,
    FailedId,
    FailedRow,
    Step,
    is_within,
    rows_of,
)

log = logging.getLogger(__name__)

EVERY_OFFSET = OffsetRange(0, MAX_OFFSET)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """A selection of failed records; a field that is not given means all."""

    topic: str | None = None
    partition: int | None = None
    offsets: OffsetRange = EVERY_OFFSET
    kind: FailureKind | None = None
    states: Collection[str] = OPEN

    def of(self, key: PartitionKey) -> bool:
        """True if records of this partition can be meant."""
        return self.topic in (None, key.source.topic) and self.partition in (None, key.source.partition)

    def has(self, row: FailedRow) -> bool:
        return (
            self.of(row.key)
            and row.record.offset in self.offsets
            and self.kind in (None, row.record.kind)
            and row.state in self.states
        )


def failed_records(run: Run, view: LedgerView, selection: Selection) -> list[FailedRow]:
    """The failed records that are meant, in order. The store gets what it did not know.

    A reset copies everything again, so what was open in an earlier generation is only history. The store also has
    records of partitions that the ledger has lost.
    """
    keys = [key for key in view.positions if selection.of(key)]
    receipts = run.clusters.ledger.receipts(dict.fromkeys(keys))
    stored = {row.id: row for row in run.store.failed(run.replication.name) if selection.of(row.key)}
    by_key: dict[PartitionKey, list[FailedRow]] = {key: [] for key in keys}
    for row in stored.values():
        by_key.setdefault(row.key, []).append(row)
    rows = dict[FailedId, FailedRow]()
    for key, some in by_key.items():
        of_key = rows_of(view, key, receipts if key in view.positions else None, some)
        rows |= {**of_key, **_found_in_quarantine(run, view, key, of_key)}
    store(run, (row for id_, row in rows.items() if row != stored.get(id_)))
    meant = [row for _, row in sorted(rows.items()) if selection.has(row)]
    newest = {key: position.generation for key, position in view.positions.items()}
    every = set(selection.states) == set(STATES)
    return [row for row in meant if every or not row.is_open or row.generation >= newest.get(row.key, 0)]


def _found_in_quarantine(
    run: Run, view: LedgerView, key: PartitionKey, rows: Mapping[FailedId, FailedRow]
) -> Mapping[FailedId, FailedRow]:
    """Records that neither a receipt nor the store knows any more, and that the store should have: the ledger says how
    many.

    What was skipped is nowhere else, and stays a number.
    """
    if key not in view.positions:
        return {}
    seconds, generation = run.replication.retention.history, view.positions[key].generation
    kept = sum(row.generation == generation and row.is_kept(seconds) for row in rows.values())
    account = view[key]
    lately = (entry for entry in account.handled if is_within(seconds, entry.time))
    decided = Coverage.of(range_ for entry in lately for range_ in entry.decided)
    if account.undecided() + decided.span <= kept:  # open ones, and those decided about lately
        return {}
    with run.clusters.target.quarantine() as quarantine:
        found = [
            FailedRow(key=key, generation=generation, record=record, history=(Step(time, QUARANTINED, ""),))
            for record, time in quarantine.records(run.replication.quarantine_topic, key, generation)
        ]
    left = rows_of(view, key, known=[row for row in found if row.id not in rows])
    return {id_: row for id_, row in left.items() if row.is_kept(seconds)}


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
    session: SinkSession
    view: LedgerView  # of after fencing
    account: Account  # with what this session has committed


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
        if view.position(key, before.generation) is None:
            raise Refused(f"{key.source}: its position changed meanwhile", "list the failed records again")
        if (seal := view[key].position.sealed) is not None:
            raise Refused(f"{key.source}: this direction was sealed {seal}", "nothing more is copied to its target")
        session.check_ids(view[key].position.ids)
        yield Fenced(run=run, session=session, view=view, account=view[key])


def left_of(held: Fenced, rows: Sequence[FailedRow], wanted: Sequence[str]) -> tuple[list[FailedRow], list[Outcome]]:
    """The records about which can still be decided, and outcomes for the rest: those in a ``wanted`` state are done."""
    view, key = held.view, rows[0].key
    again = any(row.offset in view.of(key, row.generation).removed.recopy_allowed for row in rows)
    ours = rows_of(view, key, held.run.clusters.ledger.receipts({key: None}) if again else None, rows)
    left, done = list[FailedRow](), list[Outcome]()
    for row in (ours.get(row.id, row) for row in rows):
        if row.generation != held.account.position.generation:
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


class FailedContents:
    """Reads failed records of one partition again. What it returns has the digest that the receipt names."""

    def __init__(self, key: PartitionKey, source: clients.ClientConfig, quarantine: Quarantine, stall: float) -> None:
        self._key, self._quarantine = key, quarantine
        self._source = Cursor(source, consumer_group(key.replication), key.source, stall)
        self._readable: OffsetRange | None = None

    def look(self, admin: AdminClient, ids: Ids) -> None:
        """Find out which offsets of the source can still be read; none if its topic was re-created."""
        at = self._key.source
        if topics.current_id(admin, at.topic) == ids.source_topic:
            self._readable = offsets.readable_log(admin, at)

    def of(self, failed: FailedRecord) -> Record | None:
        """The record; None if neither side has it unchanged."""
        if self._readable is not None and failed.offset in self._readable:
            try:
                record = next(self._source.content(OffsetRange(failed.offset, failed.offset + 1)), None)
                if record is not None and digest_of(record) == failed.digest:
                    return record
            except (GapFound, Refused, SystemError) as error:  # it is gone, or cannot be read, or not decoded
                log.info("%s offset %d: %s", self._key.source, failed.offset, error)
        return self._quarantine.original(self._key, failed)

    def close(self) -> None:
        self._source.close()
