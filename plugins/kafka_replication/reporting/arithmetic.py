"""The arithmetic of the ranges of a run. Pure: computed from the ledger and the store after the run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace

from kafka_replication.documents import place
from kafka_replication.ledger.account import ASIDE
from kafka_replication.ledger.entries import Receipt
from kafka_replication.ledger.gap import ELSEWHERE
from kafka_replication.ledger.receipts import committed
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.choices import Turn
from kafka_replication.model.offsets import Coverage, OffsetRange, PartitionKey
from kafka_replication.model.trouble import Trouble
from kafka_replication.planning import refusals, target_retention
from kafka_replication.planning.plan import PartitionPlan, Plan, State
from kafka_replication.reporting.run import RangeReport
from kafka_replication.reporting.table import EngineTurnRow
from kafka_replication.runtime.private_json import deferred
from kafka_replication.verification.verify import VerifyResult
from kafka_replication.watermarks.values import RangeOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class NotDone:
    """The reasons that only the step before the report knows: ``not_verified`` has the results with an error,
    ``not_advanced`` the watermarks that could not be moved, ``turns`` why other engines copied than were chosen.
    """

    not_verified: tuple[VerifyResult, ...] = ()
    not_advanced: tuple[tuple[PartitionKey, Trouble], ...] = ()
    turns: tuple[tuple[PartitionKey, tuple[Turn, ...]], ...] = ()  # of the engines in the copy of one partition

    def as_json(self) -> str:
        """The text for a report in another process."""
        return _NOT_DONE.dump_json(self).decode()

    @classmethod
    def from_json(cls, text: str | None) -> NotDone:
        """The reasons in this text; none without one, because the step before has died."""
        return _NOT_DONE.validate_json(text) if text else cls()


_NOT_DONE = deferred(NotDone)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The input of the arithmetic: the plan, the ledger and the store after the run, and the results of its steps."""

    run_id: str
    level: str  # of verification: "digest" or "count"
    plan: Plan
    view: LedgerView
    watermarks: Mapping[PartitionKey, int]
    receipts: Mapping[PartitionKey, Sequence[Receipt]]
    outcomes: Mapping[tuple[PartitionKey, OffsetRange], RangeOutcome]
    not_verified: Mapping[PartitionKey, VerifyResult]
    not_advanced: Mapping[PartitionKey, Trouble] = field(default_factory=dict)
    turns: Mapping[PartitionKey, tuple[Turn, ...]] = field(default_factory=dict)
    foreign: Mapping[PartitionKey, int] = field(default_factory=dict)  # target offsets of records of others, at the end


def account(evidence: Evidence) -> tuple[RangeReport, ...]:
    """One line for each range of the plan, in the plan's order; then one for each other partition whose watermark was
    not stored.
    """
    lines = [line for planned in evidence.plan.to_account_for for line in _lines(evidence, planned)]
    for planned in evidence.plan.partitions:
        position = evidence.view.position(planned.key, planned.generation)
        end = evidence.view[planned.key].watermark() if position else 0
        if position and end > position.start and not (planned.copy or planned.verify or planned.refused):
            watermark = evidence.watermarks.get(planned.key)
            line = RangeReport(**place(planned.key, OffsetRange(end, end)), watermark=watermark)
            lines += [line for line in [_stored(evidence, line, end)] if line.error]
    # One with an error has no digest that is equal: it would look like a success.
    return tuple(replace(line, digest_ok=None) if line.error and line.digest_ok else line for line in lines)


def _lines(evidence: Evidence, planned: PartitionPlan) -> Iterator[RangeReport]:
    key, view = planned.key, evidence.view
    account, position = view.of(key, planned.generation), view.position(key, planned.generation)
    verified, end = (account.verified_or_waived(), account.watermark()) if position else (Coverage(), 0)
    for range_ in planned.ranges:
        line = _sums(evidence, planned, range_)
        is_verified = position is not None and verified.contains(range_)
        line = _judge(evidence, planned, replace(line, digest_ok=True if is_verified else None))
        if line.digest_ok and account.unproven().within(range_):
            line = replace(line, digest_ok=None)
        line = _stored(evidence, line, end)
        ours = view.positions.get(key)
        if ours and key in evidence.foreign and not line.error:  # another client wrote behind our last record
            refusal = refusals.foreign(key, ours, evidence.foreign[key])
            line = replace(line, error=refusal.what, remedy=refusal.remedy)
        yield line
    # Ranges that were to be verified have their line already.
    yield from (_missed(evidence, planned, range_) for range_ in planned.missed.subtract(planned.verify))


