"""The findings of the checks before a run: severity, place, problem and remedy."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass, field
from typing import Literal

from kafka_replication.config import Replication
from kafka_replication.model.errors import PreflightFailed

Severity = Literal["error", "warning"]


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem, its place and its remedy. A ``warning`` is only logged. An ``error`` about one source ``topic``, or
    about one of its partitions, refuses only these; another error stops the run.
    """

    severity: Severity
    where: str
    what: str
    remedy: str
    _: KW_ONLY
    topic: str | None = field(default=None, compare=False)
    partition: int | None = field(default=None, compare=False)

    @property
    def stops_the_run(self) -> bool:
        return self.severity == "error" and self.topic is None

    @property
    def text(self) -> str:
        """Without the severity, which a line of a log has before it."""
        return f"{self.where}: {self.what}. Remedy: {self.remedy}"

    def __str__(self) -> str:
        return f"{self.severity}: {self.text}"

    def log_to(self, log: logging.Logger) -> None:
        log.log(logging.ERROR if self.severity == "error" else logging.WARNING, "%s", self.text)


def raise_errors(findings: Iterable[Finding]) -> None:
    """Raise PreflightFailed if findings are errors. It names all of them."""
    errors = [finding for finding in findings if finding.severity == "error"]
    if errors:
        raise PreflightFailed(
            "; ".join(f"{finding.where}: {finding.what}" for finding in errors),
            "; ".join(dict.fromkeys(finding.remedy for finding in errors)),
        )


def unsafe(replication: Replication) -> Severity:
    """The severity for a topic that can lose acknowledged records (`preflight.unsafe_target`)."""
    return "error" if replication.preflight.unsafe_target == "refuse" else "warning"
