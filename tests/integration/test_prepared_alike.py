"""Data intervals and backfills are prepared as live runs are: what a run creates, notes and compares before it copies."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from kafka_replication.model.errors import Refused
from kafka_replication.planning.backfill_request import parse
from kafka_replication.reporting.run import RunReport
from kafka_replication.runs.reporting import standing
from tests.support import whole_runs
from tests.support.actions import put
from tests.support.failed import QUARANTINE, lose_store, quarantined
from tests.support.intervals import at, copied, interval
from tests.support.jobs import InProcess
from tests.support.scenario import Rec, Scenario, only

Way = Callable[[Scenario], RunReport]


def backfill_elsewhere(scene: Scenario, from_: int | None = None, until: int | None = None) -> RunReport:
    replication, target = scene.replication(), f"{scene.name}.other"
    request = parse(replication, topics=[scene.topic], from_=from_, until=until, target_topic=target)
    return whole_runs.backfill(replication, scene.connections, scene.store, InProcess(), request)


WAYS: dict[str, Way] = {
    "live run": lambda scene: scene.run(),
    "data interval": lambda scene: interval(scene, 0),
    "backfill to another topic": lambda scene: backfill_elsewhere(scene),
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_the_first_record_that_cannot_be_copied_finds_its_quarantine_topic(scene: Scenario, way: Way) -> None:
    scene.settings |= {"failures": QUARANTINE, "target_topics": {"config": {"max.message.bytes": "100000"}}}
    scene.source.create(scene.topic)
    too_large = Rec(b"1", os.urandom(150_000), (), at(0.2).timestamp)
    scene.source.produce(scene.topic, [at(0.1), too_large, at(0.3)])
    report = way(scene)
    assert report.outcome == "done", report.table()
    assert (only(report).copied, only(report).quarantined) == (2, 1)
    assert len(quarantined(scene)) == 1


def test_an_interval_notes_what_retention_removed_so_that_later_runs_read_few_receipts(
    scene: Scenario, receipts_read_from: list[int | None]
) -> None:
    scene.settings |= {"copy": {"chunk_records": 5}}
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, [at(minute + place / 30, place) for minute in range(4) for place in range(30)])
    assert copied(interval(scene, 0)) == 30
    scene.target.delete_before(scene.topic, 0, 12)
    assert copied(interval(scene, 1)) == 30
    entry = scene.bare_run().view().removed[scene.key()]
    assert entry.coverage.span > 0 and entry.target_start == 12
    receipts_read_from.clear()
    assert copied(interval(scene, 2)) == 30
    standing(scene.bare_run())
    assert receipts_read_from and None not in receipts_read_from


def test_a_backfill_to_another_topic_notes_what_retention_removed_there(
    scene: Scenario, receipts_read_from: list[int | None]
) -> None:
    scene.settings |= {"copy": {"chunk_records": 5}}
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, [at(0.1, place) for place in range(90)])
    assert only(backfill_elsewhere(scene, 0, 30)).copied == 30
    scene.target.delete_before(f"{scene.name}.other", 0, 12)
    assert only(backfill_elsewhere(scene, 30, 60)).copied == 30
    key = scene.key(target=f"{scene.name}.other")
    assert scene.bare_run().view().removed[key].target_start == 12


def set_back(scene: Scenario) -> None:
    """Position and verified coverage of 20, although 30 were copied and read back; and the store is lost."""
    view = scene.bare_run().view()
    put(scene, view.positions[scene.key()], next_offset=20, coverage=[[0, 20]])
    put(scene, view.verified[scene.key()], coverage=[[0, 20]])
    lose_store(scene)


def test_an_interval_compares_positions_with_receipts_before_it_copies(scene: Scenario) -> None:
    scene.settings |= {"copy": {"chunk_records": 5}}
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, [at(minute + place / 30, place) for minute in range(2) for place in range(30)])
    assert copied(interval(scene, 0)) == 30
    set_back(scene)
    with pytest.raises(Refused, match=r"receipts say that \[20, 30\) were copied"):
        interval(scene, 1)
    assert scene.check(until=30).clean