def _missed(evidence: Evidence, planned: PartitionPlan, range_: OffsetRange) -> RangeReport:
    """The line of copies that were on the target and are missing now."""
    missed = Coverage.of([range_])
    return RangeReport(
        **place(planned.key, range_),
        missing=range_.span,
        watermark=evidence.watermarks.get(planned.key),
        error=target_retention.removal_text(planned.key, missed, missed),
        remedy=planned.remedy,
    )


def _sums(evidence: Evidence, planned: PartitionPlan, range_: OffsetRange) -> RangeReport:
    """The terms of ``span`` (see `RangeReport`), from the receipts and the approved gaps."""
    key = planned.key
    receipts = [r for r in evidence.receipts.get(key, ()) if r.generation == planned.generation]
    account = evidence.view.of(key, planned.generation)
    receipts = committed(receipts, account.position.coverage)
    if planned.state is State.TARGET_RECREATED:  # what the receipts say was there is gone
        receipts = []
    parts, counted = shares(range_, receipts)
    here, before = _by_run(evidence, parts)
    whole = here + before
    gone = account.gone_unverified().within(range_)
    gone_here, gone_before = _by_run(evidence, [part for lost in gone for part in shares(lost, receipts)[0]])
    again = {  # no more than the receipts count here, so that each is moved from one term to another
        name: min(
            getattr(whole, name),
            Coverage.of(part for entry in account.retries for part in getattr(entry, name)).within(range_).span,
        )
        for name in ASIDE
    }
    returned = (
        Coverage.of(gap.range for gap in account.gaps if gap.kind in ELSEWHERE).subtract(counted).within(range_).span
    )
    lost = account.given_up().subtract(counted).within(range_).span - returned
    engines = tuple(dict.fromkeys(receipt.engine for receipt, _ in parts if receipt.run_id == evidence.run_id))
    return RangeReport(
        **place(key, range_),
        copied=here.records - gone_here.records,
        written=here.written - gone_here.written,
        copied_before=before.records - gone_before.records + sum(again.values()),
        filtered=whole.filtered,
        quarantined=whole.quarantined - again["quarantined"],
        skipped=whole.skipped - again["skipped"],
        lost_in_delivery=whole.lost_in_delivery,
        duplicates=whole.duplicates,
        superseded=whole.superseded,
        not_visible=whole.not_visible,
        returned=returned,
        missing=range_.span - whole.span - lost - returned + (gone_here + gone_before).records,
        lost=lost,
        watermark=evidence.watermarks.get(key),
        bytes=here.bytes,
        engines=engines,
        engine_why=planned.engine_why or None if engines else None,
        begun=planned.choice if engines else None,
        turns=tuple(map(EngineTurnRow.of, _turns(evidence, planned, range_))),
    )


def _turns(evidence: Evidence, planned: PartitionPlan, range_: OffsetRange) -> Iterator[Turn]:
    """The turns in this range, but for one that is what the plan says."""
    for turn in evidence.turns.get(planned.key, ()):
        is_planned = planned.choice is not None and turn.is_of(planned.choice) and turn.range == planned.copy
        if turn.range.intersection(range_) and not is_planned:
            yield turn


def _by_run(evidence: Evidence, parts: Iterable[tuple[Receipt, Copied]]) -> tuple[Copied, Copied]:
    """The sums of the receipts of this run, and of others."""
    here, before = Copied(), Copied()
    for receipt, part in parts:
        if receipt.run_id == evidence.run_id:
            here += part
        else:
            before += part
    return here, before


