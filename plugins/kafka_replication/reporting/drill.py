"""The document of ``drill``: what a failover would leave if the source died now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kafka_replication.reporting.failover import FailoverDocument
from kafka_replication.watermarks.sight import Drill


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillDocument(Drill):
    """``drill``. ``said`` has the result in one sentence. ``failover`` is the dry run of a failover. ``looked`` is
    false if the source did not answer: then it is from an earlier look. ``worse`` says where it is worse than the file
    asks.
    """

    replication: str
    said: str
    looked: bool
    failover: FailoverDocument
    worse: Sequence[str] = ()

    @property
    def failed(self) -> bool:
        """True if it is worse than asked, or a target partition does not answer or has lost data."""
        return bool(self.worse) or any(row.error for row in self.failover.partitions)

    @property
    def text(self) -> str:
        away = [] if self.looked else ["the source did not answer: what it had is from the last look at it"]
        return "\n".join([f"{self.at}: {self.said}", *self.worse, *away, self.failover.text])
