"""An audit finds what was changed on either side since, names it by offset, and is content with what was not changed."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from kafka_replication.ledger.entries import POSITIONS
from kafka_replication.model.errors import BadInput
from kafka_replication.model.offsets import OffsetRange
from kafka_replication.reporting.audit import AuditReport, PartitionAudit
from kafka_replication.reporting.progress import Progress
from kafka_replication.runs import audit as auditing
from kafka_replication.runs.audit import AuditRequest
from kafka_replication.runs.audit_choosing import ALL
from kafka_replication.spark.jobs import Job, JobEnd
from kafka_replication.spark.launcher import Deliver
from kafka_replication.verification.auditing import Sample, Size
from kafka_replication.verification.matching import Kind
from tests.contract.launcher.test_in_process import killing
from tests.support import audits
from tests.support.actions import approve, put_receipt, receipts_of
from tests.support.checker import Record, read
from tests.support.command_line import command
from tests.support.jobs import InProcess
from tests.support.scenario import Rec, Scenario, numbered

CHUNKS: dict[str, Any] = {"copy": {"chunk_records": 50}}


def copied(scene: Scenario) -> None:
    """200 records in chunks of 50, with an aborted transaction and a compaction's hole in between; and a second partition."""
    scene.settings |= CHUNKS
    scene.source.create(scene.topic, 2)
    scene.source.produce(scene.topic, numbered(100))
    scene.source.transaction(scene.topic, numbered(5, 900), abort=True)
    scene.source.produce(scene.topic, numbered(100, 100))
    scene.source.produce(scene.topic, numbered(30), 1)
    assert scene.run().outcome == "done"


def audit(scene: Scenario, **request: Any) -> AuditReport:
    return audits.audit(scene.bare_run("audit"), AuditRequest(**request))


def one(report: AuditReport, partition: int = 0) -> PartitionAudit:
    return next(each for each in report.partitions if each.key.source.partition == partition)


def counts(audited: PartitionAudit) -> dict[str, int]:
    return {str(kind): count for kind, count in audited.counts.items() if count}


def test_records_deleted_from_the_target(scene: Scenario) -> None:
    copied(scene)
    scene.target.delete_before(scene.topic, 0, 20)
    report = audit(scene)
    assert report.outcome == "differs"
    assert [str(each) for each in one(report).stretches] == ["missing source [0, 20): 20 records"]
    assert one(report, 1).outcome == "clean"
    part = audit(scene, topic=scene.topic, partition=0, range=OffsetRange(100, 120))
    assert part.outcome == "clean" and one(part).range.from_ in (50, 100), "a range of whole chunks, elsewhere"


def test_doubled_and_foreign_records_on_the_target(scene: Scenario) -> None:
    copied(scene)
    end = read(scene.target.bootstrap, scene.topic, 0)[-1][0] + 2  # one past the last chunk's marker
    scene.target.produce(scene.topic, [*numbered(1, 7), Rec(b"foreign", b"x")])
    report = audit(scene)
    assert [str(each) for each in one(report).stretches] == [f"extra target [{end}, {end + 2}): 2 records"]
    assert counts(one(report)) == {"extra": 2}


def test_records_aborted_on_the_target_are_none(scene: Scenario) -> None:
    copied(scene)
    scene.target.transaction(scene.topic, numbered(5, 900), abort=True)
    assert audit(scene).outcome == "clean"


def restored(scene: Scenario, change: Any) -> list[str]:
    """The target topic was lost and brought back by hand, not quite as it was; what the audit says of it."""
    scene.settings |= {"copy": {"chunk_records": 1000}}
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(100))
    assert scene.run().outcome == "done"
    records: list[Record] = [record for _, record in read(scene.target.bootstrap, scene.topic, 0)]
    scene.target.delete(scene.topic)
    scene.target.create(scene.topic)
    scene.target.produce(scene.topic, [Rec(r.key, r.value, r.headers, r.timestamp) for r in change(records)])
    found = one(audit(scene))
    assert "re-created" in found.notes[0]
    return [str(each) for each in found.stretches]


