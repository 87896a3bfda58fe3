"""The tables behind a page: how each replication stood, samples over time, and alerts that are over."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, Literal

from pydantic import ValidationError
from sqlalchemy import ColumnElement, Connection, Row, Select, and_, delete, func, insert, literal, select, tuple_

from kafka_replication.alerting.values import OpenCause
from kafka_replication.documents import StatusRow
from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.times import floor_millis, from_millis
from kafka_replication.runtime.private_json import deferred
from kafka_replication.store import connect, schema
from kafka_replication.store.tables import alerts, rows
from kafka_replication.store.tables.rows import replacing_insert
from kafka_replication.watermarks.failed import OPEN
from kafka_replication.watermarks.sight import (
    COARSER,
    KEPT,
    CopiedRange,
    Facts,
    Lag,
    Look,
    PastAlert,
    Sample,
    Seen,
    Span,
    Standing,
    Work,
    begin_of,
    thinned,
)
from kafka_replication.watermarks.values import RunRecord

_standings, _samples, _past, _runs = schema.standings, schema.samples, schema.past_alerts, schema.runs
_FACTS, _WORK = deferred(Facts), deferred(Work)
AT_ONCE: Final = 5_000  # samples that one transaction thins
ROWS: Final = 1  # the version of the stored rows: raise it when a key of `StatusRow` is added or changes its sense


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRows:
    """The rows of a look, as a column of the store has them."""

    version: Literal[1] = ROWS
    rows: Sequence[StatusRow]


_ROWS = deferred(StoredRows)
_WITHOUT_PLAN: Final = tuple(column for column in _runs.c if column.name != "plan")


def record_standing(db: Connection, replication: str, facts: Facts, lag: Lag, partitions: Sequence[StatusRow]) -> None:
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


def record_work(db: Connection, replication: str, facts: Facts, work: Work) -> None:
    """``work.at`` is the end of the run. A run that is reported again replaces what it said before."""
    now = connect.clock(db)
    known = db.execute(select(_standings.c.work).where(_standings.c.replication == replication)).scalar()
    newer = known is None or _WORK.validate_json(known).at <= work.at
    changed = {"work": _WORK.dump_json(work).decode()} if newer and work.records else {}
    _put_standing(db, replication, facts, changed)
    mine = and_(_of(replication, Span.MINUTE), _samples.c.run_id == work.run_id)
    db.execute(delete(_samples).where(mine))
    if floor_millis(work.at) > now - KEPT[Span.MINUTE]:  # else it may be a part of an hour already
        at = begin_of(work.at, Span.MINUTE)
        sample = Sample(at=at, span=Span.MINUTE, records=work.records, bytes=work.bytes, seconds=work.seconds)
        db.execute(insert(_samples).values(_sample_values(replication, sample, work.run_id)))
    _thin(db, replication, now)


def record_facts(db: Connection, replication: str, facts: Facts) -> None:
    _put_standing(db, replication, facts, {})


def _put_standing(db: Connection, replication: str, facts: Facts, changed: Mapping[str, Any]) -> None:
    """Insert or change the row. It stays locked until the transaction ends, so that samples are thinned only once."""
    changed = {"facts": _FACTS.dump_json(facts).decode(), **changed}
    statement = replacing_insert(db, _standings).values({"replication": replication, "partition_count": 0, **changed})
    db.execute(statement.on_conflict_do_update(index_elements=["replication"], set_=changed))


# Samples


def samples(db: Connection, replication: str, since: datetime) -> list[Sample]:
    """Those that end after ``since``, oldest first; those of one time are one."""
    query = (
        select(_samples)
        .where(_samples.c.replication == replication, _samples.c.at + _samples.c.span > floor_millis(since))
        .order_by(_samples.c.at, _samples.c.span)
    )
    joined = dict[tuple[datetime, Span], Sample]()
    for row in db.execute(query):
        sample = _sample(row)
        key = sample.at, sample.span
        joined[key] = joined[key].joined(sample) if key in joined else sample
    return list(joined.values())


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
        values = _sample_values(replication, sample.joined(_sample(known)) if known else sample)
        statement = replacing_insert(db, _samples).values(values)
        key = [column.name for column in _samples.primary_key.columns]
        others = {name: value for name, value in values.items() if name not in key}
        db.execute(statement.on_conflict_do_update(index_elements=key, set_=others))


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


# What a page reads


def front(db: Connection, names: Collection[str] | None) -> list[Seen]:
    """One for each replication that the store knows, or for those of ``names``; ordered by name."""
    standings = {row.replication: _standing(row) for row in db.execute(_of_names(_front_columns(), _standings, names))}
    marks = schema.watermarks
    verified = select(marks.c.replication, func.max(marks.c.updated_at)).group_by(marks.c.replication)
    last_verified = {name: from_millis(at) for name, at in map(tuple, db.execute(_of_names(verified, marks, names)))}
    newest = _newest_runs(db, names)
    causes, looks = _causes(db, names)
    at_work = _at_work(db, names)
    failed = schema.failed_records
    counted = select(failed.c.replication, func.count()).where(failed.c.state.in_(OPEN)).group_by(failed.c.replication)
    undecided = dict(map(tuple, db.execute(_of_names(counted, failed, names))))
    held = schema.replication_leases  # has a row as soon as a run has begun, even if it failed before it had a plan
    begun = set(db.execute(_of_names(select(held.c.replication), held, names)).scalars())
    known = begun | standings.keys() | last_verified.keys() | newest.keys() | causes.keys() | looks.keys()
    return [
        Seen(
            standing=standings.get(name, Standing(replication=name)),
            last_verified=last_verified.get(name),
            causes=tuple(causes[name]),
            look=looks.get(name),
            newest=newest.get(name),
            at_work=tuple(at_work[name]),
            undecided=undecided.get(name, 0),
        )
        for name in sorted(known)
    ]


def _front_columns() -> Select[Any]:
    return select(*(column for column in _standings.c if column.name != "partitions"))


def _of_names(query: Select[Any], table: Any, names: Collection[str] | None) -> Select[Any]:
    return query if names is None else query.where(table.c.replication.in_(names))


def _standing(row: Row[Any]) -> Standing:
    return Standing(
        replication=row.replication,
        facts=_FACTS.validate_json(row.facts),
        at=None if row.measured_at is None else from_millis(row.measured_at),
        partitions=row.partition_count,
        lag=Lag(row.lag_records, row.lag_seconds),
        work=None if row.work is None else _WORK.validate_json(row.work),
    )


def _newest_runs(db: Connection, names: Collection[str] | None) -> dict[str, RunRecord]:
    last = _of_names(select(func.max(_runs.c.sequence)).group_by(_runs.c.replication), _runs, names)
    query = select(*_WITHOUT_PLAN).where(_runs.c.sequence.in_(last))
    return {record.replication: record for record in _alive(db, map(_run, db.execute(query)))}


def _at_work(db: Connection, names: Collection[str] | None) -> defaultdict[str, list[RunRecord]]:
    held = schema.leases
    owners = _of_names(select(held.c.owner).where(held.c.waiting.is_(False)), held, names)
    owners = owners.where(held.c.expires_at > connect.clock(db))
    found = defaultdict[str, list[RunRecord]](list)
    for row in db.execute(select(*_WITHOUT_PLAN).where(_runs.c.run_id.in_(owners)).order_by(_runs.c.sequence.desc())):
        found[row.replication].append(replace(_run(row), alive=True))
    return found


def _alive(db: Connection, records: Iterable[RunRecord]) -> list[RunRecord]:
    """The records with their ``alive``: a planned run lives while it has a lease, or its next task is expected."""
    known, now = list(records), connect.clock(db)
    planned = {record.run_id for record in known if record.state == "planned"}
    held = schema.leases
    leased = select(held.c.owner).where(held.c.owner.in_(planned), held.c.expires_at > now)
    expected = select(_runs.c.run_id).where(_runs.c.run_id.in_(planned), _runs.c.expected_until > now)
    living = set(db.execute(leased.union(expected)).scalars()) if planned else set()
    return [replace(each, alive=each.run_id in living) if each.run_id in planned else each for each in known]


def _causes(db: Connection, names: Collection[str] | None) -> tuple[defaultdict[str, list[OpenCause]], dict[str, Look]]:
    causes, looks = defaultdict[str, list[OpenCause]](list), dict[str, Look]()
    for row in db.execute(_of_names(select(schema.alerts), schema.alerts, names)):
        if cause := alerts.cause_of(row):
            causes[row.replication].append(cause)
        elif look := alerts.look_of(row):
            looks[row.replication] = look
    return causes, looks


def _run(row: Row[Any]) -> RunRecord:
    return rows.run_record(row, plan="")


def partitions(db: Connection, replication: str) -> list[StatusRow]:
    """The rows of the newest look; none if nobody has looked, or if another version of this package did."""
    text = db.execute(select(_standings.c.partitions).where(_standings.c.replication == replication)).scalar()
    try:
        return list(_ROWS.validate_json(text).rows) if text else []
    except ValidationError:
        return []


def runs(db: Connection, replication: str, before: int | None, limit: int) -> list[tuple[int, RunRecord]]:
    """The runs that were planned before the one with this number, newest first, each with its number; without plans."""
    query = select(*_WITHOUT_PLAN).where(_runs.c.replication == replication)
    query = query if before is None else query.where(_runs.c.sequence < before)
    found = list(db.execute(query.order_by(_runs.c.sequence.desc()).limit(limit)))
    return [(row.sequence, record) for row, record in zip(found, _alive(db, map(_run, found)), strict=True)]


def copied(db: Connection, key: PartitionKey, limit: int) -> list[CopiedRange]:
    """The newest ranges of one partition that runs worked on, newest first."""
    outcomes = schema.outcomes
    query = select(outcomes, _runs.c.kind).join(_runs, _runs.c.run_id == outcomes.c.run_id)
    query = query.where(rows.is_key(outcomes, key)).order_by(outcomes.c.recorded_at.desc()).limit(limit)
    return [CopiedRange(rows.outcome_of(row), row.kind) for row in db.execute(query)]


def past(db: Connection, replication: str, limit: int) -> list[PastAlert]:
    """The alerts that ended last, newest first."""
    query = select(_past).where(_past.c.replication == replication).order_by(_past.c.ended_at.desc()).limit(limit)
    return [
        PastAlert(
            kind=row.kind,
            subject=row.subject,
            since=from_millis(row.since),
            ended_at=from_millis(row.ended_at),
            what=row.what,
            remedy=row.remedy,
        )
        for row in db.execute(query)
    ]


def delete_old(db: Connection, replication: str, before: int) -> int:
    """Delete samples and past alerts that ended before this time, in milliseconds. Returns the number of rows."""
    old = and_(_samples.c.replication == replication, _samples.c.at < before)
    over = and_(_past.c.replication == replication, _past.c.ended_at < before)
    return db.execute(delete(_samples).where(old)).rowcount + db.execute(delete(_past).where(over)).rowcount
