"""What every watermark store must do when real processes race, and when one is killed inside a write."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from kafka_replication.model.errors import Busy
from kafka_replication.model.offsets import PartitionKey, TopicPartition
from kafka_replication.store import connect, leases, open_store
from kafka_replication.store.watermark_store import WatermarkStore
from kafka_replication.watermarks.values import Watermark
from tests.support import watermarks
from tests.support.leases import acquire, holder_of
from tests.support.waiting import wait_until

NAME = "orders-dr"
KEY = PartitionKey(NAME, TopicPartition("orders", 0), "orders")
PROGRAM = Path(__file__).with_name("watermark_store_process.py")


Start = Callable[..., "Processes"]


class Processes:
    """`watermark_store_process.py`: one process for each of ``each``, which all act at once and answer one line of JSON."""

    def __init__(self, url: str, command: str, each: list[dict[str, object]]) -> None:
        self.count = len(each)
        self.popen = subprocess.Popen(
            [sys.executable, str(PROGRAM), url, command, json.dumps(each)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def answer(self) -> Any:
        assert self.popen.stdout
        return json.loads(self.popen.stdout.readline())

    def answers(self) -> list[Any]:
        """In the order in which they were done."""
        return [self.answer() for _ in range(self.count)]


@pytest.fixture
def start(store_url: str) -> Iterator[Start]:
    started: list[Processes] = []

    def some(command: str, each: list[dict[str, object]]) -> Processes:
        started.append(Processes(store_url, command, each))
        return started[-1]

    yield some
    for processes in started:
        with suppress(ProcessLookupError):
            os.killpg(processes.popen.pid, signal.SIGKILL)  # the forked ones too
        processes.popen.communicate()


def advance(store: WatermarkStore, offset: int, version: int | None) -> Watermark:
    return watermarks.advance(store, KEY, offset, version, run_id="parent")


@pytest.mark.slow  # four of them do in `test_watermark_store_schema.py`
def test_processes_that_open_a_new_store_together_all_succeed(start: Start) -> None:
    assert start("open", [{}] * 12).answers() == [{"watermarks": 0}] * 12


@pytest.mark.parametrize(
    "before", ["never held", *(pytest.param(each, marks=pytest.mark.slow) for each in ("expired", "given back"))]
)
def test_of_eight_processes_exactly_one_gets_the_lease(start: Start, store: WatermarkStore, before: str) -> None:
    if before != "never held":
        old = acquire(store, NAME, "earlier", "try-1", 0.001 if before == "expired" else 60)
        if before == "given back":
            store.release_lease(old)
    answers = start(
        "lease", [{"replication": NAME, "owner": f"run-{number}", "seconds": 60} for number in range(8)]
    ).answers()
    [winner] = [answer["owner"] for answer in answers if answer["owner"]]
    losers = [answer["busy"] for answer in answers if not answer["owner"]]
    assert len(losers) == 7
    assert all(f"is being worked on by {winner} (try-1)," in busy for busy in losers)
    lease = holder_of(store, NAME)
    assert lease is not None
    assert (lease.owner, lease.token) == (winner, 1 if before == "never held" else 2)


@pytest.mark.parametrize("version", [pytest.param(None, marks=pytest.mark.slow), 1])
def test_of_processes_that_advance_from_one_version_exactly_one_wins(
    start: Start, store: WatermarkStore, version: int | None
) -> None:
    if version:
        advance(store, 1, None)
    wanted = {f"run-{number}": 100 + number for number in range(10)}
    common = {"replication": NAME, "version": version}
    answers = start("advance", [{**common, "run_id": run, "offset": at} for run, at in wanted.items()]).answers()
    stored = store.watermarks(NAME)[KEY]
    assert stored.version == (2 if version else 1)
    assert stored.offset == wanted[stored.run_id]
    # Who wants no more than the winner stored succeeds and finds the winner's; who wants more is told of the winner.
    contented = [answer for answer in answers if not answer["stale"]]
    assert contented == [{"run_id": stored.run_id, "offset": stored.offset, "stale": None}] * (stored.offset - 99)
    assert all(
        f"{stored.run_id} stored {stored.offset} " in answer["stale"] for answer in answers if answer not in contented
    )


def test_a_process_killed_inside_a_write_leaves_nothing_behind(start: Start, store: WatermarkStore) -> None:
    before = advance(store, 10, None)
    killed = start("hang-in-advance", [{"replication": NAME, "offset": 20, "version": 1, "run_id": "killed"}]).answer()
    assert store.watermarks(NAME) == {KEY: before}, "readers neither wait for an open write nor see it"
    os.kill(killed["in transaction"], signal.SIGKILL)
    assert advance(store, 30, 1).version == 2


def test_a_late_holder_that_renews_while_another_run_acquires_keeps_its_lease(postgresql_schema: str) -> None:
    """The renewal has come first, and is not committed yet when the other run looks."""
    store = open_store(postgresql_schema)
    late = acquire(store, NAME, "backfill", "try-1", 0.05)
    wait_until(lambda: store.leases(NAME) == [])
    engine = connect.connect(connect.parse(postgresql_schema))
    with ThreadPoolExecutor(1) as pool, engine.connect() as other, engine.connect() as watching:
        renewed = leases.renew(other, late, 60)
        acquiring = pool.submit(acquire, store, NAME, "live", "try-1", 60)
        waits = text("SELECT count(*) FROM pg_locks WHERE NOT granted AND :pid = ANY(pg_blocking_pids(pid))")
        pid = other.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
        wait_until(lambda: watching.execute(waits, {"pid": pid}).scalar_one() > 0 or acquiring.done())
        other.commit()
        with pytest.raises(Busy, match=r"backfill \(try-1\)"):
            acquiring.result()
    assert holder_of(store, NAME) == renewed
    store.close()
