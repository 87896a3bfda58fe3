"""The report of a run: for every range, what happened to all offsets between ``from`` and ``until``.

The target topics of which a run has verified something: what a downstream consumer may read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal

from pydantic import Field, field_serializer

from kafka_replication.documents import GapRow, Inner, Pair, Pairs, PartitionRow, Seconds, SpanRow, place
from kafka_replication.model.choices import EXACTLY_ONCE, TRANSACTIONAL, Delivery, EngineChoice, Promise
from kafka_replication.model.offsets import PartitionKey
from kafka_replication.model.times import amount
from kafka_replication.model.trouble import Trouble
from kafka_replication.planning.plan import PartitionPlan, Plan, State
from kafka_replication.planning.target_retention import removal_text
from kafka_replication.reporting.table import Columns, EngineTurnRow, engine_rows, table, turn_lines
from kafka_replication.watermarks.values import RangeOutcome

Outcome = Literal["done", "nothing_to_do", "failed"]
PlannedOutcome = Literal["planned", "nothing_to_do", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeReport(SpanRow):
    """One range of a run. ``until - from`` is the sum of ``copied``, ``copied_before``, ``filtered``, ``quarantined``,
    ``skipped``, ``lost_in_delivery``, ``not_visible``, ``lost``, ``returned`` and ``missing``; docs/words.md has each.

    ``superseded`` of the copied records are not found, because a newer one of their key is there (`shape: latest`).
    ``written`` counts the records of ``copied`` on the target, ``digest_ok`` is null if no digest was compared, and
    ``watermark`` if it did not move. ``bytes`` and ``seconds`` are those of this run's copy, ``engines`` those that
    wrote it. ``engine_why`` is the plan's reason for the engine that it chose; null if this run copied nothing or the
    plan is an older one. ``engine_turns`` says which other engine began or took over, and why: the first three times of
    a range, as far as the last attempt to copy told them; the log of the task has all.
    """

    copied: int = 0
    copied_before: int = 0  # by an earlier run, which did not report it
    written: int | None = None  # None: as many as ``copied``; it differs only with a transform
    filtered: int = 0
    quarantined: int = 0
    skipped: int = 0
    lost_in_delivery: int = 0  # sent, in a profile that may lose records, and not arrived
    duplicates: int = 0  # further copies on the target; no part of the span
    superseded: int = 0
    not_visible: int = 0  # derived: transaction markers, aborted records and records removed by compaction
    lost: int = 0  # given up by approval
    returned: int = 0  # came from the target, or were set aside, when the direction was turned around
    missing: int = 0  # not on the target yet, or gone before they were read back
    digest_ok: bool | None = None
    watermark: int | None = None
    bytes: int = 0
    seconds: Seconds = 0.0
    engines: tuple[str, ...] = ()
    engine_why: str | None = None
    turns: Annotated[tuple[EngineTurnRow, ...], Field(alias="engine_turns")] = ()
    error: str | None = None
    remedy: Inner[str] = ""  # in JSON at the end of ``error``
    begun: Inner[EngineChoice | None] = None  # by this engine, as planned

    @field_serializer("written")
    def _as_many(self, written: int | None) -> int:
        return self.copied if written is None else written

    @field_serializer("error")
    def _with_remedy(self, error: str | None) -> str | None:
        return f"{error}. Remedy: {self.remedy}" if error and self.remedy else error


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """``run`` and ``backfill``, and what Airflow's last task pushes: the report of a run, with a row for each range.

    ``gaps`` has all approved gaps of the replication, ``removed`` says which copies are no longer on the target.
    ``verified_by`` is the weakest way of reading back (``digest``, ``count``, ``none``), ``delivery`` the weakest
    profile. ``promise`` is that of the target: unless it is ``transactional``, readers may see records before they are
    committed.
    """

    replication: str
    run_id: str
    outcome: Outcome = field(init=False, default="done")  # a run that left something is never ``nothing_to_do``
    ranges: tuple[RangeReport, ...]
    gaps: tuple[GapRow, ...] = ()
    removed: tuple[str, ...] = ()
    level: Annotated[str, Field(alias="verified_by")] = "none"
    delivery: Delivery = EXACTLY_ONCE  # of the verified records
    promise: Promise = TRANSACTIONAL
    adopted: int = 0  # partitions that go on behind a copy of another tool
    notes: tuple[str, ...] = ()  # what this run left to other runs, reported once although nothing failed

    def __post_init__(self) -> None:
        outcome = "failed" if self.failed else "done" if self.ranges or self.notes else "nothing_to_do"
        object.__setattr__(self, "outcome", outcome)

    @property
    def failed(self) -> tuple[RangeReport, ...]:
        return tuple(line for line in self.ranges if line.error)

    def table(self) -> str:
        """The report for people, as a log shows it."""
        failed = [
            f"FAILED {line.key.source} {line.range}: {line.error}\n  remedy: {line.remedy or 'run again'}"
            for line in self.failed
        ]
        ranges = table(self.ranges, _COLUMNS) if self.ranges else self._nothing()
        begun = {line.key: line.begun for line in self.ranges if line.begun}
        engines = [row.line("planned to be copied") for row in engine_rows(begun.values())]
        engines += turn_lines([(line, turn) for line in self.ranges for turn in line.turns])
        notes = (f"NOTE {note}" for note in self.notes)
        above = [ranges, *legend(self.ranges), *engines, *_counted(self.ranges)]
        told = f"ADOPTED {self.adopted} partitions go on behind a copy of another tool, which status names"
        adopted = [told] if self.adopted else []
        return "\n".join([*above, *failed, *self.removed, *map(str, self.gaps), *adopted, *notes])

    def _nothing(self) -> str:
        """The text of a report without ranges."""
        if self.notes:
            return "nothing was copied"
        if self.level == "none":
            return "everything is copied; there was nothing to verify"
        return f"everything is copied and verified (by {self.level})"

    def summary(self) -> str:
        """One line about the run as a whole."""
        records, size = sum(line.copied for line in self.ranges), sum(line.bytes for line in self.ranges)
        partitions = len({line.key for line in self.ranges})
        done = f"{partitions:,} partitions, {records:,} records copied, {amount(size)}" if self.ranges else ""
        done += f", verified by {self.level}" if self.level != "none" and done and not self.failed else ""
        done += f", delivered {self.delivery}" if self.delivery != EXACTLY_ONCE and done else ""
        done += f", {self.promise}" if self.promise != TRANSACTIONAL and done else ""
        failed = f"{len(self.failed):,} of {len(self.ranges):,} ranges failed" if self.failed else ""
        return ": ".join(filter(None, [self.outcome.replace("_", " "), "; ".join(filter(None, [done, failed]))]))


def legend(ranges: Iterable[RangeReport]) -> list[str]:
    """Explanations of the columns that are not zero and not self-explanatory; docs/words.md has all of them."""
    lines = list(ranges)
    meanings = {
        "before: committed by an earlier run that did not report it": any(line.copied_before for line in lines),
        "not visible: offsets of transaction markers, aborted and compacted records": any(
            line.not_visible for line in lines
        ),
        "lost: given up with approve-gap": any(line.lost for line in lines),
        "missing: not on the target": any(line.missing for line in lines),
    }
    shown = [meaning for meaning, is_shown in meanings.items() if is_shown]
    return [f"({'; '.join(shown)})"] if shown else []


def _counted(ranges: Iterable[RangeReport]) -> Iterator[str]:
    """The counts of single ranges that no column has."""
    named = [(f"{line.key.source} {line.range}", line) for line in ranges]
    for where, line in named:
        if line.returned:
            yield f"{where}: {line.returned} offsets came from the target, or were set aside, when it was turned around"
        if line.filtered or line.quarantined or line.skipped:
            counts = f"{line.filtered} filtered, {line.quarantined} quarantined, {line.skipped} skipped"
            yield f"{where}: records that were not copied on purpose: {counts}"
    for where, line in named:
        if line.lost_in_delivery or line.duplicates:
            lost = f"{line.lost_in_delivery} records lost in delivery"
            yield f"{where}: {lost}, {line.duplicates} duplicates on the target"
    for where, line in named:
        if line.superseded:
            yield f"{where}: {line.superseded} of the copied records are superseded by a newer one of their key"
    for where, line in named:
        if line.written not in (None, line.copied):
            yield f"{where}: the transform made {line.written:,} records of {line.copied:,}"


_COLUMNS: Final[Columns[RangeReport]] = {
    "partition": lambda line: line.source,
    "target": lambda line: line.target_topic,
    "range": lambda line: line.range,
    "span": lambda line: f"{line.range.span:,}",
    "copied": lambda line: f"{line.copied:,}",
    "before": lambda line: f"{line.copied_before:,}",
    "not visible": lambda line: f"{line.not_visible:,}",
    "lost": lambda line: f"{line.lost:,}",
    "missing": lambda line: f"{line.missing:,}",
    "digest": lambda line: {None: None, True: "equal", False: "DIFFERS"}[line.digest_ok],
    "watermark": lambda line: line.watermark,
    "speed": lambda line: f"{amount(line.bytes / line.seconds)}/s" if line.seconds else None,
    "engine": lambda line: ", ".join(line.engines) or None,
}


def plan_table(plan: Plan) -> str:
    """The plan for people; refused partitions come last."""
    columns: Columns[PartitionPlan] = {
        "partition": lambda p: p.key.source,
        "target": lambda p: p.key.target_topic,
        "state": lambda p: p.state,
        "position": lambda p: p.position,
        "source end": lambda p: p.source_end,
        "copy": lambda p: p.copy or None,
        "verify": lambda p: p.verify or None,
    }
    refused = "".join(f"\nREFUSED {p.what}\n  remedy: {p.remedy}" for p in plan.refused)
    removed = [removal_text(p.key, p.removed, p.missed) for p in plan.partitions if p.removed]
    notes = "".join(f"\n{note}" for note in (*removed, *plan.notes))
    engines = "".join(f"\n{row.line()}" for row in engine_rows(planned.choice for planned in plan.partitions))
    return f"{table(plan.partitions, columns)}\n{plan_summary(plan)}{engines}{refused}{notes}"


def planned(plan: Plan, findings: Iterable[Trouble]) -> list[str]:
    """The plan for people; empty if there is only an error to report: "nothing to do" would contradict it."""
    refused = not plan.partitions and any(finding.severity == "error" for finding in findings)
    return [] if refused else [plan_table(plan)]


def plan_summary(plan: Plan) -> str:
    """The work that a run would do, in one or two lines."""
    if plan.idle:
        is_in_sync = not plan.refused and plan.partitions and not any(planned.removed for planned in plan.partitions)
        return "nothing to do: the target is up to date" if is_in_sync else "nothing to do"
    offsets = sum(planned.copy.span for planned in plan.to_copy if planned.copy)
    done = [f"to copy: {offsets:,} offsets of {len(plan.to_copy):,} partitions"] if plan.to_copy else []
    done += [f"to verify: {len(plan.pending):,} partitions"] if plan.pending else []
    made = new_topics(plan.partitions)
    return "; ".join(done) + (f"\nto create on the target: {', '.join(made)}" if made else "")


def new_topics(partitions: Iterable[PartitionPlan]) -> list[str]:
    """The target topics that do not exist yet and would be created."""
    return sorted(
        {
            planned.key.target_topic
            for planned in partitions
            if planned.state is State.OPENING and not planned.ids.target_topic
        }
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRunRow(PartitionRow):
    """The plan of one partition. ``to_copy`` is a ``[from, until]`` pair. ``engine`` begins with it, for the reason
    ``engine_why``; both are null if nothing is copied.
    """

    state: str
    position: int
    source_end: int
    to_copy: Pair | None
    to_verify: Pairs
    engine: str | None
    engine_why: str | None
    error: str | None
    remedy: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRunDocument:
    """The result of Airflow's task ``plan`` if the run is triggered as a dry run."""

    replication: str
    dry_run: Literal[True] = True
    outcome: PlannedOutcome
    offsets_to_copy: int
    topics_to_create: list[str]
    partitions: list[DryRunRow]
    notes: tuple[str, ...]


