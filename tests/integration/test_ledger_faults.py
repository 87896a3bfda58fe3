"""A ledger that is gone, or holds what nobody of us wrote: named, and no harm to other replications."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from kafka_replication.ledger.codec import key_of
from kafka_replication.ledger.entries import POSITIONS, RECEIPTS
from kafka_replication.model.errors import LedgerUnreadable, Refused
from kafka_replication.runtime.events import Event
from kafka_replication.store import open_store
from tests.support.actions import copied_once, position_entry, put_receipt, receipts_of, table
from tests.support.checker import read
from tests.support.jobs import after_copy
from tests.support.scenario import Rec, Scenario, numbered, only
from tests.support.waiting import wait_until

COMPACT = {"cleanup.policy": "compact", "unclean.leader.election.enable": "false"}


@pytest.fixture
def neighbour(scene: Scenario) -> Iterator[Scenario]:
    """Another replication with the same ledger."""
    made = Scenario(scene.source, scene.target, scene.folder)
    copied_once(made)
    yield made
    made.store.close()


def put(scene: Scenario, topic: str, key: bytes, value: bytes | None, partition: int | None = None) -> None:
    scene.target.produce(topic, [Rec(key, value)], scene.key().ledger_partition if partition is None else partition)


FOREIGN = [
    (b"", b"x"),
    (b"\xff\xfe", b"\x00"),
    (b"{}", b"{}"),
    (b'["position"]', b"{}"),
    (b'["position","a","b","c","d"]', b"{}"),
    (b'["of a later version","somebody",{"more":1}]', b"{}"),
    (b'["position","somebody","t",0,"t"]', b"not json"),
    (b'["unheard of","somebody","t",0,"t"]', b"{}"),
    (b'["receipt","somebody","t",0,"t",1,0]', b"not json"),
]


def test_what_lies_under_nobodys_key_stops_nobody(scene: Scenario, caplog: pytest.LogCaptureFixture) -> None:
    copied_once(scene)
    for topic in (POSITIONS, RECEIPTS):
        for key, value in FOREIGN:
            put(scene, topic, key, value)
        # An entry of ours where it does not belong.
        put(scene, topic, scene.key().entry("position"), b"not json", (scene.key().ledger_partition + 1) % 16)
    scene.source.produce(scene.topic, numbered(10, 50))
    try:
        report = scene.run()
    finally:
        for topic in (POSITIONS, RECEIPTS):
            for key, _ in FOREIGN:
                put(scene, topic, key, None)
            put(scene, topic, scene.key().entry("position"), None, (scene.key().ledger_partition + 1) % 16)
    assert report.outcome == "done", report.table()
    assert (only(report).copied, scene.watermark()) == (10, 60)
    scene.assert_copied()
    at = f"{POSITIONS}-{scene.key().ledger_partition} on the target, offset "
    assert any(at in line and str(Event.FOREIGN_LEDGER_ENTRY) in line for line in caplog.messages)
    assert any(str(Event.MISPLACED_LEDGER_ENTRY) in line for line in caplog.messages)


NOBODY = "only this product may write"


def test_a_spoilt_position_is_refused_by_name_and_stops_its_own_replication_only(
    scene: Scenario, neighbour: Scenario
) -> None:
    copied_once(scene)
    right = position_entry(scene)
    value = json.loads(right)
    scene.source.produce(scene.topic, numbered(10, 50))
    for spoilt, words, remedy in (
        (b"not json", "is not readable", NOBODY),
        (json.dumps(value | {"format": 2}).encode(), "has format 2", "upgrade"),
        (json.dumps(value | {"next_offset": -1}).encode(), "is malformed", NOBODY),
        (json.dumps(value | {"type": "receipt"}).encode(), "where a position belongs", NOBODY),
    ):
        put(scene, POSITIONS, scene.key().entry("position"), spoilt)
        with pytest.raises(LedgerUnreadable) as refused:
            scene.run()
        at = f"{POSITIONS}-{scene.key().ledger_partition} on the target, offset "
        assert at in refused.value.what and scene.topic in refused.value.what and words in refused.value.what
        assert remedy in refused.value.remedy
    assert scene.watermark() == 50
    neighbour.source.produce(neighbour.topic, numbered(5, 50))
    assert neighbour.run().outcome == "done"
    put(scene, POSITIONS, scene.key().entry("position"), right)
    assert scene.run().outcome == "done"
    scene.assert_copied()


def test_a_spoilt_receipt_is_refused_by_name(scene: Scenario, neighbour: Scenario) -> None:
    """It was about to be verified; once it is right again, verifying goes on."""
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(50))
    saved = dict[int, tuple[bytes, dict[str, Any]]]()

    def spoil() -> None:
        saved.update(receipts_of(scene))
        put(scene, RECEIPTS, saved[0][0], b"not json")

    with pytest.raises(LedgerUnreadable) as refused:
        scene.run(after_copy(spoil))
    assert f"{RECEIPTS}-{scene.key().ledger_partition} on the target, offset " in refused.value.what
    assert scene.topic in refused.value.what
    assert scene.watermark() == 0
    neighbour.source.produce(neighbour.topic, numbered(5, 50))
    assert neighbour.run().outcome == "done"
    put_receipt(scene, *saved[0])
    assert scene.run().outcome == "done"
    assert scene.watermark() == 50


def test_receipts_that_were_deleted_are_missed(own_scene: Scenario) -> None:
    scene = own_scene
    copied_once(scene)
    wait_until(scene.is_settled)  # a broker never ends a transaction whose markers are missing in a deleted topic
    scene.target.delete(RECEIPTS)
    scene.source.produce(scene.topic, numbered(10, 50))
    try:
        with pytest.raises(Refused, match=f"{RECEIPTS} is gone from the target, while {POSITIONS} is there"):
            scene.run()
        assert scene.target.partitions(RECEIPTS) == 0, "a new one would hide the loss"
    finally:
        scene.target.create(RECEIPTS, 16, COMPACT)  # as the remedy says
    report = scene.run()
    assert report.outcome == "done", report.table()
    assert scene.watermark() == 60
    scene.assert_copied()


@pytest.mark.parametrize("created", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["re-created", "missing"])
def test_a_ledger_that_was_deleted_after_use_is_missed(own_scene: Scenario, created: bool) -> None:
    """The watermark is above a ledger that knows nothing; without the store, the target's records tell."""
    scene = own_scene
    copied_once(scene)
    wait_until(scene.is_settled)  # a broker never ends a transaction whose markers are missing in a deleted topic
    for topic in (POSITIONS, RECEIPTS):
        scene.target.delete(topic)
        if created:
            scene.target.create(topic, 16, COMPACT)
    scene.source.produce(scene.topic, numbered(10, 50))
    before, watermarks = read(scene.target.bootstrap, scene.topic, 0), table(scene)
    for _ in range(
        2
    ):  # the first run creates the topics anew: that must not make the second one take them for the truth
        report = scene.run()
        assert report.outcome == "failed"
        assert "the store says everything below 50 was verified, but the ledger has no entry" in (
            only(report).error or ""
        )
        assert "restore the ledger topics" in only(report).remedy
    assert (read(scene.target.bootstrap, scene.topic, 0), table(scene)) == (before, watermarks)
    scene.store.close()
    for file in scene.folder.glob("store.db*"):
        file.unlink()
    scene.store = open_store(scene.store_url)
    report = scene.run()
    assert report.outcome == "failed"
    assert "already holds records" in (only(report).error or "")
    assert read(scene.target.bootstrap, scene.topic, 0) == before


def test_the_key_of_a_receipt_is_what_the_tests_take_it_for(scene: Scenario) -> None:
    copied_once(scene)
    [(key, _)] = receipts_of(scene).values()
    [receipt] = scene.bare_run().clusters.ledger.receipts({scene.key(): None}).of(scene.key(), 1)
    assert key == key_of(scene.key(), receipt)
