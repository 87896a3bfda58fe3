"""``make drill``: a replication between two real clusters is turned around while producers and consumers are at work.

A planned cut-over and the way back; a failover at a random moment, with the source killed, and the way back. A reader
without the product counts what each side and each consumer group missed and got again. The seed decides what is random.
Ends with code 1 if a record was missed, or repeated more often than the commands said.
"""

from __future__ import annotations

import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

import typer
from confluent_kafka import KafkaException
from rich.console import Console

from stack import drill_judge as judge
from stack.demo_data import create_topic
from stack.drill_calls import BACK, FORWARD, Called, Calls, Runs
from stack.drill_judge import Side
from stack.drill_report import Phase, keep, tables
from stack.drill_work import (
    GROUPS,
    PACES,
    PARTITIONS,
    TOPICS,
    At,
    Consumers,
    Notes,
    Numbered,
    Producers,
    in_doubt,
    reached,
)
from stack.errors import StackError
from stack.folders import state_folder
from stack.kafka_cluster import KafkaCluster, start_all, stop_all
from stack.processes import sweep

WISHES = ("--apply", "--quiet", "1", "--reason", "a drill")
WORK = (4.0, 8.0)  # seconds of work between two moves, at least and at most
FAILOVER_SECONDS = 60
END_SECONDS = 90  # for consumers to read on to the end


