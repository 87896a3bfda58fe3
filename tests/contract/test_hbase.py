"""HBase passes the suites that every kind of target has to pass."""

from __future__ import annotations

import os
import random
import traceback
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest

from kafka_replication.copying.sink import Record, RefusedAt
from kafka_replication.hbase.client import Answer, Client
from kafka_replication.hbase.rows import FAMILY, Origin, Rows, put
from kafka_replication.hbase.tables import Puts
from kafka_replication.hbase.target import TABLE, HBaseTarget, TableStorage
from kafka_replication.ledger.entries import POSITIONS
from kafka_replication.model.choices import LATEST, FailureKind
from kafka_replication.model.errors import LedgerUnreadable, Refused, Unreachable
from kafka_replication.targets.journal import LedgerRecord
from kafka_replication.targets.record_store import Item, Resend, place_of
from stack.hbase_server import HBaseServer
from tests.conformance import catalogue, deciding, latest, ledger, sink, standing, transaction
from tests.conformance.ground import opened, raised
from tests.conformance.ledger_world import World
from tests.conformance.sink_case import SinkCase, records, write, write_and_commit
from tests.conformance.transaction import TransactionCase
from tests.support.hbase import HBaseGround, definition
from tests.support.looks import assert_looks_ask_once
from tests.support.quarantines import assert_both_records_stay

SEED = int(os.environ.get("LATEST_SEED", random.SystemRandom().randrange(1 << 32)))
# What is acknowledged is there at once, and what is not committed is nowhere: no entry is ever undecided.
LEDGER = {
    name: check for name, check in ledger.ALL.items() if check is not ledger.open_transactions_are_named_by_their_keys
}


@pytest.fixture
def ground(hbase: HBaseServer) -> HBaseGround:
    return HBaseGround(hbase)


@pytest.mark.parametrize("check", sink.PROMISED[HBaseTarget.promise], ids=lambda check: check.__name__)
def test_sink(check: Callable[[SinkCase], None], ground: HBaseGround) -> None:
    check(SinkCase(ground))


@pytest.mark.parametrize("check", [*sink.PROMISED["latest"], *latest.ALL], ids=lambda check: check.__name__)
def test_sink_of_the_newest_records(check: Callable[[SinkCase], None], hbase: HBaseServer) -> None:
    check(SinkCase(HBaseGround.of(hbase, LATEST)))


def test_whoever_writes_in_whatever_order_the_newest_record_of_the_last_session_is_there(hbase: HBaseServer) -> None:
    """Copiers that were replaced, each with records of its own at the same offsets, write in any order."""
    print(f"LATEST_SEED={SEED}")
    chance, wanted = random.Random(SEED), dict[bytes | None, tuple[tuple[int, int], Record]]()
    ground = HBaseGround.of(hbase, LATEST)
    case = SinkCase(ground)
    with ExitStack() as stack:
        sessions = [stack.enter_context(case.fenced())[0] for _ in range(4)]
        writes = [(number, sorted(chance.sample(range(40), 8))) for number in range(4) for _ in range(4)]
        chance.shuffle(writes)
        for at, (number, offsets) in enumerate(writes):
            some = [_by(number, offset, chance) for offset in offsets]
            writer = sessions[number].begin()
            writer.write(some)
            writer.finish("")
            for record in some:
                newest = wanted.get(record[2], ((-1, -1), record))
                # Of equal timestamps HBase shows what was written last.
                if (record[0], number) >= newest[0]:
                    wanted[record[2]] = (record[0], number), record
            if at == len(writes) // 2:  # a table that is disabled is written to files
                for enabled in (False, True):
                    ground.enable(case.topic, enabled)
    assert {record[2]: record for _, record in case.visible()} == {key: record for key, (_, record) in wanted.items()}


def _by(number: int, offset: int, chance: random.Random) -> Record:
    """The record that a session finds at an offset."""
    value = chance.choice([None, b"", b"%d of %d" % (offset, number)])
    headers = chance.choice([None, [("by", b"%d" % number)]])
    return offset, 1_700_000_000_000 + number, b"abcde"[offset % 5 : offset % 5 + 1], value, headers


