"""Records become documents in OpenSearch, whatever happens meanwhile: none lost, none twice, each refused one named."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from kafka_replication.opensearch import searches
from kafka_replication.runs.audit import audit
from kafka_replication.runs.failed_records import Selection, failed_records
from kafka_replication.runtime import deadline
from stack.opensearch_server import OpenSearchServer
from tests.support.http_proxy import Answer, Nth, Pass, Proxy, refused, running
from tests.support.jobs import InProcess, after_copy
from tests.support.opensearch import OpenSearchGround
from tests.support.orders_index import COUNT, Shop, orders
from tests.support.received import Inbox
from tests.support.scenario import Rec, Scenario, only
from tests.support.waiting import SAFETY
from tests.support.watching import events, watcher


@pytest.fixture
def shop(scene: Scenario, opensearch: OpenSearchServer) -> Iterator[Shop]:
    proxy = Proxy(opensearch.url)
    with running(proxy) as url:
        scene.client = {"url": url}
        scene.settings["target"] = {"connection": "target", "type": "opensearch"}
        scene.settings["copy"] = {"chunk_records": 100, "stall_timeout": 30}
        yield Shop(scene, OpenSearchGround.of(opensearch), proxy)


def test_a_value_is_the_document_and_its_fields_are_found(shop: Shop) -> None:
    shop.ready()
    shop.scene.source.produce(
        shop.scene.topic, [Rec(b"\xff\xfe", b'{\n "n" : 300\n}', (("h", None),)), Rec(b"gone", None)]
    )
    report = shop.scene.run()
    assert report.outcome == "done", report.table()
    assert only(report).digest_ok, report.table()
    [one] = shop.found(term={"n": 7})
    assert one == {
        "n": 7,
        "name": "order 7",
        "kafka": {
            "replication": shop.scene.name,
            "generation": 1,
            "topic": shop.scene.topic,
            "partition": 0,
            "offset": 7,
            "timestamp": 1_700_000_000_007,
            "key": "k7",
            "headers": [{"name": "h", "value": "1"}],
        },
    }
    assert [document["kafka"]["offset"] for document in shop.found(term={"kafka.key": "gone"})] == [301]
    assert shop.found(range={"kafka.timestamp": {"gte": 1_700_000_000_298}})[0]["n"] == 298
    named = {"properties": {"order_key": {"type": "alias", "path": "kafka.key"}}}
    shop.ground.ask("PUT", f"{shop.scene.topic}/_mapping", named)
    assert [document["n"] for document in shop.found(term={"order_key": "k7"})] == [7]
    assert all(partition.outcome == "clean" for partition in audit(shop.scene.bare_run()).partitions)
    shop.scene.idle_run()


@pytest.mark.slow  # a row of the faults; `test_latest.py` sets such records aside
def test_records_that_conflict_with_the_mapping_are_named_and_set_aside(shop: Shop) -> None:
    """Three among many: each with its field and reason, and no neighbour is lost with them."""
    shop.scene.settings["failures"] = {"policy": "quarantine", "limit": 10}
    shop.ready(100)
    bad = [Rec(b"a", b'{"n": "no number"}'), Rec(b"b", b"no JSON"), Rec(b"c", b'{"n": {"deep": 1}}')]
    shop.scene.source.produce(shop.scene.topic, [*bad, *orders(100, 103)])
    report = shop.scene.run()
    assert report.outcome == "done", report.table()
    shop.assert_copied(203, without=(100, 101, 102))
    rows = failed_records(shop.scene.bare_run(), shop.scene.bare_run().view(), Selection())
    assert {row.record.offset: row.record.error for row in rows} == {
        100: "mapper_parsing_exception",
        101: "not_a_document",
        102: "mapper_parsing_exception",
    }
    assert "[n]" in next(row.record.reason for row in rows if row.record.offset == 100)


def test_a_record_that_is_refused_ends_its_partition_and_nothing_before_it_is_missing(shop: Shop) -> None:
    shop.ready(150)
    shop.scene.source.produce(shop.scene.topic, [Rec(b"a", b'{"n": "no number"}'), *orders(10, 151)])
    report = shop.scene.run()
    line = only(report)
    assert report.outcome == "failed" and "offset 150" in (line.error or "") and "[n]" in (line.error or "")
    assert shop.scene.watermark() == 150
    assert [document["n"] for document in shop.found(range={"kafka.offset": {"lt": 150}})] == list(range(150))


def test_what_is_refused_for_now_is_sent_again_in_smaller_requests(shop: Shop) -> None:
    """429 and 413 of whole requests, and 429 of single documents among others that were taken."""
    shop.ready()
    seen = list[int]()

    def busy(path: str, body: bytes, passed: Pass) -> Answer:
        seen.append(len(body.splitlines()) // 2)
        if len(seen) in (1, 4):
            return refused(429, "circuit_breaking_exception")
        if seen[-1] > 30:
            return refused(413, "content_too_long")
        status, content = passed(body)
        if len(seen) % 5 == 0:
            answer = json.loads(content)
            error = {"type": "rejected_execution_exception", "reason": "queue is full"}
            answer["items"][-1]["index"] = {"status": 429, "error": error}
            content = json.dumps({**answer, "errors": True}).encode()
        return status, content

    shop.proxy.fault = busy
    report = shop.scene.run()
    assert report.outcome == "done", report.table()
    assert max(seen) == 100 and min(seen) <= 25
    shop.assert_copied()


@pytest.mark.slow  # a row of the faults, and `test_latest.py`
def test_an_answer_that_is_lost_after_the_write_changes_nothing(shop: Shop) -> None:
    shop.ready()
    lost = list[int]()

    def losing(path: str, body: bytes, passed: Pass) -> Answer | None:
        answer = passed(body)
        if len(lost) < 3:
            lost.append(len(body))
            return None
        return answer

    shop.proxy.fault = losing
    report = shop.scene.run()
    assert report.outcome == "done" and len(lost) == 3, report.table()
    shop.assert_copied()


@pytest.mark.slow  # `test_bulk.py` has such answers
def test_an_answer_with_fewer_items_than_were_sent_is_no_answer(shop: Shop) -> None:
    shop.ready()

    def short(path: str, body: bytes, passed: Pass) -> Answer:
        status, content = passed(body)
        answer = json.loads(content)
        return status, json.dumps({**answer, "items": answer["items"][:-1]}).encode()

    shop.proxy.fault = short
    report = shop.scene.run()
    assert report.outcome == "failed" and "99 answers about 100 documents" in (only(report).error or "")
    assert shop.scene.watermark() in (None, 0)
    shop.proxy.fault = None
    assert shop.scene.run().outcome == "done"
    shop.assert_copied()


@pytest.mark.slow  # a row of the faults; one that stays is below
def test_a_block_of_the_index_is_waited_for(shop: Shop) -> None:
    """As a node sets it whose disk is nearly full. Once it is gone the same run goes on."""
    shop.ready()
    blocked, released = threading.Event(), threading.Event()

    def blocking(path: str, body: bytes, passed: Pass) -> Answer:
        if not blocked.is_set():
            shop.limits(**{"index.blocks.read_only_allow_delete": True})
            blocked.set()
        elif not released.is_set():
            released.set()
            shop.limits(**{"index.blocks.read_only_allow_delete": None})
        return passed(body)

    shop.proxy.fault = blocking
    report = shop.scene.run()
    assert report.outcome == "done" and released.is_set(), report.table()
    shop.assert_copied()


def test_a_block_that_stays_is_named_and_alerted_and_nothing_is_set_aside(
    shop: Shop, received: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.scene.settings["failures"] = {"policy": "skip", "limit": 1000}
    shop.scene.settings["copy"] |= {"stall_timeout": 1}
    monkeypatch.setattr(deadline, "ATTEMPTS", 1)
    shop.ready()

    def blocking(path: str, body: bytes, passed: Pass) -> Answer:
        shop.limits(**{"index.blocks.read_only_allow_delete": True})
        return passed(body)

    shop.proxy.fault = blocking
    report = shop.scene.run()
    assert report.outcome == "failed" and "read-only" in (only(report).error or ""), report.table()
    assert "disk" in only(report).remedy
    watching = watcher(shop.scene, received)
    assert events(watching.look()) == [f"opened refused {shop.scene.topic}"]
    assert "read_only_allow_delete" in received.mails[0].text and "disk" in received.mails[0].text
    shop.proxy.fault = None
    report = shop.scene.run()
    assert report.outcome == "failed" and "read_only_allow_delete" in (only(report).error or ""), report.table()
    shop.limits(**{"index.blocks.read_only_allow_delete": None})
    assert shop.scene.run().outcome == "done"
    assert events(watching.look()) == [f"healed refused {shop.scene.topic}"]
    shop.assert_copied()


def test_an_index_that_is_deleted_in_the_middle_is_refused(shop: Shop) -> None:
    shop.ready()
    second = Nth(2)

    def deleting(path: str, body: bytes, passed: Pass) -> Answer:
        if second.is_this():
            shop.ground.delete(shop.scene.topic)
        return passed(body)

    shop.proxy.fault = deleting
    report = shop.scene.run()
    assert report.outcome == "failed", report.table()
    assert "deleted" in (only(report).error or "") or "created again" in (only(report).error or ""), report.table()
    assert shop.scene.watermark() in (None, 0)


@pytest.mark.slow  # the proxy takes answers and connections away
def test_a_server_that_dies_in_the_middle_and_comes_back(shop: Shop) -> None:
    shop.ready()
    second, killed = Nth(2), threading.Event()

    def dying(path: str, body: bytes, passed: Pass) -> Answer:
        answer = passed(body)
        if second.is_this():
            shop.ground.go_away()
            shop.ground.come_back()
            killed.set()
        return answer

    shop.proxy.fault = dying
    report = shop.scene.run()
    assert killed.is_set() and report.outcome == "done", report.table()
    shop.assert_copied()


def test_a_document_that_was_changed_before_it_was_read_back_is_named(shop: Shop) -> None:
    """Also in a way that only its text shows."""
    shop.ready()

    def change() -> None:
        shop.ground.ask("POST", f"{shop.scene.topic}/_refresh")
        [one] = shop.ground.ask("POST", f"{shop.scene.topic}/_search", {"query": {"term": {"n": 7}}})["hits"]["hits"]
        shop.ground.ask("PUT", f"{shop.scene.topic}/_doc/{one['_id']}", {**one["_source"], "n": 7.0})

    report = shop.scene.run(after_copy(change))
    assert report.outcome == "failed" and "differ" in (only(report).error or ""), report.table()


def test_an_audit_ends_though_all_documents_were_changed(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are read in pages, by offsets that their texts do not tell any more."""
    monkeypatch.setattr(searches, "LONGEST_PAGE", searches.FIRST_PAGE)
    count = 2 * searches.FIRST_PAGE
    shop.ready(count)
    shop.scene.settings["copy"] = {"chunk_records": count}
    assert shop.scene.run().outcome == "done"
    shop.ground.ask("POST", f"{shop.scene.topic}/_refresh")
    found = shop.ground.ask("POST", f"{shop.scene.topic}/_search", {"size": count, "_source": False})["hits"]["hits"]
    assert len(found) == count
    for one in found:  # the new field comes behind the one that says where a document is from
        shop.ground.ask("POST", f"{shop.scene.topic}/_update/{one['_id']}", {"doc": {"more": 1}})
    report = audit(shop.scene.bare_run())
    assert report.outcome == "differs" and "differ" in report.text(), report.text()


