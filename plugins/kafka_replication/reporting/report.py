"""Explained arithmetic for every range of a run: what became of each offset between ``from`` and ``until``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.offsets import OffsetRange
from kafka_replication.planning.gaps import ApprovedGap
from kafka_replication.planning.plan import Plan
from kafka_replication.reporting.table import table


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeReport:
    """One range: ``span = copied + copied_before + filtered + quarantined + skipped + not_visible + lost + missing``.

    ``copied`` counts this run's records, ``copied_before`` those that an earlier run committed and could not report.
    Records that were read and left out are ``filtered``, ``quarantined`` or ``skipped``, by this run or an earlier one.
    ``not_visible`` is derived: transaction markers, aborted records and what compaction removed. ``lost`` offsets were
    given up by approval, ``missing`` ones are not on the target yet. ``digest_ok`` is None where nothing was verified
    at that level. ``seconds`` are the copy's; 0 where this run copied nothing of it.
    """

    key: PartitionKey
    range: OffsetRange
    copied: int = 0
    copied_before: int = 0
    not_visible: int = 0
    missing: int = 0
    digest_ok: bool | None = None
    watermark: int | None = None
    bytes: int = 0
    seconds: float = 0.0
    error: str | None = None
    remedy: str = ""
    lost: int = 0
    filtered: int = 0
    quarantined: int = 0
    skipped: int = 0

    @property
    def mb_per_second(self) -> float:
        return self.bytes / 1e6 / self.seconds if self.seconds else 0.0

    def as_json(self) -> dict[str, Any]:
        """The stable interface of ``run --json``."""
        return {
            "topic": self.key.source.topic,
            "partition": self.key.source.partition,
            "target_topic": self.key.target_topic,
            "from": self.range.from_,
            "until": self.range.until,
            "copied": self.copied,
            "copied_before": self.copied_before,
            "filtered": self.filtered,
            "quarantined": self.quarantined,
            "skipped": self.skipped,
            "not_visible": self.not_visible,
            "lost": self.lost,
            "missing": self.missing,
            "digest_ok": self.digest_ok,
            "watermark": self.watermark,
            "bytes": self.bytes,
            "seconds": round(self.seconds, 3),
            "error": f"{self.error}. Remedy: {self.remedy}" if self.error and self.remedy else self.error,
        }


@dataclass(frozen=True, slots=True)
class RunReport:
    """``outcome`` is ``done``, ``nothing_to_do`` or ``failed``; ``gaps`` are all that were ever approved."""

    replication: str
    run_id: str
    ranges: tuple[RangeReport, ...]
    dry_run: bool = False
    gaps: tuple[ApprovedGap, ...] = ()

    @property
    def failed(self) -> tuple[RangeReport, ...]:
        return tuple(each for each in self.ranges if each.error)

    @property
    def outcome(self) -> str:
        if self.failed:
            return "failed"
        return "done" if self.ranges else "nothing_to_do"

    def as_json(self) -> dict[str, Any]:
        return {
            "replication": self.replication,
            "run_id": self.run_id,
            "outcome": self.outcome,
            "ranges": [each.as_json() for each in self.ranges],
            "gaps": [each.as_json() for each in self.gaps],
        }

    def table(self) -> str:
        """The report as a person reads it in a log."""
        head = (
            "partition",
            "range",
            "span",
            "copied",
            "before",
            "not visible",
            "lost",
            "missing",
            "digest",
            "watermark",
            "MB/s",
        )
        failed = [
            f"FAILED {each.key.source} {each.range}: {each.error}\n  remedy: {each.remedy or 'run again'}"
            for each in self.failed
        ]
        ranges = (
            table(head, [_cells(each) for each in self.ranges]) if self.ranges else "everything is copied and verified"
        )
        left_out = [_left_out(each) for each in self.ranges if each.filtered or each.quarantined or each.skipped]
        return "\n".join([ranges, *left_out, *failed, *map(str, self.gaps)])


def _left_out(line: RangeReport) -> str:
    counts = f"{line.filtered} filtered, {line.quarantined} quarantined, {line.skipped} skipped"
    return f"{line.key.source} {line.range}: records that were not copied on purpose: {counts}"


def _cells(each: RangeReport) -> tuple[str, ...]:
    digest = {None: "-", True: "equal", False: "DIFFERS"}[each.digest_ok]
    speed = f"{each.mb_per_second:.1f}" if each.seconds else "-"
    numbers = (each.range.span, each.copied, each.copied_before, each.not_visible, each.lost, each.missing)
    return (
        str(each.key.source),
        str(each.range),
        *map(str, numbers),
        digest,
        "-" if each.watermark is None else str(each.watermark),
        speed,
    )


def plan_table(made: Plan) -> str:
    """A plan as a person reads it, what it refuses last."""
    head = ("partition", "target", "state", "position", "source end", "copy", "verify")
    rows = [
        (
            str(p.key.source),
            p.key.target_topic,
            str(p.state),
            str(p.position),
            str(p.source_end),
            str(p.copy or "-"),
            str(p.verify or "-"),
        )
        for p in made.partitions
    ]
    return table(head, rows) + "".join(f"\nREFUSED {p.what}\n  remedy: {p.remedy}" for p in made.refused)
