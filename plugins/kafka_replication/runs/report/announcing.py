"""Finds what a run may announce as verified."""

from __future__ import annotations

from typing import Final

from kafka_replication.planning.plan import Plan
from kafka_replication.reporting.run.report import RunReport
from kafka_replication.reporting.run.verified_topics import VerifiedTopic, verified_topics
from kafka_replication.runs.run import LeasedRun
from kafka_replication.watermarks.values import RunRecord

DIED: Final = "died"
ENDED_BADLY: Final = frozenset({"failed", DIED})
MOST: Final = 50  # runs that are looked through for those that failed since the last good one


def verified_now(run: LeasedRun, plan: Plan, report: RunReport) -> list[VerifiedTopic]:
    """The topics that this run has verified, with what failed runs of its kind have verified just before it, and could
    not announce. None if a range of this run failed.

    Raises Unreachable.
    """
    if report.failed:
        return []
    own = run.store.run(run.run_id)
    before: list[RunRecord] = []
    for _, record in run.store.runs_before(run.replication.name, None, MOST) if own else ():
        if own is None or record.run_id == run.run_id or record.kind != own.kind:
            continue
        if record.state in ENDED_BADLY:
            before.append(record)
        elif record.finished_at is not None:
            break
    return verified_topics(
        report,
        [outcome for record in reversed(before) for outcome in run.store.outcomes(record.run_id)],
        died={record.run_id for record in before if record.state == DIED},
        planned={planned.key.target_topic for planned in plan.partitions},
    )
