"""Adopts copies that another tool made: finds where they end, and opens the ledger there."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter

from kafka_replication.kafka import offsets, topics
from kafka_replication.kafka.other_copies import Records, Stored, both_sides, compare, stored_by_mirrormaker
from kafka_replication.ledger.account import Change
from kafka_replication.ledger.entries import Adopted, Position
from kafka_replication.ledger.offset_map import AdoptedPlaces
from kafka_replication.ledger.writing import apply
from kafka_replication.model.errors import BadInput, Refused, ReplicationError, StaleWriter
from kafka_replication.model.offsets import OffsetRange, PartitionKey, TopicPartition, readable
from kafka_replication.model.times import now
from kafka_replication.model.trouble import raise_errors
from kafka_replication.planning import preflight
from kafka_replication.planning.live import own
from kafka_replication.planning.plan import PartitionPlan, State
from kafka_replication.planning.refusals import starts_to_write
from kafka_replication.planning.snapshot import PartitionOffsets, Snapshot
from kafka_replication.reporting.adopted import AdoptDocument, AdoptRow, row_of
from kafka_replication.runs import steps
from kafka_replication.runs.audit import LEAST_FOR_SPARK, work_on
from kafka_replication.runs.leasing import interval_scope, leased
from kafka_replication.runs.looking import Live, World, look
from kafka_replication.runs.run import LeasedRun, Request, Run
from kafka_replication.runtime import background
from kafka_replication.spark.launcher import Launcher
from kafka_replication.targets.start_offsets import TargetRecords
from kafka_replication.verification.auditing import Audit, Audited, OtherCopy, Size

log = logging.getLogger(__name__)
MIRRORMAKER, DATA = "mirrormaker2", "data"
_TABLE = TypeAdapter(dict[str, dict[int, Annotated[int, Field(ge=0)]]])


@dataclass(frozen=True, slots=True, kw_only=True)
class Adoption:
    """``from_`` is `MIRRORMAKER`, `DATA`, or a JSON file ``{topic: {partition: next source offset}}``. ``whole``:
    compare the whole copy, not only its end.
    """

    from_: str
    whole: bool = False

    def __post_init__(self) -> None:
        """Raises BadInput for a file that cannot be read."""
        self.table()

    @property
    def source(self) -> str:
        return self.from_ if self.from_ in (MIRRORMAKER, DATA) else "offsets"

    def table(self) -> Mapping[TopicPartition, Stored]:
        if self.source != "offsets":
            return {}
        try:
            read = _TABLE.validate_json(Path(self.from_).read_bytes())
            return {
                TopicPartition(name, at): Stored({next_}) for name, each in read.items() for at, next_ in each.items()
            }
        except (OSError, ValueError) as error:
            raise BadInput(
                f"--from {self.from_}: {' '.join(str(error).split())}",
                f'say {MIRRORMAKER}, {DATA}, or name a JSON file such as {{"orders": {{"0": 1500}}}}: by topic and'
                " partition the next source offset",
            ) from error


def preview(
    run: Run, asked: Adoption, spark: Launcher | None = None, *, least: Size = LEAST_FOR_SPARK
) -> AdoptDocument:
    """The document of a dry run of `adopt`. Changes nothing."""
    _check(run)
    found = _Search.of(run, asked).all(spark, least)
    return AdoptDocument(
        replication=run.replication.name, applied=False, partitions=tuple(each.row for each in found.values())
    )


def adopt(run: Run, asked: Adoption, spark: Launcher | None = None, *, least: Size = LEAST_FOR_SPARK) -> AdoptDocument:
    """Open the partitions whose copy's end is proved. Each other one stays as it is; the document has the reason.

    A whole copy of the ``least`` records is compared on ``spark``, anything else in this process.

    Raises PreflightFailed, NotAuthorized, Unreachable, Busy, and Refused for a replication that can adopt nothing.
    """
    _check(run)
    with leased(run, interval_scope(run)) as leased_run:
        leased_run.clusters.ledger.ensure(run.replication)
        steps.fence_stale_producers(leased_run)
        search = _Search.of(leased_run, asked)
        snapshot = search.world.snapshot
        raise_errors(finding for finding in preflight.check(run.replication, snapshot) if finding.stops_the_run)
        found = search.all(spark, least)
        proved = [each for each in found.values() if each.row.state == "can be adopted"]
        opened = leased_run.again_if_fenced("adopting", lambda: _open(leased_run, proved, search.plans, snapshot))
        steps.advance(leased_run, [key for key, row in opened.items() if row.state == "adopted"])
    done = tuple(opened.get(key, each.row) for key, each in found.items())
    return AdoptDocument(replication=run.replication.name, applied=True, partitions=done)


def _check(run: Run) -> None:
    """Raises Refused."""
    file = run.replication
    if wrong := file.not_one_to_one:
        raise Refused(
            f"{file.name}: a copy cannot be adopted with this {' and '.join(wrong)}",
            "only a Kafka target with partitioning: keep, delivery: exactly_once and one writer goes on behind another"
            " tool's copy; copy to empty topics instead (topics.rename)",
        )


Plans = Mapping[PartitionKey, PartitionPlan]


@dataclass(frozen=True, slots=True)
class _Found:
    """The row of a partition, and where the records of its copy lie."""

    row: AdoptRow
    places: AdoptedPlaces | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Search:
    """Looks for the end of each partition's copy. ``ends`` has the ends of those target partitions that may be adopted,
    or why they are not known.
    """

    run: Run
    asked: Adoption
    world: World
    plans: Plans
    stored: Mapping[TopicPartition, Stored]
    ends: Mapping[PartitionKey, int | ReplicationError]

    @classmethod
    def of(cls, run: Run, asked: Adoption) -> _Search:
        world = look(run, Live(Request()), opens=False)
        plans = {planned.key: planned for planned in Live(Request()).plan(run, world, {}).plan.partitions}
        stored = asked.table()
        if asked.source == MIRRORMAKER and not (stored := stored_by_mirrormaker(*_sides(run))):
            raise Refused(
                "no topic mm2-offsets.*.internal on the target and no mm2-offset-syncs.*.internal on either side says"
                " what MirrorMaker copied, or this client may not read them",
                f"allow Read on these topics; or adopt --from {DATA}, which needs no topic of MirrorMaker",
            )
        there = [
            key
            for key, planned in plans.items()
            if _may_adopt(planned, world.view.positions.get(key)) and key.target.partition in _partitions(world, key)
        ]
        known, failed = TargetRecords(run.clusters.target).ends(there, _wait(run))
        return cls(
            run=run,
            asked=asked,
            world=world,
            plans=plans,
            stored=stored,
            ends={**failed, **{key: each[key.target.partition] for key, each in known.items()}},
        )

    def all(self, spark: Launcher | None, least: Size) -> dict[PartitionKey, _Found]:
        """Each partition of the replication."""
        prepared = background.at_once(self.plans, self._prepared, "compare")
        tasks = {
            key: Audit(id=number, partition=key, target_logs={}, size=Size(offsets=work.target.span), other_copy=work)
            for number, (key, work) in enumerate(prepared.items())
            if isinstance(work, OtherCopy)
        }
        offsets = sum(task.size.offsets for task in tasks.values())
        if spark is not None and self.asked.whole and offsets >= least.records:
            by_id = work_on(self.run, spark, [*tasks.values()], "copies of another tool")
            ends = {key: by_id[task.id] for key, task in tasks.items()}
        else:
            ends = background.at_once(tasks, lambda key: compare(tasks[key], key, *_sides(self.run)), "compare")
        rows = {key: row for key, row in prepared.items() if isinstance(row, AdoptRow)}
        found = {key: self._found(key, tasks[key], end) for key, end in ends.items()}
        return {key: found.get(key) or _Found(rows[key]) for key in sorted(prepared)}

    def _prepared(self, key: PartitionKey) -> AdoptRow | OtherCopy:
        planned, position = self.plans[key], self.world.view.positions.get(key)
        if position is not None and not _may_adopt(planned, position):
            return _opened_before(key, position)
        if planned.refused and position is None:
            return row_of(key, "refused", error=planned.what, remedy=planned.remedy)
        try:
            work = self._other_copy(key)
        except ReplicationError as error:
            return row_of(key, "refused", error=error.what, remedy=error.remedy)
        what = "the target has no records of it; the next run opens it as the file says"
        return work or row_of(key, "nothing to adopt", error=what)

    def _other_copy(self, key: PartitionKey) -> OtherCopy | None:
        """None if the target has no records. Raises Refused."""
        number, end_of_target = key.target.partition, self.ends.get(key, 0)
        stored = self.stored.get(key.source, Stored())
        if isinstance(end_of_target, ReplicationError):
            raise end_of_target
        if not end_of_target:
            return None
        on_target = readable(_partitions(self.world, key)[number].log_start, end_of_target)
        if self.run.clusters.target.standing.first_record(key.target, on_target) is None:
            return None
        if len(stored.next_offsets) > 1:
            raise Refused("MirrorMaker copies topics of this name from several clusters", f"adopt --from {DATA}")
        if self.asked.source == "offsets" and not stored.next_offsets:
            raise Refused(f"{self.asked.from_} does not have this partition", f"add it, or adopt --from {DATA}")
        topic = self.world.snapshot.source[key.source.topic]
        return OtherCopy(
            source=topic.offsets(number).readable,
            target=on_target,
            stored=next(iter(stored.next_offsets), None),
            syncs=tuple(stored.syncs),
            whole=self.asked.whole,
            compacts="compact" in topic.config.get("cleanup.policy", ""),
        )

    def _found(self, key: PartitionKey, task: Audit, audited: Audited) -> _Found:
        work, end = task.other_copy, audited.copy_end
        if end is None or work is None:
            what = "; ".join(audited.findings.errors)
            return _Found(row_of(key, "refused", error=what, remedy=audited.remedy or "adopt again"))
        adopted = Adopted(
            source=self.asked.source,
            proof=("whole" if self.asked.whole else "tail") if end.compared else "stored",
            target_from=end.target_from,
            target_until=work.target.until,
            compared=end.compared,
            doubles=end.doubles,
            missing=end.missing,
            run_id=self.run.run_id,
            time=now(),
        )
        row = row_of(
            key, "can be adopted", start=end.next_offset, stored=work.stored, aborted=end.aborted, adopted=adopted
        )
        return _Found(row, end.places)


def changed_since(run: Run, key: PartitionKey, position: Position) -> str:
    """The difference between the adopted copy as it was compared then and as it is now; empty if there is none, and for
    one that was not compared. Raises Refused if the source has nothing of it any more, Unreachable.
    """
    was = position.adopted
    if was is None or was.proof == "stored":
        return ""
    (source, target), patience = _sides(run), offsets.Patience.within(_wait(run))
    here = offsets.readable_logs(source.admin, [key.source], patience)[key.source]
    there = offsets.readable_logs(target.admin, [key.target], patience)[key.target]
    if here.from_ >= position.start:
        raise Refused("the source has dropped what was copied", "")
    work = OtherCopy(
        source=OffsetRange(here.from_, position.start),
        target=OffsetRange(min(there.from_, was.target_until), was.target_until),
        stored=None,
        syncs=(),
        whole=was.proof == "whole",
        compacts="compact" in topics.config(source.admin, key.source.topic).get("cleanup.policy", ""),
    )
    task = Audit(id=0, partition=key, target_logs={}, size=Size(offsets=work.target.span), other_copy=work)
    audited = compare(task, key, source, target)
    if (end := audited.copy_end) is None:
        return "; ".join(audited.findings.errors)
    if (end.compared, end.doubles, end.missing) == (was.compared, was.doubles, was.missing):
        return ""
    return (
        f"{end.compared} records are equal now, with {end.doubles} doubles and {end.missing} missing; when it was"
        f" adopted {was.compared}, {was.doubles} and {was.missing}. It was changed, or retention has removed some since"
    )


def _sides(run: Run) -> tuple[Records, Records]:
    target, doing = run.clusters.target_connection, "comparing the copy with its source"
    return both_sides(run.replication, run.clusters.source, target, lambda: run.deadline.check(doing))


def _may_adopt(planned: PartitionPlan, position: Position | None) -> bool:
    """A position behind which nothing was copied can be replaced: after a reset, or where the tool went on."""
    if position is None:
        return planned.state is State.OPENING
    if position.sealed:
        return False
    new = position.adopted is None and not planned.refused
    return _nothing_is_behind(position) and (new or planned.state is State.FOREIGN)


def _nothing_is_behind(position: Position) -> bool:
    """True if no record was copied behind this position's start; offsets without a record may have been."""
    adopted = position.adopted
    return not position.coverage or (adopted is not None and position.target_end == adopted.target_until)


