"""The step that verifies: read back the copies, and write to the ledger which of them are equal."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import closing
from dataclasses import replace

from kafka_replication.ledger.receipts import Receipts
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.errors import ReceiptsExpired, ReplicationError
from kafka_replication.model.keys import PartitionKey, opening_id
from kafka_replication.model.offsets import Coverage
from kafka_replication.model.times import now
from kafka_replication.planning import gaps
from kafka_replication.planning.needed_receipts import first_needed
from kafka_replication.runs.run import LeasedRun
from kafka_replication.runs.steps.job import job_of
from kafka_replication.runtime import failpoints
from kafka_replication.spark.launcher import Launcher
from kafka_replication.verification.verify import VerifyResult, VerifyTask, longest_first, select_receipts


def verify(
    run: LeasedRun, keys: Collection[PartitionKey], spark: Launcher, receipts_from: Mapping[int, int] = {}
) -> list[VerifyResult]:
    """Read back the copies of these partitions that are not verified. Write to the ledger which of them are equal.

    ``receipts_from`` is that of the plan: receipts below it are not needed. Without it, the ledger says where to start.
    """
    view = run.retry("reading the ledger", run.view)
    pending = {key: coverage for key in keys if key in view.positions and (coverage := pending_of(view, key))}
    if not pending:
        return []
    receipts = run.retry("reading receipts", lambda: _receipts(run, view, pending, receipts_from))
    tasks, results = _tasks(run, view, pending, receipts)
    if tasks:
        results += _read_back(run, tasks, spark)
    _write_verified(run, view, results, receipts)
    return results


def pending_of(view: LedgerView, key: PartitionKey) -> Coverage:
    """The offsets of the current generation that are copied, but neither verified nor waived by an approval."""
    position = view.positions[key]
    return position.coverage.subtract(view.verified_or_waived(key, position.generation))


def _receipts(
    run: LeasedRun, view: LedgerView, pending: Mapping[PartitionKey, Coverage], receipts_from: Mapping[int, int]
) -> Mapping[PartitionKey, Receipts]:
    """The receipts of each partition.

    Reading starts at the first receipt that can be unverified. If receipts are missing, all are read before an error is
    raised, because the topic may have been re-created or restored.
    """
    ledger = run.clusters.ledger
    read = ledger.receipts({key: first_needed(key, view, receipts_from) for key in pending})
    short = [key for key in pending if read.since[key] and _without_receipt(view, key, pending[key], read)]
    whole = ledger.receipts(dict.fromkeys(short)) if short else read
    return {key: whole if key in short else read for key in pending}


def _without_receipt(view: LedgerView, key: PartitionKey, pending: Coverage, receipts: Receipts) -> Coverage:
    known = receipts.of(key, view.positions[key].generation)
    return pending.subtract(Coverage.of(receipt.range for receipt in known))


def _tasks(
    run: LeasedRun,
    view: LedgerView,
    pending: Mapping[PartitionKey, Coverage],
    receipts: Mapping[PartitionKey, Receipts],
) -> tuple[list[VerifyTask], list[VerifyResult]]:
    """A task for each partition whose receipts cover its pending offsets, and an error for each other partition."""
    tasks, errors = [], []
    for key, coverage in pending.items():
        try:
            _refuse_expired(run, view, key, coverage, receipts[key])
            chosen = select_receipts(coverage, receipts[key].of(key, view.positions[key].generation))
            tasks.append(VerifyTask(key, chosen, run.replication.verify.level))
        except ReplicationError as e:
            errors.append(VerifyResult(key=key, verified=Coverage(), error=e.what, remedy=e.remedy))
    return longest_first(tasks), errors


def _refuse_expired(run: LeasedRun, view: LedgerView, key: PartitionKey, pending: Coverage, receipts: Receipts) -> None:
    """Raise ReceiptsExpired if receipts are missing that the receipts topic may have deleted by age."""
    missing = _without_receipt(view, key, pending, receipts)
    if missing and receipts.incomplete(key):
        raise ReceiptsExpired(
            f"{key.source}: receipts of {missing} have expired before they were verified: they are kept for"
            f" {run.replication.retention.receipts} seconds (retention.receipts)",
            f"give up verifying these copies: {gaps.command(key, missing.ranges[0])}; raise"
            " retention.receipts, and retention.ms of the receipts topic",
        )


def _read_back(run: LeasedRun, tasks: list[VerifyTask], spark: Launcher) -> list[VerifyResult]:
    """One result for each task. A task without a result gets the error of the job."""
    run.check()
    run.deadline.check(f"{run.replication.name}: verifying")
    result = spark.submit(job_of(run, "verify", verifications=tasks))
    lost = {task.key for task in tasks} - {verification.key for verification in result.verifications}
    error, remedy = result.error or "not verified", result.remedy or "run again"
    return [
        *result.verifications,
        *(
            VerifyResult(key=key, verified=Coverage(), error=error, remedy=remedy, retriable=result.retriable)
            for key in sorted(lost)
        ),
    ]


def _write_verified(
    run: LeasedRun, view: LedgerView, results: Collection[VerifyResult], receipts: Mapping[PartitionKey, Receipts]
) -> None:
    verified = {
        result.key: (view.positions[result.key].generation, result.verified) for result in results if result.verified
    }
    if verified:
        run.retry("writing what is verified", lambda: _add_verified(run, verified, receipts))
    failpoints.reached("P4")


def _add_verified(
    run: LeasedRun, verified: Mapping[PartitionKey, tuple[int, Coverage]], receipts: Mapping[PartitionKey, Receipts]
) -> None:
    """Add to the entries read after fencing, so that a run that lost its lease meanwhile removes nothing."""
    run.check()
    name, ledger = run.replication.name, run.clusters.ledger
    with closing(run.writer(opening_id(name), f"{name}: writing what is verified")) as writer:
        writer.fence()
        view = run.view()
        writer.begin()
        for key, (generation, coverage) in verified.items():
            if view.position(key, generation):
                verified_or_waived = view.verified_or_waived(key, generation).union(coverage)
                level = run.replication.verify.level
                entry = view.verified_with(key, generation, coverage, level=level, run_id=run.run_id, time=now())
                entry = replace(entry, receipts_from=receipts[key].unverified_from(key, generation, verified_or_waived))
                ledger.write(writer, key, entry)
        writer.commit()