def altered(record: Record) -> Record:
    return Record(record.key, record.value, record.headers, record.timestamp + 1)


def test_a_restored_target_is_compared_by_content(scene: Scenario) -> None:
    assert restored(scene, lambda records: records) == []


def test_an_altered_record(scene: Scenario) -> None:
    """By one millisecond of its timestamp."""
    assert restored(scene, lambda records: [*records[:40], altered(records[40]), *records[41:]]) == [
        "altered source [40, 41), target [40, 41): 1 record"
    ]


def test_records_in_another_order(scene: Scenario) -> None:
    found = restored(scene, lambda records: [*records[:10], records[70], *records[10:70], *records[71:]])
    assert found == ["moved source [70, 71), target [10, 11): 1 record"]


def test_a_record_that_was_left_out(scene: Scenario) -> None:
    assert restored(scene, lambda records: [*records[:40], *records[41:]]) == ["missing source [40, 41): 1 record"]


def test_a_source_that_lost_its_old_records(scene: Scenario) -> None:
    """What it still has is compared by content, the rest with the receipts; a copy that is whole is clean."""
    copied(scene)
    scene.source.delete_before(scene.topic, 0, 120)
    report = audit(scene)
    assert report.outcome == "clean", report.text()
    found = one(report)
    assert found.by_receipt >= 120 and found.by_content > 0 and found.by_content + found.by_receipt == 206
    scene.target.delete_before(scene.topic, 0, 20)
    found = one(audit(scene))
    assert [str(each) for each in found.stretches] == ["missing source [0, 50), target [0, 50): 20 records"]


def test_a_source_that_is_gone(scene: Scenario) -> None:
    copied(scene)
    scene.source.delete(scene.topic)
    report = audit(scene)
    assert report.outcome == "clean" and one(report).by_content == 0, report.text()


def test_a_receipt_that_does_not_fit_the_copy(scene: Scenario) -> None:
    """While the source has the records they decide; without it the receipt does."""
    copied(scene)
    key, value = receipts_of(scene)[50]
    value["digest"] = "0" * 32
    put_receipt(scene, key, value)
    assert audit(scene).outcome == "clean"
    scene.source.delete_before(scene.topic, 0, 120)
    assert [str(each) for each in one(audit(scene)).stretches] == [
        "altered source [50, 100), target [51, 101): 1 record"
    ]


def test_an_unknown_digest_kind_is_named_and_is_no_difference(scene: Scenario) -> None:
    copied(scene)
    for key, value in list(receipts_of(scene).values())[1:]:
        put_receipt(scene, key, value | {"digest_kind": "xxh3_128/2"})
    found = one(audit(scene))
    assert (found.outcome, found.stretches) == ("failed", [])
    assert len(found.errors) == 1, "one error for the kind, not one for each chunk"
    assert "'xxh3_128/2'" in found.errors[0] and "upgrade" in found.errors[0]
    assert found.by_content == 50, "the chunk whose digest kind is known was compared"


def test_a_missing_receipt_is_an_error(scene: Scenario) -> None:
    copied(scene)
    put_receipt(scene, receipts_of(scene)[50][0], None)
    report = audit(scene)
    assert report.outcome == "failed" and "no receipt for source offsets [50, 100)" in one(report).errors[0]
    assert one(report, 1).outcome == "clean"


def test_a_target_that_is_gone(scene: Scenario) -> None:
    copied(scene)
    scene.target.delete(scene.topic)
    assert "is gone" in one(audit(scene)).errors[0]


def test_gaps_that_were_given_up_are_shown_as_lost(scene: Scenario) -> None:
    copied(scene)
    scene.source.produce(scene.topic, numbered(30, 200))
    scene.source.delete_before(scene.topic, 0, 216)
    approve(scene, 206, 216)
    assert scene.run().outcome == "done"
    report = audit(scene)
    assert report.outcome == "clean", report.text()
    assert [gap.range for gap in one(report).lost] == [OffsetRange(206, 216)]
    assert "LOST" in report.text()


