"""The steps of a run: prepare, replicate, report.

A DAG task and a command call these same functions. Each may be called again after a crash at any moment.
"""

from kafka_replication.reporting.arithmetic import NotDone
from kafka_replication.runs.bookkeeping import advance
from kafka_replication.runs.fencing import fence_stale_producers, resumed
from kafka_replication.runs.preparing import prepare
from kafka_replication.runs.previewing import check_functions, one_side_findings, preview
from kafka_replication.runs.replicating import Replicated, replicate, verify
from kafka_replication.runs.reporting import report, verified_now

__all__ = [
    "NotDone",
    "Replicated",
    "advance",
    "check_functions",
    "fence_stale_producers",
    "one_side_findings",
    "prepare",
    "preview",
    "replicate",
    "report",
    "resumed",
    "verified_now",
    "verify",
]
