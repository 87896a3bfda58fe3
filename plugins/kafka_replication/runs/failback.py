"""Goes back to a source that was given up, or from which a cut-over was made.

The other direction, a replication of its own, is opened behind the seal of the first one. It copies what was written to
the target since then, is cut over, and the first direction goes on behind its seal.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from kafka_replication.documents import place
from kafka_replication.kafka import offsets, topics
from kafka_replication.ledger.account import Account, Change
from kafka_replication.ledger.entries import Ids
from kafka_replication.ledger.receipts import Receipts
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.errors import BadInput
from kafka_replication.model.offsets import Coverage, OffsetRange, PartitionKey, TopicPartition
from kafka_replication.model.times import now
from kafka_replication.planning import obstacles
from kafka_replication.planning.backfill_request import BackfillRequest
from kafka_replication.planning.obstacles import NotYet
from kafka_replication.planning.turning import FAILBACK, Pair, Stamp, foreseen, surplus_of, turned
from kafka_replication.reporting.table import counted
from kafka_replication.reporting.turning import StepRow, TurnDocument, TurnRow
from kafka_replication.runs import backfill, sealing, source_ends, steps
from kafka_replication.runs.audit import AuditRequest, audit
from kafka_replication.runs.clusters import raise_together
from kafka_replication.runs.cutover import Step, Turn, Wishes, check, document_of, one_more
from kafka_replication.runs.leasing import EVERYTHING, leased
from kafka_replication.runs.run import LeasedRun, Run
from kafka_replication.spark.launcher import Launcher
from kafka_replication.targets.start_offsets import TargetRecords
from kafka_replication.verification.auditing import LastChunk

APART: Final = ".surplus"
OPENED_BEFORE: Final = StepRow(step="first direction opened", state="done", what="it was opened before")


@dataclass(kw_only=True)
class Failback:
    """``forward`` is the direction that was sealed, ``back`` the replication that copies the other way."""

    forward: Run
    back: Run
    asked: Wishes
    launcher: Launcher

    def check(self) -> None:
        """Raises BadInput for replications that are not each other's reverse; Refused, Unreachable."""
        check(self.forward, self.asked)
        check(self.back, self.asked)
        forward, back = self.forward.replication, self.back.replication
        source, target = (topics.cluster_id(run.clusters.source_admin) for run in (self.forward, self.back))
        filled, emptied = (run.clusters.target.catalogue.cluster_id() for run in (self.back, self.forward))
        if (source, target) != (filled, emptied):
            raise BadInput(
                f"{back.name} does not copy from the target of {forward.name} to its source",
                "name the replication file of the other direction: with source and target exchanged",
            )
        if not sealing.selected(self.forward).positions and sealing.selected(self.back).is_sealed:
            raise obstacles.SWAPPED.refused(replication=forward.name, other=back.name)
        for key in sealing.view_of(self.forward).positions:
            name = key.target_topic
            if not back.selects(name) or back.target_name(name) != key.source.topic:
                raise BadInput(
                    f"{back.name} does not copy {name} to {key.source.topic}",
                    "let its topics select what the first direction made, and rename it back (topics.rename)",
                )

    def pairs(self) -> list[Pair]:
        """The partitions of both directions as they are now: those that the first one has copied, and those that were
        new on the target, so that only the other one has.
        """
        forward, back = self.forward.replication, self.back.replication
        ours, theirs = sealing.view_of(self.forward), sealing.selected(self.back)
        keys = {key: PartitionKey(back.name, key.target, key.source.topic) for key in ours.positions}
        for other in theirs.positions:
            key = PartitionKey(forward.name, other.target, other.source.topic)
            if forward.selects(key.source.topic) and forward.target_name(key.source.topic) == key.target_topic:
                keys.setdefault(key, other)
        return [
            Pair(
                key=key,
                other_key=other,
                account=ours[key] if key in ours.positions else None,
                other=theirs[other] if other in theirs.positions else None,
            )
            for key, other in sorted(keys.items())
        ]

    def _left(self) -> list[Pair]:
        """Those where the first direction does not go on yet, but for topics that were deleted at the source."""
        deleted = self.forward.view().deleted
        return [pair for pair in self.pairs() if not pair.is_done and (pair.other or pair.key not in deleted)]

    @property
    def steps(self) -> list[Step]:
        left = self._left()
        ends: list[Step] = [("first direction opened", self._open_forward)] if left else []
        if all(pair.is_back for pair in left):
            return [*self.turn.certificate, *ends] if left else []
        aside: list[Step] = [("surplus set aside", self._set_aside)] if self.asked.aside else []
        return [*aside, ("other direction opened", self._open_back), *self.turn.steps, *ends]

    @cached_property
    def turn(self) -> Turn:
        left = {pair.other_key for pair in self._left()}
        left_alone = [pair.other_key for pair in self.pairs() if pair.other_key not in left]
        run, asked = self.back, self.asked
        first = self.forward.replication
        return Turn(run=run, asked=asked, launcher=self.launcher, why="failback", first=first, left_alone=left_alone)

    def document(self, *, applied: bool) -> TurnDocument:
        document, pairs = document_of(self.turn, applied=applied), self.pairs()
        back, left = {row.key: row for row in document.partitions}, {pair.key: pair for pair in self._left()}
        left = {key: pair for key, pair in left.items() if pair.other_key in back or not pair.is_open}
        fresh = back.keys() - {pair.other_key for pair in pairs}  # new on the target: nothing was copied there
        asked = [*(pair.other_key.source for pair in left.values()), *(key.source for key in fresh)]
        theirs = offsets.high_watermarks(self.back.clusters.source_admin, asked)
        ours = self._source_ends(left.values())
        rows = [replace(row, new=_last(theirs[row.source], row.lag)) for key, row in back.items() if key in fresh]
        for pair in pairs:
            row = back.get(pair.other_key, TurnRow(**place(pair.other_key), lag=0, last_write=None))
            if pair.key in left:
                rows.append(self._row(row, pair, theirs[pair.other_key.source], ours.get(pair.key.source)))
            elif pair.other and pair.other_key in back:
                surplus = turn.surplus if (turn := pair.other.turn) else Coverage()
                rows.append(replace(row, surplus=surplus.span, surplus_offsets=surplus))
        if not applied:
            errors = self._in_the_way(left.values(), ours)
            rows = [replace(row, error=errors.get(row.key, "")) for row in rows]
        return replace(document, partitions=sorted(rows, key=lambda row: row.key))

    def _row(self, row: TurnRow, pair: Pair, end: int, source_end: int | None) -> TurnRow:
        """``end`` is that of the partition on the target, ``source_end`` that on the source."""
        surplus = Coverage() if source_end is None else pair.surplus(source_end)
        row = replace(row, surplus=surplus.span, surplus_offsets=surplus)
        row = replace(row, begins_at=pair.begun.target.until if pair.begun else source_end)
        if pair.is_open and pair.other:
            return replace(row, new=surplus_of(pair.other, end))
        new = _last(end, end - pair.sealed_at) if pair.account else Coverage()
        return replace(row, new=new, lag=new.span)

    def _source_ends(self, pairs: Iterable[Pair]) -> dict[TopicPartition, int]:
        at = [pair.key.source for pair in pairs if pair.account]
        return offsets.high_watermarks(self.forward.clusters.source_admin, at)

    def _in_the_way(self, pairs: Iterable[Pair], ends: Mapping[TopicPartition, int]) -> dict[PartitionKey, str]:
        """The reasons why partitions cannot be opened as they are now."""
        opening, errors = [pair for pair in pairs if pair.account and not pair.is_back], dict[PartitionKey, str]()
        there = topics.states(self.forward.clusters.source_admin, {pair.key.source.topic for pair in opening})
        for pair in opening:
            state, end = there.get(pair.key.source.topic), ends[pair.key.source]
            try:
                self._check_openable(pair, end, state.id if state else "")
                if pair.begun or not self.asked.aside:
                    self._needs_opening(pair, pair.surplus(end))
            except NotYet as error:
                errors[pair.other_key] = str(error)
        return errors

    def foreseen(self) -> LedgerView:
        """The ledger of the other direction as it will be when it has copied everything that is new now."""
        view, left = self.back.view(), [pair for pair in self._left() if pair.account and not pair.begun]
        sealed = [pair for pair in left if pair.account and pair.account.position.sealed]
        receipts = self.forward.clusters.ledger.receipts({pair.key: None for pair in sealed})
        ours = self._source_ends(sealed)
        theirs = offsets.high_watermarks(self.back.clusters.source_admin, [pair.key.target for pair in sealed])
        for pair in sealed:
            assert pair.account is not None
            aside = _apart(pair.key) if self.asked.aside else ""
            opened = self._turned(
                self.back, pair.other_key, (self.forward, pair.account, receipts), ours[pair.key.source], aside
            )
            end = theirs[pair.key.target]
            view = foreseen(opened, view, OffsetRange(min(pair.sealed_at, end), end))
        return view

    def _set_aside(self) -> str:
        """Copy what only the source has to topics of their own on the target, exactly once, as a backfill does."""
        spans, left = 0, [pair for pair in self._left() if pair.account]
        if read_back := [pair for pair in left if self.back.replication.selects(_apart(pair.key))]:
            name, apart = self.back.replication.name, _apart(read_back[0].key)
            raise NotYet(obstacles.SURPLUS_SELECTED, replication=name, topic=apart, source=self.turn.target)
        logs = offsets.high_watermarks(self.forward.clusters.source_admin, [pair.key.source for pair in left])
        for pair in left:
            for range_ in pair.surplus(logs[pair.key.source]):
                at = pair.key.source
                request = BackfillRequest(
                    topics=(at.topic,),
                    partitions=(at.partition,),
                    from_=range_.from_,
                    until=range_.until,
                    target_topic=_apart(pair.key),
                )
                report = backfill.execute(one_more(self.forward), self.launcher, request)
                if report.failed:
                    error, remedy = report.failed[0].error, report.failed[0].remedy
                    raise NotYet(obstacles.SURPLUS_FAILED, partition=at, range=range_, error=error, remedy=remedy)
                spans += range_.span
        return f"{counted(spans, 'offset')} copied to topics on {self.turn.source} that end with {APART}"

    def _open_back(self) -> str:
        """Open the other direction behind the seal of the first one."""
        with leased(self.forward, EVERYTHING) as forward, leased(self.back, EVERYTHING) as back:
            given = source_ends.give_back(forward)
            back.clusters.ledger.ensure(back.replication)
            sealing.fence(back)
            left = [pair for pair in self._left() if pair.account]
            ends = _ends(back, [pair.other_key for pair in left])
            there = topics.states(forward.clusters.source_admin, {pair.key.source.topic for pair in left})
            for pair in left:
                state = there.get(pair.key.source.topic)
                self._check_openable(pair, ends[pair.other_key], state.id if state else "")
            _check_last(forward, [pair.key for pair in left if not pair.begun], self.launcher)
            receipts, surplus = forward.clusters.ledger.receipts(dict.fromkeys(pair.key for pair in left)), 0
            for pair in left:
                only = pair.surplus(end := ends[pair.other_key])
                surplus += only.span
                if self._needs_opening(pair, only):
                    assert pair.account is not None
                    aside = _apart(pair.key) if self.asked.aside else ""
                    self._open(back, pair.other_key, (forward, pair.account, receipts), end, aside)
            steps.advance(back, [pair.other_key for pair in left])
        source, target = self.turn.source, self.turn.target
        text = f"{counted(len(left), 'partition')} of {source}, to go on behind everything that {target} has"
        if surplus:
            text += f"; {counted(surplus, 'offset')} that only {target} has stay there"
        return text + (f"; producers may write to {counted(given, 'topic')} on {target} again" if given else "")

    def _needs_opening(self, pair: Pair, only: Coverage) -> bool:
        """Raises NotYet if what was asked for cannot be done any more."""
        aside, at = _apart(pair.key) if self.asked.aside else "", pair.key.source
        if turn := pair.begun:
            if aside and only and turn.aside != aside:
                raise NotYet(obstacles.SURPLUS_TOO_LATE, partition=at, source=self.turn.target)
            return False
        config = topics.config(self.forward.clusters.source_admin, at.topic) if only and not aside else {}
        if "compact" in config.get("cleanup.policy", ""):
            left, source = counted(only.span, "offset"), self.turn.target
            raise NotYet(obstacles.COMPACTED, partition=at, source=source, offsets=left)
        if aside:
            view, apart = self.forward.view(), replace(pair.key, target_topic=aside)
            if only.subtract(view[apart].verified.coverage if apart in view.positions else Coverage()):
                raise NotYet(obstacles.SURPLUS_GREW, partition=at, source=self.turn.target)
        return True

    def _open(
        self, run: LeasedRun, key: PartitionKey, sealed: tuple[LeasedRun, Account, Receipts], end: int, aside: str = ""
    ) -> None:
        """Open the partition of ``run`` behind that of the ``sealed`` direction, of which it is noted first."""
        sealing.follow(sealed[0], sealed[1].key, run.replication.name)
        change = self._turned(run, key, sealed, end, aside)
        sealing.change(run, key, lambda _: change.write)

    def _turned(
        self, run: Run, key: PartitionKey, sealed: tuple[Run, Account, Receipts], end: int, aside: str
    ) -> Change:
        sealed_run, other, receipts = sealed
        theirs = other.position.ids
        ids = Ids(sealed_run.clusters.target.catalogue.cluster_id(), theirs.target_topic, theirs.source_topic)
        stamp = Stamp(by=self.asked.by, reason=self.asked.reason, run_id=run.run_id, time=now())
        return turned(key, run.view(), ids, other, receipts, end, stamp, aside)

    def _check_openable(self, pair: Pair, end: int, topic_id: str) -> None:
        """Raises NotYet."""
        account, other = pair.account, pair.other
        assert account is not None
        position, at = account.position, pair.key.source
        if not position.sealed:
            raise NotYet(obstacles.FIRST_NOT_SEALED, partition=at, replication=pair.key.replication)
        copied = max([position.next_offset, *(range_.until for range_ in position.coverage)])
        if end < copied:
            source, target = self.turn.target, self.turn.source
            raise NotYet(obstacles.LOST_END, partition=at, source=source, target=target, end=end, copied=copied)
        seal = other.position.sealed if other else None
        if other is not None and seal and pair.is_open and seal.why != FAILBACK:
            names = {"other": other.key.replication, "replication": pair.key.replication}
            raise NotYet(obstacles.OTHER_SEALED, partition=other.key.source, seal=seal, **names)
        if other is not None and not seal and not pair.is_open:
            raise NotYet(obstacles.OTHER_COPIES, partition=other.key.source, other=other.key.replication)
        if topic_id != position.ids.source_topic:
            raise NotYet(obstacles.CREATED_ANEW, partition=at, source=self.turn.target, target=self.turn.source)

    def _open_forward(self) -> str:
        """Let the first direction go on behind the seal of the other one."""
        with leased(self.forward, EVERYTHING) as forward, leased(self.back, EVERYTHING) as back:
            sealing.fence(forward)
            left = self._left()
            ends = _ends(forward, [pair.key for pair in left])
            late = {pair.other_key: surplus_of(pair.other, ends[pair.key]).span for pair in left if pair.other}
            if late := {other: span for other, span in late.items() if span}:
                view = sealing.selected(back)
                sealing.open_again(back, replace(view, positions={other: view.positions[other] for other in late}))
                count, at = counted(sum(late.values()), "offset"), min(late).source
                raise NotYet(obstacles.WRITTEN_MEANWHILE, offsets=count, source=self.turn.source, partition=at)
            receipts, surplus = back.clusters.ledger.receipts(dict.fromkeys(pair.other_key for pair in left)), 0
            _check_last(back, [pair.other_key for pair in left], self.launcher)
            for pair in left:
                other = pair.other
                if other is None or other.position.sealed is None:
                    raise NotYet(obstacles.NOT_SEALED_ANY_MORE, partition=pair.other_key.source)
                self._open(forward, pair.key, (back, other, receipts), ends[pair.key])
                surplus += other.turn.surplus.span if other.turn and not other.turn.aside else 0
            steps.advance(forward, [pair.key for pair in left])
        text = f"{self.forward.replication.name} goes on in {counted(len(left), 'partition')}"
        if not surplus:
            return text
        source, target = self.turn.source, self.turn.target
        return f"{text}; {counted(surplus, 'offset')} that only {target} has come to {source} with its next run"


