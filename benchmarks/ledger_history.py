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
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple, Self, cast

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # re-exported without saying so

from benchmarks.bootstraps import Bootstraps
from kafka_replication.config import Replication
from kafka_replication.copying.engine import CopyResult
from kafka_replication.kafka.client import clients
from kafka_replication.kafka.ledger import KafkaLedger
from kafka_replication.kafka.metadata import topics
from kafka_replication.kafka.write.producers.transactions import TransactionalProducer
from kafka_replication.ledger.entries import POSITIONS, Ids, Position, Receipt, Verified
from kafka_replication.ledger.placement import KafkaSegments, Segment
from kafka_replication.ledger.transaction import TransactionPort
from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.offsets import Coverage, OffsetRange, TopicPartition
from kafka_replication.model.times import now
from kafka_replication.runs import runner
from kafka_replication.runs.run import Request, open_run
from kafka_replication.runtime.deadline import NEVER
from kafka_replication.spark.jobs import AuditJob, Job, JobEnd, RangeResult
from kafka_replication.spark.launcher import Deliver, DeliverAudited
from kafka_replication.store import open_store
from kafka_replication.verification.verify import VerifyResult
from stack.kafka_cluster import BENCH, KafkaCluster, start_all, stop_all

TOPICS = int(os.environ.get("TOPICS", "100"))
WIDTH, DEPTH = 10, 1_000  # partitions of a topic; DEPTH offsets of each were copied before
SIZES = [int(size) for size in os.environ.get("SIZES", "0,10000,100000,1000000").split(",")]
REPEATS = int(os.environ.get("REPEATS", "5"))
WAIT_SECONDS = 300
SEGMENT_SECONDS = 65  # segment.ms of the positions topic, and a little more
LIMIT = 1.2
KINDS = ("idle", "work", "copier")
MIB = 1 << 20


def replication(size: int) -> Replication:
    return Replication.model_validate(
        {
            "name": f"history-{size}",
            "source": {"connection": "source"},
            "target": {"connection": "target"},
            "topics": {"include": ["^t"], "rename": f"h{size}.{{topic}}"},
        }
    )


def keys(settings: Replication) -> list[PartitionKey]:
    names = [f"t{number:03}" for number in range(TOPICS)]
    return [
        PartitionKey(settings.name, TopicPartition(name, partition), settings.target_topic(name))
        for name in names
        for partition in range(WIDTH)
    ]


def source_topics() -> list[str]:
    return sorted({key.source.topic for key in keys(replication(0))})


# --- the clusters and their history -----------------------------------------------------------------------------------


def create(bootstrap: str, names: list[str]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(name, WIDTH, 1) for name in names]).values():
        future.result(60)


