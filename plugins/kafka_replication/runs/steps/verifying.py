"""The step that verifies: read back what is copied, and write to the ledger what was found equal."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import closing

from kafka_replication.ledger import codec, record_keys
from kafka_replication.ledger.entries import POSITIONS, Receipt
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.errors import ReplicationError
from kafka_replication.model.keys import PartitionKey, opening_id
from kafka_replication.model.offsets import Coverage
from kafka_replication.model.times import now
from kafka_replication.runs.run import LeasedRun
from kafka_replication.runs.steps.job import job_of
from kafka_replication.runtime import failpoints
from kafka_replication.spark.jobs import Launcher
from kafka_replication.verification.verify import VerifyResult, VerifyTask, longest_first, select_receipts


def verify(run: LeasedRun, keys: Collection[PartitionKey], launch: Launcher) -> list[VerifyResult]:
    """Read back what of these partitions is copied and not verified. Write to the ledger what was found equal."""
    view = run.retry("reading the ledger", run.view)
    pending = {key: coverage for key in keys if key in view.positions and (coverage := pending_of(view, key))}
    if not pending:
        return []
    receipts = run.retry("reading receipts", lambda: run.clusters.ledger.receipts(list(pending)))
    tasks, results = _tasks(view, pending, receipts, run.replication.verify.level)
    if tasks:
        results += _read_back(run, tasks, launch)
    _write_verified(run, view, results)
    return results


def pending_of(view: LedgerView, key: PartitionKey) -> Coverage:
    """What of the current generation is copied and neither verified nor waived by an approval."""
    position = view.positions[key]
    return position.coverage.subtract(view.settled(key, position.generation))


def _tasks(
    view: LedgerView,
    pending: Mapping[PartitionKey, Coverage],
    receipts: Mapping[PartitionKey, Collection[Receipt]],
    level: str,
) -> tuple[list[VerifyTask], list[VerifyResult]]:
    """A task for each partition whose receipts cover what is pending, and an error for each of the others."""
    tasks, errors = [], []
    for key, coverage in pending.items():
        generation = view.positions[key].generation
        try:
            chosen = select_receipts(
                coverage, (receipt for receipt in receipts[key] if receipt.generation == generation)
            )
            tasks.append(VerifyTask(key, chosen, level))
        except ReplicationError as e:
            errors.append(VerifyResult(key=key, verified=Coverage(), error=e.what, remedy=e.remedy))
    return longest_first(tasks), errors


def _read_back(run: LeasedRun, tasks: list[VerifyTask], launch: Launcher) -> list[VerifyResult]:
    """One result for each task; a task that Spark lost has the job's error."""
    run.check()
    run.deadline.check(f"{run.replication.name}: verifying")
    result = launch(job_of(run, "verify", verifications=tasks))
    lost = {task.key for task in tasks} - {each.key for each in result.verifications}
    error, remedy = result.error or "not verified", result.remedy or "run again"
    return [
        *result.verifications,
        *(
            VerifyResult(key=key, verified=Coverage(), error=error, remedy=remedy, retriable=result.retriable)
            for key in sorted(lost)
        ),
    ]


def _write_verified(run: LeasedRun, view: LedgerView, results: Collection[VerifyResult]) -> None:
    verified = {
        result.key: (view.positions[result.key].generation, result.verified) for result in results if result.verified
    }
    if verified:
        run.retry("writing what is verified", lambda: _add_verified(run, verified))
    failpoints.reached("P4")


def _add_verified(run: LeasedRun, verified: Mapping[PartitionKey, tuple[int, Coverage]]) -> None:
    """Add to what the ledger says after fencing: a run that lost its lease while it verified takes nothing back."""
    run.check()
    name = run.replication.name
    with closing(run.writer(opening_id(name), f"{name}: writing what is verified")) as writer:
        writer.fence()
        view = run.view()
        writer.begin()
        for key, (generation, coverage) in verified.items():
            if view.position(key, generation):
                level = run.replication.verify.level
                entry = view.verified_with(key, generation, coverage, level=level, run_id=run.run_id, time=now())
                writer.send(POSITIONS, key.ledger_partition, record_keys.verified_key(key), codec.encode(entry))
        writer.commit()
