"""``python -m benchmarks.ledger_history``: what a run costs as the ledger's history grows, on real brokers.

1,000 partitions have no history, then 10,000, 100,000 and 1,000,000 receipts behind them, with the positions and
verified entries that were written along with them. SIZES chooses others, TOPICS the number of topics of ten partitions.
History is generated: real entries, one transaction for each past run. Then Kafka compacts the positions topic, as it
would have done during those days: waited for, at most WAIT_SECONDS, until it holds little more than the newest entries
and those of the last run.

Measured is a whole run in a fresh process, idle and with work in every partition: the least of REPEATS times, and the
peak memory. The Spark jobs are left out, as they cost the same whatever the history is: a launcher in the process
writes what copiers would write, and its time is subtracted. What a copier reads of the ledger is measured by itself.

Exits with 1 where time or memory is above 1.2 times that without history.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Self

from confluent_kafka import Producer

from benchmarks.bootstraps import Bootstraps
from benchmarks.written_history import DEPTH, create, keys, produce, receipt, replication, source_topics, write_history
from kafka_replication.copying.engine import CopyResult
from kafka_replication.kafka import clients
from kafka_replication.kafka.ledger import KafkaLedger
from kafka_replication.kafka.transactions import TransactionalProducer
from kafka_replication.ledger.entries import POSITIONS
from kafka_replication.runs import runner
from kafka_replication.runs.run import Request, open_run
from kafka_replication.runtime.deadline import NEVER
from kafka_replication.spark.jobs import Job, JobEnd, RangeResult
from kafka_replication.spark.launcher import Deliver, Launcher
from kafka_replication.store import open_store
from kafka_replication.verification.verify import VerifyResult
from stack.kafka_cluster import BENCH, KafkaCluster, start_all, stop_all

SIZES = [int(size) for size in os.environ.get("SIZES", "0,10000,100000,1000000").split(",")]
REPEATS = int(os.environ.get("REPEATS", "5"))
WAIT_SECONDS = 300
LIMIT = 1.2
KINDS = ("idle", "work", "copier")
MIB = 1 << 20


def positions_bytes(data: Path) -> int:
    """On the broker's disk; files that Kafka has given up and not yet removed do not count."""
    return sum(
        file.stat().st_size for folder in data.glob(f"{POSITIONS}-*") for file in folder.glob("*.log") if file.exists()
    )


def await_compaction(data: Path) -> str:
    """Until little more is left than the newest entries and what the last run wrote. Says how long it took."""
    started, most = time.monotonic(), 3 * MIB
    while (size := positions_bytes(data)) > most:
        if time.monotonic() - started > WAIT_SECONDS:
            break
        time.sleep(1)
    return f"{size / MIB:.1f} MiB after {time.monotonic() - started:.0f} s"


# --- one measured process ---------------------------------------------------------------------------------------------


