"""OpenSearch passes the suites that every kind of target has to pass."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable
from dataclasses import replace

import pytest

from kafka_replication.ledger.entries import POSITIONS
from kafka_replication.model.choices import LATEST
from kafka_replication.model.errors import ReplicationError
from kafka_replication.opensearch.client import Client, path
from kafka_replication.opensearch.documents import item, judged
from kafka_replication.opensearch.journal import INDEX
from kafka_replication.opensearch.target import OpenSearchTarget
from kafka_replication.targets.journal import MOST_IN_TAIL, Head, LedgerRecord
from kafka_replication.targets.record_store import place_of
from stack.opensearch_server import OpenSearchServer
from tests.conformance import catalogue, deciding, latest, ledger, sink, standing, transaction
from tests.conformance.ground import opened
from tests.conformance.ledger_world import World
from tests.conformance.sink_case import SinkCase
from tests.conformance.transaction import TransactionCase
from tests.support.http_proxy import Proxy, running
from tests.support.looks import assert_looks_ask_once
from tests.support.opensearch import OpenSearchGround
from tests.support.quarantines import assert_both_records_stay

# What is acknowledged is there at once, and what is not committed is nowhere: no entry is ever undecided.
LEDGER = {
    name: check for name, check in ledger.ALL.items() if check is not ledger.open_transactions_are_named_by_their_keys
}


@pytest.fixture
def ground(opensearch: OpenSearchServer) -> OpenSearchGround:
    ground = OpenSearchGround.of(opensearch)
    ground.forget_ledger()
    return ground


@pytest.mark.parametrize("check", sink.PROMISED[OpenSearchTarget.promise], ids=lambda check: check.__name__)
def test_sink(check: Callable[[SinkCase], None], ground: OpenSearchGround) -> None:
    check(SinkCase(ground))


# What the shapes have in common, which `test_sink` has; and the journal, which all ledgers but Kafka's have in common: `test_hbase.py`
# has it, too.
ALSO_SLOW = pytest.mark.slow
JOURNAL = ("the newest committed entry counts", "reading on is reading from the start", "foreign entries harm nobody")


@pytest.mark.parametrize(
    "check",
    [*latest.ALL, *(pytest.param(check, marks=ALSO_SLOW) for check in sink.PROMISED["latest"])],
    ids=lambda check: check.__name__,
)
def test_sink_of_the_newest_records(check: Callable[[SinkCase], None], opensearch: OpenSearchServer) -> None:
    ground = OpenSearchGround.of(opensearch, LATEST)
    ground.forget_ledger()
    check(SinkCase(ground))


def test_no_error_shows_a_record(ground: OpenSearchGround) -> None:
    """The node's own text has ids, values and names: its answers are made the way that they are made for a run."""
    mark, index, client = "m4rk@example.org", "orders", Client(ground.connection, 60)
    ground.create(index)
    properties = {"n": {"type": "long"}, "word": {"type": "keyword"}, "strict": {"type": "object", "dynamic": "strict"}}
    ground.ask("PUT", f"{index}/_mapping", {"properties": properties})
    values = [
        {"n": mark},
        {"n": {mark: 1}},
        {"strict": {mark: 1}},
        {"word": mark * 3000},
        {mark: 1},
        {mark: mark},
    ]
    items = [item(offset, f"{mark}-{offset}", 1, json.dumps(value).encode()) for offset, value in enumerate(values)]
    raw = client.text("POST", path(index, "_bulk"), b"".join(one.request for one in items), refresh=True)
    assert raw.count(mark) > 2 * len(values)
    failures = judged(items, json.loads(raw), index).refused
    assert [failure.offset for failure in failures] == [0, 1, 2, 3, 5]
    reasons = [failure.reason for failure in failures]
    assert "[n] of type [long]" in reasons[0] and mark not in repr(failures), reasons
    half = Proxy(ground.url, lambda path, body, passed: (200, passed(body)[1][:-9]), lambda method, path: True)
    with running(half) as url:
        for asked, last, body in (
            (client, "_search", {"query": {"range": {"n": {"gte": mark}}}}),
            (client, "_search", {"query": {mark: {}}}),
            (client, "_doc", {"n": mark}),
            (Client({"url": url}, 60), "_search", {}),
        ):
            with pytest.raises(ReplicationError) as raised:
                asked.json("POST", path(index, last), body)
            text = "".join(traceback.format_exception(raised.value))
            assert mark not in text and ("_exception" in text or "no JSON" in text)
    with pytest.raises(ReplicationError, match="number_of_shards"):  # the text about a schema is kept
        client.json("PUT", path("more"), {"settings": {"index.number_of_shards": 0}})


