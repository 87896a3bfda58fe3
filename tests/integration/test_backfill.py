"""Backfills between real clusters: what they copy, what they leave alone, and what they leave behind when they die."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from kafka_replication import backfilling
from kafka_replication.backfill import BackfillPlan
from kafka_replication.backfill_request import BackfillRequest, parse
from kafka_replication.jobs import Launcher
from kafka_replication.report import RunReport
from tests.integration.scenario import InProcess, Scenario, no_launch, numbered, only

START = 1_700_000_000_000  # the first numbered record's timestamp; the others follow, a millisecond apart


@dataclass
class Backfills:
    """Backfills of one scenario's topic."""

    scene: Scenario
    settings: dict[str, Any] = field(default_factory=dict)

    def request(self, from_: object, until: object, **more: Any) -> BackfillRequest:
        return parse(self.scene.replication(**self.settings), **{"topics": [self.scene.topic], "from_": from_, "until": until, **more})

    def run(self, from_: object, until: object, launcher: Launcher | None = None, **more: Any) -> RunReport:
        scene, launch = self.scene, launcher or InProcess()
        request = self.request(from_, until, **more)
        return backfilling.run(scene.replication(**self.settings), scene.connections, scene.store, lambda: launch, request)

    def idle(self, from_: object, until: object, **more: Any) -> None:
        scene, request = self.scene, self.request(from_, until, **more)
        report = backfilling.run(scene.replication(**self.settings), scene.connections, scene.store, no_launch, request)
        assert report.outcome == "nothing_to_do", report.table()

    def look(self, from_: object, until: object, **more: Any) -> BackfillPlan:
        run = self.scene.bare_run()
        run.replication = self.scene.replication(**self.settings)
        return backfilling.look(run, self.request(from_, until, **more))


@pytest.fixture
def backfills(scene: Scenario) -> Backfills:
    return Backfills(scene)


def test_a_backfill_below_the_start_copies_once_and_leaves_live_copying_alone(scene: Scenario, backfills: Backfills) -> None:
    backfills.settings = {"start_from": "latest"}
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(300))
    scene.idle_run(start_from="latest")
    scene.source.produce(scene.topic, numbered(100, 300))
    assert only(scene.run(start_from="latest")).copied == 100
    assert scene.watermark() == 400

    report = backfills.run(50, 150)
    assert (report.outcome, only(report).copied, only(report).digest_ok) == ("done", 100, True), report.table()
    assert (scene.watermark(), scene.position().next_offset) == (400, 400)
    backfills.idle(50, 150)
    assert only(backfills.run(0, 350)).copied == 200
    backfills.idle(0, 400)
    scene.idle_run(start_from="latest")

    scene.source.produce(scene.topic, numbered(10, 400))
    assert only(scene.run(start_from="latest")).copied == 10
    assert scene.watermark() == 410
    found = scene.check()
    assert not (found.lost or found.doubled or found.altered or found.foreign), found
