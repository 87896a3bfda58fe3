"""The newest record of each key in OpenSearch and HBase, whatever is produced, copied, killed, woken, filled in later or reset."""

from __future__ import annotations

import json
import os
import random
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest

from kafka_replication.copying.sink import SinkSession
from kafka_replication.kafka.partitioner import partition_of_key
from kafka_replication.ledger.entries import Position
from kafka_replication.model.choices import HBASE, LATEST, OPENSEARCH
from kafka_replication.model.offsets import OffsetRange
from kafka_replication.planning.backfill_request import parse
from kafka_replication.runs.failed_records import Selection, failed_records
from kafka_replication.runs.reporting import standing
from kafka_replication.runs.reset import reset_topic
from kafka_replication.runs.retry_discard import Decision, retry
from kafka_replication.verification.newest import KeyReader
from stack.hbase_server import HBaseServer
from stack.opensearch_server import OpenSearchServer
from tests.support import whole_runs
from tests.support.audits import audit
from tests.support.children import copy_process, end_of
from tests.support.customers import Customers, Searched, Stored
from tests.support.hbase import HBaseGround
from tests.support.http_proxy import Answer, Pass, Proxy, running
from tests.support.jobs import InProcess, after_copy
from tests.support.opensearch import OpenSearchGround
from tests.support.scenario import Rec, Scenario, only

KEYS = "abcdefgh"
SEED = int(os.environ.get("LATEST_SEED", random.SystemRandom().randrange(1 << 32)))


def settled(scene: Scenario, kind: str) -> None:
    scene.settings["target"] = {"connection": "target", "type": kind, "shape": "latest"}
    scene.settings["copy"] = {"chunk_records": 5, "stall_timeout": 30}


@pytest.fixture
def searched(scene: Scenario, opensearch: OpenSearchServer) -> Iterator[Searched]:
    proxy = Proxy(opensearch.url)
    with running(proxy) as url:
        scene.client = {"url": url}
        settled(scene, OPENSEARCH)
        yield Searched(scene, ground=OpenSearchGround.of(opensearch, LATEST), proxy=proxy)


@pytest.fixture
def stored(scene: Scenario, hbase: HBaseServer) -> Stored:
    settled(scene, HBASE)
    scene.client = dict(HBaseGround.of(hbase, LATEST).connection)
    return Stored(scene, ground=HBaseGround.of(hbase, LATEST))


@pytest.fixture(params=[OPENSEARCH, HBASE])
def customers(request: pytest.FixtureRequest) -> Customers:
    return request.getfixturevalue({OPENSEARCH: "searched", HBASE: "stored"}[request.param])  # type: ignore[no-any-return]


# The flow is the same code for both; what the other one has to do in it is a case of its suite, which each use names.
slow = partial(pytest.param, marks=pytest.mark.slow)
ROWS = pytest.mark.parametrize("customers", [slow(OPENSEARCH), HBASE], indirect=True)
DOCUMENTS = pytest.mark.parametrize("customers", [OPENSEARCH, slow(HBASE)], indirect=True)


@DOCUMENTS  # `only_the_newest_record_of_each_key_is_there`, `the_verifier_finds_what_is_at_the_keys`
def test_the_newest_record_of_each_key_is_at_its_key(customers: Customers) -> None:
    customers.create()
    customers.put("abcabca" + "dd")
    customers.produce(Rec(b"c", None, (), 1_700_000_000_100))
    report = customers.scene.run()
    line = only(report)
    assert report.outcome == "done" and line.digest_ok, report.table()
    customers.assert_newest()
    assert customers.found()["c"][2] is None
    if isinstance(customers, Searched):
        assert customers.documents(term={"kafka.tombstone": True}).keys() == {"c"}
    assert (line.copied, line.superseded, line.missing) == (10, 6, 0)
    assert report.promise == LATEST and report.ranges[0].superseded == 6
    assert "superseded by a newer one" in report.table()
    [row] = standing(customers.scene.bare_run())
    assert row.superseded == 6 and row.state == "in sync"
    receipts = customers.scene.bare_run().clusters.ledger.receipts({customers.scene.key(): None})
    assert sum(receipt.superseded for receipt in receipts.of(customers.scene.key(), 1)) == 6
    customers.put("abd")
    customers.run()
    customers.assert_newest()
    audited = audit(customers.scene.bare_run())
    [partition] = audited.partitions
    assert (partition.outcome, partition.superseded, partition.by_content) == ("clean", 9, 13), audited.text()
    customers.scene.idle_run()


