"""Runs inside a Spark Python worker, or where an audit was asked for if it is small: audits a part of a partition."""

from __future__ import annotations

import logging
import sys
from functools import lru_cache, partial

from kafka_replication.kafka import reachability
from kafka_replication.kafka.audit import Clients, audit_part
from kafka_replication.kafka.audit_spread import read_claims
from kafka_replication.model.errors import ReplicationError
from kafka_replication.model.offsets import PartitionKey, TopicPartition
from kafka_replication.runtime import failpoints, stopping
from kafka_replication.spark.jobs import AUDITED, AUDITS, JOB, Job
from kafka_replication.spark.worker import Tools
from kafka_replication.verification.auditing import Audit, Audited


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
        if error := self._failed.get(task.partition):
            return task.failed(error)
        result = self._audit(task)
        if result.findings.errors:
            self._failed[task.partition] = result.findings.errors[0]
        return result

    def _audit(self, task: Audit) -> Audited:
        tools, job, key = self._tools, self._job, task.partition
        if isinstance(key, TopicPartition):
            return read_claims(task, key, tools.target.standing.reader, partial(self._moved, task, is_piece=True))
        try:
            tools.deadline.check(f"auditing {task.where}")
            by_content = [*(unit.by_content for unit in task.units), *(chunk.by_content for chunk in task.spread)]
            if any(by_content) or (task.deliveries is not None and task.deliveries.by_content):
                reachability.check("source", job.source, key.source, job.replication.timeouts.request, tools.deadline)
            clients = Clients(
                source=job.source,
                target=tools.target,
                pipeline=tools.pipeline,
                stall_seconds=job.replication.copying.stall_timeout,
                moved=partial(self._moved, task),
            )
        except ReplicationError as error:
            return task.failed(str(error))
        return audit_part(task, key, clients)

    def _moved(self, task: Audit, *, is_piece: bool = False) -> None:
        if is_piece:
            self._tools.deadline.moved()  # a piece may be long, and a reader that stands still ends by itself
        failpoints.reached("AC", task.where)
        self._tools.deadline.check(f"auditing {task.where}")
        self._tools.deadline.moved()
