"""Turning a replication around in this process, for tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest

from kafka_replication.kafka import AdminClient
from kafka_replication.kafka import groups as kafka_groups
from kafka_replication.kafka.groups import Committed
from kafka_replication.model.offsets import TopicPartition
from kafka_replication.reporting.failover import FailoverDocument
from kafka_replication.reporting.turning import TurnDocument
from kafka_replication.runs import cutover, failback, sealing
from kafka_replication.runs.cutover import Wishes
from kafka_replication.runs.run import Run, open_run
from tests.support.checker import read
from tests.support.jobs import InProcess
from tests.support.scenario import Cluster, Scenario, numbered
from tests.support.waiting import wait_until

D = TypeVar("D", FailoverDocument, TurnDocument)
WISHES = Wishes(by="ann", reason="a drill", quiet=0.5, sample=-1)


def opened(scene: Scenario, run_id: str = "turn") -> Run:
    return open_run(scene.replication(), scene.connections, scene.store, run_id)


def cut_over(scene: Scenario, **wishes: Any) -> TurnDocument:
    return cutover.cutover(opened(scene), Wishes(**{"by": "ann", "quiet": 0.5, **wishes}), InProcess())


def gone_back(scene: Scenario, back: Scenario, run_id: str = "turn") -> TurnDocument:
    return failback.failback(opened(scene, run_id), opened(back, run_id), WISHES, InProcess())


def commit(admin: AdminClient, group: str, places: dict[TopicPartition, Committed]) -> None:
    """A coordinator learns of a new topic later than others."""
    wait_until(lambda: not kafka_groups.commit(admin, group, places))


def values(cluster: Cluster, topic: str) -> list[bytes | None]:
    return [record.value for _, record in read(cluster.bootstrap, topic, 0)]


def numbers(*ranges: range) -> list[bytes | None]:
    return [record.value for range_ in ranges for record in numbered(len(range_), range_.start)]


class Died(BaseException):
    """As the end of a process. A KeyboardInterrupt in a thread would end the process that runs the tests."""


def died_at_the_seal(monkeypatch: pytest.MonkeyPatch, before: Callable[[], None]) -> None:
    """The next call that seals does this ``before`` it, and dies behind it."""
    real = sealing.seal_each

    def seal_each(*arguments: Any) -> None:
        monkeypatch.undo()
        before()
        real(*arguments)
        raise Died

    monkeypatch.setattr(sealing, "seal_each", seal_each)


def until_done(command: Callable[[int], D]) -> D:
    """Call it again after each death, and while it says that it did not get to its end."""
    for number in range(100):
        with suppress(Died):
            document = command(number)
            if not document.failed:
                return document
    raise AssertionError("it did not get to its end")


@contextmanager
def reverse(scene: Scenario, folder: Path) -> Iterator[Scenario]:
    """The other direction, with a ledger on the other cluster."""
    (folder / "back").mkdir()
    made = Scenario(scene.target, scene.source, folder / "back")
    made.topic = scene.topic
    made.settings["topics"] = {"include": [made.topic]}
    yield made
    made.store.close()