def test_records_behind_which_the_copy_was_appended_are_no_strangers(scene: Scenario) -> None:
    scene.settings |= {"on_existing_target": "append"}
    for side in (scene.source, scene.target):
        side.create(scene.topic)
    scene.target.produce(scene.topic, numbered(5, 900))
    scene.source.produce(scene.topic, numbered(40))
    scene.run()
    assert audit(scene).outcome == "clean"
    scene.target.produce(scene.topic, numbered(1, 900))
    assert counts(one(audit(scene))) == {"extra": 1}


def test_what_was_never_copied_cannot_be_audited(scene: Scenario) -> None:
    with pytest.raises(BadInput, match="never copied"):
        audit(scene)


def test_a_lost_ledger_is_told_with_what_stands_on_the_target(scene: Scenario) -> None:
    copied(scene)
    key = scene.key(1)
    scene.target.produce(POSITIONS, [Rec(key.entry("position"), None)], key.ledger_partition)
    report = audit(scene)
    assert (report.outcome, one(report).outcome) == ("failed", "clean")
    (error,) = one(report, 1).errors
    assert "the store says everything below 30 was verified, but the ledger has no entry: it was lost" in error
    assert f"{scene.topic}-1 on the target holds offsets [0, 31)" in error
    assert "restore the ledger topics of the target" in error
    scene.target.produce(POSITIONS, [Rec(scene.key().entry("position"), None)], scene.key().ledger_partition)
    code, out, _ = command(scene, "audit", "--json")
    document = json.loads(out)
    assert (code, document["outcome"], len(document["partitions"])) == (1, "failed", 2), document


def test_the_command_and_its_report_file(scene: Scenario) -> None:
    copied(scene)
    file = scene.folder / "audit.json"
    arguments: Sequence[str] = ("audit", "--topic", scene.topic, "--report", str(file))
    code, out, err = command(scene, *arguments)
    assert code == 0 and out.rstrip().endswith("clean"), err
    scene.target.produce(scene.topic, [Rec(b"foreign", b"x")])
    code, out, _ = command(scene, *arguments, "--json")
    document = json.loads(out)
    assert code == 1 and document["outcome"] == "differs" and json.loads(file.read_text()) == document
    assert [each[str(Kind.EXTRA)] for each in document["partitions"]] == [1, 0]
    code, _, err = command(scene, "audit", "--from", "9", "--until", "3")
    assert code == 2 and "not an offset range" in err
    code, _, err = command(scene, "audit", "--report", str(scene.folder / "no" / "such.json"))
    assert code == 2 and "cannot write" in err


def test_a_sample_looks_at_some_chunks_and_says_how_much_that_is(scene: Scenario) -> None:
    copied(scene)
    scene.target.produce(scene.topic, [Rec(b"foreign", b"x")])
    report = audit(scene, sample=Sample(2, 7))
    assert report.outcome == "clean", "it does not search for records of others"
    found, other = one(report), one(report, 1)
    assert (found.chunks, found.offsets) == (2, 206) and 100 <= found.by_content <= 106
    assert (other.chunks, other.by_content, other.offsets) == (1, 30, 30)
    said = f"seed 7: {found.by_content + 30} of 236 copied offsets were looked at"
    assert said in report.text() and report.document().sample == Sample(2, 7)


def test_a_sample_finds_a_record_that_is_gone_if_it_draws_its_chunk_and_each_time_it_does(scene: Scenario) -> None:
    copied(scene)
    scene.target.delete_before(scene.topic, 0, 20)
    outcomes = set[str]()
    for seed in range(100):
        first, again = (audit(scene, sample=Sample(1, seed)) for _ in range(2))
        assert replace(first.document(), time="") == replace(again.document(), time="")
        outcomes.add(first.outcome)
        found = one(first)
        assert found.chunks == 1
        assert (first.outcome == "differs") == (found.target_records < found.source_records)
        if len(outcomes) == 2:
            break
    assert outcomes == {"clean", "differs"}
    assert audit(scene, sample=Sample(99, 0)).outcome == "differs", "every chunk is in a sample that is large enough"