def test_an_index_that_acknowledges_before_it_writes_is_refused(shop: Shop) -> None:
    """A node that dies would lose what was verified."""
    shop.ready()
    assert shop.scene.run().outcome == "done"
    shop.limits(**{"index.translog.durability": "async"})
    shop.scene.source.produce(shop.scene.topic, orders(10, COUNT))
    launcher = InProcess()
    line = only(shop.scene.run(launcher))
    assert not launcher.jobs and "before they are on a disk" in (line.error or "")
    assert '{"index.translog.durability": "request"}' in line.remedy
    shop.limits(**{"index.translog.durability": "request"})
    assert shop.scene.run().outcome == "done"
    shop.assert_copied(COUNT + 10)


def test_an_index_of_somebody_else_without_our_fields_is_refused_with_the_command(shop: Shop) -> None:
    shop.ready()
    shop.ground.ask("PUT", shop.scene.topic, {"settings": {"index": {"number_of_replicas": 0}}})
    launcher = InProcess()
    report = shop.scene.run(launcher)
    line = only(report)
    assert report.outcome == "failed" and not launcher.jobs, report.table()
    assert "kafka.replication" in (line.error or "") and "_mapping" in line.remedy
    mapping = json.loads(line.remedy[line.remedy.index("{") :])
    shop.ground.ask("PUT", f"{shop.scene.topic}/_mapping", mapping)
    assert shop.scene.run().outcome == "done"
    shop.assert_copied()


