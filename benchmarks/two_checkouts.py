"""Whole runs of two checkouts in turns, on the same brokers and topics: is anything slower than it was?

``TREE=folder python -m benchmarks.two_checkouts`` compares this checkout with another one, whose code runs with the
packages installed here. SCALE and REPEATS are as for ``make bench``; ``ONLY=few`` leaves out all but the runs with
little or nothing new. Each run has a target without a ledger and a store of its own.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks import clusters
from benchmarks.tables import heading, row
from benchmarks.usage import Usage, Used, middle, until_ended
from benchmarks.whole_runs import ROOT, Stage, produce
from benchmarks.workload import REPEATS, SCALE, SHAPES, create, fill
from kafka_replication.runtime import stopping

TREES = (Path(os.environ.get("TREE", ROOT)).resolve(), ROOT)
ENGINES = ("record", "batch")
FEW = "few"
COLUMNS = ("run", "engine", "seconds before", "now", "ratio", "CPU s before", "now", "ratio", "MB before", "now")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A topic and an engine; ``again`` measures the run after the first one, with so many new records."""

    topic: str
    records: int
    engine: str
    again: int | None = None

    def __str__(self) -> str:
        if self.again is None:
            return f"first run, {self.records:,} records of `{self.topic}`"
        return f"next run, {self.again:,} new records"


def _terminal(stage: Stage, tree: Path, file: Path) -> Used:
    """From the start of the command to the end of its process."""
    command = [sys.executable, "-m", "kafka_replication.cli", "run", str(file), "--json"]
    environment = {**stage.environment(), "PYTHONPATH": str(tree / "plugins")}
    environment["KAFKA_REPLICATION_STORE_URL"] = f"sqlite:///{file.with_suffix('.db')}"
    with stage.log(file.stem).open("w") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        with Usage([process.pid], stage.pair.brokers) as usage:
            until_ended(process.pid)
    if process.wait() != 0:
        raise SystemExit(f"the run of {file.stem} in {tree} failed: {stage.said(file.stem)}")
    return usage.used


def _measured(stage: Stage, tree: Path, run: Run, name: str) -> Used:
    source = stage.pair.clusters[0].bootstrap
    topic = run.topic if run.again is None else name
    if run.again is not None:
        create(source, topic)
        produce(source, topic, 4, 250)
    document = {
        "name": name,
        "source": {"connection": "kafka_source"},
        "target": {"connection": "kafka_target"},
        "topics": {"include": [topic], "rename": "copy.{topic}"},
        "copy": {"engine": run.engine},
    }
    file = stage.pair.folder / f"{name}.yaml"
    file.write_text(json.dumps(document))
    used = _terminal(stage, tree, file)
    if run.again is not None:
        produce(source, topic, 4, run.again // 4)
        used = _terminal(stage, tree, file)
    _forget(stage)
    return used


def _forget(stage: Stage) -> None:
    """Delete all that stands on the target, the ledger too: neither checkout has to read what the other one wrote."""
    admin = stage.pair.admin
    topics = [topic for topic in admin.list_topics(timeout=30).topics if not topic.startswith("__")]
    for deleted in admin.delete_topics(topics).values():
        deleted.result(60)


def _turns(stage: Stage, run: Run) -> Iterator[Mapping[Path, Used]]:
    dice = random.Random(7)
    for number in range(1 + REPEATS):
        turn = {
            tree: _measured(stage, tree, run, f"{run.topic}-{run.engine}-{run.again or 0}-{number}-{TREES.index(tree)}")
            for tree in dice.sample(TREES, 2)
        }
        if number:
            yield turn


def _row(run: Run, turns: Sequence[Mapping[Path, Used]]) -> list[object]:
    before, now = (middle([turn[tree] for turn in turns]) for tree in TREES)
    seconds = median(turn[TREES[1]].seconds / turn[TREES[0]].seconds for turn in turns)
    cpu = median(turn[TREES[1]].cpu / turn[TREES[0]].cpu for turn in turns)
    return [
        *(str(run), f"`{run.engine}`"),
        *(before.seconds, now.seconds, seconds),
        *(before.cpu, now.cpu, cpu),
        *(round(before.mb), round(now.mb)),
    ]


def main() -> None:
    stopping.on_signals()  # so that no broker is left behind
    if TREES[0] == TREES[1]:
        sys.exit("TREE names the other checkout: TREE=../before python -m benchmarks.two_checkouts")
    shapes = [] if os.environ.get("ONLY") == FEW else [shape.scaled(SCALE) for shape in SHAPES]
    runs = [Run(topic=shape.topic, records=shape.records, engine=engine) for shape in shapes for engine in ENGINES]
    runs += [Run(topic=FEW, records=1_000, engine="record", again=again) for again in (1_000, 0)]
    heading(COLUMNS)
    with clusters.plain() as pair:
        for shape in shapes:
            fill(pair.clusters[0].bootstrap, shape)
        for run in runs:
            row(_row(run, list(_turns(Stage(pair), run))))


if __name__ == "__main__":
    main()
