"""What a transform makes of the records is on the target, in any number, through crashes; the audit recomputes it."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Sequence

import pytest

from kafka_replication.config import PipelineDefinition
from kafka_replication.copying.steps import CLUSTER, OFFSET, PARTITION, TOPIC
from kafka_replication.kafka import topics
from kafka_replication.model.errors import BadInput
from kafka_replication.reporting.audit import AuditReport
from kafka_replication.runs import checking
from kafka_replication.verification.matching import Kind
from tests.support import audits as auditing
from tests.support import user_transforms
from tests.support.actions import receipts_of
from tests.support.checker import read
from tests.support.children import copy_process, end_of
from tests.support.command_line import command
from tests.support.scenario import Rec, Scenario, numbered, only

USER = "tests.support.user_transforms"
NOON = 1_700_000_000_000


def keyed(count: int, first: int = 0) -> list[Rec]:
    """Records whose keys end in each digit in turn."""
    return [Rec(b"k%d" % n, b"value %d" % n, (("h", b"x"),), NOON + n) for n in range(first, first + count)]


def doubled(records: Sequence[Rec]) -> list[tuple[bytes | None, bytes | None, int]]:
    """What `user_transforms.doubling` makes, computed by itself."""
    return [
        (record.key, b"%d of %s" % (number, record.value or b""), record.timestamp)
        for record in records
        for number in range(min(3, int((record.key or b"0")[-1:])))
    ]


def target_of(scene: Scenario, partition: int = 0) -> list[tuple[bytes | None, bytes | None, int]]:
    return [(one.key, one.value, one.timestamp) for _, one in read(scene.target.bootstrap, scene.topic, partition)]


def audited(scene: Scenario) -> AuditReport:
    return auditing.audit(scene.bare_run("audit"))


def test_one_several_and_none_in_many_chunks(scene: Scenario) -> None:
    """30 records: 3 become nothing, 3 one, 3 two, and 21 three each. The arithmetic is that of the source."""
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, keyed(30))
    scene.source.transaction(scene.topic, keyed(3), abort=True)
    scene.settings |= {"transform": user_transforms.DOUBLING, "copy": {"chunk_records": 7}}
    report = scene.run()
    line = only(report)
    assert report.outcome == "done", report.table()
    assert (line.copied, line.filtered, line.not_visible, line.written) == (27, 3, 4, 72)
    assert line.copied + line.filtered + line.not_visible == line.range.span
    assert "the transform made 72 records of 27" in report.table()
    assert target_of(scene) == doubled(keyed(30))
    receipts = [receipt for _, receipt in receipts_of(scene).values()]
    assert sum(receipt["count"] for receipt in receipts) == 72
    assert sum(receipt.get("sources", receipt["count"]) for receipt in receipts) == 27
    assert {receipt["transform"]["name"] for receipt in receipts} == {user_transforms.DOUBLING}
    found = audited(scene)
    assert found.outcome == "clean", found.text()
    assert (found.partitions[0].source_records, found.partitions[0].target_records) == (30, 72)


def test_an_audit_finds_what_was_added_and_what_is_gone(scene: Scenario) -> None:
    """Somebody adds a record behind ours, and the first two of ours are deleted."""
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, keyed(10))
    scene.settings |= {"transform": [user_transforms.DOUBLING]}
    assert scene.run().outcome == "done"
    scene.target.produce(scene.topic, keyed(1))
    scene.target.delete_before(scene.topic, 0, 2)
    found = audited(scene)
    assert found.outcome == "differs"
    assert found.partitions[0].counts == {Kind.MISSING: 2, Kind.EXTRA: 1, Kind.MOVED: 0, Kind.ALTERED: 0}, found.text()
    assert [str(one.source) for one in found.partitions[0].stretches if one.source] == ["[1, 3)"], "records at 1 and 2"


def test_a_function_that_is_not_pure_is_found_by_the_audit(scene: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, keyed(10))
    scene.settings |= {"transform": f"{USER}:by_environment"}
    monkeypatch.setenv("MOOD", "good")
    assert scene.run().outcome == "done"
    assert audited(scene).outcome == "clean"
    monkeypatch.setenv("MOOD", "bad")
    found = audited(scene)
    assert (found.outcome, found.partitions[0].counts[Kind.ALTERED]) == ("differs", 10)
    assert "it is not pure" in found.text()


FAILING = {"masked": "JSONDecodeError in user_transforms.py", "wrong_type": "returned str", "at_1970": "timestamp"}


@pytest.mark.parametrize("function", FAILING)
def test_a_function_that_fails_stops_before_the_record_and_shows_nothing_of_it(scene: Scenario, function: str) -> None:
    good = b'{"card": "%s"}' % user_transforms.SECRET.encode()
    scene.source.create(scene.topic, 2)
    scene.source.produce(scene.topic, [Rec(b"k%d" % n, good, (), NOON) for n in range(7)])
    scene.source.produce(scene.topic, [Rec(b"k7", user_transforms.SECRET.encode(), (), NOON), *keyed(5)])
    scene.source.produce(scene.topic, [Rec(b"a", good, (), NOON)] * 3, 1)
    scene.settings |= {"transform": f"{USER}:{function}", "copy": {"chunk_records": 3}}
    report = scene.run()
    assert report.outcome == "failed"
    text = report.table()
    assert f"{USER}:{function} fails for the record at offset 7 (partition 0" in text
    assert FAILING[function] in text and user_transforms.SECRET not in text
    assert (scene.watermark(0), scene.watermark(1), len(target_of(scene))) == (7, 3, 7)


def test_a_refused_output_is_found_among_the_source_records(scene: Scenario) -> None:
    """The target refuses what a record became; everything before that record is there, nothing of it."""
    scene.source.create(scene.topic)
    scene.target.create(scene.topic, config={"max.message.bytes": "2000"})
    big = Rec(b"k3", os.urandom(1_990), (), NOON)
    scene.source.produce(scene.topic, [*keyed(20), big, *keyed(5)])
    scene.settings |= {"transform": user_transforms.DOUBLING}
    report = scene.run()
    assert report.outcome == "failed"
    assert "offset 20" in (only(report).error or ""), report.table()
    assert scene.watermark() == 20
    assert target_of(scene) == doubled(keyed(20))


def test_a_change_is_noted_once_and_receipts_say_which_applied(scene: Scenario) -> None:
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, keyed(10))
    assert scene.run(filter="key != 'k3'").outcome == "done"
    scene.source.produce(scene.topic, keyed(10, 10))
    scene.settings |= {"transform": f"{USER}:upper"}
    changed = scene.run()
    assert changed.outcome == "done"
    (note,) = changed.notes
    assert f"copied with {USER}:upper" in note and "earlier ones were copied with filter" in note, note
    assert f"{scene.topic}-0 from 10" in note
    scene.source.produce(scene.topic, keyed(10, 20))
    assert scene.run().notes == ()
    assert [receipt["transform"]["name"] for _, receipt in receipts_of(scene).values()] == [
        "filter",
        f"{USER}:upper",
        f"{USER}:upper",
    ]
    found = audited(scene)
    assert found.outcome == "clean", found.text()
    assert (found.partitions[0].by_content, found.partitions[0].by_receipt) == (20, 10)
    assert "copied with filter (sha256:" in found.text() and "with their receipts only" in found.text()


@pytest.mark.parametrize("failpoint", ["P2:2"])
def test_kill_in_mid_copy(scene: Scenario, failpoint: str) -> None:
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, keyed(60))
    scene.settings |= {
        "transform": [user_transforms.DOUBLING, "provenance"],
        "filter": "key != 'k9'",
        "copy": {"chunk_records": 13, "transaction_timeout": 6},
    }
    assert end_of(copy_process(scene, scene.copy_job(), failpoint)) == -signal.SIGKILL
    report = scene.run()
    assert report.outcome == "done", report.table()
    assert scene.watermark() == 60
    assert target_of(scene) == doubled([one for one in keyed(60) if one.key != b"k9"])
    assert audited(scene).outcome == "clean"


def test_provenance(scene: Scenario) -> None:
    scene.source.create(scene.topic, 2)
    scene.source.produce(scene.topic, keyed(3), 1)
    scene.settings |= {"transform": "provenance"}
    assert scene.run().outcome == "done"
    found = [one.headers for _, one in read(scene.target.bootstrap, scene.topic, 1)]
    cluster = topics.cluster_id(scene.source.admin).encode()
    assert found == [
        (("h", b"x"), (CLUSTER, cluster), (TOPIC, scene.topic.encode()), (PARTITION, b"1"), (OFFSET, b"%d" % n))
        for n in range(3)
    ]
    assert audited(scene).outcome == "clean"


def test_several_of_one_are_spread_over_other_partitions(scene: Scenario) -> None:
    """Each output goes where its own key belongs. Chunks of an earlier transform are compared by their receipts."""
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, keyed(30))
    scene.settings |= {"partitioning": "by_key", "target_topics": {"partitions": 3}, "copy": {"chunk_records": 7}}
    assert scene.run(transform=f"{USER}:upper").outcome == "done"
    scene.source.produce(scene.topic, keyed(30, 30))
    scene.settings |= {"transform": user_transforms.DOUBLING}
    report = scene.run()
    assert (only(report).copied, only(report).filtered, only(report).written) == (27, 3, 72), report.table()
    written = [one for partition in range(3) for one in target_of(scene, partition)]
    upper = [(one.key, (one.value or b"").upper(), one.timestamp) for one in keyed(30)]
    assert Counter(written) == Counter([*upper, *doubled(keyed(30, 30))])
    found = audited(scene)
    assert found.outcome == "clean", found.text()
    assert (found.partitions[0].by_content, found.partitions[0].by_receipt) == (30, 30)
    assert (found.partitions[0].source_records, found.partitions[0].target_records) == (30, 102)


def test_what_cannot_be_imported_is_foreseen_and_changes_nothing(scene: Scenario) -> None:
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, keyed(3))
    scene.settings |= {"transform": f"{USER}:not_there"}
    with pytest.raises(BadInput, match="not_there cannot be imported"):
        scene.run()
    found = [one.what for one in checking.check(scene.bare_run()).findings if one.severity == "error"]
    assert any("not_there cannot be imported: AttributeError" in one for one in found), found
    code, _, err = command(scene, "plan")
    assert code == 2 and "not_there" in err
    assert scene.target.partitions(scene.topic) == 0


@pytest.mark.slow
def test_a_run_in_spark_workers_shows_nothing_of_the_record_that_fails(scene: Scenario) -> None:
    """The command line, with Spark: the workers import the function, and no log has the record."""
    scene.source.create(scene.topic)
    good = b'{"card": "%s"}' % user_transforms.SECRET.encode()
    scene.source.produce(scene.topic, [Rec(b"a", good, (), NOON)] * 3)
    scene.source.produce(scene.topic, [Rec(b"a", user_transforms.SECRET.encode(), (), NOON)])
    scene.settings |= {"transform": f"{USER}:masked"}
    code, out, err = command(scene, "--verbose", "run")
    assert code == 1 and "masked fails for the record at offset 3" in out, out + err
    assert user_transforms.SECRET not in out + err
    assert [value for _, value, _ in target_of(scene)] == [b'{"card": "****"}'] * 3


def test_without_a_pipeline_nothing_is_said_of_one(scene: Scenario) -> None:
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(5))
    assert scene.run().outcome == "done"
    ((_, receipt),) = receipts_of(scene).values()
    assert (receipt["transform"], receipt["filtered"], "sources" in receipt) == (None, 0, False)
    assert scene.position().transform is None and not PipelineDefinition()