@pytest.mark.parametrize("kind", ["alias", "data stream"])
def test_a_name_of_several_indexes_is_refused(shop: Shop, kind: str) -> None:
    """Whoever rolls it over decides where a record goes that is written again."""
    shop.ready(10)
    name, ask = shop.scene.topic, shop.ground.ask
    if kind == "data stream" and "distribution" not in ask("GET", "")["version"]:
        pytest.skip("Elasticsearch has them in a module that does not run here")
    if kind == "alias":
        ask("PUT", f"{name}-000001", {"aliases": {name: {"is_write_index": True}}})
    else:
        ask("PUT", f"_index_template/{name}", {"index_patterns": [name], "data_stream": {}, "priority": 900})
        assert "creates data streams only" in shop.scene.run().table()
        ask("PUT", f"_data_stream/{name}")
    report = shop.scene.run()
    line = only(report)
    assert report.outcome == "failed" and f"is a{'n' if kind == 'alias' else ''} {kind}" in (line.error or "")
    assert "write to an index itself" in line.remedy
    if kind == "data stream":
        ask("DELETE", f"_data_stream/{name}")
        ask("DELETE", f"_index_template/{name}")


def test_an_index_that_does_not_answer_holds_no_other_topic_back(shop: Shop) -> None:
    shop.ready(50)
    scene, other = shop.scene, f"{shop.scene.name}.other"
    scene.settings["topics"] = {"include": [scene.topic, other]}
    scene.source.create(other)
    scene.source.produce(other, orders(50))
    assert scene.run().outcome == "done"
    shop.ground.ask("POST", f"{scene.topic}/_close")
    for topic in (scene.topic, other):
        scene.source.produce(topic, orders(10, 50))
    report = scene.run()
    lines = {line.key.source.topic: line for line in report.ranges}
    assert report.outcome == "failed" and "closed" in (lines[scene.topic].error or ""), report.table()
    assert (lines[other].error, lines[other].copied, lines[other].digest_ok) == (None, 10, True), report.table()
    shop.ground.ask("POST", f"{scene.topic}/_open")
    assert scene.run().outcome == "done"
    shop.assert_copied(60)


