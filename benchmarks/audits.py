"""``python -m benchmarks.audits``: an audit in one process and on Spark (``local[2]``).

Real brokers. ``MB`` (default 100) of records of 1,024 bytes in 4 partitions are copied once; then they are audited in
turn, ``TURNS`` times (default 3). Prints the seconds, and how many times as fast Spark is. Fails if an audit is not
clean or has not looked at every record.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from benchmarks.workload import PARTITIONS, Shape, fill
from kafka_replication.connections import SparkConnection
from kafka_replication.runs.audit import audit
from kafka_replication.spark.launcher import Launcher, terminal_launcher
from kafka_replication.verification.auditing import Size
from stack.kafka_cluster import KafkaCluster, start_all, stop_all
from tests.support.scenario import Cluster, Scenario

SIZE, TURNS = 1024, int(os.environ.get("TURNS", "3"))
RECORDS = int(os.environ.get("MB", "100")) * 1_000_000 // SIZE
SPARK = SparkConnection("local[2,4]", {})


def seconds(scene: Scenario, spark: Launcher | None = None) -> float:
    """Of one audit of everything."""
    started = time.monotonic()
    report = audit(scene.bare_run("audit"), spark=spark, least=Size())
    taken = time.monotonic() - started
    read = sum(found.source_records for found in report.partitions)
    if report.outcome != "clean" or read != RECORDS:
        sys.exit(f"{read} of {RECORDS} records: {report.text()}")
    return taken


def turn(scene: Scenario) -> tuple[float, float, float]:
    """In this process; on Spark with its start and its end; on a Spark that has started."""
    here, started = seconds(scene), time.monotonic()
    with terminal_launcher(lambda: SPARK, {}) as spark:
        seconds(scene, spark)
        again = seconds(scene, spark)
    return here, time.monotonic() - started - again, again


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        source, target = (KafkaCluster(name, Path(folder)) for name in ("source", "target"))
        start_all([source, target])
        try:
            scene = Scenario(Cluster(source.bootstrap), Cluster(target.bootstrap), Path(folder))
            scene.topic = "large"
            scene.settings = {"copy": {"chunk_records": 50_000, "transaction_timeout": 60}}
            fill(source.bootstrap, Shape(topic=scene.topic, records=RECORDS, size=SIZE))
            if scene.run().outcome != "done":
                sys.exit("the copy failed")
            print(f"{RECORDS:,} records of {SIZE} bytes in {PARTITIONS} partitions; seconds of whole audits")
            print("| one process | Spark, its start included | ratio | Spark, started | ratio |")
            print("| --- | --- | --- | --- | --- |")
            ratios = []
            for _ in range(TURNS):
                here, whole, again = turn(scene)
                ratios.append((here / whole, here / again))
                print(
                    f"| {here:.1f} | {whole:.1f} | {here / whole:.2f} | {again:.1f} | {here / again:.2f} |", flush=True
                )
            whole_ratio, again_ratio = (median(some) for some in zip(*ratios, strict=True))
            print(f"median ratios {whole_ratio:.2f} and {again_ratio:.2f}")
        finally:
            stop_all([source, target])


if __name__ == "__main__":
    main()
