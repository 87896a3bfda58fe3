"""The topic of a schema registry: copied first, refused where the target has other ids, and asked by `check`."""

from __future__ import annotations

import itertools
import os
import signal
import time
from collections.abc import Iterable, Iterator

import pytest

from kafka_replication.kafka import topics
from kafka_replication.model.errors import PreflightFailed
from kafka_replication.planning.backfill_request import BackfillRequest
from kafka_replication.planning.schemas import TOPIC, WAITS
from kafka_replication.reporting.run import RunReport
from kafka_replication.runs import checking, cutover
from kafka_replication.runs.run import Request, open_run
from kafka_replication.spark.jobs import Job
from tests.support import whole_runs
from tests.support.checker import check, read
from tests.support.children import end_of, run_process
from tests.support.compaction import clean_every
from tests.support.jobs import InProcess
from tests.support.registry import NOOP, Pair, config, delete_subject, deleted, registered
from tests.support.scenario import Cluster, Rec, Scenario, numbered
from tests.support.turning import opened
from tests.support.waiting import wait_until

ORDERS, PAYMENTS = registered("orders-value", 1, 1, '"string"'), registered("payments-value", 1, 2, '"long"')
LOG = [NOOP, config("BACKWARD"), ORDERS, PAYMENTS]
OWN = registered("clicks-value", 1, 3, '"int"')


def write(cluster: Cluster, pairs: Iterable[Pair], topic: str = TOPIC) -> None:
    """As a registry does: each record by itself, with the time of its writing."""
    for key, value in pairs:
        cluster.produce(topic, [Rec(key, value, timestamp=int(time.time() * 1000))])


def framed(id_: int, first: int = 0, count: int = 1) -> list[Rec]:
    """Records with values as serializers write them."""
    return [Rec(b"k%d" % n, b"\0" + id_.to_bytes(4) + b"payload %d" % n) for n in range(first, first + count)]


@pytest.fixture
def both(own_scene: Scenario) -> Iterator[Scenario]:
    """A source with a registry, and a topic that has more records."""
    scene = own_scene
    scene.source.create(TOPIC, 1, {"cleanup.policy": "compact"})
    write(scene.source, LOG)
    scene.source.create(scene.topic, 2)
    for partition in range(2):
        scene.source.produce(scene.topic, framed(1, count=30), partition)
    scene.settings["topics"] = {"include": [scene.topic, TOPIC]}
    yield scene
    for cluster in (scene.source, scene.target):
        if cluster.partitions(TOPIC):
            cluster.delete(TOPIC)


def in_step(scene: Scenario, topic: str = TOPIC, target: str = TOPIC) -> bool:
    return check(scene.source.bootstrap, scene.target.bootstrap, topic, target, 0).clean


def errors(report: RunReport) -> dict[str, str]:
    return {line.key.source.topic: line.error or "" for line in report.ranges}


def of_jobs(launcher: InProcess) -> list[set[str]]:
    """The topics that each job worked on."""
    return [{task.key.source.topic for task in job.tasks} for job in launcher.jobs]


@pytest.mark.parametrize("most", [None, 2])
def test_schemas_are_copied_and_verified_before_anything_else(both: Scenario, most: int | None) -> None:
    seen = list[tuple[int | None, int]]()  # the watermark of the schemas, and the records of the others on the target

    def look(job: Job) -> None:
        marks = both.store.watermarks(both.name)
        mark = marks.get(both.key(topic=TOPIC))
        seen.append((mark.offset if mark else None, both.target.size(both.topic)))

    launcher = InProcess(then=look)
    assert both.run(launcher, max_records_per_run=most).outcome == "done"
    while most and (more := both.run(launcher, max_records_per_run=most)).outcome == "done":
        assert more.ranges
    first = len(list(itertools.takewhile(lambda topics: topics == {TOPIC}, of_jobs(launcher))))
    assert first and all(size == 0 for _, size in seen[:first])
    assert seen[first - 1][0] == (most or len(LOG))
    assert of_jobs(launcher)[first] == {both.topic}
    assert in_step(both) and both.check(1).clean
    receipts = both.bare_run().clusters.ledger.receipts({both.key(topic=TOPIC): 0, both.key(): 0})
    times = [[receipt.time for receipt in receipts.all(key)] for key in (both.key(topic=TOPIC), both.key())]
    assert times[0][0] <= min(times[1])

    made = topics.config(both.target.admin, TOPIC)
    assert made["cleanup.policy"] == "compact" and both.target.partitions(TOPIC) == 1
    assert [pair.key for _, pair in read(both.target.bootstrap, TOPIC, 0)] == [key for key, _ in LOG], "in their order"
    both.idle_run()