@dataclass(kw_only=True)
class Drill:
    """One drill, with two clusters that run."""

    folder: Path
    a: KafkaCluster
    b: KafkaCluster
    chance: random.Random
    say: Callable[[str], None]
    notes: Notes = field(default_factory=Notes)
    phases: list[Phase] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    sides: Mapping[str, Side] = field(default_factory=dict)  # at the end
    uncommitted: Mapping[str, set[Numbered]] = field(default_factory=dict)  # read at a killed source, only there
    moving: list[tuple[float, float]] = field(default_factory=list)  # times in which runs may fail

    def __post_init__(self) -> None:
        self.calls = Calls(folder=self.folder, a=self.a.bootstrap, b=self.b.bootstrap, chance=self.chance, say=self.say)
        self.runs = Runs(calls=self.calls, chance=random.Random(self.chance.random()))

    def run(self) -> None:
        for topic, partitions in TOPICS.items():
            create_topic(self.a.bootstrap, topic, partitions)
        self.in_transactions = [topic for topic in TOPICS if self.chance.random() < 0.4]
        self.say(f"with transactions: {', '.join(self.in_transactions) or 'none'}")
        self._at_work(Phase(name="start", side="a"))
        self.runs.start()
        self.runs.await_one()
        scenes = [self.cut_over, self.fail_over]
        self.chance.shuffle(scenes)
        for scene in scenes:
            self._work()
            scene()
        self._work()
        self._finish()

    def end(self) -> None:
        """Stop everything, whatever has happened."""
        self.runs.over.set()
        self.calls.end()
        if self.phases:
            self.producers.over.set()
        sweep(self.folder)

    def cut_over(self) -> None:
        """A planned cut-over, work on the other side, and back."""
        self.say("cut-over: a is given up on purpose")
        began = time.monotonic()
        if self.chance.random() < 0.4:
            early = self.calls.call("cutover", FORWARD, wishes=WISHES)
            self.say(f"  cutover while all are at work, {early.seconds:.1f} s: {early.why}")
            if early.code != 1:
                self.problems.append(f"cutover while all were at work ended with code {early.code}")
        called, calls = self._planned_move("cutover", FORWARD)
        self._allow(began)
        phase = self._moved("cut-over", "b", called, calls, said_of([called]), {})
        self._check_places(phase)
        self._at_work(phase)
        self._work(sides_run=False)
        self._fail_back(began)

    def fail_over(self) -> None:
        """The source is killed while runs are at work; work on the other side; the source comes back, and back."""
        self.runs.await_one()
        time.sleep(self.chance.uniform(0, 2.5))
        began = time.monotonic()
        self.say("failover: a is killed")
        self.a.kill()
        time.sleep(self.chance.uniform(0, 2))
        self.consumers.stop(dead=True)
        self.producers.stop(dead=True)
        called, calls = self.calls.until_done("failover", FORWARD, wishes=("--apply", "--reason", "a drill"))
        if called.seconds > FAILOVER_SECONDS:
            self.problems.append(f"failover took {called.seconds:.0f} s")
        there = judge.count(self.b.bootstrap, self.notes).records
        read_again = {group: self._read_behind_places(group, called, there) for group in GROUPS}
        self.uncommitted = {group: self._read_only_there(group, there) for group in GROUPS}
        phase = self._moved("failover", "b", called, calls, said_of([called]), read_again)
        self._check_places(phase)
        self._at_work(phase)
        self._work(sides_run=False)
        flapping = self.chance.choice(["no", "once", "in the failback"])
        self.say(f"a is back; flapping: {flapping}")
        self.a.start()
        if flapping == "once":
            time.sleep(5)
            self.a.kill()
            time.sleep(2)
            self.a.start()
        elif flapping == "in the failback":
            threading.Thread(target=self._flap, args=(self.chance.uniform(1, 8),), daemon=True).start()
        self._fail_back(began)

    def _flap(self, seconds: float) -> None:
        time.sleep(seconds)
        self.say("  a is killed once more")
        self.a.kill()
        time.sleep(5)
        self.a.start()
        self.say("  a is back once more")

    def _fail_back(self, began: float) -> None:
        self.say("failback")
        called, calls = self._planned_move("failback", FORWARD, BACK)
        self.runs.both.set()
        self._allow(began)
        killed = {group: len(those) for group, those in self.uncommitted.items()}
        self.uncommitted = {}
        phase = self._moved("failback", "a", called, calls, said_of([called]), killed)
        self._check_places(phase)
        self._at_work(phase)

    def _planned_move(self, name: str, *files: str) -> tuple[Called, int]:
        """Stop the consumers, call the command, and stop the producers at a random moment meanwhile."""
        self.consumers.stop()
        self.problems += self.consumers.errors
        timer = threading.Timer(self.chance.uniform(0, 4), self.producers.stop)
        timer.start()
        called, calls = self.calls.until_done(name, *files, wishes=WISHES)
        timer.join()
        self.producers.stop()
        return called, calls

    def _allow(self, began: float) -> None:
        self.moving.append((began, time.monotonic()))

    def _moved(
        self, name: str, side: str, called: Called, calls: int, said: Mapping[str, int], killed: Mapping[str, int]
    ) -> Phase:
        """Count both sides behind a move that leads to ``side``."""
        if called.code:
            self.problems.append(f"{name} was not done after {calls} calls: {called.why}")
            raise StackError(f"{name} was not done: {called.why}", f"see the logs in {self.folder}")
        here = judge.count(self._bootstrap(side), self.notes)
        counted = f"{side}: {len(here.records)} records"
        if name == "failover":
            counted += f", {len(here.missed)} only at the source"
            self.problems += replace(here, missed=()).problems(f"b after the {name}")
        else:
            self.problems += here.problems(f"{side} after the {name}")
        self.here = here
        return Phase(name=name, side=side, seconds=called.seconds, calls=calls, said=said, killed=killed, count=counted)

    def _check_places(self, phase: Phase) -> None:
        """No group may begin on the side behind a record that it never got."""
        for group in GROUPS:
            places = judge.places(self._bootstrap(phase.side), group)
            if skipped := judge.skipped(self.notes, group, self.here, places):
                where = f"{group} on {phase.side} after the {phase.name}"
                self.problems.append(f"{where}: its place passes {len(skipped)} records: {judge.shown(skipped)}")

    def _read_behind_places(self, group: str, called: Called, there: set[Numbered]) -> int:
        """Records that the group had read at the killed source behind what was seen of its commits."""
        rows = [row for row in called.document.get("groups", ()) if row["group"] == group]
        seen = {
            At(place["source"]["topic"], place["source"]["partition"]): place["committed"]
            for row in rows
            for place in row["partitions"]
        }
        read = [one for one in self.notes.consumed[group] if one.side == "a" and one.record in there]
        return len({one.record for one in read if one.offset >= seen.get(one.record.at, 0)})

    def _read_only_there(self, group: str, there: set[Numbered]) -> set[Numbered]:
        """Records that are only at the killed source, and that the group read there without a commit that was done."""
        done = {at: self.notes.committed.get((group, "a", at), 0) for at in PARTITIONS}
        read = [one for one in self.notes.consumed[group] if one.side == "a" and one.record not in there]
        return {one.record for one in read if one.offset >= done[one.record.at]}

    def _at_work(self, phase: Phase) -> None:
        self.phases.append(phase)
        there = self._bootstrap(phase.side)
        self.producers = Producers(bootstrap=there, notes=self.notes, in_transactions=self.in_transactions).start()
        self._consume({group: self.chance.choice(PACES) for group in GROUPS})

    def _consume(self, paces: Mapping[str, int]) -> None:
        side, number = self.phases[-1].side, len(self.phases) - 1
        self.consumers = Consumers(
            bootstrap=self._bootstrap(side),
            side=side,
            phase=number,
            notes=self.notes,
            folder=self.folder,
            paces=paces,
        ).start()

    def _work(self, *, sides_run: bool = True) -> None:
        seconds = self.chance.uniform(*WORK)
        self.say(f"work on {self.phases[-1].side} for {seconds:.0f} s")
        if sides_run:
            self.runs.await_one()
        time.sleep(seconds)

    def _finish(self) -> None:
        """Let the consumers read to the end, copy the rest, and count."""
        self.producers.stop()
        self.consumers.stop()
        self.phases.append(Phase(name="end", side="a"))
        self._consume(dict.fromkeys(GROUPS, 1_000))
        self._read_on()
        self.consumers.stop()
        self.problems += self.consumers.errors
        self.runs.stop()
        for began, ended, called in self.runs.failed:  # the other direction is sealed outside of moves
            if called.files == (FORWARD,) and not any(began < until and ended > from_ for from_, until in self.moving):
                self.problems.append(f"a run outside of all moves failed: {called.why}")
        last, _ = self.calls.until_done("run", FORWARD, wishes=())
        if last.code:
            self.problems.append(f"the last run failed: {last.why}")
        self.sides = {side: judge.count(self._bootstrap(side), self.notes) for side in ("a", "b")}
        for side, counted in self.sides.items():
            self.problems += counted.problems(f"{side} at the end")
        for at in PARTITIONS:
            a, b = (Counter(record for _, record in self.sides[side].logs[at]) for side in ("a", "b"))
            if a != b:
                self.problems.append(f"a and b differ at the end: {judge.shown(sorted((a - b) | (b - a)))}")
        wanted = self.sides["a"].records | self.notes.acknowledged
        for group in GROUPS:
            if missed := sorted(wanted - self.notes.read_by(group).keys()):
                self.problems.append(f"{group}: {len(missed)} records never reached it: {judge.shown(missed)}")
        self._count_repeated()
        unknown = sum(1 for _ in in_doubt(self.notes))
        self.remarks.append(f"{len(self.notes.acknowledged)} records acknowledged, {unknown} sent in vain or in doubt")
        self.remarks.append(f"{self.runs.count} runs beside, of which {len(self.runs.failed)} failed")

    def _read_on(self) -> None:
        """Return when each group has read all that is on the active side."""
        ends = {at: log[-1][0] + 1 for at, log in judge.read(self.a.bootstrap).items() if log}
        places = {group: judge.places(self.a.bootstrap, group) for group in GROUPS}
        until = time.monotonic() + END_SECONDS

        def behind(group: str) -> bool:
            self.consumers.collect()
            there = reached(self.notes, len(self.phases) - 1, group, places[group])
            return any(there.get(at, 0) < end for at, end in ends.items())

        for group in GROUPS:
            while behind(group) and time.monotonic() < until:
                time.sleep(0.2)
            if behind(group):
                self.problems.append(f"{group} did not read to the end within {END_SECONDS} s")

    def _count_repeated(self) -> None:
        for group in GROUPS:
            left = 0  # what a slow consumer has not read again yet, it reads later, here or where it is moved to
            for number, phase in enumerate(self.phases):
                again = judge.repeated_in(self.notes, group, number)
                most = phase.said.get(group, 0) + phase.killed.get(group, 0) + left
                if again.total() > most:
                    where = f"{group} on {phase.side} after the {phase.name}"
                    text = f"{where}: {again.total()} records again, at most {most} said"
                    self.problems.append(f"{text}: {judge.shown(sorted(again))}")
                left = max(0, most - again.total())

    def _bootstrap(self, side: str) -> str:
        return (self.a if side == "a" else self.b).bootstrap