class Constant(Launcher):
    """In place of Spark: writes what copiers write, and finds every copy equal. Counts its own time."""

    def __init__(self, target: str) -> None:
        self.seconds, self._target = 0.0, target

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Has nothing to end."""

    def submit(self, job: Job, deliver: Deliver) -> JobEnd:
        started = time.monotonic()
        results = self._replicated(job)
        self.seconds += time.monotonic() - started
        deliver(results)
        return JobEnd()

    def _replicated(self, job: Job) -> list[RangeResult]:
        config = {"bootstrap.servers": self._target}
        ledger = KafkaLedger(config, clients.admin(config), job.replication.name)
        tasks = [task.copy for task in job.tasks if task.copy is not None]
        with closing(TransactionalProducer("bench", "bench", config, job.replication.copying, NEVER)) as transaction:
            transaction.fence()
            view = ledger.view()
            transaction.begin()
            copies = Producer(config)
            for task in tasks:
                assert task.range.span == 1, task
                here, range_ = view.positions[task.key], task.range
                copies.produce(task.key.target_topic, b"x", partition=task.key.target.partition)
                ledger.write(transaction, task.key, here.adding(range_, None, range_.until))
                ledger.write(
                    transaction, task.key, receipt(task.key, task.ids, range_.from_, range_.until, task.run_id)
                )
            copies.flush()
            transaction.commit()
        view, ends = ledger.view(), ledger.receipt_ends()
        return [
            RangeResult(
                key=task.key,
                copied=CopyResult(key=task.key, range=task.range, copied=task.range.span),
                read_back=VerifyResult(
                    key=task.key, verified=view[task.key].pending(), receipts_from=ends[task.key.ledger_partition]
                ),
            )
            for task in tasks
        ]


def measure(kind: str, size: int, source: str, target: str, folder: str) -> dict[str, float]:
    """Seconds and peak MB of one run in this process."""
    logging.disable(logging.WARNING)
    settings, connections = replication(size), Bootstraps(source, target)
    store, launcher = open_store(f"sqlite:///{folder}/store-{size}.db"), Constant(target)
    started = time.monotonic()
    if kind == "copier":
        config = {"bootstrap.servers": target}
        admin = clients.admin(config)
        for key in keys(settings)[::50]:
            assert KafkaLedger(config, admin, settings.name).position(key) is not None
    else:
        run = open_run(settings, connections, store, f"{kind}-{time.time_ns()}")
        report = runner.execute(run, launcher, Request())
        expected = {"idle": "nothing_to_do", "work": "done"}[kind]
        assert report.outcome == expected, f"{report.outcome}, not {expected}: {report.table()[-2000:]}"
    seconds = time.monotonic() - started - launcher.seconds
    return {"seconds": seconds, "mb": peak_mb()}


def in_fresh_process(*what: object) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.ledger_history", *map(str, what)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def peak_mb() -> float:
    """Of this process. `getrusage` would count what the parent held when it forked."""
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in status if line.startswith("VmHWM:")) / 1024


def measured(source: str, targets: Mapping[int, str], folder: Path) -> Mapping[tuple[str, int], tuple[float, float]]:
    """Least seconds and MB by kind of run and size; sizes take turns, as a machine is not equally fast at all times."""
    for size, target in targets.items():
        in_fresh_process("idle", size, source, target, folder)  # stores the watermarks, warms the brokers up
    results: dict[tuple[str, int], list[dict[str, float]]] = {(kind, size): [] for kind in KINDS for size in targets}
    for _ in range(REPEATS):
        for kind in KINDS:
            if kind == "work":
                produce(source, 1, source_topics())
            for size, target in targets.items():
                results[kind, size].append(in_fresh_process(kind, size, source, target, folder))
    return {
        at: (min(each["seconds"] for each in found), min(each["mb"] for each in found)) for at, found in results.items()
    }


def prepare(source: KafkaCluster, target: KafkaCluster, size: int) -> str:
    """A target with this history. Says what its positions topic holds then."""
    settings = replication(size)
    names = sorted({key.target_topic for key in keys(settings)})
    create(target.bootstrap, names)
    produce(target.bootstrap, DEPTH, names)
    write_history(source.bootstrap, target.bootstrap, settings, size)
    waited = await_compaction(target.brokers[0].data)
    print(f"{size:,} receipts: the positions topic holds {waited}", file=sys.stderr, flush=True)
    return target.bootstrap


def main() -> None:
    os.environ[BENCH] = "1"  # brokers as production has them
    folder = Path(tempfile.mkdtemp(prefix="kafka-replication-bench-"))
    cleaner = {"log.cleaner.backoff.ms": "1000"}
    source = KafkaCluster("source", folder)
    clusters = {size: KafkaCluster(f"target{size}", folder, extra=cleaner) for size in SIZES}
    try:
        start_all([source, *clusters.values()])
        create(source.bootstrap, source_topics())
        produce(source.bootstrap, DEPTH, source_topics())
        targets = {size: prepare(source, cluster, size) for size, cluster in clusters.items()}
        found = measured(source.bootstrap, targets, folder)
    finally:
        stop_all([source, *clusters.values()])
        shutil.rmtree(folder, ignore_errors=True)
    if not is_bounded(found):
        sys.exit(f"a run takes more than {LIMIT} times what it takes without history")


def is_bounded(found: Mapping[tuple[str, int], tuple[float, float]]) -> bool:
    """Print the table; whether every ratio to the first size is within the limit."""
    print("run     receipts   seconds  ratio   peak MB  ratio")
    worst = 0.0
    for (kind, size), (seconds, mb) in found.items():
        first_seconds, first_mb = found[kind, SIZES[0]]
        ratios = seconds / first_seconds, mb / first_mb
        worst = max(worst, *ratios)
        print(f"{kind:<6} {size:>9,}  {seconds:>8.2f}  {ratios[0]:>5.2f}  {mb:>8.0f}  {ratios[1]:>5.2f}", flush=True)
    return worst <= LIMIT


if __name__ == "__main__":
    if len(sys.argv) > 1:
        kind, size, *rest = sys.argv[1:]
        print(json.dumps(measure(kind, int(size), *rest)))
    else:
        main()
