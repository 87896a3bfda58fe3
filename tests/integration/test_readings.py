"""The driver of a run reads the ledger where something may have changed, and hands on what it read.

``view``: at the plan, after new partitions were opened, before and after the work, after fencing for each writing of what
is verified, and at the report.
"""

from __future__ import annotations

from collections.abc import Callable

from kafka_replication.planning.backfill_request import parse
from kafka_replication.reporting.run import RunReport
from tests.support import whole_runs
from tests.support.intervals import at, interval
from tests.support.jobs import InProcess
from tests.support.readings import Readings, readings
from tests.support.scenario import Scenario, numbered

__all__ = ["readings"]


def backfilled(scene: Scenario, until: int, target_topic: str | None = None) -> RunReport:
    request = parse(scene.replication(), topics=[scene.topic], from_=0, until=until, target_topic=target_topic)
    return whole_runs.backfill(scene.replication(), scene.connections, scene.store, InProcess(), request)


def counted(readings: Readings, run: Callable[[], RunReport]) -> dict[str, int]:
    readings.clear()
    report = run()
    assert report.outcome != "failed", report.table()
    return dict(readings)


def test_live_runs(scene: Scenario, readings: Readings) -> None:
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(20))
    opens = counted(readings, scene.run)
    assert opens == {"snapshot": 2, "view": 6, "plan": 2, "verified": 1, "receipts": 2}
    scene.source.produce(scene.topic, numbered(20, 20))
    copies = counted(readings, scene.run)
    assert copies == {"snapshot": 1, "view": 5, "plan": 1, "verified": 1, "receipts": 2}
    idle = counted(readings, scene.idle_run)
    assert idle == {"snapshot": 1, "view": 3, "plan": 1, "receipts": 1}


def test_data_intervals(scene: Scenario, readings: Readings) -> None:
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, [at(minute + place / 30, place) for minute in range(2) for place in range(30)])
    opens = counted(readings, lambda: interval(scene, 0))
    assert opens == {"snapshot": 2, "view": 6, "verified": 1, "receipts": 2}
    copies = counted(readings, lambda: interval(scene, 1))
    assert copies == {"snapshot": 1, "view": 5, "verified": 1, "receipts": 2}


def test_backfills(scene: Scenario, readings: Readings) -> None:
    """They plan before they create a topic, and again in what they changed."""
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(40))
    opens = counted(readings, lambda: backfilled(scene, 20))
    assert opens == {"snapshot": 2, "view": 6, "plan": 3, "verified": 1, "receipts": 2}
    copies = counted(readings, lambda: backfilled(scene, 30))
    assert copies == {"snapshot": 1, "view": 5, "plan": 1, "verified": 1, "receipts": 2}
    idle = counted(readings, lambda: backfilled(scene, 30))
    assert idle == {"snapshot": 1, "view": 3, "plan": 1, "receipts": 1}


def test_backfills_to_another_topic(scene: Scenario, readings: Readings) -> None:
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(40))
    opens = counted(readings, lambda: backfilled(scene, 20, f"{scene.name}.other"))
    assert opens == {"snapshot": 2, "view": 6, "verified": 1, "receipts": 2}
    copies = counted(readings, lambda: backfilled(scene, 40, f"{scene.name}.other"))
    assert copies == {"snapshot": 1, "view": 5, "verified": 1, "receipts": 2}
