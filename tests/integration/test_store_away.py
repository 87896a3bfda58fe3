"""A store that is killed at any moment of a command and comes back within a minute costs the command the waiting alone.

Each turn takes the next command, the next length of the outage, and a moment of its own. ``STORE_AWAY_TURNS`` says how many turns there
are, ``STORE_AWAY_FIRST`` the number of the first one, and ``STORE_AWAY_SEED`` what the moments are drawn from.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.actions import copied_once
from tests.support.checker import read
from tests.support.command_line import command
from tests.support.failed import assert_each_once, set_aside
from tests.support.jobs import after_copy
from tests.support.postgresql import Server, server
from tests.support.scenario import Cluster, Scenario, numbered

__all__ = ["server"]

FIRST, TURNS = int(os.environ.get("STORE_AWAY_FIRST", "0")), int(os.environ.get("STORE_AWAY_TURNS", "5"))
SEED = os.environ.get("STORE_AWAY_SEED", "")
AWAY = (1, 5, 10, 20, 40)  # seconds, less and more than a lease lasts
RECORDS = 300


@dataclass(frozen=True, slots=True)
class Case:
    """A command. ``prepare`` makes what it needs and returns its arguments; ``judge`` fails if it did not do its work."""

    prepare: Callable[[Scenario], tuple[str, ...]]
    judge: Callable[[Scenario], None]


class OnPostgres(Scenario):
    """Its store is the killed one."""

    def __init__(self, clusters: tuple[Cluster, Cluster], folder: Path, url: str) -> None:
        self._url = url
        super().__init__(*clusters, folder)

    @property
    def store_url(self) -> str:
        return self._url


def filled(scene: Scenario, partitions: int) -> None:
    scene.source.create(scene.topic, partitions)
    for partition in range(partitions):
        scene.source.produce(scene.topic, numbered(RECORDS), partition)


def to_run(scene: Scenario) -> tuple[str, ...]:
    filled(scene, 2)
    return ("run",)


def has_run(scene: Scenario) -> None:
    scene.assert_copied(0, 1)
    assert (scene.watermark(0), scene.watermark(1)) == (RECORDS, RECORDS)


def to_backfill(scene: Scenario) -> tuple[str, ...]:
    filled(scene, 1)
    more = f"{scene.topic}.more"
    return "backfill", "--topic", scene.topic, "--from", "0", "--until", str(RECORDS), "--target-topic", more


def has_backfilled(scene: Scenario) -> None:
    found = scene.check(target_topic=f"{scene.topic}.more")
    assert found.clean, found


class Died(BaseException):
    """What ends a run between its copies and their verification."""


def to_verify(scene: Scenario) -> tuple[str, ...]:
    def die() -> None:
        raise Died

    filled(scene, 2)
    with pytest.raises(Died):
        scene.run(after_copy(die))
    assert scene.watermark(0) is None and scene.position(0).next_offset == RECORDS
    return ("verify",)


def to_approve(scene: Scenario) -> tuple[str, ...]:
    copied_once(scene)
    scene.source.produce(scene.topic, numbered(30, 50))
    scene.source.delete_before(scene.topic, 0, 62)
    about = ("--topic", scene.topic, "--partition", "0", "--from", "50", "--until", "62")
    return "approve-gap", *about, "--by", "ann", "--reason", "retention was too short"


def has_approved(scene: Scenario) -> None:
    assert scene.watermark() == 62
    assert scene.run().outcome == "done"
    wanted = [record.value for record in (*numbered(50), *numbered(18, 62))]
    assert [record.value for _, record in read(scene.target.bootstrap, scene.topic, 0)] == wanted
    assert scene.watermark() == 80


def to_retry(scene: Scenario) -> tuple[str, ...]:
    set_aside(scene)
    scene.target.set(scene.topic, cleanup_policy="delete")
    return "failed", "retry", "--all", "--by", "ann", "--reason", "the topic takes them now"


CASES = {
    "run": Case(to_run, has_run),
    "backfill": Case(to_backfill, has_backfilled),
    "verify": Case(to_verify, has_run),
    "approve-gap": Case(to_approve, has_approved),
    "failed retry": Case(to_retry, assert_each_once),
}


@pytest.fixture
def scene(clusters: tuple[Cluster, Cluster], server: Server, tmp_path: Path) -> Iterator[Scenario]:
    made = OnPostgres(clusters, tmp_path, server.url)
    yield made
    made.store.close()


@pytest.fixture(scope="module")
def usual() -> dict[str, float]:
    """Seconds that each command takes when nothing happens."""
    return {}


@pytest.mark.slow
@pytest.mark.parametrize("turn", range(FIRST, FIRST + TURNS))
def test_a_killed_store_costs_the_waiting_alone(
    scene: Scenario, server: Server, usual: dict[str, float], turn: int
) -> None:
    name = list(CASES)[turn % len(CASES)]
    away = AWAY[turn // len(CASES) % len(AWAY)]  # 25 turns have each command with each length
    seed = f"{SEED or random.randrange(10**6)}-{turn}"
    dice, case = random.Random(seed), CASES[name]
    scene.settings |= {"copy": {"chunk_records": 50}}
    if name not in usual:
        calm = OnPostgres((scene.source, scene.target), scene.folder, server.url)
        arguments = case.prepare(calm)
        command(calm, "plan")  # the first command of all takes longer
        began = time.monotonic()
        assert command(calm, *arguments)[0] == 0
        usual[name] = time.monotonic() - began
        calm.store.close()
    arguments = case.prepare(scene)
    moment, began = 0.8 * dice.random() * usual[name], time.monotonic()  # most commands are still at work then
    with ThreadPoolExecutor(1) as pool:
        under_way = pool.submit(command, scene, *arguments)
        time.sleep(moment)
        ended = under_way.done()
        server.kill()
        time.sleep(away)
        server.start()
        code, out, err = under_way.result()
    took, load = time.monotonic() - began, os.getloadavg()[0]
    told = f"{name}: seed {seed}, killed after {moment:.2f} of {usual[name]:.2f} s for {away} s{' (had ended)' * ended}"
    print(f"{told}: exit {code} after {took:.1f} s, load {load:.1f}")
    assert code == 0, f"{told}\n{out}\n{err}"
    usual[name] = min(usual[name], max(1.0, took - away))  # the machine may be less busy now
    case.judge(scene)