def _check_last(run: Run, keys: Collection[PartitionKey], launcher: Launcher) -> None:
    """Compare the last chunk of each partition of a sealed direction on both sides: if one of them lost its end, and
    got others' records in its place, these would be taken for ours. Raises NotYet.
    """
    if not keys:
        return
    with launcher as spark:
        report = audit(run, AuditRequest(sample=LastChunk(1, 0)), spark)
    for one in (one for one in report.partitions if one.key in keys and one.outcome != "clean"):
        at, name, text = one.key.source, one.key.replication, report.text()
        raise NotYet(obstacles.LAST_DIFFER, partition=at, replication=name, report=text)


def _last(end: int, span: int) -> Coverage:
    """So many offsets before the end."""
    return Coverage.of([OffsetRange(end - max(0, span), end)])


def _apart(key: PartitionKey) -> str:
    return f"{key.target_topic}{APART}"


def _ends(run: Run, keys: Sequence[PartitionKey]) -> dict[PartitionKey, int]:
    """The end of each target partition, once no open transaction hides records below it. Raises what is in the way."""
    ends, failed = TargetRecords(run.clusters.target).ends(keys, run.deadline.within(run.replication.timeouts.request))
    raise_together(list(failed.values()))
    return {key: there[key.target.partition] for key, there in ends.items()}


def failback(forward: Run, back: Run, asked: Wishes, launcher: Launcher) -> TurnDocument:
    """Do the steps, up to one that cannot be done; may be repeated from any place. Raises BadInput, Refused,
    Unreachable, LedgerUnreadable.
    """
    turning = Failback(forward=forward, back=back, asked=asked, launcher=launcher)
    turning.check()
    before = turning.steps
    turn = turning.turn
    if not before:
        turn.done.append(OPENED_BEFORE)
    turn.carry_out(before)
    return turning.document(applied=True)


def preview(forward: Run, back: Run, asked: Wishes, launcher: Launcher) -> TurnDocument:
    """The records that one side only has, and the steps. Changes nothing. Raises as `failback`."""
    turning = Failback(forward=forward, back=back, asked=asked, launcher=launcher)
    turning.check()
    turn, steps_left = turning.turn, turning.steps
    turn.done = turn.to_do(steps_left) if steps_left else [OPENED_BEFORE]
    if any(name == "groups" for name, _ in steps_left):
        turn.foresee_groups(turning.foreseen())
    return turning.document(applied=False)
