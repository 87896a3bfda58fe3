"""Goes back to a source that was given up, or from which a cut-over was made.

The other direction, a replication of its own, is opened behind the seal of the first one. It copies what was written to
the target since then, is cut over, and the first direction goes on behind its seal.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from kafka_replication.documents import place
from kafka_replication.kafka import offsets, topics
from kafka_replication.ledger.account import Account
from kafka_replication.ledger.entries import Ids, Returned
from kafka_replication.model.errors import BadInput
from kafka_replication.model.offsets import Coverage, OffsetRange, PartitionKey
from kafka_replication.model.times import now
from kafka_replication.planning.backfill_request import BackfillRequest
from kafka_replication.planning.live import own
from kafka_replication.planning.turning import Stamp, is_behind, nothing_copied_since, surplus_of, turned
from kafka_replication.reporting.turning import StepRow, TurnDocument, TurnRow
from kafka_replication.runs import backfill, sealing, steps
from kafka_replication.runs.cutover import NotYet, Step, Turn, Wishes, document_of, give_back, rows_of
from kafka_replication.runs.leasing import EVERYTHING, leased
from kafka_replication.runs.run import Run
from kafka_replication.spark.launcher import Launcher
from kafka_replication.targets.start_offsets import TargetRecords

APART: Final = ".surplus"


@dataclass(kw_only=True)
class Failback:
    """``forward`` is the direction that was sealed, ``back`` the replication that copies the other way."""

    forward: Run
    back: Run
    asked: Wishes
    launcher: Launcher

    def check(self) -> None:
        """Raises BadInput for replications that are not each other's reverse; Refused, Unreachable."""
        sealing.check(self.forward)
        sealing.check(self.back)
        forward, back = self.forward.replication, self.back.replication
        source, target = (topics.cluster_id(run.clusters.source_admin) for run in (self.forward, self.back))
        filled, emptied = (run.clusters.target.catalogue.cluster_id() for run in (self.back, self.forward))
        if (source, target) != (filled, emptied):
            raise BadInput(
                f"{back.name} does not copy from the target of {forward.name} to its source",
                "name the replication file of the other direction: with source and target exchanged",
            )
        for key in self.keys:
            name = key.target_topic
            if not back.selects(name) or back.target_name(name) != key.source.topic:
                raise BadInput(
                    f"{back.name} does not copy {name} to {key.source.topic}",
                    "let its topics select what the first direction made, and rename it back (topics.rename)",
                )

    @cached_property
    def keys(self) -> Mapping[PartitionKey, PartitionKey]:
        """The partitions of the first direction, each with that of the other one."""
        name = self.back.replication.name
        return {
            key: PartitionKey(name, key.target, key.source.topic) for key in sealing.view_of(self.forward).positions
        }

    def accounts(self) -> dict[PartitionKey, tuple[Account, Account | None]]:
        """Of both directions as they are now, by the key of the first one."""
        forward, back = own(self.forward.replication, self.forward.view()), self.back.view()
        return {
            key: (forward[key], back[other] if other in back.positions else None) for key, other in self.keys.items()
        }

    def _left(self) -> dict[PartitionKey, tuple[Account, Account | None]]:
        """The partitions whose first direction does not go on yet behind the seal of the other one."""
        return {
            key: (account, other)
            for key, (account, other) in self.accounts().items()
            if account.position.sealed or other is None or not is_behind(account, other)
        }

    @property
    def steps(self) -> list[Step]:
        left = self._left().values()
        ends: list[Step] = [("first direction opened", self._open_forward)] if left else []
        if all(other and other.position.sealed and is_behind(other, account) for account, other in left):
            return ends
        aside: list[Step] = [("surplus set aside", self._set_aside)] if self.asked.aside else []
        return [*aside, ("other direction opened", self._open_back), *self.turn.steps, *ends]

    @cached_property
    def turn(self) -> Turn:
        left_alone = [self.keys[key] for key in self.keys if key not in self._left()]
        run, asked = self.back, self.asked
        return Turn(run=run, asked=asked, launcher=self.launcher, why="failback", left_alone=left_alone)

    def document(self, *, applied: bool) -> TurnDocument:
        accounts, back = self.accounts(), {row.key: row for row in rows_of(self.back)}
        theirs = offsets.high_watermarks(self.back.clusters.source_admin, [key.target for key in accounts])
        ours = offsets.high_watermarks(self.forward.clusters.source_admin, [key.source for key in accounts])
        rows = list[TurnRow]()
        for key, (account, other) in accounts.items():
            there = self.keys[key]
            if other and (is_behind(other, account) or is_behind(account, other)):
                rows.append(replace(back[there], surplus=other.turn.surplus.span if other.turn else 0))
            else:
                seal, surplus = account.position.sealed, surplus_of(account, ours[key.source])
                new = theirs[key.target] - (seal.target_until if seal else account.position.target_end)
                rows.append(TurnRow(**place(there), lag=new, last_write=None, surplus=surplus.span))
        return replace(document_of(self.turn, applied=applied), partitions=rows)

    def _set_aside(self) -> str:
        """Copy what only the source has to topics of their own on the target, exactly once, as a backfill does."""
        spans = 0
        logs = offsets.high_watermarks(self.forward.clusters.source_admin, [key.source for key in self.keys])
        for key, (account, other) in self._left().items():
            for range_ in _surplus(account, other, logs[key.source]):
                run = replace(self.forward, run_id=f"{self.forward.run_id}.{secrets.token_hex(4)}")
                report = backfill.execute(run, self.launcher, _request_of(key, range_))
                if report.failed:
                    raise NotYet(f"{key.source} {range_}: {report.failed[0].error}. {report.failed[0].remedy}")
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
            left = self._left()
            ends = _ends(back, [self.keys[key] for key in left])
            for key, (account, other) in left.items():
                self._check_openable(account, other, ends[self.keys[key]])
            receipts, surplus = forward.clusters.ledger.receipts(dict.fromkeys(left)), 0
            for key, (account, other) in left.items():
                end = ends[self.keys[key]]
                only, aside = _surplus(account, other, end), _apart(key) if self.asked.aside else ""
                surplus += only.span
                if turn := _begun(account, other):
                    if aside and only and turn.aside != aside:
                        raise NotYet(f"{key.source}: what only the source has was not set aside before it was opened")
                    continue
                if aside and not self._is_apart(key, only):
                    raise NotYet(f"{key.source}: somebody has written there meanwhile; stop all producers there")
                ids = Ids(self._target_cluster, account.position.ids.target_topic, account.position.ids.source_topic)
                change = turned(self.keys[key], back.view(), ids, account, receipts, end, self._stamp(back), aside)
                sealing.change(back, change.key, lambda _, change=change: change.write)  # type: ignore[misc]
            steps.advance(back, [self.keys[key] for key in left])
        text = f"{len(left)} partitions; the source has {surplus} offsets that were never copied, and keeps them"
        return text + (f"; producers may write to {given} topics of the source again" if given else "")

    @cached_property
    def _target_cluster(self) -> str:
        return self.forward.clusters.target.catalogue.cluster_id()

    def _stamp(self, run: Run) -> Stamp:
        return Stamp(by=self.asked.by, reason=self.asked.reason, run_id=run.run_id, time=now())

    def _check_openable(self, account: Account, other: Account | None, end: int) -> None:
        """Raises NotYet."""
        position, at = account.position, account.key.source
        if not position.sealed:
            raise NotYet(f"{at}: {account.key.replication} is not sealed: cut it over, or give its source up, first")
        if end < position.next_offset:
            raise NotYet(
                f"{at}: the source ends at {end}, but was copied up to {position.next_offset}: it lost its end, and"
                " these records are only on the target; keep the target, and copy it to new topics"
            )
        if other is not None and not other.position.sealed and not is_behind(other, account):
            raise NotYet(
                f"{other.key.source}: {other.key.replication} copies it already, not behind this seal; seal it first"
            )
        there = topics.states(self.forward.clusters.source_admin, [at.topic]).get(at.topic)
        if there is None or there.id != position.ids.source_topic:
            raise NotYet(f"{at}: the source topic was deleted or created anew; copy the target to new topics")

    def _open_forward(self) -> str:
        """Let the first direction go on behind the seal of the other one."""
        with leased(self.forward, EVERYTHING) as forward, leased(self.back, EVERYTHING) as back:
            sealing.fence(forward)
            left = self._left()
            ends = _ends(forward, list(left))
            late = {key: surplus_of(other, ends[key]).span for key, (_, other) in left.items() if other}
            if late := {key: span for key, span in late.items() if span}:
                view = own(back.replication, back.view())
                again = {self.keys[key]: view.positions[self.keys[key]] for key in late}
                sealing.open_again(back, replace(view, positions=again))
                raise NotYet(
                    f"{sum(late.values())} offsets were written meanwhile, such as to {next(iter(late)).target} on the"
                    " target; stop all producers there"
                )
            receipts, surplus = back.clusters.ledger.receipts(dict.fromkeys(self.keys[key] for key in left)), 0
            for key, (account, other) in left.items():
                assert other is not None
                change = turned(
                    key, forward.view(), account.position.ids, other, receipts, ends[key], self._stamp(forward)
                )
                sealing.change(forward, key, lambda _, change=change: change.write)  # type: ignore[misc]
                turn = other.turn
                surplus += turn.surplus.span if turn else 0
            steps.advance(forward, list(left))
        return f"{len(left)} partitions go on; {surplus} offsets that were never copied come with the next run"


def _begun(account: Account, other: Account | None) -> Returned | None:
    """The turn behind the present seal, if the other direction has copied something since."""
    return other.turn if other and is_behind(other, account) and not nothing_copied_since(other) else None


def _surplus(account: Account, other: Account | None, source_end: int) -> Coverage:
    """The source offsets that were never copied, without those that came back."""
    turn = _begun(account, other)
    return turn.surplus if turn else surplus_of(account, source_end)


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
    for error in failed.values():
        raise error
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
