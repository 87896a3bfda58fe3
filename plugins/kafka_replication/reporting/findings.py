"""The documents of ``check`` and ``plan``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from kafka_replication.documents import FailureDocument
from kafka_replication.planning.findings import Finding
from kafka_replication.planning.plan import Plan
from kafka_replication.reporting.run.engines import EngineRow


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckDocument:
    """``check``: what a run would refuse or warn about. ``ok`` is false if one of the findings is an error. ``engines``
    is empty where nothing would be copied, or if there is no plan.
    """

    replication: str
    ok: bool
    findings: Sequence[Finding]
    engines: Sequence[EngineRow]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckFailureDocument(FailureDocument):
    """``check`` while a cluster does not answer: why, and the findings about everything else."""

    replication: str
    ok: bool
    findings: Sequence[Finding]
    engines: Sequence[EngineRow]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFailureDocument(FailureDocument):
    """``plan`` while a cluster does not answer: why, and the findings about the other one."""

    replication: str
    findings: Sequence[Finding]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanDocument(Plan):
    """``plan``: what a run would do now."""

    findings: Sequence[Finding]

    @classmethod
    def of(cls, plan: Plan, findings: Sequence[Finding]) -> PlanDocument:
        return cls(**{each.name: getattr(plan, each.name) for each in fields(Plan)}, findings=findings)


def verdict(findings: Sequence[Finding]) -> str:
    """The last line of a check: whether a run would refuse something."""
    errors = sum(finding.severity == "error" for finding in findings)
    warnings = _counted(len(findings) - errors, "warning")
    if errors:
        return f"not ok: {_counted(errors, 'error')}, {warnings}"
    return f"ok: a run would refuse nothing; {warnings}" if findings else "ok: no findings"


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