def _judge(evidence: Evidence, planned: PartitionPlan, line: RangeReport) -> RangeReport:
    """Add the error of the plan, of verification or of the copy. A range that is not verified always has an error."""
    copied = evidence.outcomes.get((line.key, line.range))
    failure = evidence.not_verified.get(line.key)
    line = replace(line, seconds=copied.seconds if copied else 0.0)
    if planned.refused:
        return replace(line, error=planned.what, remedy=planned.remedy)
    if failure and not line.digest_ok:
        return replace(line, digest_ok=False, error=failure.error, remedy=failure.remedy)
    if copied and copied.error:
        return replace(line, digest_ok=None, error=copied.error, remedy=copied.remedy or "")
    if not line.digest_ok:
        return replace(line, error=f"{line.key.source} {line.range} is not verified", remedy="run again")
    return line if evidence.level == "digest" else replace(line, digest_ok=None)


def _stored(evidence: Evidence, line: RangeReport, verified_end: int) -> RangeReport:
    """Add an error if the watermark of verified offsets was not stored, because moving it failed.

    The step that copied told the reason, unless it died at its end.
    """
    if line.error or (line.watermark is not None and line.watermark >= verified_end):
        return line
    if reason := evidence.not_advanced.get(line.key):
        return replace(line, error=f"the watermark was not moved: {reason.what}", remedy=reason.remedy)
    what = f"{line.key.source} is verified up to {verified_end}, but the stored watermark is {line.watermark}"
    return replace(line, error=what, remedy="run again, which stores it; the log of the task replicate has the reason")


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """The sums of the receipts of a range: source records and those that were written, offsets (``span``), bytes, and
    records that are not on the target: left out on purpose, or lost in delivery.
    """

    records: int = 0
    written: int = 0
    span: int = 0
    bytes: int = 0
    filtered: int = 0
    quarantined: int = 0
    skipped: int = 0
    lost_in_delivery: int = 0
    duplicates: int = 0  # beside the span
    superseded: int = 0  # of ``records``

    @property
    def not_visible(self) -> int:
        left_out = self.filtered + self.quarantined + self.skipped
        return self.span - self.records - left_out - self.lost_in_delivery

    def __add__(self, other: Copied) -> Copied:
        return Copied(
            **{field.name: getattr(self, field.name) + getattr(other, field.name) for field in fields(Copied)}
        )


def shares(range_: OffsetRange, receipts: Iterable[Receipt]) -> tuple[list[tuple[Receipt, Copied]], Coverage]:
    """The part of each receipt inside ``range_``, and all offsets that these parts are about.

    An offset of two receipts, which contradict each other, counts once: no number of a report is above the span.
    """
    parts, counted = list[tuple[Receipt, Copied]](), Coverage()
    for receipt in sorted(receipts, key=lambda receipt: receipt.range):
        common = receipt.range.intersection(range_)
        left = Coverage(counted.missing_from(common)) if common else Coverage()
        if left:
            parts.append((receipt, _share(receipt, left.span)))
            counted = counted.union(left)
    return parts, counted


def _share(receipt: Receipt, span: int) -> Copied:
    """The part of a receipt that belongs to ``span`` of its offsets.

    A receipt of a later run can extend beyond the range. Then only the common offsets count, with as many records as
    fit into them, because a receipt does not say which of its offsets have no record.
    """
    lost = min(receipt.lost_in_delivery, span)
    records = min(receipt.copied - receipt.lost_in_delivery, span - lost)
    filtered = min(receipt.filtered, span - lost - records)
    quarantined = min(receipt.quarantined, span - lost - records - filtered)
    return Copied(
        records=records,
        span=span,
        written=receipt.count * records // receipt.copied if receipt.copied else 0,
        bytes=receipt.bytes * records // receipt.copied if receipt.copied else 0,
        filtered=filtered,
        quarantined=quarantined,
        lost_in_delivery=lost,
        duplicates=receipt.duplicates,
        superseded=min(receipt.superseded, records),
        skipped=min(receipt.skipped, span - lost - records - filtered - quarantined),
    )
