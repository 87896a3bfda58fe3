"""Whole runs, from their start to the verified watermark, as a user starts them.

`large`: a whole topic from the terminal with each engine, beside MirrorMaker 2 and client loops of librdkafka and of
franz-go, where Go is installed, from their start to their last record. `small`: new records, nothing new, and many
partitions, with the engine that is the default; with Airflow all its processes are counted meanwhile, its scheduler
and its API among them.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from confluent_kafka import Producer

from benchmarks import clusters, franz_go, librdkafka, mirrormaker
from benchmarks.clusters import Pair
from benchmarks.copying import LOOP, MIRRORMAKER, WARM_UP
from benchmarks.tables import show
from benchmarks.usage import Usage, Used, has_ended, middle, until_ended
from benchmarks.workload import ENGINES, FEW, REPEATS, SCALE, SHAPES, Shape, create, fill, send
from kafka_replication.store import open_store
from stack.airflow_api import AirflowApi
from stack.airflow_standalone import AirflowSettings, AirflowStandalone

ROOT = Path(__file__).parents[1]
MANY = 1_000
GIVE_UP = 900.0  # seconds
LARGE = (
    "topic",
    "copied by",
    "seconds",
    "times MirrorMaker's",
    "CPU s per GB",
    "of the brokers",
    "largest process, MB",
    "threads",
)
SMALL = ("run", "seconds until verified", "whole run", "CPU s", "of the brokers", "largest process, MB", "threads")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One run: the seconds until its watermarks were stored, and what it used until it ended."""

    verified: float
    whole: Used


@dataclass(frozen=True, slots=True)
class Stage:
    """Two clusters and a store, with connections for whole runs."""

    pair: Pair

    @property
    def store_url(self) -> str:
        return f"sqlite:///{self.pair.folder}/store.db"

    def environment(self) -> dict[str, str]:
        connections = {
            f"AIRFLOW_CONN_KAFKA_{name}": json.dumps({"conn_type": "kafka", "extra": dict(settings)})
            for name, settings in (("SOURCE", self.pair.source), ("TARGET", self.pair.target))
        }
        spark = json.dumps({"conn_type": "spark", "host": "local[2]"})
        return {
            **os.environ,
            **connections,
            "AIRFLOW_CONN_SPARK_DEFAULT": spark,
            "PYTHONPATH": str(ROOT / "plugins"),
            "KAFKA_REPLICATION_STORE_URL": self.store_url,
        }

    def file(self, name: str, topic: str, **more: Any) -> Path:
        file = self.pair.folder / f"{name}.yaml"
        file.write_text(json.dumps(document(name, topic) | more))
        return file

    def await_watermarks(self, name: str, records: int, usage: Usage, over: Callable[[], bool]) -> float:
        """The seconds until a replication's watermarks add up to ``records``; gives up when it is ``over``."""
        with self.watermarks(name) as verified:
            while True:
                last, began = over() or usage.seconds > GIVE_UP, usage.seconds
                if (there := verified()) >= records:
                    return usage.seconds
                if last:
                    raise SystemExit(f"{name} has verified {there:,} of {records:,} records: {self.said(name)}")
                time.sleep(max(0.05, 20 * (usage.seconds - began)))  # a look at many watermarks must not slow the run

    @contextmanager
    def watermarks(self, name: str) -> Iterator[Callable[[], int]]:
        """Asks the store, as often as it is called, how many records of a replication are verified."""
        with closing(open_store(self.store_url)) as store:
            yield lambda: sum(mark.offset for mark in store.watermarks(name).values())

    def log(self, name: str) -> Path:
        return self.pair.folder / f"{name}.log"

    def said(self, name: str) -> str:
        """The end of the log of a run from the terminal: the folder is deleted in the end."""
        return self.log(name).read_text()[-2000:] if self.log(name).exists() else "its tasks were Airflow's"

    def started(self, file: Path) -> subprocess.Popen[bytes]:
        """``kafka-replication run``, which writes to its `log`."""
        command = [sys.executable, "-m", "kafka_replication.cli", "run", str(file), "--json"]
        with self.log(file.stem).open("w") as log:
            return subprocess.Popen(command, env=self.environment(), stdout=subprocess.DEVNULL, stderr=log)

    def terminal(self, file: Path, records: int) -> Measured:
        """``kafka-replication run``: until the watermarks add up to ``records``, and until it ended."""
        process = self.started(file)
        with Usage([process.pid], self.pair.brokers) as usage:
            verified = self.await_watermarks(file.stem, records, usage, lambda: has_ended(process.pid))
            until_ended(process.pid)
        if process.wait() != 0:
            raise SystemExit(f"the run of {file.stem} failed: {self.said(file.stem)}")
        print(f"{file.stem}: verified after {verified:.1f} s", file=sys.stderr)
        return Measured(verified=verified, whole=usage.used)