def test_the_others_wait_for_schemas_that_failed(both: Scenario) -> None:
    both.target.create(TOPIC, 1, {"cleanup.policy": "compact", "max.message.bytes": "2000"})
    write(both.source, [registered("large-value", 1, 3, os.urandom(4000).hex())])
    launcher = InProcess()
    report = both.run(launcher)
    assert report.outcome == "failed" and of_jobs(launcher)[0] == {TOPIC}
    assert "max.message.bytes" in errors(report)[TOPIC]
    assert errors(report)[both.topic] == WAITS
    assert both.target.size(both.topic) == 0
    both.target.set(TOPIC, max_message_bytes="100000")
    assert both.run().outcome == "done"
    assert in_step(both) and both.check(0).clean


def test_a_run_that_died_at_the_schemas_verifies_them_first(both: Scenario) -> None:
    assert end_of(run_process(both, failpoint=f"P3@{TOPIC}-0")) == -signal.SIGKILL
    assert both.target.size(both.topic) == 0 and read(both.target.bootstrap, TOPIC, 0)
    launcher = InProcess()
    assert both.run(launcher).outcome == "done"
    assert of_jobs(launcher)[:2] == [{TOPIC}, {both.topic}] and launcher.jobs[0].tasks[0].copy is None
    assert in_step(both) and both.check(0).clean


@pytest.mark.parametrize(
    ("theirs", "said"),
    [
        (
            registered("clicks-value", 1, 1, '"int"'),
            "id 1 is clicks-value version 1 there, and orders-value version 1 with another schema at the source",
        ),
        (OWN, "id 3 is clicks-value version 1 there, and nothing at the source"),
    ],
    ids=["collision", "own id"],
)
@pytest.mark.parametrize("existing", ["refuse", "share"])
def test_a_registry_with_other_ids_is_refused_before_a_record_is_copied(
    both: Scenario, theirs: Pair, said: str, existing: str
) -> None:
    both.settings["on_existing_target"] = existing
    both.target.create(TOPIC, 1, {"cleanup.policy": "compact"})
    write(both.target, [NOOP, theirs])
    launcher = InProcess()
    for asked in (Request(), Request(topics=(both.topic,))):
        with pytest.raises(PreflightFailed, match=f"{said}(?s:.*)topics.rename"):
            both.run(launcher, asked)
    one = BackfillRequest(topics=(both.topic,), from_=None, until=None)
    with pytest.raises(PreflightFailed, match=said):
        whole_runs.backfill(both.replication(), both.connections, both.store, launcher, one)
    assert launcher.jobs == [] and both.target.partitions(both.topic) == 0, "the target has nothing afterwards"
    assert len(read(both.target.bootstrap, TOPIC, 0)) == 2 and not both.bare_run().view().positions
    run = open_run(both.replication(), both.connections, both.store, "check")
    assert any(said in found.what and found.severity == "error" for found in checking.check(run).findings)
    both.settings["topics"] = {"include": [both.topic, TOPIC], "exclude": [TOPIC]}
    both.settings["topics"]["include"].remove(TOPIC)
    assert both.run().outcome == "done", "without the schemas, which somebody has to ask for"


