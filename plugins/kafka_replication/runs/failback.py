"""Goes back to a source that was given up, or from which a cut-over was made.

The other direction, a replication of its own, is opened behind the seal of the first one. It copies what was written to
the target since then, is cut over, and the first direction goes on behind its seal.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from kafka_replication.documents import place
from kafka_replication.kafka import offsets, topics
from kafka_replication.ledger.account import Account
from kafka_replication.ledger.entries import Ids, Returned
from kafka_replication.ledger.receipts import Receipts
from kafka_replication.model.errors import BadInput
from kafka_replication.model.offsets import Coverage, OffsetRange, PartitionKey
from kafka_replication.model.times import now
from kafka_replication.planning.backfill_request import BackfillRequest
from kafka_replication.planning.turning import Stamp, is_behind, nothing_copied_since, surplus_of, turned
from kafka_replication.reporting.turning import StepRow, TurnDocument, TurnRow
from kafka_replication.runs import backfill, sealing, steps
from kafka_replication.runs.audit import AuditRequest, audit
from kafka_replication.runs.clusters import raise_together
from kafka_replication.runs.cutover import NotYet, Step, Turn, Wishes, check, document_of, give_back, one_more, rows_of
from kafka_replication.runs.leasing import EVERYTHING, leased
from kafka_replication.runs.run import LeasedRun, Run
from kafka_replication.spark.launcher import Launcher
from kafka_replication.targets.start_offsets import TargetRecords
from kafka_replication.verification.auditing import LastChunk

APART: Final = ".surplus"
FAILBACK: Final = "failback"  # why the other direction is sealed


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One partition: of the first direction, and of the ``other`` one; None where it has copied nothing yet."""

    key: PartitionKey
    other_key: PartitionKey
    account: Account | None
    other: Account | None

    @property
    def is_done(self) -> bool:
        """True if the first direction goes on behind the seal of the other one."""
        account, other = self.account, self.other
        return account is not None and not account.position.sealed and other is not None and is_behind(account, other)

    @property
    def is_open(self) -> bool:
        """True if the other direction was opened behind the seal of the first one, or by itself."""
        return self.other is not None and (self.account is None or is_behind(self.other, self.account))

    @property
    def is_back(self) -> bool:
        """True if the other direction has copied everything, and was sealed."""
        seal = self.other.position.sealed if self.is_open and self.other else None
        return seal is not None and seal.why == FAILBACK

    @property
    def begun(self) -> Returned | None:
        """The turn behind the present seal, if the other direction has copied something since."""
        other = self.other if self.is_open and self.account else None
        return other.turn if other and not nothing_copied_since(other) else None

    def surplus(self, source_end: int) -> Coverage:
        """The source offsets that were never copied, without those that came back."""
        if self.account is None:
            return Coverage()
        return turn.surplus if (turn := self.begun) else surplus_of(self.account, source_end)


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
            return ends
        aside: list[Step] = [("surplus set aside", self._set_aside)] if self.asked.aside else []
        return [*aside, ("other direction opened", self._open_back), *self.turn.steps, *ends]

    @cached_property
    def turn(self) -> Turn:
        left = {pair.other_key for pair in self._left()}
        left_alone = [pair.other_key for pair in self.pairs() if pair.other_key not in left]
        run, asked = self.back, self.asked
        return Turn(run=run, asked=asked, launcher=self.launcher, why="failback", left_alone=left_alone)

    def document(self, *, applied: bool) -> TurnDocument:
        pairs, back = self.pairs(), {row.key: row for row in rows_of(self.back)}
        first = [pair.key for pair in self._left() if not pair.is_open]
        theirs = offsets.high_watermarks(self.back.clusters.source_admin, [key.target for key in first])
        ours = offsets.high_watermarks(self.forward.clusters.source_admin, [key.source for key in first])
        rows = list[TurnRow]()
        for pair in pairs:
            if pair.other and pair.other_key in back and pair.key not in first:
                turn = pair.other.turn
                rows.append(replace(back[pair.other_key], surplus=turn.surplus.span if turn else 0))
            elif pair.account and pair.key in first:
                position, surplus = pair.account.position, pair.surplus(ours[pair.key.source])
                end = position.sealed.target_until if position.sealed else position.target_end
                lag = theirs[pair.key.target] - end
                rows.append(TurnRow(**place(pair.other_key), lag=lag, last_write=None, surplus=surplus.span))
        return replace(document_of(self.turn, applied=applied), partitions=rows)

    def _set_aside(self) -> str:
        """Copy what only the source has to topics of their own on the target, exactly once, as a backfill does."""
        spans, left = 0, [pair for pair in self._left() if pair.account]
        if read_back := [pair for pair in left if self.back.replication.selects(_apart(pair.key))]:
            raise NotYet(
                f"{self.back.replication.name} selects {_apart(read_back[0].key)}: it would copy it to the source;"
                " leave it out of its file (topics.exclude)"
            )
        logs = offsets.high_watermarks(self.forward.clusters.source_admin, [pair.key.source for pair in left])
        for pair in left:
            for range_ in pair.surplus(logs[pair.key.source]):
                report = backfill.execute(one_more(self.forward), self.launcher, _request_of(pair.key, range_))
                if report.failed:
                    raise NotYet(f"{pair.key.source} {range_}: {report.failed[0].error}. {report.failed[0].remedy}")
                spans += range_.span
        return f"{spans} offsets are in topics of the target that end with {APART}"

    def _is_apart(self, key: PartitionKey, surplus: Coverage) -> bool:
        view, apart = self.forward.view(), replace(key, target_topic=_apart(key))
        verified = view[apart].verified.coverage if apart in view.positions else Coverage()
        return not surplus.subtract(verified)

    def _open_back(self) -> str:
        """Open the other direction behind the seal of the first one."""
        with leased(self.forward, EVERYTHING) as forward, leased(self.back, EVERYTHING) as back:
            given = give_back(forward)
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
        text = f"{len(left)} partitions; the source has {surplus} offsets that were never copied, and keeps them"
        return text + (f"; producers may write to {given} topics of the source again" if given else "")

    def _needs_opening(self, pair: Pair, only: Coverage) -> bool:
        """Raises NotYet if what was asked for cannot be done any more."""
        aside, at = _apart(pair.key) if self.asked.aside else "", pair.key.source
        if turn := pair.begun:
            if aside and only and turn.aside != aside:
                raise NotYet(f"{at}: what only the source has was not set aside before it was opened")
            return False
        config = topics.config(self.forward.clusters.source_admin, at.topic) if only and not aside else {}
        if "compact" in config.get("cleanup.policy", ""):
            raise NotYet(
                f"{at}: the topic is compacted, and the source has {only.span} offsets that never arrived: the newest"
                " record of a key would be another one on each side; have them set aside (--surplus-aside)"
            )
        if aside and not self._is_apart(pair.key, only):
            raise NotYet(f"{at}: somebody has written there meanwhile; stop all producers there")
        return True

    def _open(
        self, run: LeasedRun, key: PartitionKey, sealed: tuple[LeasedRun, Account, Receipts], end: int, aside: str = ""
    ) -> None:
        """Open the partition of ``run`` behind that of the ``sealed`` direction, of which it is noted first."""
        sealed_run, other, receipts = sealed
        sealing.follow(sealed_run, other.key, run.replication.name)
        theirs = other.position.ids
        ids = Ids(sealed_run.clusters.target.catalogue.cluster_id(), theirs.target_topic, theirs.source_topic)
        stamp = Stamp(by=self.asked.by, reason=self.asked.reason, run_id=run.run_id, time=now())
        change = turned(key, run.view(), ids, other, receipts, end, stamp, aside)
        sealing.change(run, key, lambda _: change.write)

    def _check_openable(self, pair: Pair, end: int, topic_id: str) -> None:
        """Raises NotYet."""
        account, other = pair.account, pair.other
        assert account is not None
        position, at = account.position, pair.key.source
        if not position.sealed:
            raise NotYet(f"{at}: {pair.key.replication} is not sealed: cut it over, or give its source up, first")
        copied = max([position.next_offset, *(range_.until for range_ in position.coverage)])
        if end < copied:
            raise NotYet(
                f"{at}: the source ends at {end}, but was copied up to {copied}: it lost its end, and"
                " these records are only on the target; keep the target, and copy it to new topics"
            )
        seal = other.position.sealed if other else None
        if other is not None and seal and pair.is_open and seal.why != FAILBACK:
            raise NotYet(
                f"{other.key.source}: it was sealed {seal}; to go on from there, name it first: kafka-replication"
                f" failback {other.key.replication}.yaml {pair.key.replication}.yaml"
            )
        if other is not None and not seal and not pair.is_open:
            raise NotYet(
                f"{other.key.source}: {other.key.replication} copies it already, not behind this seal; seal it first"
            )
        if topic_id != position.ids.source_topic:
            raise NotYet(f"{at}: the source topic was deleted or created anew; copy the target to new topics")

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
                raise NotYet(
                    f"{sum(late.values())} offsets were written meanwhile, such as to {next(iter(late)).source} on the"
                    " target; stop all producers there"
                )
            receipts, surplus = back.clusters.ledger.receipts(dict.fromkeys(pair.other_key for pair in left)), 0
            _check_last(back, [pair.other_key for pair in left], self.launcher)
            for pair in left:
                other = pair.other
                if other is None or other.position.sealed is None:
                    raise NotYet(f"{pair.other_key}: it is not sealed any more: another command is at work")
                self._open(forward, pair.key, (back, other, receipts), ends[pair.key])
                surplus += other.turn.surplus.span if other.turn and not other.turn.aside else 0
            steps.advance(forward, [pair.key for pair in left])
        return f"{len(left)} partitions go on; {surplus} offsets that were never copied come with the next run"