@pytest.mark.parametrize("filtered", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_copier_that_stood_still_changes_nothing_or_an_audit_names_it(
    shop: Shop, tmp_path_factory: pytest.TempPathFactory, filtered: bool
) -> None:
    """Its request arrives when another copier has done all. It cannot replace a document; if its successor leaves one
    out, because the filter was changed meanwhile, it adds that one.
    """
    shop.ready()
    arrived, released = threading.Event(), threading.Event()

    def held(path: str, body: bytes, passed: Pass) -> Answer:
        if not arrived.is_set():
            arrived.set()
            assert released.wait(SAFETY)
        return passed(body)

    shop.proxy.fault = held
    successor = Scenario(shop.scene.source, shop.scene.target, tmp_path_factory.mktemp("another"))  # without the lease
    successor.name, successor.topic, successor.client = shop.scene.name, shop.scene.topic, shop.scene.client
    successor.settings = {**shop.scene.settings, **({"filter": "value.n != `7`"} if filtered else {})}
    with ThreadPoolExecutor(1) as pool:
        try:
            late = pool.submit(shop.scene.run)
            assert arrived.wait(SAFETY)
            assert successor.run().outcome == "done"
        finally:
            released.set()
        report = late.result()
    assert only(report).copied == 0, report.table()
    found = audit(successor.bare_run())
    assert [partition.outcome for partition in found.partitions] == ["differs" if filtered else "clean"], found.text()
    assert [document["n"] for document in shop.found()] == list(range(COUNT))
    if filtered:
        assert "extra" in found.text()
    successor.store.close()