def said_of(called: list[Called]) -> dict[str, int]:
    """The records that each group reads again at most, by the document of the command."""
    rows = [row for one in called for row in one.document.get("groups", ())]
    return {row["group"]: row["again"] for row in rows}


def drill(seed: int, console: Console) -> bool:
    """One drill. True if nothing was missed, and nothing repeated beyond what was said."""
    folder = state_folder() / "drill" / f"seed-{seed}"
    if folder.exists():
        sweep(folder)  # of a drill that was killed
    a, b = (KafkaCluster(f"{name}-{time.time_ns()}", folder / "clusters") for name in ("a", "b"))
    began, log = time.monotonic(), list[str]()

    def say(text: str) -> None:
        log.append(f"{time.monotonic() - began:6.1f} s  {text}")
        console.print(log[-1], markup=False)

    say(f"seed {seed}; logs in {folder}")
    made = None
    try:
        start_all([a, b])
        made = Drill(folder=folder / f"calls-{time.time_ns()}", a=a, b=b, chance=random.Random(seed), say=say)
        made.run()
    except (StackError, KafkaException) as error:
        if made is None:
            raise
        made.problems.append(f"it did not come to its end: {error}")
    finally:
        if made is not None:
            made.end()
        stop_all([a, b])
    for table in tables(made.phases, made.notes, made.sides):
        console.print(table)
    for remark in made.remarks:
        console.print(remark, markup=False)
    for problem in made.problems:
        console.print(f"NOT RIGHT: {problem}", markup=False)
    keep(made.folder / "notes.json", made.notes, made.sides)
    console.print(f"drill {seed}: {'failed' if made.problems else 'passed'}, {time.monotonic() - began:.0f} s")
    return not made.problems


def main(
    seed: Annotated[int, typer.Option(help="Decides what is random; 0: another one each time.")] = 0,
    times: Annotated[int, typer.Option(min=1, help="Drills, one after the other, each with the next seed.")] = 1,
) -> None:
    """Turn a replication around between two real clusters, and count what was missed and repeated."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    console = Console(soft_wrap=True, highlight=False)
    first = seed or random.SystemRandom().randrange(1, 1_000_000)
    results = {number: drill(number, console) for number in range(first, first + times)}
    failed = [str(number) for number, passed in results.items() if not passed]
    if times > 1:
        console.print(
            f"{times - len(failed)} of {times} drills passed" + (f"; not {', '.join(failed)}" if failed else "")
        )
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    typer.run(main)
