"""The report of a run: for every range, what happened to all offsets between ``from`` and ``until``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kafka_replication import documents
from kafka_replication.model.delivery import EXACTLY_ONCE, Delivery
from kafka_replication.model.engine_choice import EngineChoice, Turn
from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.offsets import OffsetRange
from kafka_replication.model.sizes import amount
from kafka_replication.model.targets import TRANSACTIONAL, Promise
from kafka_replication.planning.findings import Finding
from kafka_replication.planning.partitions.gaps import ApprovedGap
from kafka_replication.planning.plan import PartitionPlan, Plan, State
from kafka_replication.planning.retention.target_retention import removal_text
from kafka_replication.reporting.run.engines import engine_lines, engine_rows, turn_lines, turn_rows
from kafka_replication.reporting.table import table


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeReport:
    """One range: ``span = copied + copied_before + filtered + quarantined + skipped + lost_in_delivery + not_visible +
    lost + missing``.

    ``copied`` counts the source records of this run, ``copied_before`` those that an earlier run committed and did not
    report. ``written`` is the number of target records for ``copied``; it differs only with a transform. Records that
    were read and not copied are ``filtered``, ``quarantined`` or ``skipped``, by this or an earlier run.
    ``not_visible`` is derived: transaction markers, aborted records and records removed by compaction. ``lost`` offsets
    were given up by approval. ``missing`` ones are not on the target yet, or were gone before they were read back.
    ``digest_ok`` is None if no digest was compared. ``lost_in_delivery`` are records that were sent and did not arrive,
    in a profile that may lose records. ``duplicates`` are further copies of the range's records on the target; they are
    no part of the span. ``superseded`` are those copied records, also of earlier runs, that readers do not find because
    a newer one of their key is there. ``seconds`` is the time of the copy; 0 if this run copied nothing of the range.
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
    lost_in_delivery: int = 0
    duplicates: int = 0
    superseded: int = 0
    written: int | None = None  # None: as many as ``copied``
    engines: tuple[str, ...] = ()  # that wrote what this run copied
    begun: EngineChoice | None = None  # by this engine, as planned; None: this run copied nothing, or an older plan
    turns: tuple[Turn, ...] = ()  # of other engines, as far as the step that copied told them

    @property
    def mb_per_second(self) -> float:
        return self.bytes / 1e6 / self.seconds if self.seconds else 0.0

    def as_json(self) -> documents.RangeRow:
        """The stable interface of ``run --json``."""
        return {
            "topic": self.key.source.topic,
            "partition": self.key.source.partition,
            "target_topic": self.key.target_topic,
            "from": self.range.from_,
            "until": self.range.until,
            "copied": self.copied,
            "copied_before": self.copied_before,
            "written": self.copied if self.written is None else self.written,
            "filtered": self.filtered,
            "quarantined": self.quarantined,
            "skipped": self.skipped,
            "lost_in_delivery": self.lost_in_delivery,
            "duplicates": self.duplicates,
            "superseded": self.superseded,
            "not_visible": self.not_visible,
            "lost": self.lost,
            "missing": self.missing,
            "digest_ok": self.digest_ok,
            "watermark": self.watermark,
            "bytes": self.bytes,
            "seconds": round(self.seconds, 3),
            "engines": list(self.engines),
            "engine_why": self.begun.why if self.begun else None,
            "engine_turns": turn_rows(self.turns),
            "error": f"{self.error}. Remedy: {self.remedy}" if self.error and self.remedy else self.error,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """The report of a run. ``outcome`` is ``done``, ``nothing_to_do`` or ``failed``; ``gaps`` has all approved gaps of
    the replication.

    ``notes`` say what this run left to other runs. A run that left something is never ``nothing_to_do``.
    """

    replication: str
    run_id: str
    ranges: tuple[RangeReport, ...]
    dry_run: bool = False
    gaps: tuple[ApprovedGap, ...] = ()
    removed: tuple[str, ...] = ()  # copies that are no longer on the target, as text for people
    delivery: Delivery = EXACTLY_ONCE  # the weakest profile of the verified records
    level: str = "none"  # the weakest way in which copies were verified: digest, count or none
    notes: tuple[str, ...] = ()  # reported once although nothing failed
    promise: Promise = TRANSACTIONAL  # of the target

    @property
    def failed(self) -> tuple[RangeReport, ...]:
        return tuple(line for line in self.ranges if line.error)

    @property
    def outcome(self) -> documents.Outcome:
        if self.failed:
            return "failed"
        return "done" if self.ranges or self.notes else "nothing_to_do"

    def as_json(self) -> documents.RunDocument:
        return {
            "replication": self.replication,
            "run_id": self.run_id,
            "outcome": self.outcome,
            "ranges": [line.as_json() for line in self.ranges],
            "gaps": [gap.as_json() for gap in self.gaps],
            "removed": list(self.removed),
            "verified_by": self.level,
            "delivery": self.delivery,
            "promise": self.promise,
            "notes": list(self.notes),
        }

    def table(self) -> str:
        """The report for people, as a log shows it."""
        head = (
            "partition",
            "target",
            "range",
            "span",
            "copied",
            "before",
            "not visible",
            "lost",
            "missing",
            "digest",
            "watermark",
            "speed",
            "engine",
        )
        failed = [
            f"FAILED {line.key.source} {line.range}: {line.error}\n  remedy: {line.remedy or 'run again'}"
            for line in self.failed
        ]
        ranges = table(head, [_cells(line) for line in self.ranges]) if self.ranges else self._nothing()
        left_out = [_left_out(line) for line in self.ranges if line.filtered or line.quarantined or line.skipped]
        left_out += [_delivered(line) for line in self.ranges if line.lost_in_delivery or line.duplicates]
        left_out += [_superseded(line) for line in self.ranges if line.superseded]
        left_out += [_several(line) for line in self.ranges if line.written not in (None, line.copied)]
        begun = {line.key: line.begun for line in self.ranges if line.begun}
        engines = engine_lines(engine_rows(begun.values()), "planned to be copied")
        engines += turn_lines({f"{line.key.source} {turn.range}": turn for line in self.ranges for turn in line.turns})
        notes = (f"NOTE {note}" for note in self.notes)
        return "\n".join(
            [ranges, *legend(self.ranges), *engines, *left_out, *failed, *self.removed, *map(str, self.gaps), *notes]
        )

    def _nothing(self) -> str:
        """The text of a report without ranges."""
        if self.notes:
            return "nothing was copied"
        if self.level == "none":
            return "everything is copied; there was nothing to verify"
        return f"everything is copied and verified (by {self.level})"

    def summary(self) -> str:
        """One line about the run as a whole."""
        records, size = sum(line.copied for line in self.ranges), sum(line.bytes for line in self.ranges)
        partitions = len({line.key for line in self.ranges})
        done = f"{partitions:,} partitions, {records:,} records copied, {amount(size)}" if self.ranges else ""
        done += f", verified by {self.level}" if self.level != "none" and done and not self.failed else ""
        done += f", delivered {self.delivery}" if self.delivery != EXACTLY_ONCE and done else ""
        done += f", {self.promise}" if self.promise != TRANSACTIONAL and done else ""
        failed = f"{len(self.failed):,} of {len(self.ranges):,} ranges failed" if self.failed else ""
        return ": ".join(filter(None, [self.outcome.replace("_", " "), "; ".join(filter(None, [done, failed]))]))


def legend(ranges: Iterable[RangeReport]) -> list[str]:
    """Explanations of the columns that are not zero and not self-explanatory; docs/words.md has all of them."""
    lines = list(ranges)
    meanings = {
        "before: committed by an earlier run that did not report it": any(line.copied_before for line in lines),
        "not visible: offsets of transaction markers, aborted and compacted records": any(
            line.not_visible for line in lines
        ),
        "lost: given up with approve-gap": any(line.lost for line in lines),
        "missing: not on the target": any(line.missing for line in lines),
    }
    shown = [meaning for meaning, is_shown in meanings.items() if is_shown]
    return [f"({'; '.join(shown)})"] if shown else []


def _superseded(line: RangeReport) -> str:
    text = f"{line.superseded} of the copied records are superseded by a newer one of their key"
    return f"{line.key.source} {line.range}: {text}"


def _left_out(line: RangeReport) -> str:
    counts = f"{line.filtered} filtered, {line.quarantined} quarantined, {line.skipped} skipped"
    return f"{line.key.source} {line.range}: records that were not copied on purpose: {counts}"


def _delivered(line: RangeReport) -> str:
    counts = f"{line.lost_in_delivery} records lost in delivery, {line.duplicates} duplicates on the target"
    return f"{line.key.source} {line.range}: {counts}"


def _several(line: RangeReport) -> str:
    return f"{line.key.source} {line.range}: the transform made {line.written:,} records of {line.copied:,}"


def _cells(line: RangeReport) -> tuple[str, ...]:
    digest = {None: "-", True: "equal", False: "DIFFERS"}[line.digest_ok]
    speed = f"{amount(line.mb_per_second * 1e6)}/s" if line.seconds else "-"
    numbers = (line.range.span, line.copied, line.copied_before, line.not_visible, line.lost, line.missing)
    return (
        str(line.key.source),
        line.key.target_topic,
        str(line.range),
        *(f"{number:,}" for number in numbers),
        digest,
        "-" if line.watermark is None else str(line.watermark),
        speed,
        ", ".join(line.engines) or "-",
    )


def plan_table(plan: Plan) -> str:
    """The plan for people; refused partitions come last."""
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
        for p in plan.partitions
    ]
    refused = "".join(f"\nREFUSED {p.what}\n  remedy: {p.remedy}" for p in plan.refused)
    removed = [removal_text(p.key, p.removed, p.missed) for p in plan.partitions if p.removed]
    notes = "".join(f"\n{note}" for note in (*removed, *plan.notes))
    engines = "".join(f"\n{line}" for line in engine_lines(engine_rows(one.engine for one in plan.partitions)))
    return f"{table(head, rows)}\n{plan_summary(plan)}{engines}{refused}{notes}"