@ROWS  # `what_an_attempt_left_is_replaced_or_stops_who_changes_it`
def test_a_copier_that_dies_is_healed_by_the_next_run(customers: Customers) -> None:
    """It has written what it did not commit. `test_whatever_happens...` dies elsewhere, too."""
    customers.create()
    customers.put("aabbccddabcdaaa")
    assert end_of(copy_process(customers.scene, customers.scene.copy_job(), "P1:2")) == -signal.SIGKILL
    customers.run()
    customers.assert_newest()
    assert customers.scene.watermark() == 15
    customers.assert_clean()


def test_an_answer_that_is_lost_after_the_write_changes_nothing(searched: Searched) -> None:
    searched.create()
    searched.put("abcabcabcabc")
    lost = list[int]()

    def losing(path: str, body: bytes, passed: Pass) -> Answer | None:
        answer = passed(body)
        lost.append(1)
        return None if len(lost) in (1, 3) else answer

    searched.proxy.fault = losing
    searched.run()
    assert len(lost) > 3
    searched.assert_newest()
    searched.assert_clean()


@ROWS  # `the_verifier_finds_what_is_at_the_keys`
def test_what_differs_from_the_receipt_is_named_and_what_is_newer_is_not(customers: Customers) -> None:
    customers.create()
    customers.put("abc")
    report = customers.scene.run(after_copy(lambda: customers.make_older("b")))
    error = only(report).error or ""
    assert report.outcome == "failed" and "offset 1: an older record of its key is there" in error, report.table()
    assert customers.scene.watermark() in (None, 0)
    customers.put("b")
    report = customers.scene.run()
    assert report.outcome == "done", report.table()  # the newer one lies over it
    customers.assert_newest()
    customers.remove("a")
    [partition] = audit(customers.scene.bare_run()).partitions
    assert partition.outcome == "differs" and "offset 0: nothing is there" in " ".join(partition.notes)


def test_records_that_have_no_place_are_named_and_set_aside(searched: Searched) -> None:
    searched.scene.settings["failures"] = {"policy": "skip", "limit": 10}
    searched.create()
    searched.put("ab")
    searched.scene.source.produce(searched.scene.topic, [Rec(None, b"{}"), Rec(b"x" * 513, b"{}"), Rec(b"a", b"[]")])
    report = searched.scene.run()
    assert report.outcome == "done" and only(report).skipped == 3, report.table()
    searched.assert_newest()
    rows = failed_records(searched.scene.bare_run(), searched.scene.bare_run().view(), Selection())
    reasons = {row.record.offset: row.record.reason for row in rows}
    assert "no key" in reasons[2] and "513 bytes" in reasons[3] and "no object" in reasons[4]


@DOCUMENTS  # the copier refuses it, and asks no target
def test_a_key_in_two_partitions_is_refused_by_name(customers: Customers) -> None:
    """Java puts ``a`` into partition 0 of 3, librdkafka into 1."""
    customers.create(3)
    java, other = (partition_of_key(how, b"a", 3) for how in ("murmur2", "crc32"))
    customers.scene.source.produce(customers.scene.topic, [customers.record("a", 1)], java)
    customers.scene.source.produce(customers.scene.topic, [customers.record("a", 2)], other)
    report = customers.scene.run()
    errors = {line.key.source.partition: line.error for line in report.ranges if line.error}
    assert errors.keys() == {other} and "target.partitioner" in (errors[other] or ""), report.table()
    [remedy] = {line.remedy for line in report.ranges if line.error}
    assert remedy == "correct the record (a transform can), or let failures set it aside (quarantine or skip)"
    assert customers.found()["a"][2] == customers.record("a", 1).value


@ROWS  # the plan refuses, and asks no target
def test_partitions_that_the_source_gets_later_are_refused(customers: Customers) -> None:
    customers.create()
    customers.put("ab")
    customers.run()
    customers.scene.source.grow(customers.scene.topic, 2)
    report = customers.scene.run()
    errors = [line.error or "" for line in report.ranges if line.error]
    assert report.outcome == "failed" and any("records of one key" in error for error in errors), report.table()


def test_an_index_of_the_other_shape_is_refused(searched: Searched) -> None:
    searched.create()
    searched.put("ab")
    searched.run()
    searched.scene.settings["target"] = {"connection": "target", "type": "opensearch"}
    searched.put("c")
    report = searched.scene.run()
    assert report.outcome == "failed" and "was made for" in (only(report).error or ""), report.table()
    assert searched.found().keys() == {"a", "b"}


