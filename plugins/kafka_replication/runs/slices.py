"""Copying a backfill in bounded slices, each copied, verified and advanced before the next one."""

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
    """What went wrong in the last slice of each range; both are empty when nothing did.

    ``records`` and ``bytes`` were copied.
    """

    not_copied: list[CopyResult]
    not_verified: list[VerifyResult]
    records: int
    bytes: int


def copy_slices(run: LeasedRun, made: Plan, spark: Launcher) -> Slices:
    """Copy, verify and advance, slice after slice, until all of it is on the target or has failed.

    Called again after a crash it goes on where the ledger ends. What failed is recorded with the run, for
    `steps.report`.
    """
    most, keys = run.replication.max_records_per_run, [each.key for each in made.partitions]
    done: dict[PartitionKey, list[CopyResult]] = {each.key: [] for each in made.to_copy}
    failed: dict[PartitionKey, VerifyResult] = {}
    number = 0
    while True:
        positions = run.retry("reading the ledger", run.view).positions
        without = {*failed, *(key for key, results in done.items() if results and results[-1].error)}
        part = next_slice(made, positions, most, without)
        if not part.partitions:
            break
        number += 1
        log.info("%s", _progress(made, positions, number, part))
        for each in steps.copy(run, part, spark).copies:
            done[each.key].append(each)
        results = steps.verify(run, [p.key for p in part.partitions], spark, made.receipts_from)
        failed |= {result.key: result for result in results if result.error}
        steps.advance(run, keys)
    results = steps.verify(run, [key for key in keys if key not in failed], spark, made.receipts_from)
    failed |= {result.key: result for result in results if result.error}
    positions = run.retry("reading the ledger", run.view).positions
    log.info("%s", _progress(made, positions, number, None))
    _record(run, made, done)
    every = [each for results in done.values() for each in results]
    last = [results[-1] for results in done.values() if results]
    return Slices(
        [each for each in last if each.error],
        list(failed.values()),
        sum(each.copied for each in every),
        sum(each.bytes for each in every),
    )


def _progress(made: Plan, positions: Mapping[PartitionKey, Position], number: int, part: Plan | None) -> str:
    total = sum(each.copy.span for each in made.to_copy if each.copy)
    left = sum(range_.span for each in made.to_copy for range_ in _left(each, positions))
    share = f"{total - left} of {total} offsets are on the target ({100 * (total - left) // max(1, total)}%)"
    if part is None:
        return f"backfill after {number} slices: {share}"
    named = ", ".join(f"{each.key.source} {each.copy}" for each in part.partitions[:20])
    return f"backfill, slice {number}: {named}{' and others' if len(part.partitions) > 20 else ''}; until now {share}"


def _left(each: PartitionPlan, positions: Mapping[PartitionKey, Position]) -> tuple[OffsetRange, ...]:
    assert each.copy is not None
    return positions[each.key].left_of(each.copy) if each.key in positions else (each.copy,)


def _record(run: LeasedRun, made: Plan, done: Mapping[PartitionKey, list[CopyResult]]) -> None:
    """One outcome for each range as a whole; its slices have their own."""
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
        for planned in made.to_copy
        if planned.copy and (results := done[planned.key])
    ]
    run.store.record_outcomes(outcomes)
