"""The pages: each function reads the store and returns HTML. Whoever calls them has asked who may see what."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from kafka_replication.documents import StatusRow
from kafka_replication.ledger.gap import RETURNED
from kafka_replication.model.errors import BadInput
from kafka_replication.model.offsets import PartitionKey
from kafka_replication.model.times import amount
from kafka_replication.overview.rows import Row, is_old, rows
from kafka_replication.reporting.progress import state_of
from kafka_replication.watermarks.failed import OPEN
from kafka_replication.watermarks.sight import CopiedRange
from kafka_replication.web import actions, plots
from kafka_replication.web.actions import Site
from kafka_replication.web.plots import PERIODS, Plot, RangeMap, judged

if TYPE_CHECKING:
    from kafka_replication.store import WatermarkStore

T = TypeVar("T")
FOLDER: Final = Path(__file__).parent
STATIC: Final = FOLDER / "static"
AT_ONCE: Final = 50  # rows of a page
RANGES: Final = 500  # of a partition, or of a run


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """One person who reads at ``now``. ``allowed`` are the DAGs that this person may trigger, ``off`` the ones of them
    that are switched off.
    """

    store: WatermarkStore
    site: Site
    now: datetime
    allowed: Collection[str] = ()
    off: Collection[str] = ()

    def row(self, name: str) -> Row:
        """Raises BadInput if the store does not know the replication."""
        found = rows(self.store, self.now, [name])
        if not found:
            raise BadInput(
                f"nothing is known of {name} yet",
                "it is shown once a run of it has been planned, or the DAG replications.watch has looked at it",
            )
        return found[0]

    def render(self, template: str, **values: Any) -> str:
        return templates().get_template(template).render(site=self.site, now=self.now, **values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One task of a DAG run, as Airflow knows it. ``seconds`` are those of its newest try, once it has ended."""

    name: str
    state: str
    tries: int
    began_at: datetime | None
    seconds: float | None


@cache
def templates() -> Environment:
    """The templates. Every value is escaped, and a name that is missing is an error."""
    made = Environment(
        loader=FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "ago": plots.ago,
        "amount": amount,
        "clock": plots.clock,
        "count": plots.count,
        "is_old": is_old,
        "judged": judged,
        "span": plots.span,
    }
    return made


def front(reader: Reader, visible: Callable[[str], bool], q: str, page: int, *, part: bool) -> str:
    """All replications that are ``visible``; only the table if it is a ``part`` of a page that is there."""
    found = [row for row in rows(reader.store, reader.now) if visible(row.replication) and row.is_found_by(q)]
    number, pages, shown = paged(found, page)
    return reader.render(
        "_rows.html" if part else "front.html",
        rows=shown,
        total=len(found),
        needing=sum(row.state.needs_person for row in found),
        any_running=any(row.running for row in shown),
        q=q,
        page=number,
        pages=pages,
    )


def replication(
    reader: Reader, name: str, *, period: str = "day", q: str = "", page: int = 1, before: int | None = None
) -> str:
    """The page of one replication: its partitions that ``q`` finds, of that number of ``page``, and its runs before the
    one with this number. Raises BadInput.
    """
    row = reader.row(name)
    period = period if period in PERIODS else "day"
    offered = [reader_action(reader, action) for action in actions.actions(row, reader.allowed)]
    return reader.render(
        "replication.html",
        row=row,
        actions=offered,
        failed_actions=[reader_action(reader, action) for action in actions.failed_records(row, reader.allowed)],
        failed=reader.store.failed_page(name, OPEN, AT_ONCE) if row.undecided else [],
        periods=list(PERIODS),
        period=period,
        plots=_plots(reader, name, period),
        past=reader.store.past_alerts(name, AT_ONCE),
        certificates=reader.store.certificates(name),
        groups=sorted(reader.store.groups(name), key=lambda group: group.state in ("moved", "in step")),
        **_partitions(reader, row, q, page),
        **_runs(reader, row, before),
    )


def live(reader: Reader, name: str) -> str:
    """The numbers of one replication, and the runs at work. Raises BadInput."""
    return reader.render("_live.html", row=reader.row(name))


def partitions(reader: Reader, name: str, q: str, page: int) -> str:
    """The table of partitions. Raises BadInput."""
    row = reader.row(name)
    return reader.render("_partitions.html", row=row, **_partitions(reader, row, q, page))


def runs(reader: Reader, name: str, before: int | None) -> str:
    """The table of runs. Raises BadInput."""
    row = reader.row(name)
    return reader.render("_runs.html", row=row, **_runs(reader, row, before))


