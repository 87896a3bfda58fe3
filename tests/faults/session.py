"""Conducts the trials of a session, remembers what was done, and sums it up."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from fnmatch import fnmatch
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from stack.folders import state_folder
from stack.ports import take_share
from stack.processes import ProcessRecord, sweep
from tests.faults import load, profiles, results
from tests.faults.bench import Bench, open_bench
from tests.faults.conduct import Verdict, conduct
from tests.faults.load import Load
from tests.faults.row import Row
from tests.faults.rows import ROWS
from tests.faults.trial import Trial

CORE_RUNS, OTHER_RUNS = 20, 3
FIRST_SEED = 1000
LOAD_SEED = 7
RESULTS = "results.jsonl"
T = TypeVar("T")


class Session:
    """Trials on one bench. Rows that do not touch the source's data share two loads, one for even and one for odd seeds."""

    def __init__(self, bench: Bench, folder: Path) -> None:
        self.bench, self.folder = bench, folder
        self._shared: dict[str, Load] = {}

    def load_of(self, row: Row, bench: Bench, name: str, seed: int) -> Load:
        if row.load is not None:
            return row.load(bench, f"own.{name}", seed)
        if row.own_load:
            return load.make(bench.source.direct, f"own.{name}", seed)
        odd = seed % 2 and not profiles.current().newest  # compaction would leave the newest of each key anyway
        kind, make = ("compacted", load.make_compacted) if odd else ("plain", load.make)
        if kind not in self._shared:
            self._shared[kind] = make(self.bench.source.direct, kind, LOAD_SEED)
        return self._shared[kind]

    def run(self, row: Row, seed: int, mutation: str = "") -> Verdict:
        """One trial, with an engine that is broken on purpose where ``mutation`` names how. What it wrote stays only if it failed."""
        name = f"{row.name}-{seed}{'-' if mutation else ''}{mutation}"
        folder = self.folder / name
        shutil.rmtree(folder, ignore_errors=True)
        bench = row.bench(self.bench)
        bench.heal()
        source = replace(self.load_of(row, bench, name, seed), refused=row.refused)
        trial = Trial(bench, source, name, f"{row.name}:{seed}", folder)
        trial.job |= {"mutation": mutation} if mutation else {}
        verdict = conduct(trial, row.inject, expected=row.expected, ignore=row.ignore, sampled=row.sampled)
        (folder / "verdict.json").write_text(json.dumps(asdict(verdict), indent=1))
        if verdict.outcome == "failed":
            _keep_logs(bench, folder)
        else:
            if not os.environ.get("FAULT_KEEP"):
                shutil.rmtree(folder)
            _forget(trial, row)
        return verdict


def _keep_logs(bench: Bench, folder: Path) -> None:
    for side in bench.sides:
        for node in side.nodes:
            with node.log.open("rb") as log:
                log.seek(max(0, node.log.stat().st_size - (1 << 20)))
                (folder / f"{side.name}-{node.log.name}").write_bytes(log.read())


def _forget(trial: Trial, row: Row) -> None:
    for topic in (trial.target_topic, trial.quarantine_topic):
        trial.bench.copied_to.delete(topic)
    if row.own_load or row.load:
        trial.bench.source.delete(trial.load.topic)


@contextmanager
def open_session(folder: Path) -> Iterator[Session]:
    """Clusters in a folder of this process; what a killed session left behind is ended first."""
    folder.mkdir(parents=True, exist_ok=True)
    for leftover in folder.glob("bench-*"):
        owner = ProcessRecord.read(leftover / "owner.json")
        if owner is None or not owner.alive:
            with suppress(FileNotFoundError):  # another process that begins now removes it, too
                sweep(leftover)
            shutil.rmtree(leftover, ignore_errors=True)
    mine, here = ProcessRecord.of(os.getpid()), folder / f"bench-{os.getpid()}"
    assert mine is not None
    unnamed = folder / f"new-{os.getpid()}"  # another session takes a bench without an owner for one that was left
    unnamed.mkdir()
    mine.write(unnamed / "owner.json")
    unnamed.rename(here)
    try:
        with open_bench(here) as bench:
            yield Session(bench, folder / "runs")
    finally:
        shutil.rmtree(here, ignore_errors=True)