def _opened_before(key: PartitionKey, position: Position) -> AdoptRow:
    if position.adopted is not None:
        return row_of(key, "adopted before", start=position.start, adopted=position.adopted)
    what = f"this replication copies it already, from source offset {position.start} on"
    return row_of(key, "opened before", start=position.start, error=what)


def _partitions(world: World, key: PartitionKey) -> Mapping[int, PartitionOffsets]:
    """Those of the key's target topic that answer."""
    topic = world.snapshot.target.get(key.target_topic)
    return topic.readable if topic else {}


def _wait(run: Run) -> float:
    return run.deadline.within(run.replication.timeouts.request)


def _open(run: LeasedRun, proved: Sequence[_Found], plans: Plans, snapshot: Snapshot) -> dict[PartitionKey, AdoptRow]:
    """The rows of partitions that can be adopted, after they were opened or not."""
    run.check()
    with closing(run.opening()) as opening:
        view = opening.fence()
        ends, _ = opening.records.ends([each.row.key for each in proved], _wait(run))
        done, positions = dict[PartitionKey, AdoptRow](), dict[PartitionKey, Position]()
        for each in proved:
            row = each.row
            key, adopted, before = row.key, row.adopted, view.positions.get(row.key)
            assert adopted is not None and row.start is not None
            done[key] = replace(row, state="adopted")
            if before is not None and before.adopted == adopted:
                continue  # by an attempt whose outcome was not known
            if before is not None and not _nothing_is_behind(before):
                done[key] = _opened_before(key, before)
            elif ends.get(key, {}).get(key.target.partition) != adopted.target_until:
                what = f"{key.target} does not end at {adopted.target_until} any more"
                done[key] = row_of(key, "refused", error=what, remedy="stop what writes there, and adopt again")
            else:
                positions[key] = Position(
                    generation=plans[key].generation + (before is not None),
                    ids=plans[key].ids,
                    start=row.start,
                    next_offset=row.start,
                    target_end=adopted.target_until,
                    adopted=adopted,
                    adopted_places=each.places,
                )
        new = {key: position for key, position in positions.items() if key not in view.positions}
        left = tuple(plan for key, plan in plans.items() if key not in positions)
        starts = starts_to_write(run.replication, snapshot, own(run.replication, view), left, now()) if new else {}
        opening.commit(new, {key: ends[key] for key in new}, starts.items())
    for key in positions.keys() - new.keys():
        _replace(run, key, view.positions[key], positions[key])
    for key, position in positions.items():
        log.info("adopted %s: copying goes on at source offset %d", key, position.start)
    return done


def _replace(run: LeasedRun, key: PartitionKey, before: Position, position: Position) -> None:
    """With the partition's own transactional id, so that no copier of the position ``before`` can commit. Raises
    StaleWriter.
    """
    with run.fenced(key) as session:
        position = replace(position, receipts_from=run.clusters.ledger.receipt_ends()[key.ledger_partition])
        change = Change(key=key, write=(position,), expects=before)
        if not apply(session.ledger, session.transaction, [change]):
            raise StaleWriter(f"{key.source}: the ledger was changed meanwhile", "adopt again")
