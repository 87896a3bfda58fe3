"""Faults with HBase as the target: those of its server and its gateway and of the way to it, and those of our own
processes.
"""

from __future__ import annotations

import signal
import time
from dataclasses import replace
from functools import partial

from stack.processes import since
from tests.faults.bench import Bench
from tests.faults.opensearch_rows import AGAIN, PROFILES, SHORT, STALL
from tests.faults.row import Row
from tests.faults.row_side import GATEWAY, LEDGER, MASTER, Node, RowSide
from tests.faults.trial import Trial, TrialFailed
from tests.support.waiting import wait_until

__all__ = ["PROFILES", "ROWS"]

BUSY = "RegionTooBusyException: Over memstore limit"  # in the server's log, at each call that a region refuses


def _side(trial: Trial) -> RowSide:
    assert isinstance(trial.bench.elsewhere, RowSide)
    return trial.bench.elsewhere


def killed(which: str, trial: Trial) -> None:
    run = trial.start()
    trial.middle(run)
    trial.note(f"killing the {which}")
    Node(_side(trial).server, which).kill()
    time.sleep(trial.dice.random() * 8)
    _side(trial).server.start()
    trial.note("it is back")
    trial.finish(run)


def frozen(which: str, trial: Trial) -> None:
    """SIGSTOP for longer than the client waits for an answer."""
    trial.settings |= SHORT
    trial.copy["stall_timeout"] = STALL
    run = trial.start()
    trial.middle(run)
    trial.note(f"freezing the {which}")
    node = Node(_side(trial).server, which)
    node.send(signal.SIGSTOP)
    time.sleep(4 + trial.dice.random() * 8)
    node.send(signal.SIGCONT)
    trial.note("it woke up")
    trial.finish(run)


def disabled(ledger: bool, trial: Trial) -> None:
    """For shorter or longer than a copy waits."""
    trial.copy["stall_timeout"] = STALL
    run = trial.start()
    trial.middle(run, most=15)
    table = LEDGER if ledger else trial.target_topic
    _side(trial).ground.enable(table, False)
    trial.note(f"{table} is disabled")
    time.sleep(trial.dice.random() * 3 * STALL)
    _side(trial).ground.enable(table, True)
    trial.note("it is enabled")
    trial.finish(run)


def region_busy(trial: Trial) -> None:
    """For shorter or longer than a copy waits, the regions refuse what is written once anything is in their memory, and do
    not empty it: as when more is written than the disk takes.
    """
    trial.copy["stall_timeout"] = STALL
    run = trial.start()
    trial.middle(run, most=10)
    side, log = _side(trial), Node(_side(trial).server, MASTER).log
    before = log.stat().st_size
    side.ground.keep_busy(trial.target_topic, True)
    trial.note("the regions are busy")
    wait_until(lambda: BUSY in since(log, before))
    time.sleep(trial.dice.random() * 3 * STALL)
    side.ground.keep_busy(trial.target_topic, False)
    trial.note(f"they are not any more; writes were refused {since(log, before).count(BUSY)} times")
    trial.finish(run)


def answers_lost(trial: Trial) -> None:
    """Connections end while answers are on their way: what was asked for is done, and nobody hears of it."""
    run = trial.start()
    trial.middle(run, most=10)
    proxy = _side(trial).proxy
    proxy.delay(0.3)
    for _ in range(4):
        time.sleep(0.5 + trial.dice.random())
        proxy.cut()
    proxy.delay(0)
    trial.note("connections were cut 4 times")
    trial.finish(run)


def slow(trial: Trial) -> None:
    """Every answer comes late, and for a while so late that the client does not wait for it."""
    trial.settings |= {"timeouts": {"request": 2 * STALL}}
    trial.copy["stall_timeout"] = 2 * STALL
    run = trial.start()
    trial.middle(run, most=10)
    proxy = _side(trial).proxy
    proxy.delay(0.02 + trial.dice.random() * 0.2)
    trial.note("the gateway is slow")
    time.sleep(1 + trial.dice.random() * 3)
    proxy.delay(2 * STALL)
    trial.note("no answer comes in time")
    time.sleep(trial.dice.random() * 5 * STALL)
    proxy.delay(0.02)
    trial.note("it is slow, no more")
    trial.finish(run)
    proxy.behave()


def table_deleted(trial: Trial) -> None:
    run = trial.start()
    trial.middle(run)
    trial.limits = {partition: trial.load.ends[partition] for partition in trial.load.ends}
    _side(trial).delete(trial.target_topic)
    trial.note("deleted the table")
    if trial.finish(run) == "done":
        raise TrialFailed("all was copied before the table was deleted")


ROWS = tuple(
    replace(row, bench=Bench.with_hbase, sampled=False)
    for row in (
        Row("hbase-gateway-killed", partial(killed, GATEWAY), "core"),
        Row("hbase-killed", partial(killed, MASTER), "core"),
        Row("hbase-gateway-frozen", partial(frozen, GATEWAY), "core"),
        Row("hbase-table-disabled", partial(disabled, False), "core"),
        Row("hbase-ledger-disabled", partial(disabled, True), "core"),
        Row("hbase-region-busy", region_busy, "core"),
        Row("hbase-slow", slow, "core"),
        Row("hbase-answers-lost", answers_lost, "core"),
        Row(
            "hbase-table-deleted",
            table_deleted,
            "core",
            expected="was deleted|was created again|was re-created or deleted|is gone",
            ignore=("lost",),
        ),
        *(replace(row, name=f"hbase-{row.name}") for row in AGAIN),
    )
)
