"""Audits on real Spark: what was changed is found, and a worker that is killed costs nothing but time."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import psutil
import pytest

from kafka_replication.reporting.audit import AuditReport, PartitionAudit
from kafka_replication.runs.audit.audit import AuditRequest, audit
from kafka_replication.runtime import failpoints
from kafka_replication.spark.host.local import DAEMON
from kafka_replication.verification.auditing import Size
from kafka_replication.verification.sample import Sample
from tests.spark.test_launcher_conformance import launcher
from tests.support.checker import read
from tests.support.processes import command
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


def on_spark(scene: Scenario) -> AuditReport:
    with launcher() as spark:
        return audit(scene.bare_run("audit"), spark=spark, least=Size())


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


def test_a_changed_record_is_found_on_spark_and_by_a_sample_that_draws_its_chunk(copied: Scenario) -> None:
    change_one(copied, partition=1, number=120)
    seeds = dict[str, int]()
    for seed in range(40):  # in this process, to learn which sample draws what
        report = audit(copied.bare_run("audit"), AuditRequest(sample=Sample(1, seed)))
        seeds.setdefault(by_number(report)[1].outcome, seed)
    assert seeds.keys() == {"clean", "differs"}
    with launcher() as spark:
        whole = by_number(audit(copied.bare_run("audit"), AuditRequest(), spark, least=Size()))
        samples = {
            outcome: audit(copied.bare_run("audit"), AuditRequest(sample=Sample(1, seed)), spark, least=Size())
            for outcome, seed in seeds.items()
        }
    changed = [str(stretch) for stretch in whole[1].stretches if not str(stretch).startswith("extra")]
    assert changed == ["altered source [120, 121), target [122, 123): 1 record"]
    assert [whole[number].by_content for number in range(PARTITIONS)] == [RECORDS] * PARTITIONS
    for outcome, sample in samples.items():
        found = by_number(sample)
        assert (found[1].outcome, found[1].by_content, found[1].offsets) == (outcome, CHUNK, RECORDS)
        assert (found[0].outcome, found[2].outcome) == ("clean", "clean")
    assert "150 of 900 copied offsets were looked at (16.7%)" in samples["clean"].text()


def workers() -> Iterator[psutil.Process]:
    """The Python workers of a Spark that this process has started."""
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if DAEMON in command(process):
                yield from process.children()


def test_a_worker_that_is_killed_in_the_middle_changes_nothing_about_the_result(
    copied: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = copied.folder / "gate"
    gate.touch()
    monkeypatch.setenv(failpoints.VARIABLE, f"AC@{copied.topic}-0:3={gate}")
    copied.target.delete_before(copied.topic, 0, 20)
    with ThreadPoolExecutor(1) as pool:
        auditing = pool.submit(on_spark, copied)
        try:
            wait_until(lambda: auditing.done() or failpoints.at_gate(gate).exists())
            assert not auditing.done(), auditing.result().text()
            killed = list({worker.pid: worker for worker in workers()}.values())
            assert killed
            for worker in killed:
                worker.kill()
        finally:
            gate.unlink()
        report = auditing.result()
    found = by_number(report)
    assert [found[number].outcome for number in range(PARTITIONS)] == ["differs", "clean", "clean"], report.text()
    assert [(one.by_content, one.source_records, one.chunks) for one in report.partitions] == [(300, 300, 6)] * 3
    assert [str(stretch) for stretch in found[0].stretches] == ["missing source [0, 20): 20 records"]
