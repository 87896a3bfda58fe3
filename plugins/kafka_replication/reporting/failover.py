"""The document of ``failover``: for each partition what is proved on the target, and what only the source may have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from kafka_replication.documents import GroupRow, PartitionRow
from kafka_replication.ledger.values import Seal
from kafka_replication.reporting.groups import exactness
from kafka_replication.reporting.table import Columns, counted, table

FailoverState = Literal["can be sealed", "sealed", "opened again"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FailoverRow(PartitionRow):
    """One partition. Below the source offset ``verified_until`` everything was read back and compared, or given up by
    an approval, the last time at ``verified_at``. ``not_verified`` offsets behind it are on the target and not read
    back. ``beyond`` is the number of source offsets that were never copied, by the last look at the source; null if
    nobody looked. The target partition ends at ``target_until``. ``seal`` is null while the direction is not sealed.
    """

    verified_until: int
    verified_at: str
    not_verified: int
    beyond: int | None
    target_until: int | None
    seal: Seal | None = None
    error: str = ""

    @property
    def is_copied(self) -> bool:
        """False if it was seen at the source, and nothing of it was ever copied."""
        return self.target_until is not None or bool(self.error)


@dataclass(frozen=True, slots=True, kw_only=True)
class FailoverDocument:
    """``failover``. ``applied`` is false for a dry run. ``looked_at`` is the time of the last look at the source."""

    replication: str
    state: FailoverState
    applied: bool
    looked_at: str | None
    partitions: Sequence[FailoverRow]
    groups: Sequence[GroupRow]

    @property
    def failed(self) -> bool:
        """True if a partition is not sealed and verified, or a group not moved."""
        if self.state == "opened again":
            return any(row.error for row in self.partitions)
        partitions = any(row.error or row.not_verified or (row.is_copied and not row.seal) for row in self.partitions)
        waiting = any(place.state in ("waiting", "refused") for row in self.groups for place in row.partitions)
        return partitions or waiting or any(row.state in ("failed", "active") for row in self.groups)

    @property
    def text(self) -> str:
        columns: Columns[FailoverRow] = {
            "partition": lambda row: row.source,
            "target": lambda row: row.target_topic,
            "verified until": lambda row: row.verified_until,
            "at": lambda row: row.verified_at or None,
            "not verified": lambda row: row.not_verified,
            "never copied": lambda row: "?" if row.beyond is None else row.beyond,
            "target end": lambda row: "?" if row.target_until is None else row.target_until,
            "sealed": lambda row: row.seal and row.seal.time,
        }
        known = [row.beyond for row in self.partitions if row.beyond is not None]
        lines = [
            table(self.partitions, columns),
            *(f"{row.source}: {row.error}" for row in self.partitions if row.error),
        ]
        if self.looked_at is None:
            lines.append("nobody has looked at the source: what it has beyond this is not known")
        else:
            lines.append(
                f"at {self.looked_at} the source had {counted(sum(known), 'offset')} that are not on the target,"
                " and since then perhaps more"
                + (
                    f"; of {counted(unknown, 'partition')} it is not known"
                    if (unknown := len(self.partitions) - len(known))
                    else ""
                )
            )
        if self.groups:
            lines.append(exactness(self.groups))
        lines += [f"group {row.group}: {row.state}: {row.why}" for row in self.groups if row.why]
        if self.state == "can be sealed":
            lines.append(
                "nothing was changed; failover --apply seals this direction, and releases the target for writers"
            )
        elif open_ := sum(row.is_copied and not row.seal for row in self.partitions if self.state == "sealed"):
            lines.append(f"not sealed: {counted(open_, 'partition')}; call the command again")
        elif self.state == "opened again":
            lines.append("this direction is open again: runs go on")
        else:
            lines.append("this direction is sealed: no run copies any more, and others may write to the target")
        return "\n".join(lines)