def document(name: str, topic: str) -> dict[str, Any]:
    return {
        "name": name,
        "source": {"connection": "kafka_source"},
        "target": {"connection": "kafka_target"},
        "topics": {"include": [topic], "rename": f"{name}.{{topic}}"},
    }


def produce(bootstrap: str, topic: str, partitions: int, each: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20})
    send(producer, topic, partitions, ((b"k%d" % number, b"v%d" % number) for number in range(partitions * each)))


def large() -> dict[str, float]:
    """Print the table of whole topics; the largest process of each of our runs."""
    return _whole("runs", SHAPES)


def few() -> dict[str, float]:
    """The same of topics whose batches have few records."""
    return _whole("few", FEW)


def _whole(table: str, shapes: Sequence[Shape]) -> dict[str, float]:
    rows, largest = list[list[object]](), dict[str, float]()
    with clusters.plain() as pair:
        for number, shape in enumerate(shape.scaled(SCALE) for shape in shapes):
            fill(pair.clusters[0].bootstrap, shape)
            turns = list(_turns(Stage(pair), shape, 0 if number else WARM_UP))
            rows += [_large_row(shape, copier, turns) for copier in turns[0]]
            largest |= {f"{shape}, {own}": max(turn[own].whole.mb for turn in turns) for own in map(_named, ENGINES)}
    about = (
        "whole runs from the terminal, from their start to the verified watermark; peers from their start to the last"
        " record; CPU seconds and memory until the end"
    )
    show(table, about, LARGE, rows)
    return largest


def _named(engine: str) -> str:
    return f"`{engine}`"


def _turns(stage: Stage, shape: Shape, warm_up: int) -> Iterator[Mapping[str, Measured]]:
    """Who copied, and what it used; in the order of the table."""

    def of_engine(engine: str) -> Callable[[str], Measured]:
        return lambda name: stage.terminal(stage.file(name, shape.topic, copy={"engine": engine}), shape.records)

    def of_peer(copy: Callable[[Pair, str, int, str], Used]) -> Callable[[str], Measured]:
        return lambda name: _as_run(copy(stage.pair, shape.topic, shape.records, name))

    copiers = {
        **{_named(engine): of_engine(engine) for engine in ENGINES},
        MIRRORMAKER: of_peer(mirrormaker.start_to_end),
        LOOP: of_peer(librdkafka.start_to_end),
        **({franz_go.NAME: of_peer(franz_go.start_to_end)} if franz_go.copies(stage.pair) else {}),
    }
    dice = random.Random(7)
    for number in range(warm_up + REPEATS):
        turn = {}
        for at, copier in dice.sample(list(enumerate(copiers)), len(copiers)):
            name = f"run-{shape.topic}-{number}-{at}"
            turn[copier] = copiers[copier](name)
            stage.pair.forget(name)
        said = ", ".join(f"{copier} {turn[copier].verified:.1f} s" for copier in copiers)
        print(f"{shape}, turn {number}: {said}", file=sys.stderr)
        if number >= warm_up:
            yield {copier: turn[copier] for copier in copiers}


def _as_run(used: Used) -> Measured:
    return Measured(verified=used.seconds, whole=used)


def _large_row(shape: Shape, copier: str, turns: Sequence[Mapping[str, Measured]]) -> list[object]:
    used = middle([turn[copier].whole for turn in turns])
    return [
        f"{shape}",
        copier,
        median(turn[copier].verified for turn in turns),
        median(turn[copier].verified / turn[MIRRORMAKER].verified for turn in turns),
        used.cpu / shape.megabytes * 1000,
        used.brokers / shape.megabytes * 1000,
        round(used.mb),
        used.threads,
    ]