@pytest.mark.parametrize("check", [*catalogue.ALL, *standing.ALL, *deciding.ALL], ids=lambda check: check.__name__)
def test_target(check: Callable[[SinkCase], None], ground: OpenSearchGround) -> None:
    check(SinkCase(ground))


def test_two_keys_of_one_number_share_a_quarantine(ground: OpenSearchGround) -> None:
    assert_both_records_stay(SinkCase(ground), place_of)


def test_a_look_asks_once_for_the_ledger(ground: OpenSearchGround, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_looks_ask_once(ground, Client, "text", lambda method, path, *_: INDEX in path, monkeypatch)


@pytest.mark.parametrize(
    "check",
    [pytest.param(check, id=name, marks=() if name in JOURNAL else ALSO_SLOW) for name, check in LEDGER.items()],
)
def test_ledger(check: Callable[[World], None], ground: OpenSearchGround) -> None:
    world = World(ground)
    world.ledger().ensure(world.replication())
    check(world)


@pytest.mark.slow
@pytest.mark.parametrize("check", transaction.ATOMIC, ids=lambda check: check.__name__)
def test_transaction(check: Callable[[TransactionCase], None], ground: OpenSearchGround) -> None:
    world = World(ground, "contract")
    world.ledger().ensure(world.replication())
    target = opened(ground, "contract")
    check(TransactionCase(ground, lambda id_: target.writer(id_, "contract")))


def test_an_entry_that_is_removed_late_leaves_a_newer_one(ground: OpenSearchGround) -> None:
    world = World(ground)
    world.ledger().ensure(world.replication())
    shelf = ground.shelf(world.name)
    old, new, newest = (LedgerRecord(offset, POSITIONS, 0, "key", value=f"{offset}") for offset in (3, 7, 9))
    shelf.store([new])
    shelf.remove([old])
    assert shelf.stored(new.place) == new
    shelf.remove([new, replace(old, key="never there")])
    assert shelf.stored(new.place) is None
    shelf.store([newest])
    assert shelf.stored(new.place) == newest


def test_an_entry_that_is_replaced_while_the_ledger_is_read_is_not_missed(ground: OpenSearchGround) -> None:
    """It was applied when the head was read, and is replaced and applied again before the entries are searched."""
    world = World(ground)
    world.ledger().ensure(world.replication())
    journal = ground.journal(world.name)

    def commit(*values: str) -> None:
        """With so many others that what was committed before is applied."""
        others = [(POSITIONS, 0, f"other {number}", "{}") for number in range(MOST_IN_TAIL)]
        journal.change(lambda head: head.with_([*((POSITIONS, 0, "key", value) for value in values), *others]))

    def values(head: Head) -> list[str | None]:
        return [record.value for record in journal.since(head, 0, [POSITIONS]) if record.key == "key"]

    for written in (("old",), (), ()):
        commit(*written)
    before = journal.shelf.head()
    assert before.applied > MOST_IN_TAIL and values(before) == ["old"]
    for written in (("new",), (), ()):
        commit(*written)
    assert values(before) == ["new"], "at least what was there when the head was read"
    newest = journal.newest(POSITIONS, 0, "key")
    assert newest is not None and newest.value == "new"
