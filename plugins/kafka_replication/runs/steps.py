"""The steps of a run: prepare, replicate, report.

A DAG task and a command call these same functions. Each may be called again after a crash at any moment.
"""

from kafka_replication.reporting.run.arithmetic import NotDone
from kafka_replication.runs.plan.one_side import findings as findings_of_one_side
from kafka_replication.runs.plan.preparing import prepare
from kafka_replication.runs.plan.previewing import check_functions, preview
from kafka_replication.runs.plan.resuming import resumed
from kafka_replication.runs.replicate.advancing import advance
from kafka_replication.runs.replicate.fencing import fence_stale_producers
from kafka_replication.runs.replicate.replicating import Replicated, replicate, verify
from kafka_replication.runs.report.announcing import verified_now
from kafka_replication.runs.report.reporting import report

__all__ = [
    "NotDone",
    "Replicated",
    "advance",
    "check_functions",
    "fence_stale_producers",
    "findings_of_one_side",
    "prepare",
    "preview",
    "replicate",
    "report",
    "resumed",
    "verified_now",
    "verify",
]
