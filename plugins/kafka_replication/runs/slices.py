"""Copy a backfill in bounded slices. A slice is copied, verified and advanced before the next one starts."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from kafka_replication.copying.engine import CopyResult
from kafka_replication.ledger.entries import Position
from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.offsets import OffsetRange
from kafka_replication.planning.backfill import (
    next_slice,
)
from kafka_replication.planning.plan import PartitionPlan, Plan
from kafka_replication.runs import steps
from kafka_replication.runs.run import LeasedRun
from kafka_replication.spark.launcher import Launcher
from kafka_replication.verification.verify import VerifyResult
from kafka_replication.watermarks.values import RangeOutcome

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Slices:
    """The failures in the last slice of each range. Both lists are empty if nothing failed.

    ``records`` and ``bytes`` were copied in total.
    """

    not_copied: list[CopyResult]
    not_verified: list[VerifyResult]
    records: int
    bytes: int


def copy_slices(run: LeasedRun, plan: Plan, spark: Launcher) -> Slices:
    """Copy, verify and advance, slice after slice, until every range is on the target or has failed.

    Called again after a crash, it continues where the ledger ends. Failures are recorded with the run, for
    `steps.report`.
    """
    most, keys = run.replication.max_records_per_run, [planned.key for planned in plan.partitions]
    done: dict[PartitionKey, list[CopyResult]] = {planned.key: [] for planned in plan.to_copy}
    failed: dict[PartitionKey, VerifyResult] = {}
    number = 0
    while True:
        positions = run.retry("reading the ledger", run.view).positions
        without = {*failed, *(key for key, results in done.items() if results and results[-1].error)}
        part = next_slice(plan, positions, most, without)
        if not part.partitions:
            break
        number += 1
        log.info("%s", _progress(plan, positions, number, part))
        for result in steps.copy(run, part, spark).copies:
            done[result.key].append(result)
        results = steps.verify(run, [p.key for p in part.partitions], spark, plan.receipts_from)
        failed |= {result.key: result for result in results if result.error}
        steps.advance(run, keys)
    results = steps.verify(run, [key for key in keys if key not in failed], spark, plan.receipts_from)
    failed |= {result.key: result for result in results if result.error}
    positions = run.retry("reading the ledger", run.view).positions
    log.info("%s", _progress(plan, positions, number, None))
    _record(run, plan, done)
    all_results = [result for results in done.values() for result in results]
    last = [results[-1] for results in done.values() if results]
    return Slices(
        [result for result in last if result.error],
        list(failed.values()),
        sum(result.copied for result in all_results),
        sum(result.bytes for result in all_results),
    )


def _progress(plan: Plan, positions: Mapping[PartitionKey, Position], number: int, part: Plan | None) -> str:
    total = sum(planned.copy.span for planned in plan.to_copy if planned.copy)
    left = sum(range_.span for planned in plan.to_copy for range_ in _left(planned, positions))
    share = f"{total - left} of {total} offsets are on the target ({100 * (total - left) // max(1, total)}%)"
    if part is None:
        return f"backfill after {number} slices: {share}"
    named = ", ".join(f"{planned.key.source} {planned.copy}" for planned in part.partitions[:20])
    return f"backfill, slice {number}: {named}{' and others' if len(part.partitions) > 20 else ''}; so far {share}"


def _left(planned: PartitionPlan, positions: Mapping[PartitionKey, Position]) -> tuple[OffsetRange, ...]:
    assert planned.copy is not None
    return positions[planned.key].left_of(planned.copy) if planned.key in positions else (planned.copy,)


def _record(run: LeasedRun, plan: Plan, done: Mapping[PartitionKey, list[CopyResult]]) -> None:
    """Store one outcome for each whole range, after the outcomes of its slices."""
    outcomes = [
        RangeOutcome(
            run_id=run.run_id,
            key=planned.key,
            range=planned.copy,
            error=results[-1].error,
            remedy=results[-1].remedy or None,
            seconds=sum(result.seconds for result in results),
            bytes=sum(result.bytes for result in results),
        )
        for planned in plan.to_copy
        if planned.copy and (results := done[planned.key])
    ]
    run.store.record_outcomes(outcomes)
