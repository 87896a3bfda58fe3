"""Something that is wrong with a thing, and the remedy: of a topic that cannot be used, of a partition that is refused,
or found by the checks before a run.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field

from kafka_replication.model.errors import PreflightFailed, ReplicationError

Severity = Literal["error", "warning"]
NAMED: Final = 5


@dataclass(frozen=True, slots=True)
class Trouble:
    """``what`` happened to a thing and why, and the ``remedy``. An ``error`` is refused, a ``warning`` is not.
    ``where`` names the thing for people; empty where only one thing can be meant.
    """

    severity: Severity
    where: str
    what: str
    remedy: str
    _: KW_ONLY
    # The state of a partition that is refused.
    kind: Annotated[str, Field(exclude=True)] = ""
    # An error about one source topic, or about one of its partitions, refuses only these; another one stops the run.
    topic: Annotated[str | None, Field(exclude=True)] = field(default=None, compare=False)
    partition: Annotated[int | None, Field(exclude=True)] = field(default=None, compare=False)

    @classmethod
    def of(cls, error: ReplicationError, where: str = "", **more: Any) -> Self:
        """The trouble that is this error; ``more`` are further fields."""
        return cls("error", where, error.what, error.remedy, **more)

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


def merged(findings: Iterable[Trouble]) -> list[Trouble]:
    """For a log: warnings with the same remedy become one, which of each problem names the first `NAMED` places and
    counts the others. Each run says them again.
    """
    same: dict[tuple[str, ...], dict[str, list[Trouble]]] = {}
    for finding in dict.fromkeys(findings):
        own = (finding.where, finding.what) if finding.severity == "error" else ()
        group = same.setdefault((finding.severity, finding.remedy, *own), {})
        group.setdefault(finding.what, []).append(finding)
    lines = list[Trouble]()
    for (first, *more), *others in (list(group.values()) for group in same.values()):
        others_text = [f"{_places(some)}: {some[0].what}" for some in others]
        lines.append(replace(first, where=_places([first, *more]), what="; ".join([first.what, *others_text])))
    return lines


def _places(findings: Sequence[Trouble]) -> str:
    names = [finding.where for finding in findings]
    rest = f", and {len(names) - NAMED} more (`kafka-replication check` names all)" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + rest


def in_order(findings: Iterable[Trouble]) -> list[Trouble]:
    """The findings without repetitions, errors first."""
    return sorted(dict.fromkeys(findings), key=lambda finding: (finding.severity, finding.where))


def joined(findings: Iterable[Trouble], **more: Any) -> Trouble | None:
    """All errors as one; None if there is none. ``more`` are its further fields."""
    errors = [finding for finding in findings if finding.severity == "error"]
    what = "; ".join(f"{finding.where}: {finding.what}" for finding in errors)
    remedy = "; ".join(dict.fromkeys(finding.remedy for finding in errors))
    return Trouble("error", "", what, remedy, **more) if errors else None


def raise_errors(findings: Iterable[Trouble]) -> None:
    """Raise PreflightFailed if findings are errors. It names all of them."""
    if errors := joined(findings):
        raise PreflightFailed(errors.what, errors.remedy)
