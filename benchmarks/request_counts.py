"""``python -m benchmarks.request_counts``: the requests that runs send to both clusters, which a proxy counts.

After a restart of the target's broker each partition has another leader epoch, so each look reads our last record of
it, until the partition is written again.

TREE=folder counts those of another checkout (default: this one), so that two versions can be compared. PARTITIONS
(default 1,000) is the size of the run of many.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks import clusters
from benchmarks.tables import heading, row
from benchmarks.whole_runs import ROOT, Stage, document, produce
from benchmarks.workload import create
from kafka_replication.runtime import stopping
from stack.airflow_standalone import AirflowSettings, AirflowStandalone

TREE = Path(os.environ.get("TREE", ROOT)).resolve()
# https://kafka.apache.org/protocol.html#protocol_api_keys
NAMES = {
    0: "Produce",
    1: "Fetch",
    2: "ListOffsets",
    3: "Metadata",
    9: "OffsetFetch",
    10: "FindCoordinator",
    18: "ApiVersions",
    19: "CreateTopics",
    22: "InitProducerId",
    23: "OffsetForLeaderEpoch",
    24: "AddPartitionsToTxn",
    26: "EndTxn",
    29: "DescribeAcls",
    32: "DescribeConfigs",
}


class Counting:
    """Runs in front of which each request is counted, and the rows of their table."""

    def __init__(self, stage: Stage, seen: Counter[int]) -> None:
        self.stage, self._seen = stage, seen

    @contextmanager
    def row(self, what: str) -> Iterator[None]:
        before, began = Counter(self._seen), time.monotonic()
        yield
        seconds = time.monotonic() - began
        of_run = self._seen - before
        named = sorted(((count, NAMES.get(key, f"API key {key}")) for key, count in of_run.items()), reverse=True)
        row([what, of_run.total(), seconds, ", ".join(f"{name} {count:,}" for count, name in named)])

    def terminal(self, file: Path) -> None:
        command = [sys.executable, "-m", "kafka_replication.cli", "run", str(file), "--json"]
        environment = {**self.stage.environment(), "PYTHONPATH": str(TREE / "plugins")}
        with self.stage.log(file.stem).open("w") as log:
            if subprocess.run(command, env=environment, stdout=log, stderr=log, check=False).returncode:
                raise SystemExit(f"the run of {file.stem} failed: {self.stage.said(file.stem)}")


def main() -> None:
    stopping.on_signals()  # so that no broker is left behind
    many = int(os.environ.get("PARTITIONS", "1000"))
    heading(("run", "requests", "seconds", "of these"))
    with clusters.counted() as (pair, seen):
        stage, source = Stage(pair), pair.clusters[0].bootstrap
        counting = Counting(stage, seen)
        for topic, partitions, each in (("few", 4, 250), ("many", many, 100)):
            create(source, topic, partitions)
            file = stage.file(topic, topic)
            for what in ("first", "next"):
                produce(source, topic, partitions, each)
                with counting.row(f"{partitions:,} partitions, {partitions * each:,} new records, {what} run"):
                    counting.terminal(file)
            for when in ("", ", again", ", after a restart of the target"):
                if "restart" in when:
                    pair.clusters[1].stop()
                    pair.clusters[1].start()
                with counting.row(f"{partitions:,} partitions, nothing new{when}"):
                    counting.terminal(file)
        _in_airflow(counting)


def _in_airflow(counting: Counting) -> None:
    """Runs of a DAG, from the trigger to the end."""
    stage, pair = counting.stage, counting.stage.pair
    source = pair.clusters[0].bootstrap
    dags = pair.folder / "dags"
    (dags / "replications").mkdir(parents=True)
    for file in (TREE / "dags").glob("*.py"):
        (dags / file.name).write_text(file.read_text())
    (dags / "replications" / "scheduled.yaml").write_text(json.dumps(document("scheduled", "scheduled")))
    create(source, "scheduled")
    settings = AirflowSettings(
        pair.source["bootstrap.servers"],
        pair.target["bootstrap.servers"],
        f"{stage.store_url}.airflow",
        dags,
        plugins=TREE / "plugins",
        env={"PYTHONPATH": str(TREE / "plugins")},
    )
    airflow = AirflowStandalone(pair.folder / "airflow", settings)
    try:
        airflow.start()
        with airflow.api() as api:
            api.wait_for_dag("scheduled")
            api.unpause("scheduled")
            for what in ("first", "next", "idle"):
                if what != "idle":
                    produce(source, "scheduled", 4, 250)
                with counting.row(f"4 partitions, 1,000 new records, {what} run in Airflow"):
                    if api.wait_for_run("scheduled", api.trigger("scheduled")) != "success":
                        raise SystemExit("the DAG run failed")
    finally:
        airflow.stop()


if __name__ == "__main__":
    main()
