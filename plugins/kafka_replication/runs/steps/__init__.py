"""The steps of a run: prepare, copy, verify, advance, report.

A DAG task and a command call these same functions. Each may be called again after a crash at any moment.
"""

from kafka_replication.runs.steps.advancing import advance
from kafka_replication.runs.steps.copying import copy
from kafka_replication.runs.steps.fencing import fence_stale_producers
from kafka_replication.runs.steps.preparing import prepare, preview
from kafka_replication.runs.steps.reporting import report
from kafka_replication.runs.steps.verifying import verify

__all__ = ["advance", "copy", "fence_stale_producers", "prepare", "preview", "report", "verify"]
