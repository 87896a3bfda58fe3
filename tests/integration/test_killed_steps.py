"""Each step of cut-over, failover and failback is killed twice where it begins and twice where it ends, and the command is
called again: an independent reader misses nothing, and finds nothing twice.

A step that seals or opens a direction ends once: the next call finds it done.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafka_replication.kafka import groups as kafka_groups
from kafka_replication.kafka.groups import Committed
from kafka_replication.model.offsets import TopicPartition
from kafka_replication.runs import cutover, failback, failover, groups, sealing, steps
from kafka_replication.runs.cutover import Step, Turn
from tests.support.checker import read
from tests.support.jobs import InProcess
from tests.support.scenario import Cluster, Scenario, numbered
from tests.support.turning import WISHES, Died, commit, numbers, opened, reverse, until_done

PARTITIONS = 2
TIMES = 2  # that a step is killed at the same place
FAILOVER = ((sealing, "fence"), (sealing, "seal_each"), (steps, "verify"), (steps, "advance"), (groups, "move_as_seen"))
CUTOVER = ("copied", "groups", "settings", "schemas", "audit", "sealed", "certificate")
FINAL = {("cutover", "sealed", "ends"), ("failback", "sealed", "ends"), ("failback", "first direction opened", "ends")}
FAILBACK = ("other direction opened", *CUTOVER, "first direction opened")


class Deaths:
    """Kills steps where they begin and where they end, so many times each."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.counts, self._real = Counter[tuple[str, ...]](), Turn.carry_out
        monkeypatch.setattr(Turn, "carry_out", lambda turn, steps: self._carry_out(turn, steps))

    def _carry_out(self, turn: Turn, steps: Sequence[Step]) -> bool:
        return self._real(turn, [(name, self.around(turn.why, name, do)) for name, do in steps])

    def around(self, command: str, step: str, do: Callable[..., Any]) -> Callable[..., Any]:
        def killed(*arguments: Any, **more: Any) -> Any:
            self._die(command, step, "begins")
            done = do(*arguments, **more)
            self._die(command, step, "ends")
            return done

        return killed

    def _die(self, *place: str) -> None:
        if self.counts[place] < TIMES:
            self.counts[place] += 1
            raise Died(str(place))


def produced(cluster: Cluster, topic: str, first: int, count: int = 9) -> list[bytes | None]:
    """Numbered records in each partition, other ones in each: their values."""
    for partition in range(PARTITIONS):
        cluster.produce(topic, numbered(count, first + 10_000 * partition), partition)
    return numbers(*(range(start, start + count) for start in (first, first + 10_000)))


def assert_each_once(cluster: Cluster, topic: str, wanted: Sequence[bytes | None]) -> None:
    found = Counter(
        record.value for number in range(PARTITIONS) for _, record in read(cluster.bootstrap, topic, number)
    )
    missed, repeated = Counter(wanted) - found, found - Counter(wanted)
    assert (missed.total(), repeated.total()) == (0, 0), (missed, repeated)


@pytest.mark.parametrize("aside", [False, True], ids=["the surplus stays", "the surplus is set aside"])
def test_each_step_is_killed_twice_where_it_begins_and_where_it_ends(
    scene: Scenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, aside: bool
) -> None:
    group, topic = f"{scene.name}-billing", scene.topic
    wishes = replace(WISHES, quiet=0.05, out=tmp_path, aside=aside)
    with reverse(scene, tmp_path) as back:
        for direction in (scene, back):
            direction.settings["groups"] = {"include": [f"^{scene.name}"]}
        scene.source.create(topic, PARTITIONS)
        copied = produced(scene.source, topic, 0)
        commit(scene.source.admin, group, {TopicPartition(topic, number): Committed(9) for number in range(PARTITIONS)})
        assert scene.run().outcome == "done"
        surplus = produced(scene.source, topic, 100)

        deaths = Deaths(monkeypatch)
        with monkeypatch.context() as patched:
            for module, name in FAILOVER:
                patched.setattr(module, name, deaths.around("failover", name, getattr(module, name)))
            until_done(lambda n: failover.failover(opened(scene, f"over {n}"), wishes, InProcess()))
        new = produced(scene.target, topic, 200)
        until_done(lambda n: failback.failback(opened(scene, f"b {n}"), opened(back, f"b {n}"), wishes, InProcess()))
        last = produced(scene.source, topic, 300)
        until_done(lambda n: cutover.cutover(opened(scene, f"cut {n}"), wishes, InProcess()))

    wanted = {("cutover", step) for step in CUTOVER} | {("failback", step) for step in FAILBACK}
    wanted |= {("failover", name) for _, name in FAILOVER}
    wanted |= {("failback", "surplus set aside")} if aside else set()
    places = {(*step, when) for step in wanted for when in ("begins", "ends")}
    assert deaths.counts == {place: 1 if place in FINAL else TIMES for place in places}, "each was killed"
    assert_each_once(scene.source, topic, [*copied, *surplus, *new, *last])
    assert_each_once(scene.target, topic, [*copied, *([] if aside else surplus), *new, *last])
    if aside:
        assert_each_once(scene.target, f"{topic}.surplus", surplus)
    moved, _ = kafka_groups.committed(scene.target.admin, [group])
    assert all(place is not None for place in moved[group].values()) and len(moved[group]) == PARTITIONS
