"""``python -m benchmarks.live_beside_backfill [--minutes MINUTES]``: live runs go on while a backfill takes long.

Real brokers, real Spark, the command line as a user calls it. A backfill of one replication copies history into another
topic; `copy.throughput_limit` makes it take so many minutes. Meanwhile records arrive all the time, and a live run of
the same replication is started every minute, as a scheduler would. Prints one line for each live run, and compares both
copies with the source in the end. Fails if a live run failed, left something to another run, or took longer than a
minute, or if a copy differs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stack.kafka_cluster import KafkaCluster, start_all, stop_all
from tests.support.checker import check
from tests.support.scenario import Cluster, numbered

NAME = TOPIC = "orders"
HISTORY = "orders.history"
EVERY = 60.0
LIMIT = 100_000  # bytes a second of a run
RECORD = 1_000  # bytes
NEW = 100  # records for each live run


@dataclass(frozen=True)
class Place:
    """Two clusters, and a folder for the file and the store."""

    folder: Path
    source: KafkaCluster
    target: KafkaCluster

    def command(self, *arguments: str) -> subprocess.Popen[str]:
        file = self.folder / f"{NAME}.yaml"
        document = {
            "name": NAME,
            "source": {"connection": "source"},
            "target": {"connection": "target"},
            "topics": {"include": [TOPIC]},
            "start_from": "latest",
            "copy": {"throughput_limit": LIMIT},
        }
        file.write_text(json.dumps(document))
        connections = {
            f"AIRFLOW_CONN_{side.name.upper()}": json.dumps(
                {"conn_type": "kafka", "extra": {"bootstrap.servers": side.bootstrap}}
            )
            for side in (self.source, self.target)
        }
        store = {"KAFKA_REPLICATION_STORE_URL": f"sqlite:///{self.folder}/store.db"}
        line = [sys.executable, "-m", "kafka_replication.cli", arguments[0], str(file), *arguments[1:], "--json"]
        log = (self.folder / f"{arguments[0]}.log").open("a")
        return subprocess.Popen(
            line, env={**os.environ, **connections, **store}, stdout=subprocess.PIPE, stderr=log, text=True
        )


def document(process: subprocess.Popen[str]) -> dict[str, Any]:
    """What the command printed."""
    out, _ = process.communicate()
    return dict(json.loads(out))


def live_runs(place: Place, backfill: subprocess.Popen[str], first: int) -> Iterator[bool]:
    """One live run every minute while the backfill works; whether each was as it should be."""
    source, number, began = Cluster(place.source.bootstrap), first, time.monotonic()
    while backfill.poll() is None:
        source.produce(TOPIC, numbered(NEW, number, RECORD))
        number += NEW
        since = time.monotonic()
        report = document(place.command("run"))
        seconds = time.monotonic() - since
        [line] = report["ranges"]
        good = report["outcome"] == "done" and not report["notes"] and line["watermark"] == number
        print(
            f"{since - began:>7.0f}  {seconds:>7.1f}  {report['outcome']:<8}  {line['watermark']:>9}"
            f"  {'working' if backfill.poll() is None else 'ended'}",
            flush=True,
        )
        yield good and seconds < EVERY
        while backfill.poll() is None and time.monotonic() < since + EVERY:
            time.sleep(0.2)


def measured(place: Place, minutes: float) -> bool:
    history = int(minutes * 60 * LIMIT / RECORD / 2)  # every byte is read from the source, and read back
    source = Cluster(place.source.bootstrap)
    source.create(TOPIC)
    source.produce(TOPIC, numbered(history, 0, RECORD))
    print(f"history: {history} records, {history * RECORD / 1e6:.0f} MB; limit {LIMIT / 1e6} MB/s")
    if document(place.command("run"))["outcome"] == "failed":  # the live run begins at the end of the history
        raise SystemExit(f"the first live run failed; see {place.folder}/run.log")
    print("seconds  live run  outcome   watermark  backfill", flush=True)
    began = time.monotonic()
    backfill = place.command(
        "backfill", "--topic", TOPIC, "--from", "0", "--until", str(history), "--target-topic", HISTORY
    )
    good = list(live_runs(place, backfill, history))
    took, report = time.monotonic() - began, document(backfill)
    print(
        f"the backfill ended with {report['outcome']!r} after {took:.0f} s; {sum(good)} of {len(good)} live runs good"
    )
    both = place.source.bootstrap, place.target.bootstrap, TOPIC
    copies = check(*both, HISTORY, 0, 0, history), check(*both, TOPIC, 0, history)
    print(f"the history: {copies[0]}; the live topic: {copies[1]}")
    return all(good) and report["outcome"] == "done" and all(copy.clean for copy in copies)


def main() -> None:
    parser = argparse.ArgumentParser(description="Live runs beside a backfill that takes long.")
    parser.add_argument("--minutes", type=float, default=10)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="live-beside-backfill-") as folder:
        place = Place(Path(folder), *(KafkaCluster(side, Path(folder)) for side in ("source", "target")))
        try:
            start_all([place.source, place.target])
            good = measured(place, asked.minutes)
        finally:
            stop_all([place.source, place.target])
    if not good:
        sys.exit("a live run was held up, or a copy differs")


if __name__ == "__main__":
    main()
