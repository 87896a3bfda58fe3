"""One request about failed records, from a terminal or from a form: what is done, and what is said about it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.choices import STATES, Action, FailureKind
from kafka_replication.model.errors import BadInput, Mistakes
from kafka_replication.model.offsets import MAX_OFFSET, OffsetRange
from kafka_replication.reporting import failed as reporting
from kafka_replication.runs import retry_discard
from kafka_replication.runs.failed_records import Outcome, Selection, failed_records
from kafka_replication.runs.leasing import leased
from kafka_replication.runs.preparing import at_work
from kafka_replication.runs.retry_discard import Decision
from kafka_replication.runs.run import LeasedRun, Run
from kafka_replication.watermarks.failed import OPEN, FailedRow
from kafka_replication.watermarks.values import Scope, TargetTopics

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The filters as they were given; what is empty means all. Raises BadInput for those that fit nothing."""

    topic: str = ""
    partition: int | None = None
    from_: int | None = None
    until: int | None = None
    kind: str = ""
    state: str = ""
    everything: bool = False

    def selection(self, action: Action) -> Selection:
        mistakes = Mistakes()
        kind = mistakes.of(self._kind, None)
        states = mistakes.of(self._states, OPEN)
        offsets = mistakes.of(self._offsets, OffsetRange(0, MAX_OFFSET))
        mistakes.raise_all()
        decides = action in (Action.RETRY, Action.DISCARD)
        filters = (self.topic, self.kind, self.state)
        named = any(filters) or any(value is not None for value in (self.partition, self.from_, self.until))
        if decides and not named and not self.everything:
            raise BadInput(
                f"{action} needs to know which records", "name them by topic, offsets or kind; or ask for all"
            )
        return Selection(
            topic=self.topic or None,
            partition=self.partition,
            offsets=offsets,
            kind=kind,
            states=states,
        )

    def _kind(self) -> FailureKind | None:
        if self.kind and self.kind not in set(FailureKind):
            raise BadInput(f"kind: {self.kind!r} is no kind of failure", f"a kind is one of {', '.join(FailureKind)}")
        return FailureKind(self.kind) if self.kind else None

    def _states(self) -> tuple[str, ...]:
        if self.state and self.state not in (*STATES, "any"):
            raise BadInput(f"state: {self.state!r} is no state", f"a state is one of {', '.join(STATES)}, any")
        return STATES if self.state == "any" else (self.state,) if self.state else OPEN

    def _offsets(self) -> OffsetRange:
        from_ = self.from_ or 0
        until = self.until if self.until is not None else MAX_OFFSET
        if from_ > until:
            raise BadInput(f"from ({from_}) is greater than until ({until})", "swap them: a range is [from, until)")
        try:
            return OffsetRange(from_, until)
        except ValueError as e:
            raise BadInput(
                f"from {from_}, until {until}: {e}", "give the first offset and the one after the last"
            ) from e


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of an action. ``failed`` says whether a record stays as it was."""

    document: reporting.FailedDocument | reporting.DecidedDocument
    text: str
    failed: bool = False


def handle(run: Run, action: Action, asked: Asked, decision: Decision) -> Answer:
    """Do what was asked. Raises BadInput, Refused, Unreachable, and Busy if the lease is lost meanwhile."""
    name, view = run.replication.name, run.view()
    rows = failed_records(run, view, asked.selection(action))
    if action in (Action.LIST, Action.SHOW):
        text = reporting.failed_table(rows) if action is Action.LIST else reporting.shown(rows)
        records = [reporting.FailedRecordRow.of(row) for row in rows]
        return Answer(reporting.FailedDocument(replication=name, records=records), text)
    if action is Action.RETRY:
        _say_order(run, view, rows)
    outcomes = _decide(run, action, rows, decision) if rows else []
    decided = [
        reporting.DecidedRow.of(
            outcome.row,
            done=outcome.done,
            target=outcome.target or None,
            order_lost=outcome.behind_newer,
            why=outcome.why or outcome.before or None,
        )
        for outcome in outcomes
    ]
    stays = not all(each.done for each in outcomes)
    return Answer(reporting.DecidedDocument(replication=name, records=decided), _text(action, outcomes), stays)


def _say_order(run: Run, view: LedgerView, rows: Sequence[FailedRow]) -> None:
    """Say before anything is sent what a retry does to the order of records."""
    positions = ((row, view.position(row.key, row.generation)) for row in rows)
    if late := sum(position is not None and position.next_offset > row.offset + 1 for row, position in positions):
        message = "%s: %d of the %d records will lie behind records that are newer at the source: their order is lost"
        log.warning(message, run.replication.name, late, len(rows))


def _decide(run: Run, action: Action, rows: Sequence[FailedRow], decision: Decision) -> list[Outcome]:
    """Decide about the records. Those of a target topic that another run is at work on, longer than this one waits,
    stay as they are; all others are decided about.
    """
    decide = retry_discard.retry if action is Action.RETRY else retry_discard.discard
    targets = TargetTopics.of({row.key.target_topic for row in rows})
    with leased(run, Scope(wants=targets, needs=targets, at_least=TargetTopics.NONE)) as leased_run:
        held = [row for row in rows if leased_run.holds(row.key.target_topic)]
        outcomes = _busy(leased_run, [row for row in rows if not leased_run.holds(row.key.target_topic)])
        outcomes += decide(leased_run, held, decision) if held else []
    return sorted(outcomes, key=lambda outcome: outcome.row.id)


def _busy(run: LeasedRun, rows: Sequence[FailedRow]) -> list[Outcome]:
    """The records of target topics that other runs are at work on."""
    others = at_work(run, {row.key.target_topic for row in rows})
    why = {at: f"{who} is at work on {at}. Remedy: ask again when that run has ended" for at, who in others.items()}
    for text in why.values():
        log.warning("%s: %s", run.replication.name, text)
    return [Outcome(row=row, why=why[row.key.target_topic]) for row in rows]


def _text(action: Action, outcomes: Sequence[Outcome]) -> str:
    if not outcomes:
        return "no failed records"
    lines = [_line(outcome) for outcome in outcomes[: reporting.SHOWN]]
    if len(outcomes) > reporting.SHOWN:
        lines.append(f"and {len(outcomes) - reporting.SHOWN} more: --json lists all of them")
    done, late = sum(outcome.done for outcome in outcomes), sum(outcome.behind_newer for outcome in outcomes)
    word = "retried" if action is Action.RETRY else "discarded"
    before = sum(bool(outcome.before) for outcome in outcomes)
    lines.append(f"{done} of {len(outcomes)} records {word}" + (f", {before} of them before" if before else ""))
    if late:
        lines.append(f"{late} of them lie behind records that are newer at the source: their order is lost")
    return "\n".join(lines)


def _line(outcome: Outcome) -> str:
    record = f"{outcome.row.key.source} offset {outcome.row.record.offset}"
    if not outcome.done:
        return f"{'STAYS' if outcome.row.is_open else outcome.row.state.upper()} {record}: {outcome.why}"
    if outcome.before:
        return f"{outcome.row.state.upper()} {record}: {outcome.before}"
    where = f" at {outcome.target}{', behind newer records' if outcome.behind_newer else ''}" if outcome.target else ""
    return f"{outcome.row.state.upper()} {record}{where}"
