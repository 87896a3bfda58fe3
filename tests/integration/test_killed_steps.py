"""Each step of cut-over, its abort, failover, its undo and failback is killed twice where it begins and twice where it ends,
and the command is called again: an independent reader misses nothing, finds nothing twice, and no denial is left.

A step that seals or opens a direction ends once: the next call finds it done.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafka_replication.kafka import acls
from kafka_replication.kafka import groups as kafka_groups
from kafka_replication.kafka.groups import Committed
from kafka_replication.model.offsets import PartitionKey, TopicPartition
from kafka_replication.reporting.turning import TurnDocument
from kafka_replication.runs import cutover, failback, failover, groups, sealing, source_ends, steps
from kafka_replication.runs.cutover import Step, Turn
from kafka_replication.runs.run import LeasedRun
from stack.artifacts import CURRENT
from stack.kafka_cluster import KafkaCluster
from tests.support.checker import read
from tests.support.clusters import started
from tests.support.jobs import InProcess
from tests.support.scenario import Cluster, Scenario, numbered
from tests.support.secured import AUTHORIZERS
from tests.support.turning import WISHES, Died, commit, numbers, opened, reverse, until_done

PARTITIONS = 2
TIMES = 2  # that a step is killed at the same place
FAILOVER = ((sealing, "fence"), (sealing, "seal_each"), (steps, "verify"), (steps, "advance"), (groups, "move_as_seen"))
CUTOVER = ("copied", "groups", "settings", "schemas", "audit", "sealed", "certificate")
DENY = ((acls, "write"), (sealing, "change"))
BACK = ((sealing, "fence"), *DENY)  # of commands that open a direction again, and give back
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

    @contextmanager
    def within(self, command: str, places: Sequence[tuple[Any, str]]) -> Iterator[None]:
        """The functions that are these steps of a command."""
        with pytest.MonkeyPatch.context() as patched:
            for module, name in places:
                patched.setattr(module, name, self.around(command, name, getattr(module, name)))
            yield

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
        with deaths.within("failover", FAILOVER):
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


@pytest.fixture
def denying(stack_folder: Path, tmp_path: Path) -> Iterator[Scenario]:
    """Between two clusters with an authorizer. Everybody is a super user; what a rule does to others is tested by `test_acls`."""
    extra = {"authorizer.class.name": AUTHORIZERS[CURRENT.zookeeper], "super.users": "User:ANONYMOUS"}
    brokers = [KafkaCluster(f"denying-{side}", stack_folder, extra=extra) for side in ("source", "target")]
    with started(*brokers):
        source, target = (Cluster(cluster.bootstrap) for cluster in brokers)
        scene = Scenario(source, target, tmp_path)
        yield scene
        scene.store.close()


def test_what_denies_producers_and_each_way_back_is_killed_twice_where_it_begins_and_where_it_ends(
    denying: Scenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene, topic, source = denying, denying.topic, denying.source
    scene.settings["acls"] = {"writes": False}
    wishes, deaths, seal_each = replace(WISHES, quiet=0.05, sample=0), Deaths(monkeypatch), sealing.seal_each
    reads, denial = replace(acls.denial(topic), operation="READ", permission="ALLOW"), acls.denial(topic)
    acls.write(source.admin, [reads], [])
    source.create(topic, PARTITIONS)
    wanted = produced(source, topic, 0)
    assert scene.run().outcome == "done"

    def cut_over(n: int) -> TurnDocument:
        return cutover.cutover(opened(scene, f"cut {n}"), replace(wishes, deny=True), InProcess())

    def half(run: LeasedRun, keys: Collection[PartitionKey], *more: Any) -> None:
        seal_each(run, [min(keys)], *more)
        raise SystemExit

    def noted() -> list[tuple[bool, bool]]:
        return [(bool(at.denied), bool(at.sealed)) for at in map(scene.position, range(PARTITIONS))]

    def assert_given_back() -> None:
        assert denial not in acls.read(source.admin) and noted() == [(False, False)] * PARTITIONS

    with deaths.within("cutover", DENY), monkeypatch.context() as patched:
        patched.setattr(sealing, "seal_each", half)
        with pytest.raises(SystemExit):
            until_done(cut_over)
    assert denial in acls.read(source.admin) and noted() == [(True, True), (True, False)]
    with deaths.within("abort", [*BACK, (source_ends, "give_back")]):
        until_done(lambda n: cutover.abort(opened(scene, f"abort {n}"), wishes, InProcess()))
    assert_given_back()
    wanted += produced(source, topic, 100)
    until_done(cut_over)
    assert denial in acls.read(source.admin) and noted() == [(True, True)] * PARTITIONS
    assert reads in acls.read(scene.target.admin), "the right was carried over"
    with deaths.within("undo", [*BACK, (source_ends, "give_back")]):
        until_done(lambda n: failover.undo(opened(scene, f"undo {n}")))
    assert_given_back()
    wanted += produced(source, topic, 200)
    until_done(cut_over)
    wanted += produced(scene.target, topic, 300)
    with reverse(scene, tmp_path) as back, deaths.within("failback", [*BACK, (source_ends, "give_back")]):
        until_done(lambda n: failback.failback(opened(scene, f"b {n}"), opened(back, f"b {n}"), wishes, InProcess()))
    assert_given_back()
    wanted += produced(source, topic, 400)
    assert scene.run().outcome == "done"

    killed = {("cutover", step) for step in ("producers denied", "rights", *(name for _, name in DENY))}
    killed |= {(each, name) for each in ("abort", "undo", "failback") for name in ("give_back", *(n for _, n in BACK))}
    for place in ((*step, when) for step in killed for when in ("begins", "ends")):
        assert deaths.counts[place] == TIMES, place
    for cluster in (source, scene.target):
        assert_each_once(cluster, topic, wanted)
