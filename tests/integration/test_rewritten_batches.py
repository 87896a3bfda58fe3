"""Brokers begin to store other batches than they are given, while whole batches are copied."""

from __future__ import annotations

import json

import pytest

from kafka_replication.kafka import topics
from kafka_replication.ledger.entries import Receipt
from kafka_replication.reporting.run import RunReport
from kafka_replication.runs.audit import AuditRequest
from kafka_replication.runtime import failpoints
from kafka_replication.verification.digests import BATCH_DIGEST_KIND, DIGEST_KIND
from tests.support.audits import audit
from tests.support.checker import read
from tests.support.command_line import command
from tests.support.jobs import InProcess, after_copy
from tests.support.scenario import Cluster, Scenario, numbered, only
from tests.support.waiting import wait_until

BATCHES = {"engine": "batch", "chunk_records": 100}


def configure(cluster: Cluster, topic: str, **config: str) -> None:
    """Set it, and wait until the broker knows it."""
    cluster.set(topic, **config)
    wanted = {(name.replace("_", "."), value) for name, value in config.items()}
    wait_until(lambda: wanted <= set(topics.config(cluster.admin, topic).items()))


def copied_while(
    scene: Scenario, monkeypatch: pytest.MonkeyPatch, launcher: InProcess | None = None, **config: str
) -> RunReport:
    """Five chunks; behind the first one, and before its commit, somebody changes the target topic."""
    scene.source.create(scene.topic)
    for first in range(0, 500, 100):
        scene.source.produce(scene.topic, numbered(100, first), linger_ms=500)
    with monkeypatch.context() as patch:
        patch.setenv(failpoints.VARIABLE, "P1")
        failpoints.forget()
        patch.setattr(failpoints, "die", lambda: configure(scene.target, scene.topic, **config))
        scene.settings["copy"] = BATCHES
        return scene.run(launcher)


def kinds(scene: Scenario) -> list[str]:
    found: list[Receipt] = scene.bare_run().clusters.ledger.receipts({scene.key(): None}).all(scene.key())
    return [receipt.digest_kind for receipt in found]


def test_a_timestamp_that_the_broker_replaced_is_not_called_equal(
    scene: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = copied_while(scene, monkeypatch, message_timestamp_type="LogAppendTime")
    altered = [record.timestamp for _, record in read(scene.target.bootstrap, scene.topic, 0)]
    assert altered[0] == 1_700_000_000_000 and altered[-1] > 1_700_000_000_499  # else nothing is shown here
    line = only(report)
    assert (report.outcome, line.digest_ok) == ("failed", False)
    assert line.error and "100 records with the digest" in line.error and "where the source has 100" in line.error
    assert (scene.watermark() or 0) < 500
    assert only(scene.run()).error
    assert audit(scene.bare_run("audit"), AuditRequest()).partitions[0].outcome != "clean"


def test_equal_records_in_other_batches_are_equal(scene: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    report = copied_while(scene, monkeypatch, compression_type="gzip")
    assert (report.outcome, only(report).digest_ok) == ("done", True), report.table()
    assert scene.watermark() == 500
    assert DIGEST_KIND in kinds(scene) and BATCH_DIGEST_KIND in kinds(scene)
    scene.assert_copied()
    scene.idle_run()
    scene.source.delete_before(scene.topic, 0, 500)  # now receipts alone can say it
    code, out, _ = command(scene, "audit", "--json")
    assert (code, json.loads(out)["partitions"][0]["outcome"]) == (0, "clean")


def test_what_is_not_verified_yet_heals(scene: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    """An earlier version called it different, and has left this."""

    class Killed(BaseException):
        pass

    def die() -> None:
        raise Killed

    with pytest.raises(Killed):
        copied_while(scene, monkeypatch, after_copy(die), compression_type="gzip")
    scene.target.set(scene.topic, compression_type="producer")
    assert scene.position().next_offset == 500 and not scene.watermark()
    report = scene.run()
    assert (report.outcome, only(report).copied) == ("done", 0), report.table()
    assert scene.watermark() == 500
    scene.assert_copied()
