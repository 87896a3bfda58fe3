"""A backfill's plan for people and for programs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from kafka_replication.documents import Pairs, SpanRow, place
from kafka_replication.model.offsets import Coverage
from kafka_replication.model.times import EPOCH, amount, from_millis
from kafka_replication.planning.backfill_plan import BackfillLine, BackfillPlan
from kafka_replication.planning.backfill_request import show
from kafka_replication.reporting.run import PlannedOutcome, RunReport, new_topics
from kafka_replication.reporting.table import Columns, engine_rows, table

DAY = 86_400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillRow(SpanRow):
    """A backfill's plan of one partition. ``newer_on_target`` counts offsets that are on the target already,
    although they come after the new copies in the source.

    An estimate is null if there is none. ``kept_until`` is when the target may delete the oldest record; null, as
    ``target_keeps_ms``, if it never does or if that is not known. ``engine`` begins with the copy, for the reason
    ``engine_why``; both are null if nothing is copied.
    """

    on_target: Pairs
    gone: Pairs
    to_copy: Pairs
    to_copy_again: Pairs
    lost_on_both_sides: Pairs
    withheld: Pairs
    to_verify: Pairs
    estimated_records: int | None
    estimated_bytes: int | None
    newer_on_target: int
    oldest_record: str | None
    target_keeps_ms: int | None
    kept_until: str | None
    engine: str | None
    engine_why: str | None
    error: str | None
    remedy: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillPlanDocument:
    """``backfill --dry-run``, and what Airflow's task pushes: what would be copied."""

    replication: str
    dry_run: Literal[True] = True
    outcome: PlannedOutcome
    offsets_to_copy: int
    estimated_records: int | None
    estimated_bytes: int | None
    partitions: list[BackfillRow]


def document(backfill_plan: BackfillPlan) -> BackfillPlanDocument:
    """The document of a dry run. Records and bytes are estimates; null if there is no estimate."""
    todo = [line for line in backfill_plan.lines if line.plan.copy]
    return BackfillPlanDocument(
        replication=backfill_plan.replication,
        outcome="failed" if backfill_plan.refused else "nothing_to_do" if backfill_plan.plan.idle else "planned",
        offsets_to_copy=sum(line.left.span for line in todo),
        estimated_records=_total(line.records for line in todo),
        estimated_bytes=_total(line.bytes for line in todo),
        partitions=[
            BackfillRow(
                **place(line.key, line.asked),
                on_target=line.covered,
                gone=line.gone,
                to_copy=line.left,
                to_copy_again=line.again,
                lost_on_both_sides=line.lost_on_both_sides,
                withheld=line.withheld,
                to_verify=line.plan.verify,
                estimated_records=line.records,
                estimated_bytes=line.bytes,
                newer_on_target=line.newer,
                oldest_record=_time(line.oldest),
                target_keeps_ms=line.keeps,
                kept_until=_time(line.kept_until),
                engine=line.plan.engine or None,
                engine_why=line.plan.engine_why or None,
                error=line.plan.what or None,
                remedy=line.plan.remedy or None,
            )
            for line in backfill_plan.lines
        ],
    )


def _total(values: Iterable[int | None]) -> int | None:
    estimates = list(values)
    return None if None in estimates else sum(value or 0 for value in estimates)


def _time(millis: int | None) -> str | None:
    return None if millis is None else show(from_millis(millis))


def plan_table(backfill_plan: BackfillPlan, now: datetime | None = None) -> str:
    """The plan for people: a line for each partition, then the summary, warnings and refusals."""
    present = ((now or datetime.now(UTC)) - EPOCH).total_seconds() * 1000
    columns: Columns[BackfillLine] = {
        "partition": lambda line: line.key.source,
        "target": lambda line: line.key.target_topic,
        "range": lambda line: line.asked,
        "on the target": lambda line: _ranges(line.covered),
        "gone": lambda line: _ranges(line.gone),
        "to copy": lambda line: _ranges(line.left),
        "records": lambda line: None if line.records is None else f"~{line.records:,}",
        "size": lambda line: None if line.bytes is None else f"~{amount(line.bytes)}",
        "order": lambda line: f"after {line.newer:,} newer" if line.newer else "kept",
        "target keeps it": lambda line: _kept(line, present),
    }
    engines = [row.line() for row in engine_rows(line.plan.choice for line in backfill_plan.lines)]
    text = "\n".join([table(backfill_plan.lines, columns), summary(backfill_plan), *engines])
    for line in backfill_plan.lines:
        text += _not_there_any_more(line)
        if line.newer and not line.plan.refused:
            text += (
                f"\nORDER {line.key.source}: the copies land after {line.newer:,} newer offsets that are on"
                f" {line.key.target_topic} already; another --target-topic keeps the source's order"
            )
        if _expired(line, present):
            text += (
                f"\nRETENTION {line.key.source}: {line.key.target_topic} keeps records {_days(line.keeps or 0)}, and"
                f" the oldest is from {_time(line.oldest)}: they may be deleted before they are read back; raise"
                " retention.ms first"
            )
    return text + "".join(f"\nREFUSED {line.plan.what}\n  remedy: {line.plan.remedy}" for line in backfill_plan.refused)


