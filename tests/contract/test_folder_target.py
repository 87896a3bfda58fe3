"""A target of another kind passes the same suites as Kafka."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conformance import catalogue, deciding, ledger, sink, standing, transaction
from tests.conformance.ground import opened
from tests.conformance.ledger_world import World
from tests.conformance.sink_case import SinkCase
from tests.conformance.transaction import TransactionCase
from tests.folder_target.ground import FolderGround
from tests.folder_target.target import FolderTarget

# What is there at once, and what is not committed is nowhere: no entry is ever undecided.
LEDGER = {
    name: check for name, check in ledger.ALL.items() if check is not ledger.open_transactions_are_named_by_their_keys
}


@pytest.fixture
def ground(tmp_path: Path) -> FolderGround:
    return FolderGround(tmp_path / "target")


@pytest.mark.parametrize("check", sink.PROMISED[FolderTarget.promise], ids=lambda check: check.__name__)
def test_sink(check: Callable[[SinkCase], None], ground: FolderGround) -> None:
    check(SinkCase(ground))


@pytest.mark.parametrize("check", [*catalogue.ALL, *standing.ALL, *deciding.ALL], ids=lambda check: check.__name__)
def test_target(check: Callable[[SinkCase], None], ground: FolderGround) -> None:
    check(SinkCase(ground))


@pytest.mark.parametrize("check", LEDGER.values(), ids=LEDGER)
def test_ledger(check: Callable[[World], None], ground: FolderGround) -> None:
    world = World(ground)
    world.ledger().ensure(world.replication())
    check(world)


@pytest.mark.parametrize("check", transaction.ATOMIC, ids=lambda check: check.__name__)
def test_transaction(check: Callable[[TransactionCase], None], ground: FolderGround) -> None:
    world = World(ground, "contract")
    world.ledger().ensure(world.replication())
    target = opened(ground, "contract")
    check(TransactionCase(ground, lambda id_: target.writer(id_, "contract")))
