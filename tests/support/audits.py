"""An audit in both ways: in this process, and through a launcher."""

from __future__ import annotations

from dataclasses import replace

from kafka_replication.reporting.audit import AuditReport
from kafka_replication.runs import audit as auditing
from kafka_replication.runs.audit_choosing import ALL, AuditRequest
from kafka_replication.runs.run import Run
from kafka_replication.verification.auditing import Size
from tests.support.jobs import InProcess


def audit(run: Run, request: AuditRequest = ALL) -> AuditReport:
    """In this process. Through a launcher, as values that were JSON on the way, the same is found."""
    report = auditing.audit(run, request)
    through = auditing.audit(run, request, InProcess(), least=Size())
    assert replace(through.document(), time="") == replace(report.document(), time="")
    return report
