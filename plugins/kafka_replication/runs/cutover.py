"""Cuts a replication over: copies to the end, finds producers and consumers stopped, moves groups, and seals it.

Each step looks at the clusters and at the ledger anew, and may be repeated from any place.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Final, Literal

from kafka_replication.config import Replication
from kafka_replication.documents import GroupRow
from kafka_replication.kafka import acls
from kafka_replication.kafka.groups import members_of
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.errors import BadInput, ReplicationError
from kafka_replication.model.offsets import PartitionKey
from kafka_replication.model.times import now
from kafka_replication.planning import obstacles
from kafka_replication.planning.obstacles import NotYet
from kafka_replication.reporting import signed
from kafka_replication.reporting.groups import exactness
from kafka_replication.reporting.table import counted, first_of
from kafka_replication.reporting.turning import StepRow, TurnDocument
from kafka_replication.runs import acls as rights
from kafka_replication.runs import certifying, groups, runner, schemas, sealing, source_ends
from kafka_replication.runs.audit import AuditRequest, audit
from kafka_replication.runs.leasing import EVERYTHING, leased
from kafka_replication.runs.reporting import standing
from kafka_replication.runs.run import Request, Run
from kafka_replication.spark.launcher import Launcher
from kafka_replication.verification.auditing import drawn

Why = Literal["cutover", "failback"]
SEALED_BEFORE: Final = StepRow(step="sealed", state="done", what="it was sealed before")
RUNS: Final = 5  # until nobody has written for a while
QUIET: Final = 10.0  # seconds
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


@dataclass(kw_only=True)
class Turn:
    """A direction that is to be copied to its end, and sealed for the reason ``why``, but for the partitions that are
    ``left_alone``. A failback ends the ``first`` direction so, in which records came.
    """

    run: Run
    asked: Wishes
    launcher: Launcher
    why: Why = "cutover"
    first: Replication | None = None
    left_alone: Collection[PartitionKey] = ()
    cut: str | None = None
    moved: Sequence[GroupRow] = ()
    done: list[StepRow] = field(default_factory=list)

    @property
    def steps(self) -> list[Step]:
        deny = [("producers denied", self._deny)] if self.asked.deny else []
        carry: list[Step] = [("rights", self._rights)] if self.run.replication.acls.model_fields_set else []
        audits = [("audit", self._audit)] if self.asked.sample else []
        looks: list[Step] = [("settings", self._settings), *carry, ("schemas", self._schemas), *audits]
        ends: list[Step] = [("sealed", self._seal), *self.certificate]
        return [*deny, ("copied", self._copy), ("groups", self._groups), *looks, *ends]

    @property
    def source(self) -> str:
        """The cluster from which this direction copies, as people call it: by its connection in the first file."""
        return self.first.target.connection if self.first else self.run.replication.source.connection

    @cached_property
    def signs(self) -> bool:
        """True if the environment names a key for the certificate. Raises BadInput, ConnectionMissing."""
        return signed.signing_key("", self.run.clusters.secret) is not None

    @property
    def target(self) -> str:
        return self.first.source.connection if self.first else self.run.replication.target.connection

    def will(self, step: str) -> str:
        """The text of a step that is to be done."""
        source, target, asked, name = self.source, self.target, self.asked, self.run.replication.name
        first = self.first.name if self.first else ""
        chunks = "all chunks" if asked.sample < 0 else counted(asked.sample, "chunk")
        return {
            "surplus set aside": f"what only {target} has is copied to topics on {source} that end with .surplus",
            "other direction opened": f"{name} begins to copy from {source} behind everything that {target} has",
            "first direction opened": f"{first} goes on, with what only {target} has and was not set aside",
            "producers denied": f"a rule (ACL) on {source} denies everybody but super users to write to its topics",
            "copied": f"runs copy until nobody has written to {source} for {asked.quiet:g} s, and all is verified",
            "groups": f"those that the file selects are moved to {target}, once they have no members on {source}"
            if self.run.replication.groups.include
            else "the file selects none",
            "settings": f"those of the topics on {target} that do not follow {source} are named",
            "rights": f"rules (ACLs) are carried over to {target}",
            "schemas": f"ids of schemas in the last records that no registry's topic on {target} has are named",
            "audit": f"{chunks} of each partition are compared on both sides",
            "sealed": f"{name} copies no more, and others may write to {target}; not while something is not verified",
            "certificate": f"the store keeps it{f', and its files are written to {asked.out}' if asked.out else ''}"
            f"; it is {'' if self.signs else 'NOT '}signed (docs/certificates.md)",
        }[step]

    def to_do(self, steps: Sequence[Step]) -> list[StepRow]:
        """The rows of steps that were not begun."""
        return [StepRow(step=name, state="to do", what=self.will(name)) for name, _ in steps]

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
                self.done += self.to_do(steps[number + 1 :])
                return False
        return True

    def _view(self) -> LedgerView:
        view = sealing.selected(self.run)
        return replace(
            view, positions={key: view.positions[key] for key in view.positions if key not in self.left_alone}
        )

    def _lags(self) -> dict[PartitionKey, int]:
        return {key: lag for key, lag in source_ends.lags(self.run).items() if key not in self.left_alone}

    def _deny(self) -> str:
        """Note it in the ledger first, so that it is known which rules are to be given back. A run opens what was never
        copied: the ledger has nothing of it to note it in.
        """
        run = self.run
        if source_ends.unopened(run):
            runner.execute(one_more(run), self.launcher, Request())
        view = sealing.view_of(run)
        topics = {key.source.topic for key in view.positions}
        noted = {key.source.topic for key, position in view.positions.items() if position.denied}
        if others := sorted(acls.denied(run.clusters.source_admin, topics) - noted):
            raise NotYet(obstacles.DENIED_BY_OTHERS, topic=others[0], source=self.source)
        with leased(run, EVERYTHING) as leased_run:
            note = f"{self.asked.by} at {now()}"
            for key, position in view.positions.items():
                if not position.denied:
                    sealing.change(leased_run, key, lambda at: (replace(at, denied=note),) if at else ())
        acls.write(run.clusters.source_admin, [acls.denial(topic) for topic in topics], ())
        to = f"{counted(len(topics), 'topic')} on {self.source}"
        return f"nobody but super users may write to {to}; --abort or failover --undo gives it back"

    def _copy(self) -> str:
        seals = [position.sealed for position in self._view().positions.values() if position.sealed]
        if others := [seal for seal in seals if seal.why != self.why]:
            raise NotYet(obstacles.SEALED_OTHERWISE, replication=self.run.replication.name, seal=others[0])
        if seals:  # a part, before a crash
            with leased(self.run, EVERYTHING) as leased_run:
                sealing.fence(leased_run)
                sealing.open_again(leased_run, self._view())
        wrote, behind = set[PartitionKey](), dict[PartitionKey, int]()
        left, before = RUNS, math.inf  # with max_records_per_run it takes more
        while left:
            report = runner.execute(one_more(self.run), self.launcher, Request())
            if failed := [line for line in report.failed if line.key not in self.left_alone]:
                at, count, remedy = failed[0].key.source, counted(len(failed), "range"), failed[0].remedy
                error = (failed[0].error or "").removeprefix(f"{at}: ")
                name = self.run.replication.name
                if self.first:  # the other side may still have a producer
                    again = "call the command again; if it stays, see docs/failover.md#a-producer-was-not-stopped"
                    remedy = f"{again}; {remedy}"
                raise NotYet(
                    obstacles.RANGES_FAILED, replication=name, failed=count, partition=at, error=error, remedy=remedy
                )
            wrote = source_ends.still_written(self.run, self.asked.quiet)
            behind = {} if wrote else self._lags()
            left -= bool(wrote) or sum(behind.values()) >= before
            before = sum(behind.values()) or math.inf
            if not wrote and not behind:
                self.cut = now(self.asked.quiet)
                quiet = f"nothing was written to {self.source} for {self.asked.quiet:g} s"
                return f"{quiet}, and everything is verified on {self.target}"
        if not wrote:
            raise self._not_verified(behind)
        partitions = first_of([key.source for key in wrote], "partition")
        raise NotYet(obstacles.STILL_WRITTEN, partitions=partitions, source=self.source)

    def _not_verified(self, behind: Mapping[PartitionKey, int]) -> NotYet:
        key = min(behind)
        left = counted(behind[key], "offset")
        return NotYet(obstacles.NOT_VERIFIED, partition=key.source, offsets=left, target=self.target)

    def foresee_groups(self, foreseen: LedgerView | None = None) -> None:
        """For a dry run: the groups as they would be moved now, or once the ledger is as it is ``foreseen``."""
        if not self.run.replication.groups.include:
            return
        rows = groups.move(self.run, apply=False, foreseen=foreseen).groups
        at_work = members_of(self.run.clusters.source_admin, [row.group for row in rows])
        rows = [
            replace(row, state="planned", why="its places are known when it is copied")
            if row.why == groups.NOT_COPIED
            else row
            for row in rows
        ]
        why = f"it has members on {self.source}: stop them"
        self.moved = [
            replace(row, why=f"{row.why}; {why}" if row.why else why) if row.group in at_work else row for row in rows
        ]

    def _groups(self) -> str:
        run = self.run
        if not run.replication.groups.include:
            return "the file selects none"
        self.moved = groups.move(run, apply=False).groups
        names = [row.group for row in self.moved if row.state != "left out"]
        if at_work := members_of(run.clusters.source_admin, names):
            raise NotYet(obstacles.MEMBERS_AT_WORK, groups=first_of(at_work, "group"), source=self.source)
        self.moved = groups.move(run, apply=True).groups
        for row in self.moved:
            waits = next((one for one in row.partitions if one.state in ("waiting", "refused")), None)
            if row.state in ("failed", "active") or (waits and row.state != "left out"):
                why = row.why or (f"{waits.source}: {waits.why}" if waits else row.state)
                raise NotYet(obstacles.GROUP_NOT_MOVED, group=row.group, why=why)
        if not self.moved:
            return f"none that the file selects has a place in these topics on {self.source}"
        return exactness(self.moved)

    def _at_work(self) -> list[str]:
        """The groups that have members at the source, or have read on there."""
        if not self.run.replication.groups.include:
            return []
        rows = [row for row in groups.move(self.run, apply=False).groups if row.state != "left out"]
        members = members_of(self.run.clusters.source_admin, [row.group for row in rows])
        return sorted({*members, *(row.group for row in rows if row.state == "planned")})

    def _settings(self) -> str:
        texts = dict.fromkeys(text for row in standing(self.run) for text in row.settings)
        differ = f"these do not follow {self.source}: {'; '.join(texts)}"
        return differ if texts else f"those of the topics on {self.target} follow {self.source}"

    def _rights(self) -> str:
        looked = rights.look(self.run)
        rights.apply(self.run, looked)
        return f"on {self.target} {len(looked.plan.to_create)} rules written, {len(looked.plan.to_remove)} removed"

    def _schemas(self) -> str:
        """An id that nobody knows may be no id: it is named."""
        found = schemas.unknown(self.run, [key.source for key in self._view().positions])
        return "; ".join(f"{one.where}: {one.what}" for one in found) or "all ids that were found are known"

    def _audit(self) -> str:
        sample = self.asked.sample
        with self.launcher as spark:
            report = audit(self.run, AuditRequest(sample=drawn(sample, None) if sample > 0 else None), spark)
        if report.outcome != "clean":
            raise NotYet(obstacles.AUDIT_DIFFERS, target=self.target, source=self.source, report=report.text())
        return f"{counted(len(report.partitions), 'partition')} compared: {self.target} has what {self.source} has"

    def _seal(self) -> str:
        name, made = self.run.replication.name, certifying.look(self.run)
        left = [one for one in made.partitions if one.of(name) not in self.left_alone and any(one.reasons)]
        if left:
            reason = f"{left[0].source}: {'; '.join(left[0].reasons)}"
            raise NotYet(obstacles.NOT_ALL_VERIFIED, reason=reason, partitions=counted(len(left), "partition"))
        with leased(self.run, EVERYTHING) as run:
            sealing.fence(run)
            if behind := self._lags():
                raise self._not_verified(behind)
            sealing.view_of(run)
            self._groups()  # one may have come, or read on, since
            view = self._view()
            errors = sealing.seal_each(run, view.positions, self.why, self.asked, self.cut)
            if errors:
                raise ReplicationError(next(f"{key.source}: {error}" for key, error in errors.items()))
            if (behind := self._lags()) or (at_work := self._at_work()):
                sealing.open_again(run, self._view())
                if behind:
                    raise NotYet(obstacles.WRITTEN_WHILE_SEALED, partition=min(behind).source, source=self.source)
                raise NotYet(obstacles.MEMBERS_AT_WORK, groups=first_of(at_work, "group"), source=self.source)
        partitions = f"{counted(len(view.positions), 'partition')} of {self.run.replication.name}"
        return f"{partitions}: nothing more is copied, and others may write to {self.target}"

    def _certify(self) -> str:
        """Not of a seal behind which the source has more: a call may have died before it noticed that."""
        view, behind = self._view(), self._lags()
        if behind and not self.first:
            at, left, name = min(behind).source, counted(sum(behind.values()), "offset"), self.run.replication.name
            raise NotYet(obstacles.WRITTEN_SINCE, partition=at, offsets=left, source=self.source, replication=name)
        if late := {key: view.positions[key] for key in behind if key in view.positions}:
            with leased(self.run, EVERYTHING) as run:
                sealing.open_again(run, replace(view, positions=late))
            raise NotYet(obstacles.WRITTEN_WHILE_SEALED, partition=min(late).source, source=self.source)
        self.cut = self.cut or view.cut
        seals = [at.sealed.time for at in view.positions.values() if at.sealed]
        since = (
            f"nobody has written to {self.source} since {self.cut}" if self.cut else f"sealed {min(seals, default='')}"
        )
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
        turn.done.append(SEALED_BEFORE)
        turn.carry_out(turn.certificate)
    else:
        turn.carry_out(turn.steps)
    return document_of(turn, applied=True)


def preview(run: Run, asked: Wishes, launcher: Launcher) -> TurnDocument:
    """The steps that are left to do. Changes nothing. Raises as `cutover`."""
    check(run, asked)
    turn = Turn(run=run, asked=asked, launcher=launcher)
    if sealing.selected(run).is_sealed:
        turn.done = [SEALED_BEFORE, *turn.to_do(turn.certificate)]
    else:
        turn.done = turn.to_do(turn.steps)
        turn.foresee_groups()
    return document_of(turn, applied=False)


def abort(run: Run, asked: Wishes, launcher: Launcher) -> TurnDocument:
    """Give back what a cut-over has denied to producers, as long as nothing is sealed. Raises Refused."""
    check(run, asked)
    if sealing.selected(run).is_sealed:
        target = run.replication.target.connection
        raise obstacles.ABORTED_TOO_LATE.refused(replication=run.replication.name, target=target)
    turn, given = Turn(run=run, asked=asked, launcher=launcher), 0
    if sealing.selected(run).positions:
        with leased(run, EVERYTHING) as leased_run:
            view = sealing.view_of(run)
            if any(position.sealed for position in view.positions.values()):
                sealing.fence(leased_run)
                sealing.open_again(leased_run, view)
            given = source_ends.give_back(leased_run)
    what = f"producers may write to {counted(given, 'topic')} on {turn.source} again" if given else "nothing was denied"
    turn.done.append(StepRow(step="given back", state="done", what=what))
    return document_of(turn, applied=True)


def check(run: Run, asked: Wishes) -> None:
    """Raises BadInput, Refused."""
    sealing.check(run)
    if asked.out is not None and not asked.out.is_dir():
        raise BadInput(f"--certificate {asked.out}: is not a folder", "make it, or name another one")
    signed.signing_key("", run.clusters.secret)  # a wrong one is named before anything is sealed
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
        partitions=source_ends.rows_of(turn.run),
        groups=turn.moved or groups.seen_last(turn.run).groups,  # an earlier call may have moved them
        source=turn.source,
        target=turn.target,
        first=turn.first.name if turn.first else "",
    )