def small() -> dict[str, float]:
    """Print the table of small runs; the largest process of each."""
    many = max(20, round(MANY * SCALE))
    with clusters.plain() as pair:
        stage = Stage(pair)
        new, idle = _small_runs(stage)
        airflow, partitions = _airflow_runs(stage), _many_partitions(stage, many)
    runs = {
        "1,000 new records, terminal": new,
        "nothing new, terminal": idle,
        "1,000 new records, trigger in Airflow": airflow,
        f"{many:,} partitions with 100 new records each, terminal, once": [partitions],
    }
    about = (
        "whole runs with the default engine; CPU seconds and memory until the end of the run, with Airflow its own too"
    )
    show("small", about, SMALL, [small_row(what, several) for what, several in runs.items()])
    return {what: max(one.whole.mb for one in several) for what, several in runs.items()}


def small_row(what: str, several: Sequence[Measured]) -> list[object]:
    """The row of one kind of run: medians, and the most of memory and threads."""
    used = middle([one.whole for one in several])
    verified = median(one.verified for one in several)
    return [what, verified, used.seconds, used.cpu, used.brokers, round(used.mb), used.threads]


def _small_runs(stage: Stage) -> tuple[list[Measured], list[Measured]]:
    """1,000 new records, and nothing new, from the terminal. The first run, which opens partitions, is not counted."""
    source = stage.pair.clusters[0].bootstrap
    create(source, "few")
    file, new, idle = stage.file("few", "few"), list[Measured](), list[Measured]()
    for number in range(1, 2 + REPEATS):
        produce(source, "few", 4, 250)
        measured = stage.terminal(file, 1_000 * number)
        if number > 1:
            new.append(measured)
            idle.append(stage.terminal(file, 1_000 * number))
    return new, idle


@contextmanager
def with_airflow(stage: Stage) -> Iterator[tuple[AirflowApi, int]]:
    """Airflow with the DAG ``scheduled``, which copies the topic of this name; its API, and the id of its process."""
    source, folder = stage.pair.clusters[0].bootstrap, stage.pair.folder
    dags = folder / "dags"
    (dags / "replications").mkdir(parents=True)
    for file in (ROOT / "dags").glob("*.py"):
        (dags / file.name).write_text(file.read_text())
    (dags / "replications" / "scheduled.yaml").write_text(json.dumps(document("scheduled", "scheduled")))
    create(source, "scheduled")
    settings = AirflowSettings(source, stage.pair.clusters[1].bootstrap, stage.store_url, dags)
    airflow = AirflowStandalone(folder / "airflow", settings)
    try:
        airflow.start()
        process = airflow.process
        assert process is not None
        with airflow.api() as api:
            api.wait_for_dag("scheduled")
            api.unpause("scheduled")
            yield api, process.pid
    finally:
        airflow.stop()


def _airflow_runs(stage: Stage) -> list[Measured]:
    """From the trigger through Airflow's API to the verified watermark, under a scheduler that runs."""
    several = list[Measured]()
    with with_airflow(stage) as (api, pid):
        for number in range(1, 2 + REPEATS):
            produce(stage.pair.clusters[0].bootstrap, "scheduled", 4, 250)
            with Usage([pid], stage.pair.brokers) as usage:
                run_id = api.trigger("scheduled")
                verified = stage.await_watermarks("scheduled", 1_000 * number, usage, lambda: False)
                if api.wait_for_run("scheduled", run_id) != "success":
                    raise SystemExit("the DAG run failed")
            several.append(Measured(verified=verified, whole=usage.used))
            print(f"scheduled: verified after {verified:.1f} s", file=sys.stderr)
    return several[1:]


def _many_partitions(stage: Stage, partitions: int) -> Measured:
    """100 new records in each of many partitions, which an earlier run has opened."""
    source = stage.pair.clusters[0].bootstrap
    create(source, "many", partitions)
    produce(source, "many", partitions, 1)
    file = stage.file("many", "many")
    stage.terminal(file, partitions)
    produce(source, "many", partitions, 100)
    return stage.terminal(file, 101 * partitions)
