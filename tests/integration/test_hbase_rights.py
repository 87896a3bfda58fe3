"""The gateway's user lacks rights in an HBase that looks at them: with its own AccessController, without passwords."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from thriftpy2.rpc import client_context

from kafka_replication.hbase.target import TABLE
from kafka_replication.model.choices import LATEST
from kafka_replication.model.errors import NotAuthorized
from kafka_replication.model.trouble import Trouble
from kafka_replication.runs.audit import audit
from kafka_replication.runs.checking import check
from stack.hbase_server import HBaseServer
from stack.ports import LOOPBACK
from tests.support.hbase import HBaseGround, definition
from tests.support.scenario import Scenario, numbered
from tests.support.waiting import wait_until

USER = b"copier"
CONTROLLER = "org.apache.hadoop.hbase.security.access.AccessController"
SETTINGS = {
    "hbase.security.authorization": "true",
    **{f"hbase.coprocessor.{where}.classes": CONTROLLER for where in ("master", "region", "regionserver")},
}


@pytest.fixture(scope="module")
def guarded(stack_folder: Path) -> Iterator[HBaseServer]:
    """Its older gateway may do all, the other one what its user was granted: at first nothing."""
    server = HBaseServer("guarded", stack_folder, SETTINGS, old_gateway=True, user=USER.decode())
    server.start()
    yield server
    server.stop()


@pytest.fixture
def ground(guarded: HBaseServer, scene: Scenario) -> HBaseGround:
    ground = HBaseGround(guarded)
    scene.client = dict(ground.connection)
    scene.settings["target"] = {"connection": "target", "type": "hbase"}
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(50))
    return ground


def grant(ground: HBaseGround, where: str, rights: str) -> None:
    """Instead of what the user had there, as the command of HBase's shell does: a cell in the table of rights."""
    old = definition("thrift/Hbase.thrift")
    cell = old.Mutation(column=b"l:" + USER, value=rights.encode())
    with client_context(old.Hbase, LOOPBACK, ground.server.old_port, socket_timeout=120_000) as client:
        client.mutateRow(b"hbase:acl", where.encode(), [cell], {})


def said(scene: Scenario) -> list[Trouble]:
    return [finding for finding in check(scene.bare_run()).findings if finding.severity == "error"]


def may_create(ground: HBaseGround) -> bool:
    try:
        ground.create(f"any-{uuid.uuid4().hex}")
    except definition().TIOError:
        return False
    return True


def copied(scene: Scenario, ground: HBaseGround) -> int:
    report = scene.run()
    assert report.outcome == "done", report.table()
    [partition] = audit(scene.bare_run()).partitions
    assert partition.outcome == "clean"
    return len(ground.visible(scene.topic))


def test_a_right_that_is_missing_is_named_before_a_run(scene: Scenario, ground: HBaseGround) -> None:
    """Who may create tables has all rights on its own ones, until they are taken away. HBase obeys a while later."""
    assert said(scene) == [], "what is not there yet cannot be tried"
    with pytest.raises(NotAuthorized, match="Insufficient permissions"):
        scene.run()
    grant(ground, "@default", "C")
    wait_until(lambda: may_create(ground))
    assert copied(scene, ground) == 50
    whole = HBaseGround.of(ground.server, LATEST)  # whose reads are of all rows
    for table in (scene.topic, TABLE):
        before = whole.rows(table)
        assert said(scene) == []
        grant(ground, table, "RC")
        wait_until(lambda: said(scene) != [])
        [finding] = said(scene)
        assert "Insufficient permissions (user=copier" in finding.what and f"'RWC', '{table}'" in finding.remedy
        assert "kafka-acls" not in finding.remedy and whole.rows(table) == before
        grant(ground, table, "RWC")
        wait_until(lambda: said(scene) == [])
    grant(ground, scene.topic, "WC")
    wait_until(lambda: any("Insufficient permissions" in finding.what for finding in said(scene)))
    grant(ground, scene.topic, "RWC")
    wait_until(lambda: said(scene) == [])
    grant(ground, "@default", "X")
    wait_until(lambda: not may_create(ground))
    scene.source.produce(scene.topic, numbered(10, 50))
    assert copied(scene, ground) == 60, "these rights are enough for tables that are there"
