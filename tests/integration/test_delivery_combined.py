"""Delivery profiles together with failed records, filters and transforms: what is counted stays exact."""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from collections.abc import Sequence

import pytest

from kafka_replication.kafka.acknowledged_session import AcknowledgedSession
from kafka_replication.kafka.acknowledged_writer import AcknowledgedWriter
from kafka_replication.model.failures import Action
from kafka_replication.runs.audit import audit
from kafka_replication.runs.failed.deciding import Decision
from kafka_replication.runs.failed.handling import Asked, handle
from kafka_replication.runs.run import open_run
from kafka_replication.sinks.port import Record
from tests.support import user_transforms
from tests.support.checker import read
from tests.support.children import copy_process, end_of, run_process
from tests.support.raw_produce import produce_raw
from tests.support.scenario import Rec, Scenario, numbered, only

COUNT, CHUNK, BAD = 300, 100, (7, 8, 110, 299)


def with_large_ones(scene: Scenario, delivery: str) -> None:
    """A target that is certain to refuse four records, two of them in the first of three chunks."""
    scene.source.create(scene.topic, 1, {"max.message.bytes": "2000000"})
    scene.target.create(scene.topic, 1, {"max.message.bytes": "100000"})
    records = numbered(COUNT)
    for place in BAD:
        records[place] = Rec(b"large", os.urandom(150_000))
    scene.source.produce(scene.topic, records)
    scene.settings |= {"delivery": delivery, "copy": {"chunk_records": CHUNK}, "failures": {"policy": "quarantine"}}


def times(scene: Scenario) -> Counter[int]:
    """How often each source record is on the target, in any order."""
    copies = Counter(record for _, record in read(scene.target.bootstrap, scene.topic, 0))
    source = [record for _, record in read(scene.source.bootstrap, scene.topic, 0)]
    assert not copies.keys() - set(source)
    return Counter({number: copies[record] for number, record in enumerate(source)})


def offsets_in_quarantine(scene: Scenario) -> set[int]:
    topic = scene.replication().quarantine_topic
    found = (read(scene.target.bootstrap, topic, number) for number in range(scene.target.partitions(topic)))
    headers = (dict(record.headers) for records in found for _, record in records)
    return {int(each["kafka-replication.failed.offset"] or b"") for each in headers}


@pytest.mark.parametrize("delivery", ["at_least_once", "leader_ack", "fire_and_forget"])
def test_a_killed_copier_loses_no_record_on_its_way_to_quarantine(scene: Scenario, delivery: str) -> None:
    """The second chunk was sent, and its failed record quarantined, but the position was not written."""
    with_large_ones(scene, delivery)
    assert end_of(run_process(scene, "P1:2")) == -signal.SIGKILL
    report = scene.run()
    assert report.outcome == "done", report.table()
    there = times(scene)
    terms = ("quarantined", "lost_in_delivery", "missing", "duplicates")
    *sums, duplicates = (sum(getattr(line, term) for line in report.ranges) for term in terms)
    assert offsets_in_quarantine(scene) == set(BAD)
    assert sums == [len(BAD), 0, 0]
    assert {offset for offset in range(COUNT) if not there[offset]} == set(BAD)
    assert there.total() - (COUNT - len(BAD)) == duplicates
    assert duplicates == CHUNK or delivery == "fire_and_forget"  # the client may not have sent all of them
    audited = audit(scene.bare_run())
    assert audited.outcome == "clean", audited.text()
    assert (audited.partitions[0].quarantined, audited.partitions[0].duplicates) == (len(BAD), duplicates)
    assert scene.watermark() == COUNT


@pytest.mark.parametrize("delivery", ["at_least_once", "leader_ack"])
def test_what_only_the_broker_refuses_goes_to_quarantine(scene: Scenario, delivery: str) -> None:
    """It is known when its neighbours are sent already, so they are sent again, and counted."""
    scene.source.create(scene.topic, 1, {"max.message.bytes": "2000000"})
    scene.target.create(scene.topic, 1, {"max.message.bytes": "100000"})
    records, letters = numbered(COUNT), random.Random(3)
    for place in (5, 250):  # zlib makes them fit, lz4 does not
        records[place] = Rec(b"doubtful", "".join(letters.choices("abcdefgh", k=150_000)).encode())
    scene.source.produce(scene.topic, records, compression_type="gzip")
    report = scene.run(delivery=delivery, failures={"policy": "quarantine"})
    assert report.outcome == "done", report.table()
    line, there = only(report), times(scene)
    assert {offset for offset in range(COUNT) if not there[offset]} == {5, 250}
    assert (line.copied, line.quarantined, line.lost_in_delivery) == (COUNT - 2, 2, 0)
    assert there.total() - (COUNT - 2) == line.duplicates
    scene.settings["delivery"] = delivery
    audited = audit(scene.bare_run())
    assert (audited.outcome, audited.partitions[0].duplicates) == ("clean", line.duplicates), audited.text()


