"""What a check before a run says: how grave, where, what, and what to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kafka_replication.config import Replication
from kafka_replication.model.errors import PreflightFailed

Severity = Literal["error", "warning"]


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong, where, and what to do. An ``error`` stops the run, a ``warning`` is shown."""

    severity: Severity
    where: str
    what: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.severity}: {self.where}: {self.what}. Remedy: {self.remedy}"


def raise_errors(findings: list[Finding]) -> None:
    """Raise PreflightFailed naming every finding that stops the run."""
    errors = [finding for finding in findings if finding.severity == "error"]
    if errors:
        raise PreflightFailed(
            "; ".join(f"{finding.where}: {finding.what}" for finding in errors),
            "; ".join(dict.fromkeys(finding.remedy for finding in errors)),
        )


def unsafe(replication: Replication) -> Severity:
    """How grave it is that a topic can lose acknowledged records (`preflight.unsafe_target`)."""
    return "error" if replication.preflight.unsafe_target == "refuse" else "warning"