def test_a_sample_and_its_seed_on_the_command_line(scene: Scenario) -> None:
    copied(scene)
    code, out, err = command(scene, "audit", "--sample", "2", "--json")
    document = json.loads(out)
    assert code == 0 and document["sample"]["chunks"] == 2, err
    seed = str(document["sample"]["seed"])
    code, out, _ = command(scene, "audit", "--sample", "2", "--seed", seed)
    assert code == 0 and f"seed {seed}: " in out and out.rstrip().endswith("clean, as far as the sample goes")
    code, _, err = command(scene, "audit", "--seed", seed)
    assert code == 2 and "without a sample" in err


class EndsEarly(InProcess):
    """Spark ends after the first result of each job."""

    def submit(self, job: Job, deliver: Deliver) -> JobEnd:
        super().submit(replace(job, audits=job.audits[:1]), deliver)
        return JobEnd(error="Spark ended", remedy="see its log", retriable=False)


class LosesItsExecutorsOnce(InProcess):
    """The first job has no result."""

    def submit(self, job: Job, deliver: Deliver) -> JobEnd:
        if not self.audits:
            self.audits.append(job)
            return JobEnd(error="Spark lost every executor")
        return super().submit(job, deliver)


def test_an_untouched_copy_is_clean_whatever_becomes_of_workers(scene: Scenario) -> None:
    copied(scene)
    report = audit(scene)
    assert report.outcome == "clean", report.text()
    found = one(report)
    assert (found.source_records, found.target_records, found.chunks) == (200, 200, 4)
    assert (found.range, found.by_content, found.by_receipt) == (OffsetRange(0, 206), 206, 0)
    assert one(report, 1).target_records == 30
    progress_counts_partitions_records_and_bytes_as_results_come(scene)
    a_partition_that_no_worker_can_read_fails_and_the_others_do_not(scene)
    what_spark_did_not_come_to_is_named_and_not_called_equal(scene)
    audits_without_a_result_are_submitted_again(scene)


def on(scene: Scenario, launcher: InProcess, show: Callable[[Progress], None] = lambda progress: None) -> AuditReport:
    return auditing.audit(replace(scene.bare_run("audit"), show=show), ALL, launcher, least=Size())


def progress_counts_partitions_records_and_bytes_as_results_come(scene: Scenario) -> None:
    seen: list[Progress] = []
    on(scene, InProcess(), seen.append)
    assert [(one.ranges, one.ranges_done, one.percent) for one in seen] == [(2, 1, 87), (2, 2, 100)]
    assert [one.records for one in seen] == [200, 230]
    assert 0 < seen[0].bytes < seen[1].bytes and seen[1].bytes_per_second > 0


def a_partition_that_no_worker_can_read_fails_and_the_others_do_not(scene: Scenario) -> None:
    """Its worker dies in every attempt."""
    with killing(f"{scene.topic}-0"):
        report = on(scene, InProcess())
    assert (one(report).outcome, one(report, 1).outcome) == ("failed", "clean")
    (error,) = one(report).errors
    assert "a part was not audited" in error and "ended in every attempt" in error and "Remedy: " in error
    assert one(report).by_content == 0 and one(report).offsets == 206


def what_spark_did_not_come_to_is_named_and_not_called_equal(scene: Scenario) -> None:
    report = on(scene, EndsEarly())
    assert {found.outcome for found in report.partitions} == {"clean", "failed"}
    (failed,) = (found for found in report.partitions if found.outcome == "failed")
    assert "Spark ended. Remedy: see its log" in failed.errors[0] and not failed.by_content


def audits_without_a_result_are_submitted_again(scene: Scenario) -> None:
    launcher = LosesItsExecutorsOnce()
    report = on(scene, launcher)
    assert report.outcome == "clean" and len(launcher.audits) == 2, report.text()
