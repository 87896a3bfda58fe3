"""The cases of `time_to_alert` on the command line, with ``kafka-replication watch`` beside the runs."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable
from functools import partial

import psutil
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # re-exported without saying so
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from benchmarks.alert_bench import PARTITIONS, TOPIC, Bench, Times, measure
from kafka_replication.ledger.entries import POSITIONS, RECEIPTS
from kafka_replication.model.offsets import LEDGER_PARTITIONS, TopicPartition
from tests.support.scenario import Cluster

LEDGER = (POSITIONS, RECEIPTS)


def target_dies_in_mid_copy(bench: Bench) -> Times:
    runs: list[subprocess.Popen[bytes]] = []

    def fault() -> float:
        runs.append(bench.run_in_mid_copy())
        # A lone broker that is killed between a commit and its markers may never write them (docs/reliability.md).
        target = Cluster(bench.target.bootstrap)
        partitions = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
        partitions += [TopicPartition(name, number) for name in LEDGER for number in range(LEDGER_PARTITIONS)]
        while not target.is_settled(partitions):
            pass
        bench.target.broker(0).kill()
        return time.monotonic()

    def mend() -> float:
        bench.target.start()
        runs[0].wait()
        bench.run()
        return time.monotonic()

    return measure(bench, fault, mend)


def source_dies_in_planning(bench: Bench) -> Times:
    def fault() -> float:
        bench.source.broker(0).kill()
        since = time.monotonic()
        bench.run()
        return since

    def mend() -> float:
        bench.source.start()
        bench.run()
        return time.monotonic()

    return measure(bench, fault, mend)


def launcher_killed(bench: Bench) -> Times:
    def fault() -> float:
        run = bench.run_in_mid_copy()
        psutil.Process(run.pid).send_signal(signal.SIGKILL)
        run.wait()
        return time.monotonic()

    def mend() -> float:
        bench.run()
        return time.monotonic()

    return measure(bench, fault, mend)


def store_gone(bench: Bench) -> Times:
    """The database's file is moved away, and something else has its name."""
    files = [bench.store.with_name(bench.store.name + suffix) for suffix in ("", "-wal", "-shm")]
    away = bench.folder / "away"

    def fault() -> float:
        away.mkdir(exist_ok=True)
        for file in files:
            if file.exists():
                file.rename(away / file.name)
        bench.store.mkdir()
        return time.monotonic()

    def mend() -> float:
        bench.store.rmdir()
        for file in files:
            file.unlink(missing_ok=True)
            if (away / file.name).exists():
                (away / file.name).rename(file)
        return time.monotonic()

    return measure(bench, fault, mend)


def nobody_starts_runs(bench: Bench) -> Times:
    """A scheduler that stands still, as seen from outside: the schedule is due each minute, and nothing starts."""
    bench.settings["schedule"] = "* * * * *"
    bench.run()

    def fault() -> float:
        return time.monotonic()

    def mend() -> float:
        bench.run()
        return time.monotonic()

    try:
        return measure(bench, fault, mend)
    finally:
        del bench.settings["schedule"]


def ledger_takes_nothing(bench: Bench) -> Times:
    """The right to write to a ledger topic is taken away while a run copies."""
    runs: list[subprocess.Popen[bytes]] = []
    admin = Cluster(bench.target.bootstrap).admin
    acl = partial(AclBinding, ResourceType.TOPIC, RECEIPTS, ResourcePatternType.LITERAL, "User:ANONYMOUS", "*")
    acls = acl(AclOperation.ALL, AclPermissionType.ALLOW), acl(AclOperation.WRITE, AclPermissionType.DENY)

    def fault() -> float:
        runs.append(bench.run_in_mid_copy())
        for created in admin.create_acls(list(acls)).values():
            created.result(30)
        return time.monotonic()

    def mend() -> float:
        any_ = AclPermissionType.ANY
        filters = [
            AclBindingFilter(
                each.restype, each.name, each.resource_pattern_type, each.principal, each.host, each.operation, any_
            )
            for each in acls
        ]
        for deleted in admin.delete_acls(filters).values():
            deleted.result(30)
        runs[0].wait()
        bench.run()
        return time.monotonic()

    return measure(bench, fault, mend)


def all_partitions_fail(bench: Bench) -> Times:
    """The target refuses every record of every partition, which is one alert."""
    target = Cluster(bench.target.bootstrap)
    target.create(TOPIC, PARTITIONS, {"max.message.bytes": "100"})

    def fault() -> float:
        since = time.monotonic()
        bench.run()
        return since

    def mend() -> float:
        target.set(TOPIC, max_message_bytes="1048588")
        bench.run()
        return time.monotonic()

    return measure(bench, fault, mend)


CASES: dict[str, Callable[[Bench], Times]] = {
    "target-dies-in-mid-copy": target_dies_in_mid_copy,
    "launcher-killed-with-9": launcher_killed,
    "source-dies-in-planning": source_dies_in_planning,
    "store-gone": store_gone,
    "nobody-starts-runs": nobody_starts_runs,
    "ledger-takes-nothing": ledger_takes_nothing,
    "all-partitions-fail": all_partitions_fail,
}