def test_only_a_session_that_left_records_behind_makes_a_new_epoch(hbase: HBaseServer) -> None:
    case = SinkCase(HBaseGround.of(hbase, LATEST))

    def epoch() -> int:
        return HBaseGround.of(hbase, LATEST).shelf(case.topic).head().epoch

    with case.fenced() as (session, position):
        before = epoch()
        position = write_and_commit(case, session, position, records(3))
    with case.fenced() as (session, position):
        write_and_commit(case, session, position, records(3, 3))
    assert epoch() == before
    with case.fenced() as (session, _):
        write(session, records(3, 6))
    assert epoch() == before
    with case.fenced(), case.fenced():
        assert epoch() == before + 2


def test_after_a_call_was_sent_again_the_next_session_makes_a_new_epoch(
    hbase: HBaseServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gateway may carry out the first call after the session has ended."""
    case, real, lost = SinkCase(HBaseGround.of(hbase, LATEST)), Client.call, list[str]()

    def losing(client: Client, method: str, *args: Any, **more: Any) -> Any:
        answer = real(client, method, *args, **more)
        if method == "putMultiple" and not lost:
            lost.append(method)
            raise Unreachable("lost", "find it")
        return answer

    with monkeypatch.context() as patching, case.fenced() as (session, position):
        before = HBaseGround.of(hbase, LATEST).shelf(case.topic).head().epoch
        patching.setattr(Client, "call", losing)
        write_and_commit(case, session, position, records(3))
    assert lost
    with case.fenced():
        assert HBaseGround.of(hbase, LATEST).shelf(case.topic).head().epoch == before + 1


@pytest.mark.parametrize("check", [*catalogue.ALL, *standing.ALL, *deciding.ALL], ids=lambda check: check.__name__)
def test_target(check: Callable[[SinkCase], None], ground: HBaseGround) -> None:
    check(SinkCase(ground))


def test_two_keys_of_one_number_share_a_quarantine(ground: HBaseGround) -> None:
    assert_both_records_stay(SinkCase(ground), place_of)


def test_a_look_asks_once_for_the_ledger(ground: HBaseGround, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_looks_ask_once(ground, Client, "call", lambda method, *args: TABLE in str(args), monkeypatch)


@pytest.mark.parametrize("check", LEDGER.values(), ids=LEDGER)
def test_ledger(check: Callable[[World], None], ground: HBaseGround) -> None:
    world = World(ground)
    world.ledger().ensure(world.replication())
    check(world)


@pytest.mark.parametrize("check", transaction.ATOMIC, ids=lambda check: check.__name__)
def test_transaction(check: Callable[[TransactionCase], None], ground: HBaseGround) -> None:
    world = World(ground, "contract")
    world.ledger().ensure(world.replication())
    target = opened(ground, "contract")
    check(TransactionCase(ground, lambda id_: target.writer(id_, "contract")))


def test_a_cell_that_the_gateway_itself_refuses_is_named_and_its_neighbours_are_written(ground: HBaseGround) -> None:
    """Of more than 10 MiB. The gateway tells no reason then."""
    case = SinkCase(ground)
    large: Record = (1, 1_700_000_000_001, b"large", bytes(11 << 20), None)
    with case.fenced() as (session, _):
        refused = raised(RefusedAt, lambda: write(session, [*records(1), large, *records(1, 2)]))
    assert (refused.offset, refused.kind) == (1, FailureKind.TOO_LARGE)
    assert case.values() == [b"v0", b"v2"]


def test_no_error_shows_a_row(hbase: HBaseServer) -> None:
    """The servers' own texts have keys, and names of regions, which have keys, too."""
    ground, mark = HBaseGround.of(hbase, LATEST), b"m4rk@example.org"
    case, row, client, said = SinkCase(ground), mark + bytes(4), Client(ground.connection, 60), list[str]()
    ground.limit(case.topic, 1000)
    for family, value in ((FAMILY, bytes(2000)), (b"none", b"")):
        with pytest.raises(Answer) as answer:
            client.call("putMultiple", case.topic.encode(), [put(row, family, {mark: value}, 1)])
        said += ["".join(traceback.format_exception(answer.value)), answer.value.reason]
    resend = Resend(stall_seconds=60, pause=lambda seconds: None)
    puts = Puts(client=client, table=case.topic, resend=resend)
    [failure] = puts.write([Item(7, put(row, FAMILY, {b"value": bytes(2000)}, 1), 2000)])
    assert (failure.offset, failure.kind) == (7, FailureKind.TOO_LARGE) and "exceeds limit of 1000" in failure.reason
    with pytest.raises(Refused, match="lacks a family"):
        puts.write([Item(7, put(row, b"none", {mark: b""}, 1), 1)])
    assert any("m4rk" in text for text in said[1::2]), said
    assert not [text for text in (*said[::2], failure.reason) if "m4rk" in text]


@pytest.mark.parametrize("written", [True, False])
def test_rows_without_an_answer_are_sent_again(ground: HBaseGround, written: bool) -> None:
    """Whether the call or its answer was lost."""
    case, lost = SinkCase(ground), [2]

    class Losing(Client):
        def call(self, method: str, *args: Any, seconds: float = 0, repeats: bool = True) -> Any:
            losing, lost[0] = lost[0] > 0, lost[0] - 1
            answer = super().call(method, *args, seconds=seconds, repeats=repeats) if written or not losing else None
            if losing:
                raise Unreachable("lost", "find it")
            return answer

    resend = Resend(stall_seconds=60, pause=lambda seconds: None)
    puts = Puts(client=Losing(ground.connection, 60), table=case.topic, resend=resend)
    rows = Rows(Origin.of(case.key, 1))
    assert puts.write([Item(record[0], rows.put(record, 1), 300) for record in records(10)]) == ()
    assert [record for _, record in case.visible()] == records(10)
    assert resend.waited > 0 and lost[0] < 0


def test_a_head_whose_answer_was_lost_is_known_as_ours(ground: HBaseGround) -> None:
    """The gateway repeats such a call by itself, and then finds a number that is not the expected one: its own."""
    world = World(ground)
    world.ledger().ensure(world.replication())
    shelf = ground.shelf(world.name)
    before = shelf.head()

    class Twice(Client):
        def call(self, method: str, *args: Any, seconds: float = 0, repeats: bool = True) -> Any:
            if method == "checkAndPut":
                assert super().call(method, *args, seconds=seconds) is True
            return super().call(method, *args, seconds=seconds, repeats=repeats)

    twice = TableStorage(Twice(ground.connection, 60), world.name)
    assert twice.replace(before, before.fenced_by("a"))
    assert not shelf.replace(before, before.fenced_by("b")), "somebody else's is not"
    assert shelf.head().session == 1


def test_the_error_of_a_head_that_somebody_changed_shows_nothing_of_it(ground: HBaseGround) -> None:
    world = World(ground)
    world.ledger().ensure(world.replication())
    types = definition()
    cell = types.TColumnValue(family=b"l", qualifier=b"head", value=b'"m4rk\xff')
    with ground.gateway() as gateway:
        gateway.put(TABLE.encode(), types.TPut(row=f"head\0{world.name}".encode(), columnValues=[cell]))
    with pytest.raises(LedgerUnreadable, match="UnicodeDecodeError") as raised:
        ground.shelf(world.name).head()
    assert "m4rk" not in "".join(traceback.format_exception(raised.value))
    ground.forget_ledger()


def test_an_entry_that_is_stored_late_does_not_replace_a_newer_one(ground: HBaseGround) -> None:
    world = World(ground)
    world.ledger().ensure(world.replication())
    shelf = ground.shelf(world.name)
    new, old = (LedgerRecord(offset, POSITIONS, 0, "key", value=f"{offset}") for offset in (7, 3))
    for record in (new, old, new):
        shelf.store([record])
    assert shelf.stored(new.place) == new
    assert [list(shelf.stored_since(world.name, since, [POSITIONS])) for since in (0, 7, 8)] == [[new], [new], []]
    shelf.remove([old])
    assert shelf.stored(new.place) == new, "nor does its deletion remove a newer one"
    shelf.remove([new])
    assert shelf.stored(new.place) is None
    newest = replace(new, offset=9)
    shelf.store([newest])
    assert shelf.stored(new.place) == newest
