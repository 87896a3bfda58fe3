"""``python -m benchmarks.failed_records``: 100,000 records of which 1,000 fail at random offsets.

Real brokers; the workers' functions in this process, without Spark. For each reason to fail, a topic with such records
and one without them are copied to target topics with the same settings. Prints the ratio of the two; then removes the
cause, retries all records that failed, and audits. Fails if a run sets aside other records than these, if quarantining
takes more than twice as long as a clean run, or if an audit is not clean.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from kafka_replication.model.choices import Action
from kafka_replication.runs.audit import audit
from kafka_replication.runs.failed import Asked, handle
from kafka_replication.runs.retry_discard import Decision
from kafka_replication.runs.run import open_run
from kafka_replication.store import open_store
from kafka_replication.transforms import Record
from stack.kafka_cluster import KafkaCluster, start_all, stop_all
from tests.support.scenario import Cluster, Rec, Scenario, numbered, only

RECORDS, SIZE, FAILING, TURNS = 100_000, 1_000, 1_000, 3
MOST = 2.0  # times a clean run
MARK, CURED = b"fails", "BENCH_CURED"


def strict(record: Record) -> Record:
    if record.header("mark") == MARK and not os.environ.get(CURED):
        raise ValueError
    return record


@dataclass(frozen=True)
class Reason:
    """``bad`` is a record that fails; ``limits`` are the settings of a target topic that refuses it."""

    bad: Rec
    limits: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)


REASONS = {
    "no key, and the target is compacted": Reason(Rec(None, bytes(SIZE)), {"cleanup.policy": "compact"}),
    "too large for the target": Reason(Rec(b"big", random.Random(1).randbytes(25_000)), {"max.message.bytes": "20000"}),
    "the transform raises an error": Reason(
        Rec(b"k", bytes(SIZE), (("mark", MARK),)), {}, {"transform": "benchmarks.failed_records:strict"}
    ),
}


class Copy(Scenario):
    """One copy of the topic, to a target topic of its own."""

    def __init__(self, source: Cluster, target: Cluster, folder: Path, topic: str, more: Mapping[str, Any]) -> None:
        super().__init__(source, target, folder)
        self.topic, self.to = topic, f"{self.name}.{topic}"
        rename = {"include": [topic], "rename": f"{self.name}.{{topic}}"}
        copy = {"chunk_records": 50_000, "transaction_timeout": 60}
        self.settings = {"topics": rename, "copy": copy, "failures": {"policy": "quarantine"}, **more}
        self.store = open_store(f"sqlite:///{folder}/{self.name}.db")

    def seconds(self, failing: int) -> float:
        started = time.monotonic()
        report = self.run()
        seconds = time.monotonic() - started
        line = only(report)
        wanted = ("done", RECORDS - failing, failing)
        if (report.outcome, line.copied, line.quarantined) != wanted:
            sys.exit(f"expected {wanted}, not {report.table()}")
        return seconds

    def retry(self, failing: int) -> float:
        """Seconds to copy all of them again, once the cause is gone."""
        started = time.monotonic()
        run = open_run(self.replication(), self.connections, self.store, f"{self.name}-retry")
        answer = handle(run, Action.RETRY, Asked(everything=True), Decision(by="benchmark"))
        if answer.failed or len(answer.document.records) != failing:
            sys.exit(f"not all were retried: {answer.text}")
        return time.monotonic() - started

    def audit(self) -> float:
        started = time.monotonic()
        report = audit(self.bare_run())
        if report.outcome != "clean":
            sys.exit(report.text())
        return time.monotonic() - started


def _turn(
    source: Cluster, target: Cluster, folder: Path, topic: str, reason: Reason, failing: int
) -> tuple[Copy, float]:
    os.environ.pop(CURED, None)
    copy = Copy(source, target, folder, topic, reason.settings)
    target.create(copy.to, 1, reason.limits)
    return copy, copy.seconds(failing)


def cure(cluster: Cluster, copy: Copy, reason: Reason) -> None:
    os.environ[CURED] = "yes"
    if reason.limits:
        cluster.set(copy.to, cleanup_policy="delete", max_message_bytes="1048588")


def measured(
    name: str, reason: Reason, source: Cluster, target: Cluster, folder: Path, say: Callable[[str], None]
) -> bool:
    good = numbered(RECORDS, 0, SIZE)
    bad, places = list(good), random.Random(7).sample(range(RECORDS), FAILING)
    for place in places:
        bad[place] = reason.bad
    topics = {f"t{list(REASONS).index(name)}.{number}": number for number in (0, FAILING)}
    for topic, records in zip(topics, (good, bad), strict=True):
        source.create(topic, 1)
        source.produce(topic, records)
    turns = [
        [_turn(source, target, folder, topic, reason, failing) for topic, failing in topics.items()]
        for _ in range(TURNS + 1)
    ]
    clean, aside = ([turn[kind][1] for turn in turns[1:]] for kind in (0, 1))  # the first turn warms up
    copy, _ = turns[-1][1]
    cure(target, copy, reason)
    retry, check = copy.retry(FAILING), copy.audit()
    ratio = median(after / before for before, after in zip(clean, aside, strict=True))
    say(f"| {name} | {median(clean):.1f} | {median(aside):.1f} | {ratio:.2f} | {retry:.1f} | {check:.1f} |")
    return ratio <= MOST


def main(say: Callable[[str], None] = print) -> None:
    say(f"{RECORDS:,} records of {SIZE} bytes, {FAILING:,} of them fail; seconds, medians of {TURNS} turns\n")
    say("| why they fail | clean run | with quarantine | ratio | retry of all | audit |")
    say("| --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory(prefix="failed-records-") as name:
        folder = Path(name)
        clusters = [KafkaCluster(side, folder) for side in ("source", "target")]
        try:
            start_all(clusters)
            source, target = (Cluster(cluster.bootstrap) for cluster in clusters)
            good = [measured(name, reason, source, target, folder, say) for name, reason in REASONS.items()]
        finally:
            stop_all(clusters)
    if not all(good):
        sys.exit(f"quarantining took more than {MOST} times as long as a clean run")


if __name__ == "__main__":
    main()
