"""The tables behind a page: how each replication stood, samples over time, consumer groups and certificates."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, Literal

from pydantic import ValidationError
from sqlalchemy import (
    ColumnElement,
    Connection,
    Result,
    Row,
    Select,
    Table,
    and_,
    delete,
    func,
    insert,
    literal,
    select,
    tuple_,
)

from kafka_replication.alerting.open_causes import OpenCause
from kafka_replication.documents import GroupRow, StatusRow
from kafka_replication.model.errors import BadInput
from kafka_replication.model.times import floor_millis, from_millis
from kafka_replication.runtime.private_json import deferred
from kafka_replication.store import alerts, connect, schema, tables
from kafka_replication.store.database import Database, reads, writes
from kafka_replication.store.leases import with_life
from kafka_replication.store.runs import WITHOUT_PLAN, run_record
from kafka_replication.watermarks.failed import OPEN
from kafka_replication.watermarks.sight import (
    COARSER,
    KEPT,
    CertificateRow,
    Drill,
    Facts,
    Lag,
    Look,
    Sample,
    Seen,
    Span,
    Standing,
    Work,
    begin_of,
    thinned,
)
from kafka_replication.watermarks.values import RunRecord

_standings, _samples, _runs = schema.standings, schema.samples, schema.runs
_BUT_PARTITIONS: Final = tuple(column for column in _standings.c if column.name != "partitions")
_FACTS, _WORK = deferred(Facts), deferred(Work)
AT_ONCE: Final = 5_000  # samples that one transaction thins
ROWS: Final = 3  # the version of the stored rows: raise it when a key of `StatusRow` is added or changes its sense


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRows:
    """The rows of a look, as a column of the store has them."""

    version: Literal[3] = ROWS
    rows: Sequence[StatusRow]


_ROWS = deferred(StoredRows)


class Sight(Database):
    @writes
    def record_standing(
        self, db: Connection, replication: str, facts: Facts, lag: Lag, partitions: Sequence[StatusRow]
    ) -> None:
        """Store how the replication stands now, in place of the earlier look, and a sample of its ``lag``."""
        now = connect.clock(db)
        text = _ROWS.dump_json(StoredRows(rows=partitions), by_alias=True).decode()
        values: dict[str, Any] = {
            "measured_at": now,
            "partition_count": len(partitions),
            "lag_records": lag.records,
            "lag_seconds": lag.seconds,
        }
        # Of a thousand partitions it is 0.7 MB: where none moved, it is not written again.
        same = select(literal(1)).where(_standings.c.replication == replication, _standings.c.partitions == text)
        if db.execute(same).first() is None:
            values["partitions"] = text
        _put_standing(db, replication, facts, values)
        at = begin_of(from_millis(now), Span.MINUTE)
        _join(db, replication, [Sample(at=at, span=Span.MINUTE, lag=lag)])
        _thin(db, replication, now)

    @writes
    def record_facts(self, db: Connection, replication: str, facts: Facts) -> None:
        """Store these facts of the replication, and leave what was measured as it is."""
        _put_standing(db, replication, facts, {})

    @writes
    def record_work(self, db: Connection, replication: str, facts: Facts, work: Work) -> None:
        """Store what a run copied that has ended (``work.at``), and a sample of that. A later call for the same run
        replaces both.

        A run without records is only a sample.
        """
        now = connect.clock(db)
        known = db.execute(select(_standings.c.work).where(_standings.c.replication == replication)).scalar()
        newer = known is None or _WORK.validate_json(known).at <= work.at
        changed = {"work": _WORK.dump_json(work).decode()} if newer and work.records else {}
        _put_standing(db, replication, facts, changed)
        db.execute(delete(_samples).where(_of(replication, Span.MINUTE), _samples.c.run_id == work.run_id))
        if floor_millis(work.at) > now - KEPT[Span.MINUTE]:  # else it may be a part of an hour already
            at = begin_of(work.at, Span.MINUTE)
            sample = Sample(at=at, span=Span.MINUTE, records=work.records, bytes=work.bytes, seconds=work.seconds)
            db.execute(insert(_samples).values(_sample_values(replication, sample, work.run_id)))
        _thin(db, replication, now)

    @reads
    def samples(self, db: Connection, replication: str, since: datetime) -> list[Sample]:
        """The samples whose span ends after ``since``, oldest first; those of one time are one."""
        query = (
            select(_samples)
            .where(_samples.c.replication == replication, _samples.c.at + _samples.c.span > floor_millis(since))
            .order_by(_samples.c.at, _samples.c.span)
        )
        joined = dict[tuple[datetime, Span], Sample]()
        for sample in map(_sample, db.execute(query)):
            key = sample.at, sample.span
            joined[key] = joined[key].joined(sample) if key in joined else sample
        return list(joined.values())

    @reads
    def standing_partitions(self, db: Connection, replication: str) -> list[StatusRow]:
        """The partitions as they stood at the time of the replication's `Standing`; none if nobody has looked, or if
        another version of this package did.
        """
        text = db.execute(select(_standings.c.partitions).where(_standings.c.replication == replication)).scalar()
        try:
            return list(_ROWS.validate_json(text).rows) if text else []
        except ValidationError:
            return []

    @reads
    def front(self, db: Connection, names: Collection[str] | None = None) -> list[Seen]:
        """All that is known of these replications, or of all, by name; read in one transaction."""

        def of(table: Table, query: Select[Any]) -> Result[Any]:
            return db.execute(query if names is None else query.where(table.c.replication.in_(names)))

        standings = {row.replication: _standing(row) for row in of(_standings, select(*_BUT_PARTITIONS))}
        marks, failed, held = schema.watermarks, schema.failed_records, schema.leases
        verified = select(marks.c.replication, func.max(marks.c.updated_at)).group_by(marks.c.replication)
        last_verified = {name: from_millis(at) for name, at in map(tuple, of(marks, verified))}
        last = of(_runs, select(func.max(_runs.c.sequence)).group_by(_runs.c.replication)).scalars().all()
        newest = {run.replication: run for run in with_life(db, _runs_where(db, _runs.c.sequence.in_(last)))}
        owners = select(held.c.owner).where(held.c.waiting.is_(False), held.c.expires_at > connect.clock(db))
        at_work = defaultdict[str, list[RunRecord]](list)
        for run in _runs_where(db, _runs.c.run_id.in_(of(held, owners).scalars().all())):
            at_work[run.replication].append(replace(run, alive=True))
        causes, looks, drills = defaultdict[str, list[OpenCause]](list), dict[str, Look](), dict[str, Drill]()
        for row in of(schema.alerts, select(schema.alerts)):
            if cause := alerts.cause_of(row):
                causes[row.replication].append(cause)
            elif look := alerts.look_of(row):
                looks[row.replication] = look
            elif drill := alerts.drill_of(row):
                drills[row.replication] = drill
        counted = select(failed.c.replication, func.count()).where(failed.c.state.in_(OPEN))
        undecided = dict(map(tuple, of(failed, counted.group_by(failed.c.replication))))
        begun = schema.replication_leases  # has a row as soon as a run has begun, even if it failed without a plan
        names_begun = of(begun, select(begun.c.replication)).scalars()
        known = {*names_begun, *standings, *last_verified, *newest, *causes, *looks, *drills}
        return [
            Seen(
                standing=standings.get(name, Standing(replication=name)),
                last_verified=last_verified.get(name),
                causes=tuple(causes[name]),
                look=looks.get(name),
                newest=newest.get(name),
                at_work=tuple(at_work[name]),
                undecided=undecided.get(name, 0),
                drill=drills.get(name),
            )
            for name in sorted(known)
        ]


def _put_standing(db: Connection, replication: str, facts: Facts, changed: Mapping[str, Any]) -> None:
    """Insert or change the row. It stays locked until the transaction ends, so that samples are thinned only once."""
    changed = {"facts": _FACTS.dump_json(facts).decode(), **changed}
    tables.put(
        db,
        _standings,
        [{"replication": replication, "partition_count": 0, **changed}],
        lambda new: {name: new[name] for name in changed},
    )


def _thin(db: Connection, replication: str, now: int) -> None:
    """Join samples that are old enough, at most `AT_ONCE` of each span. A coarser one takes only whole spans."""
    for span, age in KEPT.items():
        coarser = COARSER[span]
        before = (now - age) // coarser * coarser
        order = _samples.c.at, _samples.c.run_id
        old = select(_samples).where(_of(replication, span), _samples.c.at < before).order_by(*order)
        found = list(db.execute(old.limit(AT_ONCE)))
        if not found:
            continue
        _join(db, replication, thinned(map(_sample, found), coarser))
        last = literal(found[-1].at), literal(found[-1].run_id)
        db.execute(delete(_samples).where(_of(replication, span), tuple_(*order) <= tuple_(*last)))


def _join(db: Connection, replication: str, new: Collection[Sample]) -> None:
    """Store these samples, joined with what is there."""
    for sample in new:
        there = _of(replication, sample.span), _samples.c.at == floor_millis(sample.at), _samples.c.run_id == ""
        known = db.execute(select(_samples).where(*there)).one_or_none()
        tables.replace(db, _samples, [_sample_values(replication, sample.joined(_sample(known)) if known else sample)])


def _of(replication: str, span: Span) -> ColumnElement[bool]:
    return and_(_samples.c.replication == replication, _samples.c.span == int(span))


def _sample_values(replication: str, sample: Sample, run_id: str = "") -> dict[str, Any]:
    return {
        "replication": replication,
        "span": int(sample.span),
        "at": floor_millis(sample.at),
        "run_id": run_id,
        "lag_records": sample.lag.records,
        "lag_seconds": sample.lag.seconds,
        "records": sample.records,
        "bytes": sample.bytes,
        "seconds": sample.seconds,
    }


def _sample(row: Row[Any]) -> Sample:
    return Sample(
        at=from_millis(row.at),
        span=Span(row.span),
        lag=Lag(row.lag_records, row.lag_seconds),
        records=row.records,
        bytes=row.bytes,
        seconds=row.seconds,
    )


def _standing(row: Row[Any]) -> Standing:
    return Standing(
        replication=row.replication,
        facts=_FACTS.validate_json(row.facts),
        at=None if row.measured_at is None else from_millis(row.measured_at),
        partitions=row.partition_count,
        lag=Lag(row.lag_records, row.lag_seconds),
        work=None if row.work is None else _WORK.validate_json(row.work),
    )


def _runs_where(db: Connection, these: ColumnElement[bool]) -> list[RunRecord]:
    """These runs without their plans, newest first."""
    return [run_record(row) for row in db.execute(select(*WITHOUT_PLAN).where(these).order_by(_runs.c.sequence.desc()))]


_groups = schema.groups
GROUP_ROWS: Final = 1  # the version of the stored rows: raise it when a key of `GroupRow` is added or changes its sense


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredGroup:
    """The row of a group, as a column of the store has it."""

    version: Literal[1] = GROUP_ROWS
    row: GroupRow


_GROUP = deferred(StoredGroup)


class Groups(Database):
    @writes
    def record_groups(self, db: Connection, replication: str, rows: Iterable[GroupRow]) -> None:
        """Store these groups of the replication in place of those before."""
        now = connect.clock(db)
        values = [
            {
                "replication": replication,
                "group_id": row.group,
                "measured_at": now,
                "document": _GROUP.dump_json(StoredGroup(row=row), by_alias=True).decode(),
            }
            for row in rows
        ]
        db.execute(delete(_groups).where(_groups.c.replication == replication))
        if values:
            db.execute(insert(_groups), values)

    @reads
    def groups(self, db: Connection, replication: str) -> list[GroupRow]:
        """The groups as they were seen the last time, by name. One that another version stored is left out."""
        query = select(_groups.c.document).where(_groups.c.replication == replication).order_by(_groups.c.group_id)
        rows = list[GroupRow]()
        for text in db.execute(query).scalars():
            try:
                rows.append(_GROUP.validate_json(text).row)
            except ValidationError:
                continue
        return rows


_files, _CERTIFICATE = schema.certificates, deferred(CertificateRow)
CERTIFICATES_KEPT: Final = 100  # of each replication


class Certificates(Database):
    @writes
    def keep_certificate(self, db: Connection, replication: str, row: CertificateRow, json: bytes, html: bytes) -> None:
        """Keep a certificate with its files, in place of the oldest one if there are `CERTIFICATES_KEPT`."""
        of_replication = _files.c.replication == replication
        newest = (
            select(_files.c.name).where(of_replication).order_by(_files.c.made_at.desc()).limit(CERTIFICATES_KEPT - 1)
        )
        names = [*db.execute(newest).scalars()]
        db.execute(
            delete(_files).where(of_replication, _files.c.name.not_in([one for one in names if one != row.name]))
        )
        values = {
            "replication": replication,
            "name": row.name,
            "made_at": connect.clock(db),
            "json": json,
            "html": html,
        }
        db.execute(insert(_files).values(**values, document=_CERTIFICATE.dump_json(row).decode()))

    @reads
    def certificates(self, db: Connection, replication: str) -> list[CertificateRow]:
        """The certificates that are kept, newest first."""
        query = select(_files.c.document).where(_files.c.replication == replication)
        return [*map(_CERTIFICATE.validate_json, db.execute(query.order_by(_files.c.made_at.desc())).scalars())]

    @reads
    def certificate_file(self, db: Connection, replication: str, name: str, kind: str) -> bytes:
        """One of both files of a certificate: its ``json`` or its ``html``. Raises BadInput if it is not kept."""
        query = select(_files.c[kind]).where(_files.c.replication == replication, _files.c.name == name)
        found: bytes | None = db.execute(query).scalar_one_or_none()
        if found is None:
            raise BadInput(
                f"{replication} has no certificate {name}", f"the store keeps the last {CERTIFICATES_KEPT} of them"
            )
        return bytes(found)
