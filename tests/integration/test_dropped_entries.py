"""Entries of the ledger that the end of a dead run's transaction drops, although their chunk is on the target and counts.

Kafka does that to a partition of the ledger without which it completed a commit, when it ends the next transaction. Here
another producer has committed the records, and a session of the copier, which the next run fences, has the entries.
"""

from __future__ import annotations

import json
from collections.abc import Collection

import pytest

from kafka_replication.ledger.entries import POSITIONS, RECEIPTS
from tests.support.actions import copied_once, position_entry, put_receipt, receipts_of
from tests.support.jobs import copy_once
from tests.support.scenario import Rec, Scenario, numbered, only, send
from tests.support.waiting import wait_until


@pytest.mark.parametrize(
    "hidden",
    [{POSITIONS, RECEIPTS}, {POSITIONS}, pytest.param({RECEIPTS}, marks=pytest.mark.slow)],
    ids=["both", "position", "receipt"],
)
def test_they_are_written_again(scene: Scenario, hidden: Collection[str]) -> None:
    copied_once(scene)
    before = position_entry(scene)
    scene.source.produce(scene.topic, numbered(10, 50))
    assert copy_once(scene.copy_job()).copied == 10
    moved, (receipt_key, receipt) = position_entry(scene), receipts_of(scene)[50]
    wait_until(scene.is_settled)

    # The ledger as if the commit had left these entries out, and the records as they are.
    at, key = scene.key().ledger_partition, scene.key().entry("position")
    if POSITIONS in hidden:
        scene.target.produce(POSITIONS, [Rec(key, before)], at)
    if RECEIPTS in hidden:
        put_receipt(scene, receipt_key, None)
    session = scene.target.producer(transactional_id=scene.key().transactional_id)
    session.init_transactions(30)
    session.begin_transaction()
    for topic, entry in ((RECEIPTS, Rec(receipt_key, json.dumps(receipt).encode())), (POSITIONS, Rec(key, moved))):
        if topic in hidden:
            send(session, topic, [entry], at)

    report = scene.run()
    assert report.outcome == "done", report.table()
    assert (only(report).copied, only(report).copied_before, scene.watermark()) == (0, 10, 60)
    assert "were written again" in "".join(report.notes)
    scene.assert_copied()
    scene.idle_run()