def _check_last(run: Run, keys: Collection[PartitionKey], launcher: Launcher) -> None:
    """Compare the last chunk of each partition of a sealed direction on both sides: if one of them lost its end, and
    got others' records in its place, these would be taken for ours. Raises NotYet.
    """
    if not keys:
        return
    with launcher as spark:
        report = audit(run, AuditRequest(sample=LastChunk(1, 0)), spark)
    for one in (one for one in report.partitions if one.key in keys and one.outcome != "clean"):
        raise NotYet(
            f"{one.key.source}: the last records that {one.key.replication} copied are not the same on both sides: one"
            " of them lost its end. Audit it (kafka-replication audit); keep what is right, and copy it to new topics\n"
            f"{report.text()}"
        )


def _apart(key: PartitionKey) -> str:
    return f"{key.target_topic}{APART}"


def _request_of(key: PartitionKey, range_: OffsetRange) -> BackfillRequest:
    return BackfillRequest(
        topics=(key.source.topic,),
        partitions=(key.source.partition,),
        from_=range_.from_,
        until=range_.until,
        target_topic=_apart(key),
    )


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
        turn.done.append(StepRow(step="first direction opened", state="done", what="it was opened before"))
    turn.carry_out(before)
    return turning.document(applied=True)


def preview(forward: Run, back: Run, asked: Wishes, launcher: Launcher) -> TurnDocument:
    """The records that one side only has, and the steps. Changes nothing. Raises as `failback`."""
    turning = Failback(forward=forward, back=back, asked=asked, launcher=launcher)
    turning.check()
    turning.turn.done = [StepRow(step=name, state="to do", what="") for name, _ in turning.steps]
    return turning.document(applied=False)
