"""A backfill's plan for people and for programs."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from kafka_replication.model.offsets import Coverage
from kafka_replication.model.times import EPOCH, from_millis
from kafka_replication.planning.backfill import BackfillLine, BackfillPlan
from kafka_replication.planning.backfill_request import show
from kafka_replication.reporting.table import table

DAY = 86_400_000


def outcome(made: BackfillPlan) -> str:
    """What a run of it would come to: ``failed``, ``planned`` or ``nothing_to_do``."""
    if made.refused:
        return "failed"
    return "nothing_to_do" if made.plan.idle else "planned"


def as_json(made: BackfillPlan) -> dict[str, Any]:
    """The document of a dry run. Records and bytes are estimates, null where there is none."""
    todo = [each for each in made.lines if each.plan.copy]
    return {
        "replication": made.replication,
        "dry_run": True,
        "outcome": outcome(made),
        "offsets_to_copy": sum(each.left.span for each in todo),
        "estimated_records": _total(each.records for each in todo),
        "estimated_bytes": _total(each.bytes for each in todo),
        "partitions": [_row(each) for each in made.lines],
    }


def _row(line: BackfillLine) -> dict[str, Any]:
    return {
        "topic": line.key.source.topic,
        "partition": line.key.source.partition,
        "target_topic": line.key.target_topic,
        "from": line.asked.from_,
        "until": line.asked.until,
        "on_target": line.covered.encode(),
        "gone": line.gone.encode(),
        "to_copy": line.left.encode(),
        "to_verify": line.plan.verify.encode(),
        "estimated_records": line.records,
        "estimated_bytes": line.bytes,
        "newer_on_target": line.newer,
        "oldest_record": _time(line.oldest),
        "target_keeps_ms": line.keeps,
        "kept_until": _time(line.kept_until),
        "error": line.plan.what or None,
        "remedy": line.plan.remedy or None,
    }


def _total(values: Iterable[int | None]) -> int | None:
    known = list(values)
    return None if None in known else sum(each or 0 for each in known)


def _time(millis: int | None) -> str | None:
    return None if millis is None else show(from_millis(millis))


def plan_table(made: BackfillPlan, now: datetime | None = None) -> str:
    """The plan as a person reads it: a line a partition, then what to know about them, what is refused last."""
    head = (
        "partition",
        "target",
        "range",
        "on the target",
        "gone",
        "to copy",
        "records",
        "size",
        "order",
        "target keeps it",
    )
    present = ((now or datetime.now(UTC)) - EPOCH).total_seconds() * 1000
    rows = [_cells(each, present) for each in made.lines]
    text = table(head, rows) + f"\n{summary(made)}"
    for each in made.lines:
        if each.newer and not each.plan.refused:
            text += (
                f"\nORDER {each.key.source}: the copies land after {each.newer} newer offsets that are on"
                f" {each.key.target_topic} already; another --target-topic keeps the source's order"
            )
        if _expired(each, present):
            text += (
                f"\nRETENTION {each.key.source}: {each.key.target_topic} keeps records {_days(each.keeps or 0)}, and"
                f" the oldest is from {_time(each.oldest)}: they may be deleted before they are read back; raise"
                " retention.ms first"
            )
    return text + "".join(f"\nREFUSED {each.plan.what}\n  remedy: {each.plan.remedy}" for each in made.refused)


def summary(made: BackfillPlan) -> str:
    """One sentence about all of it."""
    todo = [each for each in made.lines if each.plan.copy]
    if made.refused:
        return f"{len(made.refused)} of {len(made.lines)} partitions are refused: nothing would be copied"
    if made.plan.idle:
        return "nothing to do: all of it is on the target already, and verified"
    if not todo:
        return "nothing to copy: all of it is on the target already; what is not verified yet would be"
    records, size = _total(each.records for each in todo), _total(each.bytes for each in todo)
    about = (
        f"about {records} records, {_size(size)} (estimated from a sample)"
        if records is not None and size is not None
        else "not estimated"
    )
    return f"to copy: {sum(each.left.span for each in todo)} offsets of {len(todo)} partitions, {about}"


def _cells(line: BackfillLine, now: float) -> tuple[str, ...]:
    return (
        str(line.key.source),
        line.key.target_topic,
        str(line.asked),
        *(_ranges(each) for each in (line.covered, line.gone, line.left)),
        "-" if line.records is None else f"~{line.records}",
        "-" if line.bytes is None else f"~{_size(line.bytes)}",
        f"after {line.newer} newer" if line.newer else "kept",
        _kept(line, now),
    )


def _ranges(found: Coverage) -> str:
    """At most two; a fragmented coverage is told in numbers."""
    if len(found.ranges) > 2:
        return f"{found.span} in {len(found.ranges)} ranges"
    return str(found) if found else "-"


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


def _size(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 10**9 else f"{size / 1e6:.1f} MB" if size >= 10**5 else f"{size} bytes"
