"""Cuts a replication over: copies to the end, finds producers and consumers stopped, moves groups, and seals it.

Each step looks at the clusters and at the ledger anew, and may be repeated from any place.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Literal

from kafka_replication.documents import GroupRow, place
from kafka_replication.kafka import acls, offsets, snapshotter, topics, writers
from kafka_replication.ledger.entries import Entry, Position
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.errors import BadInput, Refused, ReplicationError, Unreachable
from kafka_replication.model.offsets import PartitionKey, TopicPartition
from kafka_replication.model.times import from_millis, now, to_text
from kafka_replication.planning.snapshot import PartitionOffsets
from kafka_replication.planning.turning import surplus_of
from kafka_replication.reporting.turning import StepRow, TurnDocument, TurnRow
from kafka_replication.runs import acls as rights
from kafka_replication.runs import certifying, groups, runner, sealing
from kafka_replication.runs.audit import AuditRequest, audit
from kafka_replication.runs.leasing import EVERYTHING, leased
from kafka_replication.runs.reporting import standing
from kafka_replication.runs.run import LeasedRun, Request, Run
from kafka_replication.spark.launcher import Launcher
from kafka_replication.verification.auditing import drawn

Why = Literal["cutover", "failback"]
RUNS: Final = 5  # until nobody has written for a while
QUIET: Final = 10.0  # seconds
LOOK: Final = 0.5  # seconds between two looks at the ends of the source
Step = tuple[str, Callable[[], str]]  # its name, and what does it: the text is what was done


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes(sealing.Asked):
    """The wishes of a person. ``quiet``: seconds for which nobody may write. ``deny``: producers are denied to write by
    a rule (ACL) at the source. ``sample``: chunks of each partition that are audited; 0: none, -1: all. ``out``: a
    folder for the files of the certificate, which the store keeps. ``aside``: a failback has what only the source has
    copied to topics of their own.
    """

    quiet: float = QUIET
    deny: bool = False
    sample: int = 0
    out: Path | None = None
    aside: bool = False


class NotYet(Exception):
    """The reason, for people, why a step cannot be done now."""


@dataclass(kw_only=True)
class Turn:
    """A direction that is to be copied to its end, and sealed for the reason ``why``, but for the partitions that are
    ``left_alone``.
    """

    run: Run
    asked: Wishes
    launcher: Launcher
    why: Why = "cutover"
    left_alone: Collection[PartitionKey] = ()
    cut: str | None = None
    moved: Sequence[GroupRow] = ()
    done: list[StepRow] = field(default_factory=list)

    @property
    def steps(self) -> list[Step]:
        deny = [("producers denied", self._deny)] if self.asked.deny else []
        carry = [("rights", self._rights)] if self.run.replication.acls.model_fields_set else []
        audits = [("audit", self._audit)] if self.asked.sample else []
        sealed: list[Step] = [("settings", self._settings), *carry, *audits, ("sealed", self._seal), *self.certificate]
        return [*deny, ("copied", self._copy), ("groups", self._groups), *sealed]

    @property
    def certificate(self) -> list[Step]:
        return [("certificate", self._certify)]

    def carry_out(self, steps: Sequence[Step]) -> bool:
        """Do the steps in their order, up to one that cannot be done now. True if all are done."""
        for number, (name, do) in enumerate(steps):
            try:
                self.done.append(StepRow(step=name, state="done", what=do()))
            except (NotYet, ReplicationError) as error:
                self.done.append(StepRow(step=name, state="blocked", what=str(error)))
                self.done += [StepRow(step=later, state="to do", what="") for later, _ in steps[number + 1 :]]
                return False
        return True

    def _view(self) -> LedgerView:
        view = sealing.selected(self.run)
        return replace(
            view, positions={key: view.positions[key] for key in view.positions if key not in self.left_alone}
        )

    def _lags(self) -> dict[PartitionKey, int]:
        return {key: lag for key, lag in lags(self.run).items() if key not in self.left_alone}

    def _deny(self) -> str:
        """Note it in the ledger first, so that it is known which rules are to be given back."""
        run = self.run
        view = sealing.view_of(run)
        topics = {key.source.topic for key in view.positions}
        noted = {key.source.topic for key, position in view.positions.items() if position.denied}
        if others := sorted(writers.denied(run.clusters.source_admin, topics) - noted):
            raise NotYet(f"{others[0]}: a rule that denies everybody to write is there already, and not ours")
        with leased(run, EVERYTHING) as leased_run:
            note = f"{self.asked.by} at {now()}"
            for key, position in view.positions.items():
                if not position.denied:
                    sealing.change(leased_run, key, lambda at: (replace(at, denied=note),) if at else ())
        acls.write(run.clusters.source_admin, [writers.denial(topic) for topic in topics], ())
        return f"nobody but super users may write to {len(topics)} topics of the source; --abort gives it back"

    def _copy(self) -> str:
        seals = [position.sealed for position in self._view().positions.values() if position.sealed]
        if others := [seal for seal in seals if seal.why != self.why]:
            raise NotYet(f"a part of it was sealed {others[0]}")
        if seals:  # a part, before a crash
            with leased(self.run, EVERYTHING) as leased_run:
                sealing.fence(leased_run)
                sealing.open_again(leased_run, self._view())
        wrote, behind = set[PartitionKey](), dict[PartitionKey, int]()
        left, before = RUNS, math.inf  # with max_records_per_run it takes more
        while left:
            report = runner.execute(one_more(self.run), self.launcher, Request())
            if failed := [line for line in report.failed if line.key not in self.left_alone]:
                what = f"{len(failed)} ranges failed; {failed[0].key.source}: {failed[0].error}"
                raise NotYet(f"{what}. Remedy: {failed[0].remedy}")
            wrote = still_written(self.run, self.asked.quiet)
            behind = {} if wrote else self._lags()
            left -= bool(wrote) or sum(behind.values()) >= before
            before = sum(behind.values()) or math.inf
            if not wrote and not behind:
                self.cut = to_text(from_millis(int(1000 * (time.time() - self.asked.quiet))))
                return f"nothing was written for {self.asked.quiet:g} s, and everything is verified on the target"
        first = next(iter(wrote or behind))
        if not wrote:
            raise NotYet(f"{first.source}: {behind[first]} offsets stay unverified on the target; see the last report")
        raise NotYet(
            f"producers still write: the last time to {first.source} and {len(wrote or behind) - 1} other partitions;"
            " stop them" + ("" if self.asked.deny else ", or deny them to write (--deny-producers)")
        )

    def _groups(self) -> str:
        run = self.run
        if not run.replication.groups.include:
            return "the file selects none"
        self.moved = groups.move(run, apply=False).groups
        names = [row.group for row in self.moved if row.state != "left out"]
        if at_work := writers.members(run.clusters.source_admin, names):
            raise NotYet(f"group {min(at_work)} and {len(at_work) - 1} others have members at the source: stop them")
        self.moved = groups.move(run, apply=True).groups
        for row in self.moved:
            waits = next((one for one in row.partitions if one.state in ("waiting", "refused")), None)
            if row.state in ("failed", "active") or (waits and row.state != "left out"):
                raise NotYet(f"group {row.group}: {row.why or (waits and f'{waits.source}: {waits.why}')}")
        exact = sum(0 < len(row.partitions) == row.exact for row in self.moved)
        return f"{exact} of {len(self.moved)} exact, the others read at most {sum(r.again for r in self.moved)} again"

    def _settings(self) -> str:
        texts = dict.fromkeys(text for row in standing(self.run) for text in row.settings)
        return "; ".join(texts) or "those of the target's topics follow the source"

    def _rights(self) -> str:
        looked = rights.look(self.run)
        rights.apply(self.run, looked)
        return f"{len(looked.plan.to_create)} rules written, {len(looked.plan.to_remove)} removed"

    def _audit(self) -> str:
        sample = self.asked.sample
        with self.launcher as spark:
            report = audit(self.run, AuditRequest(sample=drawn(sample, None) if sample > 0 else None), spark)
        if report.outcome != "clean":
            raise NotYet(report.text())
        return f"{len(report.partitions)} partitions are as the source is"

    def _seal(self) -> str:
        with leased(self.run, EVERYTHING) as run:
            sealing.fence(run)
            if behind := self._lags():
                raise NotYet(f"{next(iter(behind)).source}: {next(iter(behind.values()))} offsets are not verified")
            sealing.view_of(run)
            view = self._view()
            errors = sealing.seal_each(run, view.positions, self.why, self.asked)
            if errors:
                raise NotYet(next(iter(errors.values())))
            if behind := self._lags():
                sealing.open_again(run, self._view())
                raise NotYet(f"{next(iter(behind)).source}: somebody wrote while it was sealed; stop all producers")
        return f"{len(view.positions)} partitions: no run copies any more, and others may write to the target"

    def _certify(self) -> str:
        seals = [at.sealed.time for at in self._view().positions.values() if at.sealed]
        since = f"nobody has written to the source since {self.cut}" if self.cut else f"sealed {min(seals, default='')}"
        made = certifying.certify(self.run, self.asked.out, about=f"{self.why}: {since}")
        return "; ".join([made.certificate.verdict, *made.where])


def one_more(run: Run) -> Run:
    """The same with a run id of its own, for one of several runs of a command."""
    return replace(run, run_id=f"{run.run_id}.{secrets.token_hex(4)}")


def cutover(run: Run, asked: Wishes, launcher: Launcher) -> TurnDocument:
    """Do the steps, up to one that cannot be done. Raises Refused for a replication that cannot be sealed,
    Unreachable, LedgerUnreadable.
    """
    check(run, asked)
    turn = Turn(run=run, asked=asked, launcher=launcher)
    if sealing.selected(run).is_sealed:
        turn.done.append(StepRow(step="sealed", state="done", what="it was sealed before"))
        turn.carry_out(turn.certificate)
    else:
        turn.carry_out(turn.steps)
    return document_of(turn, applied=True)


def preview(run: Run, asked: Wishes, launcher: Launcher) -> TurnDocument:
    """The steps that are left to do. Changes nothing. Raises as `cutover`."""
    check(run, asked)
    turn = Turn(run=run, asked=asked, launcher=launcher)
    sealed = sealing.selected(run).is_sealed
    turn.done = [StepRow(step=name, state="done" if sealed else "to do", what="") for name, _ in turn.steps]
    if run.replication.groups.include:
        turn.moved = groups.move(run, apply=False).groups
        at_work = writers.members(run.clusters.source_admin, [row.group for row in turn.moved])
        turn.moved = [
            replace(row, why=f"{row.why + '; ' if row.why else ''}it has members at the source")
            if row.group in at_work
            else row
            for row in turn.moved
        ]
    return document_of(turn, applied=False)


def abort(run: Run, asked: Wishes, launcher: Launcher) -> TurnDocument:
    """Give back what a cut-over has denied to producers, as long as nothing is sealed. Raises Refused."""
    check(run, asked)
    if sealing.selected(run).is_sealed:
        raise Refused(
            f"{run.replication.name} is sealed: others may have written to the target",
            "bring their records back (kafka-replication failback); if nobody has, kafka-replication failover --undo",
        )
    turn = Turn(run=run, asked=asked, launcher=launcher)
    with leased(run, EVERYTHING) as leased_run:
        view = sealing.view_of(run)
        if any(position.sealed for position in view.positions.values()):
            sealing.fence(leased_run)
            sealing.open_again(leased_run, view)
        given = give_back(leased_run)
    turn.done.append(StepRow(step="given back", state="done", what=f"producers may write to {given} topics again"))
    return document_of(turn, applied=True)


def give_back(run: LeasedRun) -> int:
    """Remove the rules by which producers were denied to write to the source. The number of topics."""
    view = sealing.view_of(run)
    noted = {key: position for key, position in view.positions.items() if position.denied}
    topics = {key.source.topic for key in noted}
    if topics:
        there = writers.denied(run.clusters.source_admin, topics)
        acls.write(run.clusters.source_admin, (), [writers.denial(topic) for topic in there])

    def without(position: Position | None) -> Sequence[Entry]:
        return (replace(position, denied=""),) if position and position.denied else ()

    for key in noted:
        sealing.change(run, key, without)
    return len(topics)


def check(run: Run, asked: Wishes) -> None:
    """Raises BadInput, Refused."""
    sealing.check(run)
    if asked.out is not None and not asked.out.is_dir():
        raise BadInput(f"--certificate {asked.out}: is not a folder", "make it, or name another one")
    if run.replication.progress == "interval":
        raise BadInput(
            f"{run.replication.name}: with progress: interval a run copies one data interval, not to the end",
            "set progress: lag (the default) for the cut-over",
        )


def document_of(turn: Turn, *, applied: bool) -> TurnDocument:
    return TurnDocument(
        replication=turn.run.replication.name,
        command=turn.why,
        applied=applied,
        cut=turn.cut,
        steps=turn.done,
        partitions=rows_of(turn.run),
        groups=turn.moved or groups.seen_last(turn.run).groups,  # an earlier call may have moved them
    )


def rows_of(run: Run) -> list[TurnRow]:
    view = sealing.selected(run)
    behind, times = lags(run), writers.last_writes(run.clusters.source_admin, [key.source for key in view.positions])
    return [
        TurnRow(
            **place(key),
            lag=behind.get(key, 0),
            last_write=to_text(from_millis(times[key.source])) if key.source in times else None,
            surplus=None,
            seal=position.sealed,
        )
        for key, position in sorted(view.positions.items())
    ]


def lags(run: Run) -> dict[PartitionKey, int]:
    """The number of source offsets, up to the high watermark, that are not verified, of each partition that has some.
    Raises Unreachable.
    """
    view, keys = sealing.selected(run), _keys(run)
    logs = offsets.all_three(run.clusters.source_admin, keys)
    lags = dict[PartitionKey, int]()
    for at, key in keys.items():
        if not isinstance(log := logs[at], PartitionOffsets):
            raise Unreachable(log.what, log.remedy)
        if key not in view.positions:  # it is new, and the next run opens it
            lags[key] = log.high_watermark - log.log_start
            continue
        hidden = log.high_watermark - log.last_stable
        lags[key] = surplus_of(view[key], log.last_stable).span + view[key].pending().span + hidden
    return {key: lag for key, lag in lags.items() if lag}


def _keys(run: Run) -> dict[TopicPartition, PartitionKey]:
    """The partitions of the source that are selected, and those that were."""
    file, admin = run.replication, run.clusters.source_admin
    there = topics.states(admin, [name for name in snapshotter.candidates(file, admin) if file.selects(name)])
    view = sealing.selected(run)  # but for topics of which it is known that they were deleted
    keys = {key.source: key for key in view.positions if key.source.topic in there or key not in view.deleted}
    for name, state in there.items():
        for at in (TopicPartition(name, number) for number in state.partitions):
            keys.setdefault(at, PartitionKey(file.name, at, file.target_name(name)))
    return keys


def still_written(run: Run, seconds: float) -> set[PartitionKey]:
    """The partitions whose end at the source moves within so many seconds; returns as soon as one does."""
    keys = _keys(run)
    before = offsets.high_watermarks(run.clusters.source_admin, keys)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(min(LOOK, seconds))
        run.deadline.check(f"{run.replication.name}: waiting for the end of writes")
        after = offsets.high_watermarks(run.clusters.source_admin, keys)
        if moved := {keys[at] for at, end in after.items() if end != before[at]}:
            return moved
    return set()
