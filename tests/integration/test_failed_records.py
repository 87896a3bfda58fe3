"""Records that cannot be copied are set aside as the policy says; nothing of them leaves the arithmetic."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from kafka_replication.ledger.writing import apply
from kafka_replication.model.choices import Action
from kafka_replication.planning import backfill_request
from kafka_replication.runs import retry_discard
from kafka_replication.runtime import failpoints
from kafka_replication.spark.jobs import Job, JobEnd
from kafka_replication.spark.launcher import Deliver
from kafka_replication.spark.worker import WorkerJob
from tests.support import whole_runs
from tests.support.audits import audit
from tests.support.checker import read
from tests.support.children import end_of, run_process
from tests.support.failed import QUARANTINE, ask, assert_each_once, failures, lose_receipts, lose_store, quarantined
from tests.support.jobs import InProcess, after_copy
from tests.support.scenario import Rec, Scenario, numbered, only

SMALL = {"max.message.bytes": "100000"}
OLD = {"message.timestamp.before.max.ms": str(20 * 365 * 86_400_000)}


def assert_all_there(scene: Scenario, failed: Sequence[int], partition: int = 0) -> None:
    """The target has all records but these, in their order."""
    source = [record for offset, record in read(scene.source.bootstrap, scene.topic, partition) if offset not in failed]
    assert [record for _, record in read(scene.target.bootstrap, scene.topic, partition)] == source


def test_a_record_without_a_key_goes_to_quarantine(scene: Scenario) -> None:
    scene.source.create(scene.topic)
    scene.target.create(scene.topic, 1, {"cleanup.policy": "compact"})
    headers = (("name", b"value"), ("null", None))
    scene.source.produce(scene.topic, [*numbered(10), Rec(None, b"no key", headers), *numbered(10, 10)])
    report = scene.run(failures=QUARANTINE)
    assert report.outcome == "done", report.table()
    line = only(report)
    assert (line.copied, line.quarantined, line.skipped, line.not_visible) == (20, 1, 0, 0)
    assert line.range.span == 21 and line.digest_ok
    assert scene.watermark() == 21
    assert_all_there(scene, [10])
    (found,) = quarantined(scene)
    assert (found.key, found.value, found.headers[:2]) == (None, b"no key", headers)
    ours = {name.removeprefix("kafka-replication.failed."): value for name, value in found.headers[2:]}
    wanted = {"topic": scene.topic, "partition": "0", "offset": "10", "timestamp": "1700000000000", "kind": "refused"}
    assert {name: (ours[name] or b"").decode() for name in wanted} == wanted
    (failed,) = failures(scene)
    assert (failed.offset, failed.kind, failed.error, failed.size) == (10, "refused", "INVALID_RECORD", 19)
    audited = audit(scene.bare_run())
    assert (audited.outcome, audited.partitions[0].quarantined) == ("clean", 1), audited.text()


def test_every_kind_at_many_places_in_every_chunk(scene: Scenario) -> None:
    """What is certain before it is sent, and what only the broker knows."""
    scene.source.create(scene.topic, 1, {"max.message.bytes": "2000000"})
    scene.target.create(scene.topic, 1, {**SMALL, **OLD, "cleanup.policy": "compact"})
    records, places = numbered(1_200), random.Random(7).sample(range(1_200), 40)
    bad = [Rec(None, b"v"), Rec(b"old", b"v", (), 1_000), Rec(b"big", os.urandom(150_000))]
    for number, place in enumerate(places):
        records[place] = bad[number % len(bad)]
    records[600] = Rec(b"compressible", bytes(150_000))  # fits, as only the broker knows
    failed = sorted(set(places) - {600})
    scene.source.produce(scene.topic, records, compression_type="lz4")
    report = scene.run(failures=QUARANTINE)
    assert report.outcome == "done", report.table()
    line = only(report)
    assert (line.copied, line.quarantined) == (1_200 - len(failed), len(failed))
    assert_all_there(scene, failed)
    assert [each.offset for each in failures(scene)] == failed
    assert {each.kind for each in failures(scene)} == {"refused", "too_large"}
    assert len(quarantined(scene)) == len(failed)
    audited = audit(scene.bare_run())
    assert audited.outcome == "clean", audited.text()


def test_a_size_that_only_the_broker_knows_to_be_too_large(scene: Scenario) -> None:
    """zlib makes them fit, lz4 does not: each is named by its refusal, and what lies between is sent once."""
    scene.source.create(scene.topic, 1, {"max.message.bytes": "2000000"})
    scene.target.create(scene.topic, 1, SMALL)
    letters = random.Random(3)
    doubtful = ["".join(letters.choices("abcdefgh", k=150_000)).encode() for _ in range(3)]
    records = numbered(1_000)
    for place, value in zip((3, 4, 990), doubtful, strict=True):
        records[place] = Rec(b"doubtful", value)
    scene.source.produce(scene.topic, records, compression_type="gzip")
    report = scene.run(failures={"policy": "fail", "too_large": "skip"})
    assert report.outcome == "done", report.table()
    assert (only(report).copied, only(report).skipped) == (997, 3)
    assert [(each.offset, each.place) for each in failures(scene)] == [(3, None), (4, None), (990, None)]
    assert_all_there(scene, [3, 4, 990])


class Company(InProcess):
    """Small ranges of one job at a time in one worker, as the driver deals them."""

    def submit(self, job: Job, deliver: Deliver) -> JobEnd:
        deliver(WorkerJob(replace(job, tasks=[], together=len(job.tasks))).together(job.tasks))
        return JobEnd()


def test_what_is_set_aside_does_not_depend_on_the_queue_of_the_client(scene: Scenario) -> None:
    """Small ranges in company have a small queue. A record that is larger is copied if the target takes it, goes to
    quarantine with its content if it does not, and is copied by a retry when the target takes it.
    """
    wide = {"max.message.bytes": "20000000"}
    scene.source.create(scene.topic, 2, wide)
    scene.target.create(scene.topic, 2, {"max.message.bytes": "12000000"})
    fits, too_large = Rec(b"fits", os.urandom(9 << 20)), Rec(b"too large", os.urandom(13 << 20))
    scene.source.produce(scene.topic, [*numbered(3), fits, too_large, *numbered(3, 3)], compression_type="none")
    scene.source.produce(scene.topic, numbered(3), 1)
    scene.settings |= {"failures": QUARANTINE}
    report = scene.run(Company())
    assert report.outcome == "done", report.table()
    assert [(line.copied, line.quarantined) for line in report.ranges] == [(7, 1), (3, 0)]
    assert_all_there(scene, [4])
    (found,) = quarantined(scene)
    assert (found.key, found.value) == (too_large.key, too_large.value)
    assert ("kafka-replication.failed.content", b"whole") in found.headers
    (failed,) = failures(scene)
    assert (failed.offset, failed.kind, failed.error) == (4, "too_large", "MSG_SIZE_TOO_LARGE")
    scene.target.set(scene.topic, max_message_bytes="20000000")
    scene.client["queue.buffering.max.kbytes"] = 1 << 10
    assert [row["state"] for row in ask(scene, Action.RETRY, everything=True)] == ["retried"]
    assert_each_once(scene)


@pytest.mark.parametrize("limit", [2, "0.2%"])
def test_the_limit_fails_the_run_before_more_is_set_aside(scene: Scenario, limit: int | str) -> None:
    scene.source.create(scene.topic)
    scene.target.create(scene.topic, 1, {"cleanup.policy": "compact"})
    records = numbered(1_000)
    for place in (100, 500, 900):
        records[place] = Rec(None, b"no key")
    scene.source.produce(scene.topic, records)
    report = scene.run(failures={**QUARANTINE, "limit": limit})
    assert report.outcome == "failed", report.table()
    assert "than a run may set aside of each source partition (failures.limit)" in (only(report).error or "")
    assert len(quarantined(scene)) == 2 and (scene.watermark() or 0) <= 900
    report = scene.run(failures={**QUARANTINE, "limit": 3})
    assert report.outcome == "done", report.table()
    assert_all_there(scene, [100, 500, 900])


def test_the_limit_is_each_partition_s_own_and_holds_for_all_slices_of_a_run(scene: Scenario) -> None:
    scene.source.create(scene.topic, 2)
    scene.target.create(scene.topic, 2, {"cleanup.policy": "compact"})
    for partition in (0, 1):
        records = numbered(400)
        for place in (20, 120, 220, 320)[: 2 + 2 * partition]:
            records[place] = Rec(None, b"no key")
        scene.source.produce(scene.topic, records, partition)
    scene.settings |= {"failures": {**QUARANTINE, "limit": 2}, "max_records_per_run": 100}
    wanted = backfill_request.parse(scene.replication(), topics=[scene.topic], from_=0, until=400)
    report = whole_runs.backfill(scene.replication(), scene.connections, scene.store, InProcess(), wanted)
    assert [(line.key.source.partition, line.quarantined) for line in report.ranges] == [(0, 2), (1, 2)]
    assert only(report, 0).error is None and only(report, 0).copied == 398, report.table()
    assert "failures.limit" in (only(report, 1).error or "") and only(report, 1).copied == 218, report.table()


def test_a_record_that_is_gone_from_quarantine_is_not_called_verified(scene: Scenario) -> None:
    scene.source.create(scene.topic)
    scene.target.create(scene.topic, 1, {"cleanup.policy": "compact"})
    scene.source.produce(scene.topic, [*numbered(10), Rec(None, b"no key"), *numbered(10, 10)])

    def vanish() -> None:
        (failed,) = failures(scene)
        assert failed.place is not None
        scene.target.delete_before(failed.place.topic, failed.place.partition, failed.place.offset + 1)

    report = scene.run(after_copy(vanish), failures=QUARANTINE)
    assert report.outcome == "failed" and "not in quarantine" in (only(report).error or ""), report.table()
    assert scene.watermark() in (None, 0)


def test_from_one_record_is_refused_to_all_of_it_is_there(with_failures: Scenario) -> None:
    scene = with_failures
    assert [row["offset"] for row in ask(scene, Action.LIST)] == [7, 8, 30, 59]
    refused = ask(scene, Action.RETRY, everything=True)
    assert not any(row["done"] for row in refused) and "compacted" in refused[0]["why"]
    scene.target.set(scene.topic, cleanup_policy="delete")
    first = ask(scene, Action.RETRY, from_=8, until=31)
    assert [(row["offset"], row["state"], row["order_lost"]) for row in first] == [
        (8, "retried", True),
        (30, "retried", True),
    ]
    assert first[0]["target"].startswith(f"{scene.topic}-0 offset ")
    assert_each_once(scene, [7, 59])
    audited = audit(scene.bare_run())
    assert audited.outcome == "clean", audited.text()
    assert (audited.partitions[0].quarantined, audited.partitions[0].retried) == (2, 2)
    assert [row["done"] for row in ask(scene, Action.RETRY, from_=8, until=9)] == [], "it is no longer open"
    scene.source.produce(scene.topic, numbered(5, 60))
    report = scene.run()
    assert report.outcome == "done", report.table()
    assert [row["offset"] for row in ask(scene, Action.DISCARD, from_=59)] == [59]
    assert [row["done"] for row in ask(scene, Action.RETRY, everything=True)] == [True]
    assert ask(scene, Action.LIST) == []
    assert_each_once(scene, [59])
    audited = audit(scene.bare_run())
    assert audited.outcome == "clean", audited.text()
    history = {
        row["offset"]: [step["state"] for step in row["history"]] for row in ask(scene, Action.LIST, state="any")
    }
    assert history == {
        7: ["quarantined", "retried"],
        8: ["quarantined", "retried"],
        30: ["quarantined", "retried"],
        59: ["quarantined", "discarded"],
    }
    view = scene.bare_run().view()
    assert (view[scene.key()].set_aside(), view[scene.key()].undecided()) == ((1, 0), 0)


def test_a_record_that_the_source_no_longer_has_comes_from_quarantine(with_failures: Scenario) -> None:
    scene = with_failures
    expected = [record for offset, record in read(scene.source.bootstrap, scene.topic, 0)]
    scene.source.delete_before(scene.topic, 0, 40)
    scene.target.set(scene.topic, cleanup_policy="delete")
    assert all(row["done"] for row in ask(scene, Action.RETRY, everything=True))
    target = [record for _, record in read(scene.target.bootstrap, scene.topic, 0)]
    assert sorted(map(repr, target)) == sorted(map(repr, expected))


def test_the_store_is_lost_and_so_are_the_receipts(with_failures: Scenario) -> None:
    """The ledger knows that four are missing from its receipts; the quarantine topic says which."""
    scene = with_failures
    before = ask(scene, Action.LIST)
    lose_store(scene)
    rebuilt = ask(scene, Action.LIST)
    assert rebuilt == before
    lose_receipts(scene)
    lose_store(scene)
    found = ask(scene, Action.LIST)
    known = ("offset", "kind", "state", "size", "key_digest", "digest", "reason", "place")
    assert [[row[name] for name in known] for row in found] == [[row[name] for name in known] for row in before]


@pytest.mark.parametrize("point", [pytest.param("P1", marks=pytest.mark.slow), "P2", "committed"])
def test_a_retry_that_is_killed_and_repeated_copies_each_record_once(
    with_failures: Scenario, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before it sends, before it commits, and after the commit that nobody heard of."""
    scene = with_failures
    scene.target.set(scene.topic, cleanup_policy="delete")

    class Killed(BaseException):
        pass

    def die(*_: Any, **__: Any) -> None:
        raise Killed

    def apply_and_die(*arguments: Any, **named: Any) -> None:
        apply(*arguments, **named)
        raise Killed

    with monkeypatch.context() as patch:
        if point == "P1":
            patch.setattr(retry_discard, "apply", die)
        elif point == "P2":
            patch.setenv("KAFKA_REPLICATION_FAILPOINT", "P2")
            failpoints.forget()
            patch.setattr(failpoints, "die", die)
        else:
            patch.setattr(retry_discard, "apply", apply_and_die)
        with pytest.raises(Killed):
            ask(scene, Action.RETRY, everything=True)
    done = ask(scene, Action.RETRY, everything=True)
    assert len(done) == (0 if point == "committed" else 4) and all(row["done"] for row in done)
    assert_each_once(scene)
    assert scene.run().outcome == "nothing_to_do"
    audited = audit(scene.bare_run())
    assert audited.outcome == "clean" and audited.partitions[0].retried == 4, audited.text()