def main(
    table: Annotated[bool, typer.Option("--table", help="Only show what was found so far.")] = False,
    write_docs: Annotated[
        bool,
        typer.Option(
            "--write-docs",
            help="Put what was found so far into benchmarks/results/fault-results.md; of a profile, into fault-profiles.md.",
        ),
    ] = False,
) -> None:
    """Run what is not done yet, show the table; exits with 1 where a run failed.

    FAULT_RUNS=n sets the runs a row, FAULT_ONLY=name,pattern the rows, FAULT_SEED=n the first seed, FAULT_JOBS=n the clusters side by side;
    after FAULT_MINUTES=n no run is begun any more. FAULT_PROFILE=name runs the same rows with another kind of replication (`profiles`).
    """
    folder = state_folder() / "faults" / profiles.name()
    known = results.Results(folder / RESULTS)
    only, seed = os.environ.get("FAULT_ONLY"), os.environ.get("FAULT_SEED")
    every = [row for row in ROWS.values() if row.name not in profiles.current().leaves_out]
    rows = [row for row in every if not only or any(fnmatch(row.name, each) for each in only.split(","))]
    if not rows:
        raise SystemExit(f"FAULT_ONLY={only}: no such row; there are {', '.join(ROWS)}")
    if not table and not write_docs:
        wanted = [
            (row.name, number)
            for row in rows
            for number in range(int(seed or FIRST_SEED), int(seed or FIRST_SEED) + _runs(row))
            if (only and seed) or not known.is_good(row.name, number)
        ]
        jobs = min(int(os.environ.get("FAULT_JOBS") or 1), len(wanted))
        if jobs:
            deadline = time.time() + 60 * float(os.environ.get("FAULT_MINUTES") or "inf")
            left = sum(
                side_by_side(_work, [(folder, wanted[each::jobs], each, jobs, deadline) for each in range(jobs)])
            )
            if left:
                print(
                    f"FAULT_MINUTES are over with {left} of {len(wanted)} runs left; the same command goes on with them"
                )
        known = results.Results(known.file)
    print(results.table(known, rows))
    if write_docs:
        results.write_docs(known, every, profiles.name())
    if known.failed(rows):
        raise typer.Exit(1)


def side_by_side(work: Callable[[T], int], shares: Sequence[T]) -> list[int]:
    """The results of ``work``, in a process of its own for each share. If one of them dies, the others are ended, too:
    what was done is remembered, and the same command goes on.
    """
    with ProcessPoolExecutor(len(shares), get_context("spawn")) as pool:
        try:
            return list(pool.map(work, shares))
        except BrokenProcessPool:
            raise SystemExit(
                "one of the processes died (out of memory?); the same command goes on with what is left"
            ) from None


def _runs(row: Row) -> int:
    return int(os.environ.get("FAULT_RUNS") or (CORE_RUNS if row.kind == "core" else OTHER_RUNS))


def _work(share: tuple[Path, Sequence[tuple[str, int]], int, int, float]) -> int:
    """One process with clusters of its own; how many runs it left for want of time."""
    folder, wanted, number, jobs, deadline = share
    take_share(number, jobs)
    known = results.Results(folder / RESULTS)
    with open_session(folder) as session:
        for done, (name, seed) in enumerate(wanted):
            parent = parent_process()
            if time.time() > deadline or (parent is not None and not parent.is_alive()):
                return len(wanted) - done
            _one(session, ROWS[name], seed, known)
    return 0


def _one(session: Session, row: Row, seed: int, known: results.Results) -> None:
    started = time.monotonic()
    verdict = session.run(row, seed)
    known.add(row.name, seed, verdict)
    print(
        f"FAULT_ONLY={row.name} FAULT_SEED={seed} FAULT_RUNS=1: {verdict.outcome}, {verdict.attempts} runs, {verdict.samples} samples, "
        f"{verdict.seconds} s (in all {time.monotonic() - started:.0f} s)",
        flush=True,
    )
    for problem in verdict.problems:
        print(f"    {problem[:1000]}", flush=True)
    if verdict.problems:
        print(f"    logs and states: {session.folder / f'{row.name}-{seed}'}", flush=True)