def _not_there_any_more(line: BackfillLine) -> str:
    """The offsets that were on the target and are missing now."""
    where, text = f"{line.key.source}", ""
    if line.again and not line.plan.refused:
        text += f"\nAGAIN {where}: {line.again} are not on {line.key.target_topic} any more and will be copied again"
    if line.lost_on_both_sides:
        text += (
            f"\nLOST {where}: {line.lost_on_both_sides} are not on {line.key.target_topic} any more, nor at the source"
        )
    if line.withheld:
        text += (
            f"\nWITHHELD {where}: {line.withheld} are not on {line.key.target_topic} any more, but records of these"
            " chunks were retried, and would come twice: copy to another --target-topic, or reset the topic"
        )
    if line.given_up:
        text += f"\nUNPROVEN {where}: the verification of {line.given_up} was given up"
    return text


def nothing_to_do(*, lost: bool, given_up: bool) -> str:
    """The reason why there is nothing to do. It claims only what is true of all offsets."""
    if lost:
        return (
            "nothing to do: the offsets that are no longer on the target are no longer at the source either, or belong"
            " to chunks with records that were retried"
        )
    verified = "verified, or its verification was given up" if given_up else "verified"
    return f"nothing to do: the target is up to date, and {verified}"


def nothing_done(report: RunReport) -> str:
    """The text of a backfill that had nothing to do."""
    text = nothing_to_do(lost=bool(report.removed), given_up=any(gap.copied for gap in report.gaps))
    return "\n".join([text, *report.removed])


def summary(backfill_plan: BackfillPlan) -> str:
    """One sentence about the whole plan."""
    todo = [line for line in backfill_plan.lines if line.plan.copy]
    if backfill_plan.refused:
        counts = f"{len(backfill_plan.refused)} of {len(backfill_plan.lines)}"
        return f"{counts} partitions are refused: nothing would be copied"
    if backfill_plan.plan.idle:
        if backfill_plan.lines and not any(line.asked.span for line in backfill_plan.lines):
            return "nothing to do: the source has no offset in this range"
        lost, given_up = (
            any(line.lost_on_both_sides or line.withheld for line in backfill_plan.lines),
            any(line.given_up for line in backfill_plan.lines),
        )
        return nothing_to_do(lost=lost, given_up=given_up)
    if not todo:
        return "nothing to copy: the target is up to date; the part that is not verified yet would be verified"
    records, size = _total(line.records for line in todo), _total(line.bytes for line in todo)
    about = (
        f"about {records:,} records, {amount(size)} (estimated from a sample)"
        if records is not None and size is not None
        else "not estimated"
    )
    made = new_topics(line.plan for line in todo)
    what = f"to copy: {sum(line.left.span for line in todo):,} offsets of {len(todo):,} partitions, {about}"
    return what + (f"\nto create on the target: {', '.join(made)}" if made else "")


def _ranges(coverage: Coverage) -> str:
    """The ranges if there are at most two, else their number and total span."""
    if len(coverage.ranges) > 2:
        return f"{coverage.span} in {len(coverage.ranges)} ranges"
    return str(coverage) if coverage else "-"


def _kept(line: BackfillLine, now: float) -> str:
    if not line.left:
        return "-"
    if line.keeps is None:
        return "for ever"
    if line.kept_until is None:
        return f"{_days(line.keeps)} from its timestamp"
    return "NOT: too old" if _expired(line, now) else f"{_days(line.kept_until - now)} more"


def _expired(line: BackfillLine, now: float) -> bool:
    return bool(line.left) and line.kept_until is not None and line.kept_until <= now


def _days(millis: float) -> str:
    return f"{millis / DAY:.1f} d"