@pytest.mark.parametrize(
    "failpoint", ["P2:3", *(pytest.param(each, marks=pytest.mark.slow) for each in ("P1:2", "P3:2", "P4"))]
)
def test_a_run_that_is_killed_sets_each_record_aside_once(scene: Scenario, failpoint: str) -> None:
    """Sent and not committed, while it is committed, committed and not reported, verified and not stored. P2 is reached
    once as the partition is opened.
    """
    scene.source.create(scene.topic)
    scene.target.create(scene.topic, 1, {"cleanup.policy": "compact"})
    records, failed = numbered(400), range(5, 400, 10)
    for place in failed:
        records[place] = Rec(None, b"%d" % place)
    scene.source.produce(scene.topic, records)
    scene.settings |= {
        "failures": QUARANTINE,
        "copy": {"chunk_records": 100, "transaction_timeout": 10},
    }
    assert end_of(run_process(scene, failpoint)) == -signal.SIGKILL
    report = scene.run()
    assert report.outcome == ("nothing_to_do" if failpoint == "P4" else "done"), report.table()
    assert scene.watermark() == 400
    assert_all_there(scene, failed)
    assert sorted(record.value or b"" for record in quarantined(scene)) == sorted(b"%d" % place for place in failed)
    assert [each.offset for each in failures(scene)] == list(failed)
    assert scene.bare_run().view()[scene.key()].set_aside() == (len(failed), 0)
    audited = audit(scene.bare_run())
    assert audited.outcome == "clean", audited.text()
