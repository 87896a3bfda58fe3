"""Failed records, when the target, the quarantine topic or the ledger changed since they were set aside."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from kafka_replication.kafka.session import KafkaSession
from kafka_replication.kafka.target import KafkaQuarantine
from kafka_replication.ledger.account import Change
from kafka_replication.ledger.entries import Handled
from kafka_replication.ledger.writing import apply
from kafka_replication.model.choices import Action
from kafka_replication.model.errors import Stalled
from kafka_replication.model.offsets import Coverage, OffsetRange
from kafka_replication.planning.backfill_request import parse
from kafka_replication.reporting.backfill import plan_table
from kafka_replication.reporting.failed import DecidedDocument
from kafka_replication.runs import backfill as backfilling
from kafka_replication.runs import failed_records, leasing, retry_discard
from kafka_replication.runs.failed import Asked, handle
from kafka_replication.runs.reset import reset_topic
from kafka_replication.runs.run import open_run
from kafka_replication.runtime import deadline
from kafka_replication.verification.matching import Kind
from tests.support import whole_runs
from tests.support.audits import audit
from tests.support.command_line import command
from tests.support.failed import QUARANTINE, ask, assert_each_once, failures, lose_receipts, lose_store
from tests.support.jobs import InProcess, after_copy
from tests.support.leases import acquire, exactly
from tests.support.scenario import Rec, Scenario, numbered, only
from tests.support.waiting import wait_until

fence = KafkaSession.fence
SOMEBODY = "kafka-replication.failed."


def offsets(scene: Scenario, **asked: str) -> list[tuple[int, str]]:
    return [(row["offset"], row["state"]) for row in ask(scene, Action.LIST, **asked)]


def three_set_aside(scene: Scenario) -> None:
    """Of 200 records in chunks of 50: records without a key, on a compacted target."""
    scene.settings |= {"copy": {"chunk_records": 50}, "failures": QUARANTINE}
    scene.source.create(scene.topic)
    scene.target.create(scene.topic, 1, {"cleanup.policy": "compact"})
    records = numbered(200)
    for place in (7, 8, 130):
        records[place] = Rec(None, b"%d" % place)
    scene.source.produce(scene.topic, records)
    assert scene.run().outcome == "done"


def test_what_somebody_else_retried_meanwhile_is_named_and_no_failure(with_failures: Scenario) -> None:
    """Two ask at once: the second waits for the first, and finds nothing left to do."""
    scene = with_failures
    scene.target.set(scene.topic, cleanup_policy="delete")
    rows = failed_records.failed_records(scene.bare_run(), scene.bare_run().view(), failed_records.Selection())
    first = acquire(scene.store, scene.name, "first", "try-1", 60)
    run = open_run(scene.replication(), scene.connections, scene.store, "second")
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(handle, run, Action.RETRY, Asked(everything=True), retry_discard.Decision(by="ben"))
        wait_until(lambda: any(lease.waiting for lease in scene.store.leases(scene.name)))
        retry_discard.retry(scene.bare_run("first"), rows, retry_discard.Decision(by="ann"))
        scene.store.release_lease(first)
        answer = asking.result()
    assert not answer.failed, answer.text
    assert f"RETRIED {scene.topic}-0 offset 7: by ann before" in answer.text
    assert "4 of 4 records retried, 4 of them before" in answer.text
    assert isinstance(answer.document, DecidedDocument)
    assert all(row.done and "by ann" in (row.why or "") for row in answer.document.records)
    assert_each_once(scene)
    [other, *_] = retry_discard.discard(scene.bare_run(), rows, retry_discard.Decision(by="ben"))
    assert not other.done and other.why.startswith("it was retried by ann before")


def test_what_a_backfill_copied_again_is_not_retried(scene: Scenario) -> None:
    """The second copy of the chunk has the records that the first one set aside."""
    three_set_aside(scene)
    assert [row["done"] for row in ask(scene, Action.DISCARD, from_=8, until=9)] == [True]
    scene.target.set(scene.topic, cleanup_policy="delete")
    scene.target.delete_before(scene.topic, 0, 60)
    request = parse(scene.replication(), topics=[scene.topic], from_=0, until=200)
    report = whole_runs.backfill(scene.replication(), scene.connections, scene.store, InProcess(), request)
    assert report.outcome == "done", report.table()
    assert offsets(scene) == [(130, "quarantined")]
    view = scene.bare_run().view()
    assert (view[scene.key()].set_aside(), view[scene.key()].undecided()) == ((1, 0), 1)
    assert [row["offset"] for row in ask(scene, Action.RETRY, everything=True)] == [130]
    assert_each_once(scene)
    audited = audit(scene.bare_run())
    assert audited.outcome == "clean", audited.text()


def test_a_retry_says_before_it_sends_that_the_order_is_lost(
    with_failures: Scenario, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three of the four lie before others at the source; the last one does not."""
    scene, said = with_failures, list[str]()
    scene.target.set(scene.topic, cleanup_policy="delete")

    def noting(self: KafkaSession) -> None:
        said.extend(caplog.messages)
        fence(self)

    monkeypatch.setattr(KafkaSession, "fence", noting)
    assert all(row["done"] for row in ask(scene, Action.RETRY, everything=True))
    assert any("3 of the 4 records will lie behind records that are newer" in line for line in said), said


