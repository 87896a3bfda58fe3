"""Runs inside a Spark Python worker, or where an audit was asked for if it is small: audits a part of a partition."""

from __future__ import annotations

import logging
import sys
from functools import lru_cache, partial

from kafka_replication.kafka.audit.partition import Clients, audit_part
from kafka_replication.kafka.audit.target_partition import read_claims
from kafka_replication.kafka.preflight import reachability
from kafka_replication.model.errors import ReplicationError
from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.offsets import TopicPartition
from kafka_replication.runtime import failpoints, stopping
from kafka_replication.spark.jobs import AUDITED, AUDITS, JOB, Job
from kafka_replication.spark.worker.worker import Tools
from kafka_replication.verification.auditing import Audit, Audited, AuditResult, AuditTask, TargetResult, TargetTask
from kafka_replication.verification.findings import Findings


def execute(common: bytes, bundle: bytes) -> str:
    """Work on the audits of one bundle; all is JSON, as that of `worker.execute`."""
    stopping.on_signals(even_ignored=True)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    auditor = _auditor_of(common)
    return AUDITED.dump_json([auditor.work(task) for task in AUDITS.validate_json(bundle)]).decode()


@lru_cache(maxsize=1)
def _auditor_of(common: bytes) -> Auditor:
    return Auditor(JOB.validate_json(common))


class Auditor:
    """The audits of one job in this process, one after the other."""

    def __init__(self, job: Job) -> None:
        self._job, self._tools = job, Tools(job)
        self._failed: dict[PartitionKey | TopicPartition, str] = {}

    def work(self, task: Audit) -> Audited:
        """The result. An error, also one of a transform's code that is missing here, is a part of it.

        What could not be read once is not waited for again: the further parts of a partition have the same error.
        """
        failpoints.reached("W", task.where)
        self._tools.deadline.moved()
        error = self._failed.get(task.partition)
        if isinstance(task, TargetTask):
            return TargetResult(id=task.id, error=error) if error else self._read(task)
        if error:
            return AuditResult(id=task.id, findings=Findings(errors=[error]))
        return self._audit(task)

    def _read(self, task: TargetTask) -> TargetResult:
        result = read_claims(task, self._tools.target.standing.reader, partial(self._piece_read, task))
        if result.error is not None:
            self._failed[task.partition] = result.error
        return result

    def _audit(self, task: AuditTask) -> AuditResult:
        tools, job = self._tools, self._job
        try:
            tools.deadline.check(f"auditing {task.where}")
            if task.reads_source:
                seconds = job.replication.timeouts.request
                reachability.check("source", job.source, task.key.source, seconds, tools.deadline)
            clients = Clients(
                source=job.source,
                target=tools.target,
                pipeline=tools.pipeline,
                stall_seconds=job.replication.copying.stall_timeout,
                moved=lambda: self._moved(task),
            )
        except ReplicationError as error:
            return self._remembered(task, AuditResult(id=task.id, findings=Findings(errors=[str(error)])))
        return self._remembered(task, AuditResult(id=task.id, findings=audit_part(task, clients)))

    def _remembered(self, task: AuditTask, result: AuditResult) -> AuditResult:
        if result.findings.errors:
            self._failed[task.key] = result.findings.errors[0]
        return result

    def _piece_read(self, task: TargetTask) -> None:
        self._tools.deadline.moved()  # a piece may be long, and a reader that stands still ends by itself
        self._moved(task)

    def _moved(self, task: Audit) -> None:
        failpoints.reached("AC", task.where)
        self._tools.deadline.check(f"auditing {task.where}")
        self._tools.deadline.moved()
