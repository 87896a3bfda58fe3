"""Checks of what a target does beside copying: sessions that write entries only, records that are set aside, and what a
person decides about these. Each gets a case of its own and raises AssertionError.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from functools import partial

from kafka_replication.config.sections import Failures, Policy
from kafka_replication.copying.sink import Record, RefusedAt, SetAside, SinkSession
from kafka_replication.ledger.account import Change
from kafka_replication.ledger.entries import FailedRecord, Handled, Position
from kafka_replication.ledger.placement import KafkaSegments, Placement
from kafka_replication.ledger.port import TransactionPort
from kafka_replication.ledger.writing import apply
from kafka_replication.model.choices import Failure, FailureKind
from kafka_replication.model.errors import Fenced, Refused, TooManyFailed
from kafka_replication.model.offsets import Coverage, OffsetRange
from kafka_replication.targets.port import ToCreate
from kafka_replication.verification.digests import DIGEST_KIND
from tests.conformance.ground import raised
from tests.conformance.ledger_world import gap
from tests.conformance.sink import Check, newest
from tests.conformance.sink_case import (
    SinkCase,
    chunk_of,
    commit,
    digest_of_all,
    records,
    write,
    write_and_commit,
)

HELD: Record = (1, 1_700_000_000_001, b"k1", b"v1", [("h", b"1"), ("h", None)])  # is set aside, between two others
FAILURE = Failure(HELD[0], FailureKind.TRANSFORM, "a function failed on it", "ValueError")


@contextmanager
def fenced(case: SinkCase, policy: Policy, most: int = 10) -> Iterator[tuple[SinkSession, Position]]:
    """As that of the case, by a session that may set records aside."""
    topic = case.file.quarantine_topic
    aside = SetAside(policy=Failures(policy=policy), topic=topic, most=most)
    case.target.catalogue.create(ToCreate(name=topic, partitions=1))
    with case.sink.session(case.key, case.ids, aside) as session:
        session.fence()
        position = session.position()
        assert position is not None
        yield session, position


def set_aside(case: SinkCase, policy: Policy, held: Record = HELD, failure: Failure = FAILURE) -> FailedRecord:
    """Commit three offsets: the records at the first and the last one, and ``held`` aside."""
    first, last = records(1)[0], records(1, 2)[0]
    with fenced(case, policy) as (session, position):
        writer = session.begin()
        assert writer.screen is not None and [writer.screen(record) for record in (first, HELD)] == [None, None]
        writer.write([first])
        writer.set_aside(held, failure)
        writer.write([last])
        placement = writer.finish(digest_of_all([first, last]))
        [failed] = writer.failures
        chunk = replace(chunk_of([first, last], placement), range=OffsetRange(0, 3), failures=(failed,))
        quarantined = int(policy == "quarantine")
        receipt = replace(case.receipt(chunk), failures=(failed,), quarantined=quarantined, skipped=1 - quarantined)
        session.commit(chunk.moved(position).counting(receipt), receipt)
    assert case.values() == [b"v0", b"v2"] and newest(case).set_aside == 1
    return failed


def a_quarantined_record_is_kept_as_it_was(case: SinkCase) -> None:
    failed = set_aside(case, "quarantine")
    assert (failed.offset, failed.kind, failed.error) == (1, "transform", "ValueError")
    assert failed.place is not None and failed.place.topic == case.file.quarantine_topic
    with case.opened().quarantine() as quarantine:
        [(found, time)] = quarantine.records(case.file.quarantine_topic, case.key, 1)
        assert found == failed and time.endswith("Z")
        original = quarantine.original(case.key, failed)
        assert original is not None and original[1:4] == HELD[1:4] and list(original[4]) == HELD[4]
        moved = replace(failed.place, offset=failed.place.offset + 1_000)
        assert quarantine.original(case.key, replace(failed, place=moved)) is None
        assert quarantine.original(case.key, replace(failed, digest="0" * 32)) is None, "it is another one now"
        topic, other = case.file.quarantine_topic, replace(case.key, replication=f"{case.key.replication}-other")
        assert list(quarantine.records(topic, case.key, 2)) == list(quarantine.records(topic, other, 1)) == []
        assert list(quarantine.records(f"{topic}-not-there", case.key, 1)) == []
    with case.sink.verifier(case.key) as reader:
        assert reader.quarantined(failed)
        assert not reader.quarantined(replace(failed, digest="0" * 32))


def a_skipped_record_is_nowhere(case: SinkCase) -> None:
    assert set_aside(case, "skip").place is None
    with case.opened().quarantine() as quarantine:
        assert list(quarantine.records(case.file.quarantine_topic, case.key, 1)) == []


def no_more_is_set_aside_than_allowed(case: SinkCase) -> None:
    with fenced(case, "skip", most=1) as (session, _):
        writer = session.begin()
        writer.set_aside(HELD, FAILURE)
        again = replace(FAILURE, offset=2)
        assert raised(TooManyFailed, lambda: writer.set_aside((2, *HELD[1:]), again)).offset == 2
    with fenced(case, "fail") as (session, _):
        writer = session.begin()
        assert writer.screen is None
        assert raised(RefusedAt, lambda: writer.set_aside(HELD, FAILURE)).offset == 1


def decision(case: SinkCase, placement: object) -> Handled:
    assert isinstance(placement, KafkaSegments)
    return Handled(
        generation=1,
        state="retried",
        quarantined=Coverage.of([OffsetRange(1, 2)]),
        skipped=Coverage(),
        ids=case.ids,
        by="somebody",
        reason="",
        run_id="contract",
        time="2026-01-01T00:00:00.000Z",
        count=1,
        digest=digest_of_all([HELD]),
        digest_kind=DIGEST_KIND,
        placement=placement,
    )


@contextmanager
def retried(case: SinkCase) -> Iterator[tuple[SinkSession, Position, Placement]]:
    """A session that has written the quarantined record again, and has decided nothing yet."""
    set_aside(case, "quarantine")
    with case.target.deciding(case.key, case.ids) as session:
        session.fence()
        position = session.position()
        assert position is not None and session.refusal(HELD) is None
        session.check_target(position)
        yield session, position, write(session, [HELD])


def a_decision_and_its_records_are_there_together(case: SinkCase) -> None:
    with retried(case) as (session, position, placement):
        assert case.opened().ledger.view().handled == {}
        decided = decision(case, placement)
        _, change = case.opened().ledger.view()[case.key].deciding(decided)
        assert apply(session.ledger, session.transaction, [change], begun=True)
    assert sorted(value or b"" for value in case.values()) == [b"v0", b"v1", b"v2"]
    assert case.opened().ledger.view().handled == {case.key: (decided,)}
    with case.fenced() as (session, position):
        session.check_target(position)
        write_and_commit(case, session, position, records(2, 3))


def what_is_discarded_is_not_there_after_a_retry_that_died(case: SinkCase) -> None:
    with retried(case):
        pass  # it dies
    with case.target.deciding(case.key, case.ids) as session:
        session.fence()
        position = session.position()
        assert position is not None
        discarded = replace(decision(case, KafkaSegments()), state="discarded", count=0, digest="", digest_kind="")
        session.drop_uncommitted(discarded.offsets)
        assert apply(session.ledger, session.transaction, [Change(key=case.key, write=(position, discarded))])
    assert case.values() == [b"v0", b"v2"]


def a_session_that_was_replaced_decides_nothing(case: SinkCase) -> None:
    with retried(case) as (old, position, placement), case.fenced():
        change = Change(key=case.key, write=(position, decision(case, placement)))
        raised(Fenced, lambda: apply(old.ledger, old.transaction, [change], begun=True))
    assert case.opened().ledger.view().handled == {}


def a_session_of_entries_moves_the_position_and_crosses_a_gap(case: SinkCase) -> None:
    crossed = replace(gap(5, 7), ids=case.ids)
    with case.fenced() as (copying, position):
        position = write_and_commit(case, copying, position, records(5))
        chunk = chunk_of(records(2, 5), write(copying, records(2, 5)))
        with closing(case.target.session(case.key)) as session:
            session.fence()
            assert session.position() == position and session.key == case.key
            session.check_ids(case.ids)
            raised(Refused, lambda: session.check_ids(replace(case.ids, target_topic="another")))
            moved = position.adding(OffsetRange(5, 7), None, 0)
            assert apply(session.ledger, session.transaction, [Change(key=case.key, write=(crossed, moved))])
            session.end_left_open([case.key.target], None)
            assert session.position() == moved
            raised(Fenced, lambda: commit(case, copying, position, chunk))
    assert newest(case) == moved
    assert case.opened().ledger.view().gaps == {case.key: (crossed,)}


def a_session_of_entries_that_was_replaced_moves_nothing(case: SinkCase) -> None:
    with closing(case.target.session(case.key)) as old:
        old.fence()
        position = old.position()
        assert position is not None
        with case.fenced() as (copying, then):
            moved = write_and_commit(case, copying, then, records(5))
            stale = Change(key=case.key, write=(position.adding(OffsetRange(0, 2), None, 0),))
            raised(Fenced, lambda: apply(old.ledger, old.transaction, [stale]))
    assert newest(case) == moved


def ended_sessions_commit_nothing(case: SinkCase) -> None:
    asked = list[str]()
    with case.fenced() as (session, position):
        chunk = chunk_of(records(3), write(session, records(3)))
        case.opened().end_sessions({case.key.transactional_id: "a session"}, lambda: asked.append("before"))
        raised(Fenced, lambda: commit(case, session, position, chunk))
    assert newest(case) == position and asked == ["before"]


def ended_writers_commit_nothing_and_those_before_which_a_check_fails_go_on(case: SinkCase) -> None:
    ids = {f"contract/{case.topic}/{number}": "a writer" for number in range(2)}

    def commit(writer: TransactionPort) -> None:
        writer.begin()
        writer.send(case.topic, 0, b"k", b"v")
        writer.commit()

    def check() -> None:
        raise Refused("no time is left", "run again")

    with ExitStack() as stack:
        writers = [stack.enter_context(closing(case.target.writer(id_, "a writer"))) for id_ in ids]
        for writer in writers:
            writer.fence()
        raised(Refused, lambda: case.opened().end_sessions(ids, check))
        for writer in writers:
            commit(writer)
        case.opened().end_sessions(ids, lambda: None)
        for writer in writers:
            raised(Fenced, partial(commit, writer))


ALL: list[Check] = [
    a_quarantined_record_is_kept_as_it_was,
    a_skipped_record_is_nowhere,
    no_more_is_set_aside_than_allowed,
    a_decision_and_its_records_are_there_together,
    what_is_discarded_is_not_there_after_a_retry_that_died,
    a_session_that_was_replaced_decides_nothing,
    a_session_of_entries_moves_the_position_and_crosses_a_gap,
    a_session_of_entries_that_was_replaced_moves_nothing,
    ended_sessions_commit_nothing,
    ended_writers_commit_nothing_and_those_before_which_a_check_fails_go_on,
]