def test_who_decides_in_two_lines_is_bad_input(with_failures: Scenario) -> None:
    for words in (("--by", "ann\nbob"), ("--by", "ann", "--reason", "because\tit"), ("--by", "a" * 1001)):
        code, out, _ = command(with_failures, "failed", "discard", "--all", "--json", *words)
        assert (code, json.loads(out)["error_id"]) == (2, "bad-input"), out
    assert len(offsets(with_failures)) == 4


def test_retried_records_that_the_target_no_longer_has(with_failures: Scenario) -> None:
    """They are gone as the chunks before them are: an audit says so, and is not at its end."""
    scene = with_failures
    scene.target.set(scene.topic, cleanup_policy="delete")
    assert all(row["done"] for row in ask(scene, Action.RETRY, everything=True))
    scene.target.delete_before(scene.topic, 0, scene.target.size(scene.topic))
    (audited,) = audit(scene.bare_run()).partitions
    assert not audited.errors and audited.outcome == "differs"
    assert audited.counts[Kind.MISSING] == 60, audited.stretches
    request = parse(scene.replication(), topics=[scene.topic], from_=0, until=60)
    text = plan_table(backfilling.preview(scene.bare_run(), request))
    assert "WITHHELD" in text and "[0, 60) are not on" in text and "LOST" not in text


def test_a_record_that_was_retried_although_its_chunk_has_it(with_failures: Scenario) -> None:
    """It is there twice: the ledger alone shows it to an audit."""
    scene, position = with_failures, with_failures.position()
    with scene.bare_run().clusters.target.deciding(scene.key(), position.ids) as session:
        session.fence()
        decided = Handled(
            generation=1,
            state="retried",
            quarantined=Coverage.of([OffsetRange(8, 10)]),
            skipped=Coverage(),
            ids=position.ids,
            by="",
            reason="",
            run_id="",
            time="2030-01-31T06:00:00.000Z",
        )
        apply(session.ledger, session.transaction, [Change(key=scene.key(), write=(position, decided))])
    (audited,) = audit(scene.bare_run()).partitions
    assert audited.outcome == "differs" and audited.counts[Kind.EXTRA] == 1, audited.stretches
    assert "source offsets [9, 10) were retried" in audited.notes[-1]


def test_records_of_others_in_the_quarantine_topic(with_failures: Scenario) -> None:
    """People write there by hand, also what an application copied from another replication's topic."""
    scene = with_failures
    before, place = offsets(scene), failures(scene)[0].place
    assert place is not None
    names = "cluster replication topic partition offset timestamp target generation kind reason error time content"
    values = f"x another {scene.topic} 0 9 1 {scene.topic} 1 refused r e 2030-01-31T06:00:00.000Z whole"
    ours = dict(zip(names.split(), values.split(), strict=True))
    by_hand = {**ours, "replication": scene.name, "offset": "ten"}
    half = {name: ours[name] for name in ("cluster", "topic", "content")}
    strange = [
        Rec(b"k", b"v", tuple((SOMEBODY + name, value.encode()) for name, value in each.items()))
        for each in (ours, by_hand, half)
    ]
    scene.target.produce(place.topic, [*strange, Rec(b"k", b"v", ((f"{SOMEBODY}cluster", None),))], place.partition)
    lose_receipts(scene)
    lose_store(scene)
    assert offsets(scene) == before