def planned(plan: Plan, findings: Iterable[Finding]) -> list[str]:
    """The plan for people; empty if there is only an error to report: "nothing to do" would contradict it."""
    refused = not plan.partitions and any(finding.severity == "error" for finding in findings)
    return [] if refused else [plan_table(plan)]


def plan_summary(plan: Plan) -> str:
    """The work that a run would do, in one or two lines."""
    if plan.idle:
        is_in_sync = not plan.refused and plan.partitions and not any(planned.removed for planned in plan.partitions)
        return "nothing to do: the target is up to date" if is_in_sync else "nothing to do"
    offsets = sum(planned.copy.span for planned in plan.to_copy if planned.copy)
    done = [f"to copy: {offsets:,} offsets of {len(plan.to_copy):,} partitions"] if plan.to_copy else []
    done += [f"to verify: {len(plan.pending):,} partitions"] if plan.pending else []
    made = new_topics(plan.partitions)
    return "; ".join(done) + (f"\nto create on the target: {', '.join(made)}" if made else "")


def new_topics(partitions: Iterable[PartitionPlan]) -> list[str]:
    """The target topics that do not exist yet and would be created."""
    return sorted(
        {
            planned.key.target_topic
            for planned in partitions
            if planned.state is State.OPENING and not planned.ids.target_topic
        }
    )


def plan_as_json(plan: Plan) -> documents.DryRunDocument:
    """The document of a dry run. Ranges are pairs of source offsets."""
    return {
        "replication": plan.replication,
        "dry_run": True,
        "outcome": "failed" if plan.refused else "nothing_to_do" if plan.idle else "planned",
        "offsets_to_copy": sum(planned.copy.span for planned in plan.to_copy if planned.copy),
        "topics_to_create": new_topics(plan.partitions),
        "partitions": [_planned(planned) for planned in plan.partitions],
        "notes": list(plan.notes),
    }


def _planned(planned: PartitionPlan) -> documents.DryRunRow:
    return {
        "topic": planned.key.source.topic,
        "partition": planned.key.source.partition,
        "target_topic": planned.key.target_topic,
        "state": str(planned.state),
        "position": planned.position,
        "source_end": planned.source_end,
        "to_copy": [planned.copy.from_, planned.copy.until] if planned.copy else None,
        "to_verify": planned.verify.encode(),
        "engine": planned.engine.engine if planned.engine else None,
        "engine_why": planned.engine.why if planned.engine else None,
        "error": planned.what or None,
        "remedy": planned.remedy or None,
    }