def test_a_record_that_was_set_aside_is_retried_under_what_is_newer(searched: Searched) -> None:
    searched.scene.settings["failures"] = {"policy": "quarantine", "limit": 10}
    searched.create()
    searched.put("a")
    bad = [Rec(key, b'{"n": "no number"}', (), 1_700_000_000_500) for key in (b"a", b"b")]
    searched.scene.source.produce(searched.scene.topic, bad)
    searched.log += bad
    searched.put("a")
    searched.run()
    assert searched.found().keys() == {"a"}
    rows = failed_records(searched.scene.bare_run(), searched.scene.bare_run().view(), Selection())
    assert [row.record.offset for row in rows] == [1, 2]
    searched.scene.settings["transform"] = f"{__name__}:numbers"
    outcomes = retry(searched.scene.bare_run(), rows, Decision(by="me"))
    assert [outcome.done for outcome in outcomes] == [True, True], outcomes
    found = searched.found()
    assert [json.loads(found[key][2] or b"")["n"] for key in "ab"] == [3, 0], (
        "newer is what came later, not what was written later"
    )


def numbers(record: Any) -> Any:
    """A transform that makes every ``n`` a number."""
    value = json.loads(record.value)
    return record.replace(value=json.dumps({**value, "n": 0}).encode())


@pytest.mark.slow
def test_whatever_happens_the_newest_record_of_each_key_is_there(customers: Customers) -> None:
    """Random sequences of producing, copying, dying, waking late, filling in and resetting, against a naive model."""
    print(f"LATEST_SEED={SEED}")
    chance = random.Random(SEED)
    scene, generation = customers.scene, 1
    customers.create()
    customers.put("abc")
    customers.run()
    with ExitStack() as asleep:
        sleepers = list[tuple[SinkSession, Position]]()
        for step in range(8):
            action = chance.choice(["produce", "run", "die", "sleep", "wake", "reset", "run"])
            if action == "produce" or step == 0:
                customers.put("".join(chance.choices(KEYS, k=chance.randint(1, 12))))
            elif action == "run":
                customers.run()
            elif action == "die":
                customers.put("".join(chance.choices(KEYS, k=8)))
                failpoint = chance.choice(["P0", "P1:1", "P1:2", "P3:1"])
                end_of(copy_process(scene, scene.copy_job(), failpoint))
            elif action == "sleep":
                position = scene.position()
                session = asleep.enter_context(scene.bare_run().clusters.target.sink.session(scene.key(), position.ids))
                session.fence()
                assert session.position() == position
                sleepers.append((session, position))
            elif action == "wake" and sleepers:
                _wake(customers, *sleepers.pop(), chance)
            elif action == "reset":
                customers.delete()
                reset_topic(scene.bare_run("reset"), scene.topic)
                generation += 1
                customers.run()
        for session, of in sleepers:
            _wake(customers, session, of, chance)
        customers.run()
    customers.assert_newest(generation=generation)
    customers.assert_clean()


def _wake(customers: Customers, session: SinkSession, counted: Position, chance: random.Random) -> None:
    """A copier that was replaced, and had another transform, writes a part of the source that it had read, and cannot
    commit. One of before a reset writes only keys that are there: others would be foreign documents, which stop the next
    copier. No copier writes what its position counts: in HBase it may share its epoch with who wrote that.
    """
    customers.put("a")
    customers.run()
    now, known = customers.scene.position().generation, customers.found().keys()
    first = chance.randrange(len(customers.log))
    some = [
        (offset, record.timestamp, record.key, b'{"n": -1}', None)
        for offset, record in enumerate(customers.log[first : first + 6], first)
        if (offset not in counted.coverage if counted.generation == now else (record.key or b"").decode() in known)
    ]
    writer = session.begin()
    writer.write(some)
    try:
        writer.finish("")
    except Exception as error:  # noqa: BLE001  # what it is told does not matter
        print(f"woke: {error}")


@ROWS  # `an_older_range_changes_only_what_nothing_newer_has`
def test_a_backfill_of_an_old_range_fills_in_only_what_is_not_there(customers: Customers) -> None:
    customers.scene.settings["start_from"] = "latest"
    customers.create()
    customers.put("abcd")
    customers.run()
    customers.put("ab")
    customers.run()
    assert customers.found().keys() == {"a", "b"}
    request = parse(customers.scene.replication(), topics=[customers.scene.topic], from_=0, until=4)
    launcher = InProcess()
    report = whole_runs.backfill(
        customers.scene.replication(), customers.scene.connections, customers.scene.store, launcher, request
    )
    assert report.outcome == "done" and only(report).superseded == 2, report.table()
    customers.assert_newest()
    customers.assert_clean()


