"""Records become rows in HBase, whatever happens meanwhile: none lost, none twice."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from kafka_replication.runs.audit import audit
from kafka_replication.runtime.events import Event
from stack.hbase_server import HBaseServer
from tests.support.hbase import HBaseGround
from tests.support.jobs import InProcess
from tests.support.scenario import Rec, Scenario, numbered, only

COUNT = 3_000


@dataclass
class Shop:
    """A replication to a table of HBase."""

    scene: Scenario
    ground: HBaseGround

    def ready(self, count: int = COUNT) -> None:
        self.scene.source.create(self.scene.topic)
        self.scene.source.produce(self.scene.topic, numbered(count))

    def assert_copied(self, count: int = COUNT) -> None:
        assert [place for place, _ in self.ground.visible(self.scene.topic)] == list(range(count))
        report = audit(self.scene.bare_run())
        assert all(partition.outcome == "clean" for partition in report.partitions), report.text()


@pytest.fixture
def shop(scene: Scenario, hbase: HBaseServer) -> Shop:
    ground = HBaseGround(hbase)
    scene.client = dict(ground.connection)
    scene.settings["target"] = {"connection": "target", "type": "hbase"}
    scene.settings["copy"] = {"chunk_records": 500, "stall_timeout": 120}
    return Shop(scene, ground)


@contextmanager
def once(name: str, happens: Callable[[logging.LogRecord], bool], then: Callable[[], None]) -> Iterator[None]:
    """Call ``then`` at the first such line of a log, in the thread that logs it."""
    done = threading.Event()

    def seen(record: logging.LogRecord) -> bool:
        if not done.is_set() and happens(record):
            done.set()
            then()
        return True

    log = logging.getLogger(name)
    log.addFilter(seen)
    before = log.level
    log.setLevel(logging.INFO)  # to assign the level would leave what the logger has remembered of other tests
    try:
        yield
    finally:
        log.removeFilter(seen)
        log.setLevel(before)
    assert done.is_set()


def committed(record: logging.LogRecord) -> bool:
    return getattr(record, "event", None) is Event.CHUNK_COMMITTED


WORKER = "kafka_replication.spark.worker"
PROTOCOL = "kafka_replication.copying.protocol"


def test_a_record_is_a_row_whose_columns_others_can_read(shop: Shop) -> None:
    topic = shop.scene.topic
    shop.ready(300)
    odd = [Rec(b"\xff\xfe", b"", (("h", None), ("h", b"\xff"))), Rec(None, b"no key"), Rec(b"gone", None)]
    shop.scene.source.produce(topic, odd)
    report = shop.scene.run()
    assert report.outcome == "done" and only(report).digest_ok, report.table()
    rows = shop.ground.rows(topic)
    assert [row for row, _ in rows] == [bytes(4) + b"\0\0\0\1" + n.to_bytes(8) for n in range(303)]
    cells = rows[7][1]
    assert (cells[b"value"], cells[b"key"], cells[b"headers"]) == (numbered(8)[7].value, b"k7", b"")
    assert int.from_bytes(cells[b"offset"]) == 7
    assert cells[b"origin"] == (
        b'{"replication":"%s","generation":1,"topic":"%s","partition":0}' % (shop.scene.name.encode(), topic.encode())
    )
    assert rows[302][1][b"origin"].endswith(b',"absent":["value"]}')
    shop.assert_copied(303)
    shop.scene.idle_run()


@pytest.mark.slow  # rows of the faults; `test_latest.py` kills a copier
@pytest.mark.parametrize("which", ["thrift", "master"])
def test_a_server_that_is_killed_in_the_middle_and_comes_back(shop: Shop, which: str) -> None:
    """While rows are on their way: answers are lost whose rows may have been written."""
    shop.ready()

    def die() -> None:
        shop.ground.server.kill(which)
        shop.ground.server.start()

    killer = threading.Thread(target=die)
    with once(WORKER, committed, killer.start):
        report = shop.scene.run()
    killer.join()
    if report.outcome != "done":  # it met the outage in a call that is not repeated
        assert shop.scene.run().outcome == "done"
    shop.assert_copied()
    assert shop.scene.watermark() == COUNT


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["records", "latest"])
def test_large_records_behind_many_small_ones_do_not_fill_the_memory_of_the_gateway(shop: Shop, shape: str) -> None:
    """All in one chunk, of which the gateway could not hold the half: reading back asks for as much as it can hold."""
    shop.scene.settings["copy"] |= {"chunk_records": 10_000}
    shop.scene.settings["target"] |= {"shape": shape}
    topic, large = shop.scene.topic, b"x" * 900_000
    shop.scene.source.create(topic)
    shop.scene.source.produce(topic, numbered(2_500))
    shop.scene.source.produce(topic, [Rec(b"large %d" % number, large) for number in range(100)])
    report = shop.scene.run()
    assert report.outcome == "done" and only(report).digest_ok, report.table()
    assert all(partition.outcome == "clean" for partition in audit(shop.scene.bare_run()).partitions)


def test_a_table_that_is_deleted_in_the_middle_is_refused(shop: Shop) -> None:
    shop.ready()
    with once(WORKER, committed, lambda: shop.ground.delete(shop.scene.topic)):
        report = shop.scene.run()
    assert report.outcome == "failed" and "deleted" in (only(report).error or ""), report.table()
    assert shop.scene.watermark() in (None, 0)


@pytest.mark.slow
def test_a_table_that_is_disabled_is_waited_for(shop: Shop) -> None:
    """Once it is enabled the same run goes on."""
    shop.scene.settings["copy"] |= {"stall_timeout": 5}
    shop.scene.settings["timeouts"] = {"request": 5}
    shop.ready()
    name = shop.scene.topic
    with (
        once(WORKER, committed, lambda: shop.ground.enable(name, False)),
        once(PROTOCOL, lambda record: "disabled" in record.getMessage(), lambda: shop.ground.enable(name, True)),
    ):
        report = shop.scene.run()
    assert report.outcome == "done", report.table()
    shop.assert_copied()


@pytest.mark.slow
def test_a_table_that_takes_nothing_for_now_is_not_taken_for_one_without_rights(shop: Shop) -> None:
    """The question for the right to write has no answer then: a copy waits, so a plan does not refuse it."""
    topic = shop.scene.topic
    shop.ready(10)
    assert shop.scene.run().outcome == "done"
    shop.ground.keep_busy(topic, True)
    shop.scene.settings["timeouts"] = {"request": 10}
    began = time.monotonic()
    there = shop.scene.bare_run().clusters.target.catalogue.topics([topic])[topic]
    assert time.monotonic() - began > 9 and there.problem is None
    shop.ground.keep_busy(topic, False)
    shop.assert_copied(10)


@pytest.mark.slow  # `test_latest.py` refuses one, `test_rows.py` has the command
def test_a_table_that_would_hide_what_is_written_is_refused_with_the_command(shop: Shop) -> None:
    shop.ready()
    shop.ground.create(shop.scene.topic, ttl=86_400)
    launcher = InProcess()
    report = shop.scene.run(launcher)
    line = only(report)
    assert report.outcome == "failed" and not launcher.jobs, report.table()
    assert "TTL (86400)" in (line.error or "") and "TTL => 'FOREVER'" in line.remedy
    shop.ground.change(shop.scene.topic, lambda there: setattr(there.columns[0], "timeToLive", 2**31 - 1))
    assert shop.scene.run().outcome == "done"
    shop.assert_copied()


def test_more_partitions_leave_the_rest_of_a_table_as_it_is(shop: Shop) -> None:
    topic = shop.scene.topic
    shop.scene.source.create(topic, 2)
    shop.scene.source.produce(topic, numbered(10), 1)
    shop.ground.create(topic)
    shop.ground.change(topic, lambda there: setattr(there.columns[0], "dataBlockEncoding", 4))
    before = shop.ground.described(topic)
    report = shop.scene.run()
    assert report.outcome == "done" and len(shop.ground.visible(topic, 1)) == 10, report.table()
    after = shop.ground.described(topic)
    assert after.columns == before.columns
    assert after.attributes[b"kafka-replication.partitions"] == b"2"
    assert before.attributes.items() - {(b"kafka-replication.partitions", b"1")} <= after.attributes.items()
