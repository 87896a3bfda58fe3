"""The document of ``drill``: what a failover would leave if the source died now; and what is asked of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from kafka_replication.alerting.open_causes import Cause, CauseKey, Kind
from kafka_replication.config import Replication
from kafka_replication.config.sections import Objectives
from kafka_replication.model.times import duration, to_text
from kafka_replication.planning.plan import State
from kafka_replication.reporting.failover import FailoverDocument
from kafka_replication.reporting.status import PartitionStatus
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
        worse = [f"WORSE THAN ASKED {text}" for text in self.worse]
        return "\n".join([f"{self.at}: {self.said}", *worse, *away, self.failover.text])


def worse_than(asked: Objectives, drill: Drill) -> list[str]:
    """The points in which the drill is worse than asked, for people."""
    found, exact = list[str](), drill.groups_exact
    if asked.lag is not None and (drill.seconds is None or drill.seconds > asked.lag):
        age = "an unknown time" if drill.seconds is None else duration(drill.seconds)
        found.append(f"{age} would be lost, and objectives.lag allows {duration(asked.lag)}")
    if asked.groups_exact is not None and drill.groups_moved and exact / drill.groups_moved < asked.groups_exact:
        share = f"objectives.groups_exact asks for {asked.groups_exact:.4g}"
        found.append(f"{exact} of {drill.groups_moved} consumer groups are exact, and {share}")
    return found


def drill_causes(
    replication: Replication, last: Drill | None, rows: Iterable[PartitionStatus], now: datetime
) -> Iterator[Cause]:
    """The causes of alerts in the last drill, or that there was none for too long. None for a sealed direction, which
    needs no drill.
    """
    asked, every, name = replication.objectives, replication.objectives.drill_every, replication.name
    if all(row.plan.state is State.SEALED for row in rows):
        return
    if every is not None and (last is None or (now - last.time).total_seconds() > every):
        was = "there was none yet" if last is None else f"the last one was at {to_text(last.time)}"
        yield Cause(
            key=CauseKey(Kind.DRILL_OVERDUE),
            what=f"there has been no failover drill for {duration(every)} (objectives.drill_every); {was}",
            remedy=f"switch the DAG {name}.drill on and see that it succeeds, or 'kafka-replication drill {name}.yaml'",
            # A first drill is due as long after somebody has looked; one by schedule may take a while to start and end.
            patience=every if last is None else replication.alerts.stalled_after,
        )
    if last is not None and (worse := worse_than(asked, last)):
        yield Cause(
            key=CauseKey(Kind.DRILL_WORSE),
            what=f"the drill at {to_text(last.time)} was worse than asked: {'; '.join(worse)}",
            remedy=(
                f"let runs start more often, or give them more task slots; 'kafka-replication groups plan {name}.yaml'"
                f" says why a group is not exact. Then drill again: 'kafka-replication drill {name}.yaml'"
            ),
            at=last.time,
        )