def test_a_registry_that_begins_to_give_ids_is_refused(both: Scenario) -> None:
    """It writes a NOOP when it starts, behind the copies; then an id of its own."""
    assert both.run().outcome == "done"
    size = both.target.size(both.topic)
    both.source.produce(both.topic, framed(1, 30))
    write(both.source, [registered("new-value", 1, 3, '"bytes"')])
    write(both.target, [NOOP])
    report = both.run()
    assert report.outcome == "failed" and "that the ledger does not know" in errors(report)[TOPIC], report.table()
    assert errors(report)[both.topic] == WAITS and both.target.size(both.topic) == size
    write(both.target, [OWN])
    for asked in (Request(), Request(topics=(both.topic,))):
        with pytest.raises(PreflightFailed, match="id 3 is clicks-value version 1 there, and new-value version 1"):
            both.run(request=asked)
    assert both.target.size(both.topic) == size


def test_deleted_schemas_and_compaction_on_both_sides_are_nothing_odd(both: Scenario) -> None:
    """The source drops what was deleted, and then the deletion; the target still has the schema, as a copy."""
    compact = {"segment_ms": "100", "min_cleanable_dirty_ratio": "0.01", "delete_retention_ms": "0"}
    for cluster in (both.source, both.target):
        clean_every(cluster, ms=200)
    assert both.run().outcome == "done"
    both.source.set(TOPIC, **compact)
    soft = registered("payments-value", 1, 2, '"long"', soft=True)
    write(
        both.source,
        [soft, delete_subject("payments-value", 1), deleted("orders-value", 1), deleted("payments-value", 1)],
    )

    def is_gone(cluster: Cluster, subject: bytes) -> bool:
        write(cluster, [NOOP])  # the last segment is never compacted
        return not any(subject in (record.key or b"") for _, record in read(cluster.bootstrap, TOPIC, 0))

    wait_until(lambda: is_gone(both.source, b'"SCHEMA","subject":"payments-value"'))
    write(both.source, [registered("orders-value", 2, 3, '"bytes"')])
    both.source.produce(both.topic, framed(3, 30))
    assert both.run().outcome == "done"
    ids = [record.key for _, record in read(both.target.bootstrap, TOPIC, 0)]
    assert ORDERS[0] in ids and registered("orders-value", 2, 3, "")[0] in ids
    assert both.run().outcome == "nothing_to_do"


def warnings(scene: Scenario) -> list[str]:
    run = open_run(scene.replication(), scene.connections, scene.store, "check")
    return [found.what for found in checking.check(run).findings if "schema registry" in found.what]


def test_check_names_ids_that_nobody_knows(both: Scenario) -> None:
    both.source.produce(both.topic, numbered(5), 1)
    assert warnings(both) == [], "ids that will be copied are known"
    both.source.produce(both.topic, framed(77, 30), 1)
    (found,) = warnings(both)
    assert "values of its last records" in found and f"77 ({both.topic}-1 at offset 35)" in found
    assert f"{TOPIC} on the target or {TOPIC} at the source does not have" in found

    both.settings["topics"] = {"include": [both.topic]}
    assert warnings(both) == [], "there is no registry on the target"
    both.target.create(TOPIC, 1, {"cleanup.policy": "compact"})
    write(both.target, [registered("x-value", 1, 77, '"int"')])
    (found,) = warnings(both)
    assert f"ids that {TOPIC} on the target does not have: 1 ({both.topic}-0 at offset 0)" in found
    turn = cutover.Turn(run=opened(both), asked=cutover.Wishes(by="ann", quiet=0.5), launcher=InProcess())
    turn.carry_out([step for step in turn.steps if step[0] in ("copied", "schemas")])
    assert [step.state for step in turn.done] == ["done", "done"], turn.done
    assert f"1 ({both.topic}-0 at offset 0)" in turn.done[1].what, "a cut-over names them"
