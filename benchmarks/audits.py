"""``python -m benchmarks.audits``: an audit in one process and on Spark, in turn, with one processor for a worker each.

Real brokers. ``MB`` (default 100) of records of 1,024 bytes in 4 partitions are copied once; then ``TURNS`` pairs of
audits follow. Prints the seconds of both, Spark's start included, and the ratio of each pair. Fails if an audit is not
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
from kafka_replication.connections.port import SparkConnection
from kafka_replication.runs.audit.audit import audit
from kafka_replication.spark.submitting.submit import terminal_launcher
from kafka_replication.verification.auditing import Size
from stack.kafka_cluster import KafkaCluster, start_all, stop_all
from tests.support.scenario import Cluster, Scenario

SIZE, TURNS = 1024, int(os.environ.get("TURNS", "3"))
RECORDS = int(os.environ.get("MB", "100")) * 1_000_000 // SIZE
SPARK = SparkConnection("local[2,4]", {})


def seconds(scene: Scenario, *, on_spark: bool) -> float:
    started = time.monotonic()
    if on_spark:
        with terminal_launcher(SPARK, {}) as spark:
            report = audit(scene.bare_run("audit"), spark=spark, least=Size())
    else:
        report = audit(scene.bare_run("audit"))
    taken = time.monotonic() - started
    read = sum(found.source_records for found in report.partitions)
    if report.outcome != "clean" or read != RECORDS:
        sys.exit(f"{read} of {RECORDS} records: {report.text()}")
    return taken


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        source, target = (KafkaCluster(name, Path(folder) / name) for name in ("source", "target"))
        start_all([source, target])
        try:
            scene = Scenario(Cluster(source.bootstrap), Cluster(target.bootstrap), Path(folder))
            scene.topic = "large"
            scene.settings = {"copy": {"chunk_records": 50_000, "transaction_timeout": 60}}
            fill(source.bootstrap, Shape(topic=scene.topic, records=RECORDS, size=SIZE))
            if scene.run().outcome != "done":
                sys.exit("the copy failed")
            print(f"{RECORDS:,} records of {SIZE} bytes in {PARTITIONS} partitions; seconds of whole audits")
            print("| one process | Spark, its start included | ratio |\n| --- | --- | --- |")
            ratios = []
            for _ in range(TURNS):
                here, there = (seconds(scene, on_spark=on_spark) for on_spark in (False, True))
                ratios.append(here / there)
                print(f"| {here:.1f} | {there:.1f} | {ratios[-1]:.2f} |", flush=True)
            print(f"median ratio {median(ratios):.2f}")
        finally:
            stop_all([source, target])


if __name__ == "__main__":
    main()