def dry_run(plan: Plan) -> DryRunDocument:
    """The document of a dry run."""
    return DryRunDocument(
        replication=plan.replication,
        outcome="failed" if plan.refused else "nothing_to_do" if plan.idle else "planned",
        offsets_to_copy=sum(planned.copy.span for planned in plan.to_copy if planned.copy),
        topics_to_create=new_topics(plan.partitions),
        partitions=[
            DryRunRow(
                **place(planned.key),
                state=str(planned.state),
                position=planned.position,
                source_end=planned.source_end,
                to_copy=planned.copy,
                to_verify=planned.verify,
                engine=planned.engine or None,
                engine_why=planned.engine_why or None,
                error=planned.what or None,
                remedy=planned.remedy or None,
            )
            for planned in plan.partitions
        ],
        notes=plan.notes,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedTopic:
    """One target topic and its verified ranges of source offsets, in their order."""

    topic: str
    ranges: tuple[RangeReport | RangeOutcome, ...]

    def extra(self, report: RunReport) -> dict[str, Any]:
        """The event's extra. ``records`` were copied by the run, or by the failed ones before it; ``watermark`` is the
        next source offset after what is verified.
        """
        return {
            "replication": report.replication,
            "run_id": report.run_id,
            "target_topic": self.topic,
            "records": sum(line.copied for line in self.ranges),
            "bytes": sum(line.bytes for line in self.ranges),
            "verified_by": report.level,
            "partitions": [
                {
                    "topic": line.key.source.topic,
                    "partition": line.key.source.partition,
                    "from": line.range.from_,
                    "until": line.range.until,
                    "records": line.copied,
                    "watermark": line.watermark,
                }
                for line in self.ranges
            ],
        }


def verified_topics(
    report: RunReport,
    before: Iterable[RangeOutcome] = (),
    *,
    died: Collection[str] = (),
    planned: Collection[str] = (),
) -> list[VerifiedTopic]:
    """The topics that this run has verified, by name. ``before``: the outcomes of the failed runs of its kind since the
    last one that ended well; what these verified counts, too, because a failed run announces nothing.

    None if any range of the run failed. A topic of which nothing was verified is left out, and so is one with a
    partition that failed before and was not verified since: this run may have been one of other topics.

    ``died`` has the ids of those earlier runs that died. They name no range that they did not reach, so what they
    verified counts only for the topics that this run ``planned``, of which it says that nothing is left.
    """
    if report.failed:
        return []
    found = defaultdict[str, list[RangeReport | RangeOutcome]](list)
    failed = dict[PartitionKey, bool]()  # by the newest line of each partition
    certain = (outcome for outcome in before if outcome.run_id not in died or outcome.key.target_topic in planned)
    in_time: tuple[RangeReport | RangeOutcome, ...] = (*certain, *report.ranges)
    for line in in_time:
        failed[line.key] = bool(line.error)
        if not line.error:
            found[line.key.target_topic].append(line)
    unfinished = {key.target_topic for key, has_failed in failed.items() if has_failed}
    return [
        VerifiedTopic(topic=topic, ranges=tuple(sorted(lines, key=lambda line: (line.key, line.range.from_))))
        for topic, lines in sorted(found.items())
        if topic not in unfinished
    ]