def partition(reader: Reader, key: PartitionKey) -> str:
    """One partition with the map of its ranges. Raises BadInput."""
    row = reader.row(key.replication)
    ranges = reader.store.copied_ranges(key, RANGES)
    known = reader.store.standing_partitions(key.replication)
    standing = next((row for row in known if (row.source, row.target_topic) == (key.source, key.target_topic)), None)
    topic, number = key.source.topic, str(key.source.partition)
    chosen = {"topics": topic, "topic": topic, "partitions": number, "partition": number}
    gap = _lost(standing) if standing else {}
    offered = [
        reader_action(reader, action.filled({**chosen, **gap} if action.name == "approve-gap" else chosen))
        for action in actions.actions(row, reader.allowed)
        if action.name in ("backfill", "audit", "approve-gap")
    ]
    return reader.render(
        "partition.html",
        row=row,
        key=key,
        partition=standing,
        map=RangeMap.of(ranges, standing),
        ranges=ranges,
        actions=offered,
    )


def run(reader: Reader, name: str, run_id: str, steps: Sequence[Step] = ()) -> str:
    """One run with its steps and ranges. Raises BadInput if the replication has no such run."""
    record = reader.store.run(run_id)
    if record is None or record.replication != name:
        raise BadInput(
            f"{name} has no run {run_id} in the store", "it has not been planned yet, or `retention.history` is over"
        )
    at_work = [each for each in reader.row(name).running if each.run_id == run_id]
    found = [CopiedRange(outcome, record.kind) for outcome in reader.store.outcomes(run_id)]
    found.sort(key=lambda each: each.outcome.error is None)  # what failed comes first
    return reader.render(
        "run.html",
        record=record,
        state="running" if at_work else state_of(record),
        running=at_work[0] if at_work else None,
        steps=steps,
        outcomes=found[:RANGES],
    )


def problem(site: Site, status: int, what: str, remedy: str) -> str:
    """The page instead of one that cannot be shown."""
    return templates().get_template("problem.html").render(site=site, status=status, what=what, remedy=remedy)


def reader_action(reader: Reader, action: actions.Action) -> actions.Action:
    return action.switched_off() if action.dag_id in reader.off else action


def paged(found: Sequence[T], page: int) -> tuple[int, int, Sequence[T]]:
    """The number of the page, how many there are, and what is on it. Without such a page it is the nearest one."""
    pages = max(1, -(-len(found) // AT_ONCE))
    number = min(max(page, 1), pages)
    return number, pages, found[(number - 1) * AT_ONCE : number * AT_ONCE]


def _partitions(reader: Reader, row: Row, q: str, page: int) -> Mapping[str, Any]:
    words, standing = q.lower().split(), reader.store.standing_partitions(row.replication)
    found = [
        each
        for each in standing
        if all(word in f"{each.source} {each.target_topic} {each.state}".lower() for word in words)
    ]
    found.sort(key=lambda each: (each.error is None, -(each.lag or 0)))
    number, pages, shown = paged(found, page)
    differing = dict.fromkeys((each.topic, each.target_topic, text) for each in standing for text in each.settings)
    settings = list(differing)[:AT_ONCE]
    # A partition is sealed at its own time: one line for each person, command and reason.
    seals = {(each.seal.why, each.seal.by, each.seal.reason): each.seal for each in standing if each.seal}
    turns = [gap for each in standing for gap in each.gaps if gap.kind == RETURNED]
    return {
        "partitions": shown,
        "total": len(found),
        "q": q,
        "page": number,
        "pages": pages,
        "settings": settings,
        "seals": list(seals.values())[:AT_ONCE],
        "sealed": sum(each.seal is not None for each in standing),
        "turn": max(turns, key=lambda gap: gap.time, default=None),
    }


def _lost(row: StatusRow) -> Mapping[str, str]:
    """The source offsets that are neither copied nor there any more, for the form that gives them up."""
    position, start = row.position, row.log_start
    return {"from": str(position), "until": str(start)} if position is not None and (start or 0) > position else {}


def _place(key: PartitionKey) -> tuple[str, int]:
    return key.source.topic, key.source.partition


def _runs(reader: Reader, row: Row, before: int | None) -> Mapping[str, Any]:
    found = reader.store.runs_before(row.replication, before, AT_ONCE + 1)
    working = {each.run_id for each in row.running}
    shown = [(run, "running" if run.run_id in working else state_of(run)) for _, run in found[:AT_ONCE]]
    return {"runs": shown, "before": found[AT_ONCE - 1][0] if len(found) > AT_ONCE else None}


def _plots(reader: Reader, name: str, period: str) -> list[Plot]:
    samples = reader.store.samples(name, reader.now - PERIODS[period])
    since = plots.first_shown(samples, period, reader.now)

    def plot(title: str, value: plots.Value, form: Callable[[float], str], *, bars: bool) -> Plot:
        points = plots.points(samples, value, since, reader.now, added=bars)
        return Plot(title=title, since=since, until=reader.now, points=points, form=form, bars=bars)

    return [
        plot("Lag in records", lambda sample: sample.lag.records, plots.short, bars=False),
        plot("Lag in time", lambda sample: sample.lag.seconds, plots.span, bars=False),
        plot("Records copied", lambda sample: sample.records, plots.short, bars=True),
        plot("Bytes copied", lambda sample: sample.bytes, amount, bars=True),
    ]