def test_what_others_write_and_delete_with_the_time_of_now_changes_no_row(stored: Stored) -> None:
    stored.create()
    stored.put("abab")
    stored.run()
    topic = stored.scene.topic
    stored.ground.put_cells(topic, b"a", {b"value": b"mine", b"offset": bytes(8)})
    stored.ground.remove(topic, b"b")
    stored.assert_newest()
    stored.assert_clean()
    stored.put("b")
    stored.run()
    stored.assert_newest()


@pytest.mark.slow  # `test_whoever_writes_in_whatever_order...` of its suite
def test_an_older_record_stays_behind_a_newer_one_that_lies_in_a_file(stored: Stored) -> None:
    """A copier wakes that was replaced, after HBase has written its memory to files."""
    stored.create()
    stored.put("ab")
    stored.run()
    scene, old = stored.scene, [(n, 0, b"%c" % (97 + n), b"old", None) for n in range(2)]
    with scene.bare_run().clusters.target.sink.session(scene.key(), scene.position().ids) as session:
        session.fence()
        session.position()
        stored.put("abc")
        stored.run()
        for enabled in (False, True):  # a table that is disabled is written to files
            stored.ground.enable(scene.topic, enabled)
        writer = session.begin()
        writer.write(old)
        writer.finish("")
    stored.assert_newest()
    stored.assert_clean()


def test_a_row_that_was_replaced_is_not_found_at_its_former_offset(stored: Stored) -> None:
    """HBase still has its cells, and a scan of timestamps finds them."""
    stored.create()
    stored.put("abc")
    stored.run()
    before = stored.scene.position()
    stored.put("abd")
    stored.run()
    with stored.scene.bare_run().clusters.target.sink.verifier(stored.scene.key()) as reader:
        assert isinstance(reader, KeyReader)
        assert [sent.offset for sent in reader.still_newest(OffsetRange(0, before.next_offset))] == [2]


def test_records_that_cannot_be_rows_are_named_and_set_aside(stored: Stored) -> None:
    stored.scene.settings["failures"] = {"policy": "skip", "limit": 10}
    stored.create()
    stored.put("ab")
    stored.scene.source.produce(stored.scene.topic, [Rec(None, b"{}"), Rec(b"x" * 32_768, b"{}")])
    report = stored.scene.run()
    assert report.outcome == "done" and only(report).skipped == 2, report.table()
    stored.assert_newest()
    rows = failed_records(stored.scene.bare_run(), stored.scene.bare_run().view(), Selection())
    reasons = {row.record.offset: row.record.reason for row in rows}
    assert "no key" in reasons[2] and "32768 bytes" in reasons[3]


@pytest.mark.slow  # one of OpenSearch is above; `an_older_range_changes_only_what_nothing_newer_has`
def test_a_row_that_was_too_large_is_retried_under_what_is_newer(stored: Stored) -> None:
    stored.scene.settings["failures"] = {"policy": "quarantine", "limit": 10}
    stored.create()
    stored.ground.create(stored.scene.topic)
    stored.ground.limit(stored.scene.topic, 20_000)
    large = [Rec(key, os.urandom(30_000), (), 1_700_000_000_500) for key in (b"a", b"b")]
    stored.put("a")
    stored.produce(*large)
    stored.put("cda")  # the last one in another chunk: in one request the older one would not be written at all
    stored.run()
    assert stored.found().keys() == {"a", "c", "d"}
    rows = failed_records(stored.scene.bare_run(), stored.scene.bare_run().view(), Selection())
    assert [row.record.offset for row in rows] == [1, 2]
    stored.ground.unlimit(stored.scene.topic)
    outcomes = retry(stored.scene.bare_run(), rows, Decision(by="me"))
    assert [outcome.done for outcome in outcomes] == [True, True], outcomes
    stored.assert_newest()


def test_a_table_with_a_ttl_or_of_the_other_shape_is_refused(stored: Stored) -> None:
    stored.create()
    stored.put("ab")
    stored.ground.create(stored.scene.topic, ttl=86_400)
    report = stored.scene.run()
    assert report.outcome == "failed" and "has a TTL" in (only(report).error or ""), report.table()
    stored.delete()
    HBaseGround(stored.ground.server).create(stored.scene.topic)
    report = stored.scene.run()
    assert report.outcome == "failed" and "was made for 'shape: records'" in (only(report).error or ""), report.table()
    assert not stored.ground.rows(stored.scene.topic)