def test_the_origin_of_left_overs_is_found_behind_a_record_that_cannot_be_read(scene: Scenario) -> None:
    """The third chunk of 20 is left over: the source has a header name there that the client cannot read."""
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(50))
    produce_raw(scene.source.bootstrap, scene.topic, 0, b"k", b"v", [(b"\xff\xfe", b"x")])
    scene.source.produce(scene.topic, numbered(49, 51))
    scene.settings |= {"delivery": "at_least_once", "copy": {"chunk_records": 20}}
    scene.settings |= {"failures": {"policy": "quarantine"}}
    assert end_of(run_process(scene, "P1:3")) == -signal.SIGKILL
    report = scene.run()
    assert report.outcome == "done", report.table()
    terms = ("quarantined", "duplicates", "lost_in_delivery")
    found = [sum(getattr(line, term) for line in report.ranges) for term in terms]
    there = [record for _, record in read(scene.target.bootstrap, scene.topic, 0)]
    assert found == [1, len(there) - 99, 0]
    assert len(set(there)) == 99 and len(there) > 100
    (audited,) = audit(scene.bare_run()).partitions
    assert (audited.outcome, audited.duplicates) == ("clean", found[1]), audited.as_json()


def decide(scene: Scenario, action: Action, **asked: object) -> list[int]:
    """The offsets that were decided about."""
    run = open_run(scene.replication(), scene.connections, scene.store, f"{action}-{os.urandom(3).hex()}")
    answer = handle(run, action, Asked(**asked), Decision(by="ann", reason="why"))  # type: ignore[arg-type]
    return [row["offset"] for row in answer.document["records"] if row.get("done", True)]


def test_records_are_retried_without_transactions(scene: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first retry dies before it is written down: its records are there, and count as duplicates."""
    with_large_ones(scene, "leader_ack")
    assert scene.run().outcome == "done"
    scene.target.set(scene.topic, max_message_bytes="1000000")

    class Killed(BaseException):
        pass

    def die(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(AcknowledgedSession, "decide", die)
        with pytest.raises(Killed):
            decide(scene, Action.RETRY, until=8)
    assert decide(scene, Action.RETRY, until=9) == [7, 8]
    scene.source.produce(scene.topic, numbered(50, COUNT))
    report = scene.run()
    assert report.outcome == "done", report.table()
    assert (only(report).copied, only(report).duplicates) == (50, 1)
    assert decide(scene, Action.RETRY, everything=True) == [110, 299]
    assert decide(scene, Action.LIST) == []
    scene.idle_run()
    there = times(scene)
    assert there[7] == 2 and there.total() == COUNT + 50 + 1
    audited = audit(scene.bare_run())
    assert (audited.outcome, audited.partitions[0].duplicates) == ("clean", 1), audited.text()
    assert (audited.partitions[0].retried, audited.partitions[0].quarantined) == (4, 0)


def made(count: int) -> Counter[tuple[bytes | None, bytes]]:
    """What `user_transforms.doubling` makes of the records, computed by itself."""
    return Counter(
        (b"k%d" % n, b"%d of value %d" % (number, n)) for n in range(count) for number in range(min(3, n % 10))
    )


def target_of(scene: Scenario) -> Counter[tuple[bytes | None, bytes]]:
    return Counter((one.key, one.value or b"") for _, one in read(scene.target.bootstrap, scene.topic, 0))


def transformed(scene: Scenario, delivery: str, count: int) -> None:
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, [Rec(b"k%d" % n, b"value %d" % n) for n in range(count)])
    transform = {"transform": user_transforms.DOUBLING, "filter": "key != 'nobody'"}
    scene.settings |= {"delivery": delivery, "copy": {"chunk_records": 20}, **transform}


def test_what_a_killed_copier_made_and_left_is_counted(scene: Scenario) -> None:
    """The transform makes none, one, two or three records. The second chunk is sent twice."""
    transformed(scene, "at_least_once", 60)
    assert end_of(copy_process(scene, scene.copy_job(), "P1:2")) == -signal.SIGKILL
    report = scene.run()
    assert report.outcome == "done", report.table()
    wanted, there = made(60), target_of(scene)
    assert not wanted - there
    assert (there - wanted).total() == sum(line.duplicates for line in report.ranges) == made(20).total()
    audited = audit(scene.bare_run())
    assert (audited.outcome, audited.partitions[0].duplicates) == ("clean", made(20).total()), audited.text()


def test_a_source_record_counts_as_lost_if_a_record_made_of_it_is(
    scene: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of the three records of one source record are lost, and one of another one."""
    transformed(scene, "fire_and_forget", 60)
    produce = AcknowledgedWriter._produce
    lost = {b"0 of value 25", b"2 of value 25", b"1 of value 48"}

    def losing(writer: AcknowledgedWriter, batch: Sequence[Record]) -> None:
        kept = [record for record in batch if record[3] not in lost]
        writer._sent += len(batch) - len(kept)
        produce(writer, kept)

    monkeypatch.setattr(AcknowledgedWriter, "_produce", losing)
    report = scene.run(accept_loss=0.5)
    assert report.outcome == "done", report.table()
    line = only(report)
    assert {value for _, value in made(60) - target_of(scene)} == lost
    assert (line.lost_in_delivery, line.duplicates, line.filtered) == (2, 0, 6)
    assert line.copied == 60 - 6 - 2
    audited = audit(scene.bare_run())
    assert (audited.outcome, audited.partitions[0].lost_in_delivery) == ("clean", 2), audited.text()
    scene.settings["transform"] = "provenance"
    audited = audit(scene.bare_run())
    assert audited.outcome == "clean" and "was not compared" in audited.text(), audited.text()
