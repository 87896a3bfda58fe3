"""Findings as text and as JSON."""

from __future__ import annotations

from collections.abc import Sequence

from kafka_replication import documents
from kafka_replication.planning.findings import Finding


def finding_rows(findings: Sequence[Finding]) -> list[documents.FindingRow]:
    """The findings as JSON objects."""
    return [
        {"severity": finding.severity, "where": finding.where, "what": finding.what, "remedy": finding.remedy}
        for finding in findings
    ]


def verdict(findings: Sequence[Finding]) -> str:
    """The last line of a check: whether a run would refuse something."""
    errors = sum(finding.severity == "error" for finding in findings)
    warnings = _counted(len(findings) - errors, "warning")
    if errors:
        return f"not ok: {_counted(errors, 'error')}, {warnings}"
    return f"ok: a run would refuse nothing; {warnings}" if findings else "ok: no findings"


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
