"""Audits on real Spark: what was changed is found, and a worker that is killed costs nothing but time."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from kafka_replication.reporting.audit import AuditReport, PartitionAudit
from kafka_replication.runs.audit import AuditRequest, audit
from kafka_replication.runtime import failpoints
from kafka_replication.spark.launcher import Launcher
from kafka_replication.verification.auditing import Sample, Size
from tests.spark.test_launcher_conformance import launcher
from tests.support.checker import read
from tests.support.processes import is_worker
from tests.support.scenario import Rec, Scenario, numbered
from tests.support.waiting import wait_until

PARTITIONS, RECORDS, CHUNK = 3, 300, 50


@pytest.fixture
def copied(scene: Scenario) -> Scenario:
    scene.settings |= {"copy": {"chunk_records": CHUNK}}
    scene.source.create(scene.topic, PARTITIONS)
    for partition in range(PARTITIONS):
        scene.source.produce(scene.topic, numbered(RECORDS), partition)
    assert scene.run().outcome == "done"
    return scene


def by_number(report: AuditReport) -> dict[int, PartitionAudit]:
    return {found.key.source.partition: found for found in report.partitions}


def change_one(scene: Scenario, partition: int, number: int) -> None:
    """The target topic is lost, and restored with one record that has another value."""
    kept = [[record for _, record in read(scene.target.bootstrap, scene.topic, n)] for n in range(PARTITIONS)]
    scene.target.delete(scene.topic)
    scene.target.create(scene.topic, PARTITIONS)
    for here, records in enumerate(kept):
        changed = [Rec(one.key, one.value, one.headers, one.timestamp) for one in records]
        if here == partition:
            changed[number] = Rec(changed[number].key, b"changed", changed[number].headers, changed[number].timestamp)
        written: list[Rec] = []
        for first in range(0, len(changed), CHUNK):  # where a chunk's marker was, another record stands
            written += [*changed[first : first + CHUNK], Rec(b"marker", None)]
        scene.target.produce(scene.topic, written, here)


def workers() -> Iterator[psutil.Process]:
    """The Python workers of a Spark that this process has started."""
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if is_worker(process):
                yield process


def seeds_of(copied: Scenario) -> dict[str, int]:
    """In this process, to learn which sample draws what: a seed for each outcome of the changed partition."""
    seeds = dict[str, int]()
    for seed in range(200):
        report = audit(copied.bare_run("audit"), AuditRequest(sample=Sample(1, seed)))
        seeds.setdefault(by_number(report)[1].outcome, seed)
        if len(seeds) == 2:
            break
    return seeds


def kill_in_the_middle(gate: Path, auditing: Future[AuditReport]) -> None:
    """Every worker, once one of them halts at the gate. Those that take their place find none."""
    try:
        wait_until(lambda: auditing.done() or failpoints.at_gate(gate).exists())
        assert not auditing.done(), auditing.result().text()
        killed = list({worker.pid: worker for worker in workers()}.values())
        assert killed
        for worker in killed:
            worker.kill()
    finally:
        gate.unlink()


@pytest.mark.slow
def test_a_changed_record_is_found_whatever_dies_and_by_a_sample_that_draws_its_chunk(
    copied: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    change_one(copied, partition=1, number=120)
    seeds = seeds_of(copied)
    assert seeds.keys() == {"clean", "differs"}
    gate = copied.folder / "gate"
    gate.touch()
    monkeypatch.setenv(failpoints.VARIABLE, f"AC@{copied.topic}-0:3={gate}")

    def audited(spark: Launcher, **request: Any) -> AuditReport:
        return audit(copied.bare_run("audit"), AuditRequest(**request), spark, least=Size())

    with launcher() as spark:
        with ThreadPoolExecutor(1) as pool:
            auditing = pool.submit(audited, spark)
            kill_in_the_middle(gate, auditing)
            whole = by_number(auditing.result())
        samples = {outcome: audited(spark, sample=Sample(1, seed)) for outcome, seed in seeds.items()}
    changed = [str(stretch) for stretch in whole[1].stretches if not str(stretch).startswith("extra")]
    assert changed == ["altered source [120, 121), target [122, 123): 1 record"]
    assert [whole[number].source_records for number in range(PARTITIONS)] == [RECORDS] * PARTITIONS
    assert [whole[number].by_content for number in range(PARTITIONS)] == [RECORDS] * PARTITIONS
    for outcome, sample in samples.items():
        found = by_number(sample)
        assert (found[1].outcome, found[1].by_content, found[1].offsets) == (outcome, CHUNK, RECORDS)
        assert (found[0].outcome, found[2].outcome) == ("clean", "clean")
    assert "150 of 900 copied offsets were looked at (16.7%)" in samples["clean"].text()