def test_what_was_decided_long_ago_leaves_the_store_and_open_records_never(
    with_failures: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lost store gets back what one that was kept would have, and nothing is searched for old decisions."""
    scene, still = with_failures, [(30, "quarantined"), (59, "quarantined")]
    monkeypatch.setattr(retry_discard, "now", lambda: "2020-01-31T06:00:00.000Z")
    assert len(ask(scene, Action.DISCARD, from_=7, until=9)) == 2
    scene.store.prune(scene.name, scene.replication().retention.history)
    assert len(offsets(scene, state="any")) == 4, "as long as the ledger has their receipts"
    assert [(row.offset, row.state) for row in scene.store.failed(scene.name)] == still
    lose_receipts(scene)
    with monkeypatch.context() as searching:
        searching.setattr(KafkaQuarantine, "records", None)
        assert offsets(scene, state="any") == still
    monkeypatch.undo()
    assert len(ask(scene, Action.DISCARD, from_=30, until=31)) == 1
    lose_store(scene)
    assert offsets(scene, state="any") == [(30, "discarded"), (59, "quarantined")]


def test_what_an_open_transaction_hides_is_not_left_out(
    with_failures: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without receipts only the quarantine topic names the records: either all are listed, or it is said why not."""
    scene = with_failures
    before, place = offsets(scene), failures(scene)[0].place
    assert place is not None
    scene.settings["copy"] = {"stall_timeout": 1}
    monkeypatch.setattr(deadline, "ATTEMPTS", 1)
    other = scene.target.transactional()
    other.begin_transaction()
    other.produce(place.topic, b"of somebody else", partition=place.partition)
    other.flush()
    scene.source.produce(scene.topic, [Rec(None, b"60")])
    assert scene.run().outcome == "failed", "it is copied, and cannot be read back yet"
    lose_receipts(scene)
    lose_store(scene)
    with pytest.raises(Stalled, match="a transaction is open"):
        offsets(scene)
    other.abort_transaction(30)
    assert offsets(scene) == [*before, (60, "quarantined")]


def test_a_quarantine_topic_that_was_deleted_is_not_waited_for(scene: Scenario) -> None:
    """Neither by the run that has to read its records back, nor by an audit, nor by a retry."""
    scene.source.create(scene.topic)
    scene.target.create(scene.topic, 1, {"cleanup.policy": "compact"})
    scene.source.produce(scene.topic, [*numbered(5), Rec(None, b"5"), Rec(None, b"6")])
    scene.settings |= {"failures": QUARANTINE}
    topic = scene.replication().quarantine_topic
    report = scene.run(after_copy(lambda: scene.target.delete(topic)))
    assert "offset 5 is not in quarantine" in (only(report).error or ""), report.table()
    scene.source.delete_before(scene.topic, 0, 6)
    scene.target.create(topic, 16)
    scene.target.set(scene.topic, cleanup_policy="delete")
    (audited,) = audit(scene.bare_run()).partitions
    assert not audited.errors and audited.counts[Kind.MISSING] == 2
    done = {row["offset"]: row["why"] for row in ask(scene, Action.RETRY, everything=True)}
    assert done == {5: "neither the source nor the quarantine topic has its content", 6: None}


def test_many_quarantined_records_fit_into_a_quarantine_topic_that_takes_each(scene: Scenario) -> None:
    """A batch is no larger than what this topic takes, either."""
    topic = scene.replication().quarantine_topic
    scene.source.create(scene.topic)
    scene.target.create(scene.topic, 1, {"cleanup.policy": "compact"})
    scene.target.create(topic, 1, {"max.message.bytes": "100000"})
    scene.source.produce(scene.topic, [Rec(None, os.urandom(40_000)) for _ in range(40)])
    report = scene.run(failures=QUARANTINE)
    assert report.outcome == "done", report.table()
    assert only(report).quarantined == 40


def test_what_the_quarantine_topic_refuses_is_told_behind_all_that_lies_before_it(scene: Scenario) -> None:
    topic = scene.replication().quarantine_topic
    scene.source.create(scene.topic)
    scene.target.create(scene.topic, 1, {"cleanup.policy": "compact"})
    scene.target.create(topic, 1, {"max.message.bytes": "10000"})
    small, large = Rec(None, b"small"), Rec(None, os.urandom(20_000))
    scene.source.produce(scene.topic, [*numbered(30), small, *numbered(10, 30), large, *numbered(10, 40)])
    report = scene.run(failures=QUARANTINE)
    assert f"the quarantine topic {topic} refuses the record at source offset 41: Message size too large" in (
        only(report).error or ""
    )
    assert (only(report).copied, only(report).quarantined, scene.watermark()) == (40, 1, 41)
    scene.target.set(topic, max_message_bytes="100000")
    assert scene.run(failures=QUARANTINE).outcome == "done"
    assert_each_once(scene, [30, 41])


def test_a_topic_that_is_busy_or_refused_holds_up_no_other(scene: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is named, with the reason, and its records stay."""
    other = f"{scene.name}.a"  # the first one in order
    for topic in (other, scene.topic):
        scene.source.create(topic)
        scene.target.create(topic, 1, {"cleanup.policy": "compact"})
        scene.source.produce(topic, [Rec(None, b"no key"), *numbered(3), Rec(None, b"nor this")])
    scene.settings |= {"failures": QUARANTINE, "topics": {"include": [other, scene.topic]}}
    assert scene.run().outcome == "done"
    monkeypatch.setattr(leasing, "WAIT", 0)
    scene.target.set(scene.topic, cleanup_policy="delete")
    lease = acquire(scene.store, scene.name, "backfill-7", "try 1", 600, exactly(other))

    def others(action: Action) -> list[tuple[str, int, bool]]:
        """What became of the records of the free topic."""
        busy, *rest = ask(scene, action, until=1)
        assert (busy["topic"], busy["offset"], busy["done"]) == (other, 0, False)
        assert busy["why"].startswith(f"backfill-7 (try 1) is at work on {other}. Remedy: ")
        return [(row["topic"], row["offset"], row["done"]) for row in rest]

    # The broker obeys the changed cleanup.policy some time after the change was answered.
    wait_until(lambda: others(Action.RETRY) == [(scene.topic, 0, True)])
    assert others(Action.DISCARD) == []
    scene.store.release_lease(lease)
    scene.target.delete(other)
    decided = ask(scene, Action.RETRY, everything=True)
    assert [(row["topic"], row["offset"], row["done"]) for row in decided] == [
        (other, 0, False),
        (other, 4, False),
        (scene.topic, 4, True),
    ]
    assert all("was re-created or deleted" in row["why"] and "Remedy: " in row["why"] for row in decided[:2])
    assert offsets(scene) == [(0, "quarantined"), (4, "quarantined")]


def test_a_reset_leaves_nothing_to_decide(with_failures: Scenario) -> None:
    """It copies everything again; what was open before is history."""
    scene = with_failures
    scene.target.delete(scene.topic)
    scene.target.create(scene.topic)
    reset_topic(scene.bare_run("reset"), scene.topic)
    assert scene.run().outcome == "done"
    assert offsets(scene) == []
    assert len(offsets(scene, state="any")) == 4
    scene.assert_copied()


def test_a_record_that_is_set_aside_again_is_decided_again(scene: Scenario) -> None:
    """Its chunk was copied a second time: the first decision was about the first copy, and stays in the ledger."""
    three_set_aside(scene)
    assert len(ask(scene, Action.DISCARD, everything=True)) == 3
    scene.target.set(scene.topic, cleanup_policy="compact,delete")
    scene.target.delete_before(scene.topic, 0, 60)
    request = parse(scene.replication(), topics=[scene.topic], from_=0, until=200)
    report = whole_runs.backfill(scene.replication(), scene.connections, scene.store, InProcess(), request)
    assert report.outcome == "done", report.table()
    assert scene.bare_run().view()[scene.key()].undecided() == 2
    assert offsets(scene) == [(7, "quarantined"), (8, "quarantined")]
    assert [row["done"] for row in ask(scene, Action.DISCARD, from_=7, until=8)] == [True]
    assert (offsets(scene), scene.bare_run().view()[scene.key()].undecided()) == ([(8, "quarantined")], 1)
    scene.target.set(scene.topic, cleanup_policy="delete")
    assert [row["done"] for row in ask(scene, Action.RETRY, everything=True)] == [True]
    lose_store(scene)
    view = scene.bare_run().view()
    assert (offsets(scene), view[scene.key()].undecided()) == ([], 0)
    assert offsets(scene, state="any") == [(7, "discarded"), (8, "retried"), (130, "discarded")]
    audited = audit(scene.bare_run())
    assert audited.outcome == "clean", audited.text()


def test_they_are_decided_about_in_transactions_after_the_profile_was_changed(with_failures: Scenario) -> None:
    """What the profile without transactions copies next lies behind the retried record, and is explained."""
    scene = with_failures
    scene.settings |= {"delivery": "at_least_once", "failures": {"policy": "fail"}}
    scene.source.produce(scene.topic, numbered(10, 60))
    assert scene.run().outcome == "done"
    scene.target.set(scene.topic, cleanup_policy="delete")
    assert [row["done"] for row in ask(scene, Action.RETRY, until=8)] == [True]
    assert [row["done"] for row in ask(scene, Action.DISCARD, from_=8, until=9)] == [True]
    scene.source.produce(scene.topic, numbered(10, 70))
    report = scene.run()
    assert (report.outcome, only(report).duplicates) == ("done", 0), report.table()
    assert offsets(scene) == [(30, "quarantined"), (59, "quarantined")]
    assert_each_once(scene, (8, 30, 59))
    found = audit(scene.bare_run())
    assert (found.outcome, found.partitions[0].duplicates) == ("clean", 0), found.text()
