"""The places of consumer groups on the target, for people and for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kafka_replication.documents import GroupRow
from kafka_replication.reporting.table import Columns, counted, table


def exactness(rows: Sequence[GroupRow]) -> str:
    """A line about all groups that are moved."""
    moved = [row for row in rows if row.state != "left out"]
    exact, again = sum(0 < len(row.partitions) == row.exact for row in moved), sum(row.again for row in moved)
    if exact == len(moved):
        return f"{counted(exact, 'consumer group')} exact"
    others = "the others read" if exact else "they read"
    return (
        f"{exact} of {counted(len(moved), 'consumer group')} exact; {others} at most {counted(again, 'record')} again"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsDocument:
    """``groups list``, ``groups plan`` and ``groups apply``. ``applied``: whether places were committed."""

    replication: str
    applied: bool
    groups: Sequence[GroupRow]
    problems: Sequence[str]

    @property
    def failed(self) -> bool:
        return bool(self.problems) or any(row.state == "failed" for row in self.groups)

    def text(self) -> str:
        """A line for each group, then a line for each partition that is not exact or not in step."""
        if not self.groups:
            return "\n".join([*self.problems, "no consumer group has committed offsets of these topics"])
        columns: Columns[GroupRow] = {
            "GROUP": lambda row: row.group,
            "KIND": lambda row: row.kind,
            "STATE": lambda row: row.state,
            "LAG": lambda row: row.lag,
            "EXACT": lambda row: f"{row.exact}/{len(row.partitions)}",
            "AT MOST AGAIN": lambda row: row.again,
        }
        lines = [table(self.groups, columns)]
        lines += [f"{row.group}: {row.why}" for row in self.groups if row.why]
        for row in self.groups:
            lines += [
                f"{row.group} {place.source}: {place.state}, offset {place.place} for {place.committed}"
                + (f", at most {place.again} again" if place.again else "")
                + f": {place.why}"
                for place in row.partitions
                if place.why
            ]
        return "\n".join([*lines, *self.problems])