def produce(bootstrap: str, count: int, names: Sequence[str]) -> None:
    """``count`` small records to every partition of these topics."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "queue.buffering.max.messages": 1_000_000})
    for name in names:
        for partition in range(WIDTH):
            for _ in range(count):
                producer.produce(name, value=b"x", partition=partition)
        producer.flush()


def write_history(source: str, target: str, settings: Replication, size: int) -> None:
    """As ``size / 1000`` runs of every partition would have written it, each with one chunk and its verification."""
    admins = clients.admin({"bootstrap.servers": source}), clients.admin({"bootstrap.servers": target})
    config, mine = {"bootstrap.servers": target}, keys(settings)
    ids = ids_of(*admins, mine)
    ledger = KafkaLedger(config, admins[1], settings.name)
    ledger.ensure(settings)
    runs = size // len(mine)
    start = DEPTH - runs
    opened = [sent for key in mine for sent in Sent.by(ledger, key, position(ids[key], start, start))]
    copied = [sent for key in mine for sent in Sent.by(ledger, key, *one_run(key, ids[key], start))]
    with closing(TransactionalProducer("history", "history", config, settings.copying, NEVER)) as transaction:
        transaction.fence()
        transaction.begin()
        for sent in opened:
            transaction.send(*sent)
        for until in range(start + 1, DEPTH + 1):
            for sent in copied:
                transaction.send(*sent.of(until))
            transaction.commit()
            transaction.begin()
        transaction.commit()
        ends = ledger.receipt_ends()
        time.sleep(SEGMENT_SECONDS if runs else 0)  # the last run was a while ago: what it wrote is in a closed segment
        transaction.begin()
        for key in mine:  # as the last verification leaves it: no unverified receipt lies below the end
            ledger.write(transaction, key, verified(start, DEPTH, ends[key.ledger_partition]))
        transaction.commit()


FROM, UNTIL = 987_654_321_001, 987_654_321_002  # stand for a run's offsets in what `Sent` was encoded with


def one_run(key: PartitionKey, ids: Ids, start: int) -> tuple[Position, Receipt, Verified]:
    return position(ids, start, UNTIL), receipt(key, ids, FROM, UNTIL, f"run-{UNTIL}"), verified(start, UNTIL, 0)


class Sent(NamedTuple):
    """One ledger record; encoding millions of them one by one would take minutes."""

    topic: str
    partition: int
    key: bytes
    value: bytes

    @classmethod
    def by(cls, ledger: KafkaLedger, key: PartitionKey, *entries: Position | Receipt | Verified) -> list[Sent]:
        """What the ledger writes for these entries."""
        recorder = Recorder()
        for entry in entries:
            ledger.write(cast(TransactionPort, recorder), key, entry)
        return recorder.sent

    def of(self, until: int) -> Sent:
        """Of the run that copied the offset before ``until``."""
        numbers = (str(FROM).encode(), b"%d" % (until - 1)), (str(UNTIL).encode(), b"%d" % until)
        key, value = self.key, self.value
        for placeholder, number in numbers:
            key, value = key.replace(placeholder, number), value.replace(placeholder, number)
        return Sent(self.topic, self.partition, key, value)


class Recorder:
    """Takes what a transaction would send."""

    def __init__(self) -> None:
        self.sent: list[Sent] = []

    def send(self, topic: str, partition: int, key: bytes, value: bytes) -> None:
        self.sent.append(Sent(topic, partition, key, value))


def position(ids: Ids, start: int, until: int) -> Position:
    return Position(
        generation=1,
        ids=ids,
        start=start,
        next_offset=until,
        coverage=Coverage.of([OffsetRange(start, until)]),
        target_end=until,  # of each partition, source and target have the same offsets
        receipts_from=0,
    )


def verified(start: int, until: int, receipts_from: int) -> Verified:
    return Verified(
        generation=1,
        coverage=Coverage.of([OffsetRange(start, until)]),
        level="digest",
        run_id="run",
        time=now(),
        receipts_from=receipts_from,
    )


def receipt(key: PartitionKey, ids: Ids, from_: int, until: int, run_id: str) -> Receipt:
    digest, count, partition = "0123456789abcdef" * 2, until - from_, key.target.partition
    return Receipt(
        generation=1,
        range=OffsetRange(from_, until),
        count=count,
        bytes=count,
        digest=digest,
        digest_kind="xxh3_128/1",
        engine="record/1",
        placement=KafkaSegments(
            (Segment(partition=partition, first=from_, last=until - 1, count=count, digest=digest),)
        ),
        ids=ids,
        run_id=run_id,
        time=now(),
    )


def ids_of(source: AdminClient, target: AdminClient, mine: list[PartitionKey]) -> dict[PartitionKey, Ids]:
    cluster = topics.cluster_id(source)
    sources = topics.topic_ids(source, {key.source.topic for key in mine})
    targets = topics.topic_ids(target, {key.target_topic for key in mine})
    return {key: Ids(cluster, sources[key.source.topic], targets[key.target_topic]) for key in mine}


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


class Constant:
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

    def audit(self, job: AuditJob, deliver: DeliverAudited) -> JobEnd:
        raise AssertionError(f"nothing is audited here: {job}, {deliver}")

    def _replicated(self, job: Job) -> list[RangeResult]:
        config = {"bootstrap.servers": self._target}
        ledger = KafkaLedger(config, clients.admin(config), job.replication)
        tasks = [task.copy for task in job.tasks if task.copy is not None]
        with closing(TransactionalProducer("bench", "bench", config, job.settings, NEVER)) as transaction:
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
                    key=task.key, verified=view.pending(task.key), receipts_from=ends[task.key.ledger_partition]
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
        report = runner.execute(run, lambda: launcher, Request())
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
