"""The findings of the checks before a run: severity, place, problem and remedy."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Final, Literal

from kafka_replication.documents import Inner
from kafka_replication.model.errors import PreflightFailed

Severity = Literal["error", "warning"]
NAMED: Final = 5


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding of the checks before a run: an ``error`` is refused, a ``warning`` is not."""

    severity: Severity
    where: str
    what: str
    remedy: str
    _: KW_ONLY
    # An error about one source topic, or about one of its partitions, refuses only these; another one stops the run.
    topic: Inner[str | None] = field(default=None, compare=False)
    partition: Inner[int | None] = field(default=None, compare=False)

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


def merged(findings: Iterable[Finding]) -> list[Finding]:
    """For a log: warnings with the same remedy become one, which of each problem names the first `NAMED` places and
    counts the others. Each run says them again.
    """
    same: dict[tuple[str, ...], dict[str, list[Finding]]] = {}
    for finding in dict.fromkeys(findings):
        own = (finding.where, finding.what) if finding.severity == "error" else ()
        group = same.setdefault((finding.severity, finding.remedy, *own), {})
        group.setdefault(finding.what, []).append(finding)
    lines = list[Finding]()
    for (first, *more), *others in (list(group.values()) for group in same.values()):
        others_text = [f"{_places(some)}: {some[0].what}" for some in others]
        lines.append(replace(first, where=_places([first, *more]), what="; ".join([first.what, *others_text])))
    return lines


def _places(findings: Sequence[Finding]) -> str:
    names = [finding.where for finding in findings]
    rest = f", and {len(names) - NAMED} more (`kafka-replication check` names all)" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + rest


def raise_errors(findings: Iterable[Finding]) -> None:
    """Raise PreflightFailed if findings are errors. It names all of them."""
    errors = [finding for finding in findings if finding.severity == "error"]
    if errors:
        raise PreflightFailed(
            "; ".join(f"{finding.where}: {finding.what}" for finding in errors),
            "; ".join(dict.fromkeys(finding.remedy for finding in errors)),
        )
