"""Checks of what every sink has to do. Each check gets a case of its own and raises AssertionError."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from kafka_replication.copying.sink import Record, RefusedAt, SinkSession
from kafka_replication.ledger.entries import Position
from kafka_replication.model.errors import Fenced, ForeignWriter, Refused
from kafka_replication.model.offsets import OffsetRange
from kafka_replication.verification.digests import Fingerprint
from tests.conformance.ground import raised
from tests.conformance.sink_case import (
    SinkCase,
    chunk_of,
    commit,
    digest_of_all,
    parts_of,
    records,
    write,
    write_and_commit,
)

FOREIGN_RECORD: Record = (0, 1_700_000_000_000, b"foreign", b"foreign", None)


Check = Callable[[SinkCase], None]
# transactional: readers see a chunk's records, its receipt and the new position together, or nothing of them.
# idempotent: readers may see records of a chunk before its commit; repeating the chunk changes nothing, and a session
# that was replaced can change nothing that its successor wrote.
# acknowledged: readers may see records of a chunk before its commit; repeating the chunk doubles them; none is lost.
# leader: as acknowledged, but records that only their leader had are lost with it.
# none: any record may be lost.
# latest: as idempotent, about the newest record of each key. Where a record is, its key tells; and what was written and
# is not committed cannot be taken back.
Guarantee = Literal["transactional", "idempotent", "latest", "acknowledged", "leader", "none"]


def newest(case: SinkCase) -> Position:
    with case.fenced() as (_, position):
        return position


def a_committed_chunk_is_visible_with_its_position(case: SinkCase) -> None:
    with case.fenced() as (session, position):
        moved = write_and_commit(case, session, position, records(5))
    assert case.values() == [b"v%d" % n for n in range(5)]
    assert newest(case) == moved


def not_committed(session: SinkSession) -> tuple[int, Record | None]:
    return session.written, session.first


def what_was_written_and_is_not_committed_is_counted(case: SinkCase) -> None:
    with case.fenced() as (session, position):
        assert not_committed(session) == (0, None)
        placement = write(session, records(5))
        assert not_committed(session) == (5, records(5)[0])
        commit(case, session, position, chunk_of(records(5), placement))
        assert not_committed(session) == (0, None)


def chunks_of_one_session_follow_each_other(case: SinkCase) -> None:
    with case.fenced() as (session, position):
        position = write_and_commit(case, session, position, records(3))
        position = write_and_commit(case, session, position, records(1, 3))
        write_and_commit(case, session, position, records(4, 4))
    assert case.values() == [b"v%d" % n for n in range(8)]


def what_is_not_committed_is_not_there(case: SinkCase) -> None:
    with case.fenced() as (session, before):
        write(session, records(5))
    assert newest(case) == before
    assert case.values() == []
    with case.fenced() as (session, position):
        write_and_commit(case, session, position, records(5))
    assert case.values() == [b"v%d" % n for n in range(5)]


def what_is_not_committed_is_not_in_the_position(case: SinkCase) -> None:
    with case.fenced() as (session, before):
        write(session, records(5))
    assert newest(case) == before


def a_session_cannot_commit_after_a_newer_one_did(case: SinkCase) -> None:
    with case.fenced() as (old, position):
        old.check_target(position)
        chunk = chunk_of(records(5), write(old, records(5)))
        with case.fenced() as (new, then):
            new.check_target(then)
            moved = write_and_commit(case, new, then, records(3))
            raised(Fenced, lambda: commit(case, old, position, chunk))
    assert newest(case) == moved


def a_fenced_session_cannot_commit(case: SinkCase) -> None:
    with case.fenced() as (old, position):
        chunk = chunk_of(records(5), write(old, records(5)))
        with case.fenced() as (new, then):
            assert then == position
            raised(Fenced, lambda: commit(case, old, position, chunk))
            write_and_commit(case, new, then, records(5))
    assert case.values() == [b"v%d" % n for n in range(5)]


def the_position_is_read_after_fencing(case: SinkCase) -> None:
    with case.fenced() as (old, position), case.session() as new:
        moved = write_and_commit(case, old, position, records(5))
        new.fence()
        assert new.position() == moved


def a_chunk_without_records_moves_the_position(case: SinkCase) -> None:
    with case.fenced() as (session, position):
        placement = session.begin().finish(digest_of_all([]))
        moved = commit(case, session, position, chunk_of([], placement, until=7))
    assert (moved.next_offset, newest(case), case.values()) == (7, moved, [])


def the_placement_says_where_the_records_are(case: SinkCase) -> None:
    with case.fenced() as (session, position):
        position = write_and_commit(case, session, position, records(3))
        placement = write(session, records(4, 3))
        commit(case, session, position, chunk_of(records(4, 3), placement))
    parts, visible = parts_of(placement), case.visible()
    inside = [record[3] for part in parts for range_ in part.offsets for at, record in visible if at in range_]
    assert inside == [b"v%d" % n for n in range(3, 7)]
    assert sum(part.count for part in parts) == 4


def the_verifier_reads_what_was_written(case: SinkCase) -> None:
    with case.fenced() as (session, position):
        one = write(session, records(4))
        position = commit(case, session, position, chunk_of(records(4), one))
        two = write(session, records(2, 4))
        commit(case, session, position, chunk_of(records(2, 4), two))
    [first], [second] = parts_of(one), parts_of(two)
    with case.sink.verifier(case.key) as verifier:
        for part, batch in ((first, records(4)), (second, records(2, 4)), (first, records(4))):
            found = verifier.read(part, Fingerprint())
            assert (found.count, found.digest) == (len(batch), digest_of_all(batch))


def a_foreign_record_is_noticed(case: SinkCase) -> None:
    with case.fenced() as (session, position):
        write_and_commit(case, session, position, records(3))
    case.ground.write(case.topic, FOREIGN_RECORD)
    with case.fenced() as (session, position):
        raised(ForeignWriter, lambda: session.check_target(position))


def a_foreign_record_between_two_chunks_is_noticed(case: SinkCase) -> None:
    with case.fenced() as (session, position):
        session.check_target(position)
        write_and_commit(case, session, position, records(3))
        case.ground.write(case.topic, FOREIGN_RECORD)
        raised(ForeignWriter, lambda: write(session, records(3, 3)))


def a_lost_end_is_noticed(case: SinkCase) -> None:
    with case.fenced() as (session, position):
        position = write_and_commit(case, session, position, records(3))
    with case.fenced() as (session, _):
        lost = replace(position, target_end=position.target_end + 50)
        raised(ForeignWriter, lambda: session.check_target(lost))


def our_own_records_are_not_foreign(case: SinkCase) -> None:
    with case.fenced() as (session, position):
        session.check_target(position)
        position = write_and_commit(case, session, position, records(3))
        write(session, records(2, 3))  # never committed
    with case.fenced() as (session, position):
        session.check_target(position)
        write_and_commit(case, session, position, records(2, 3))


def a_target_that_was_re_created_is_refused(case: SinkCase) -> None:
    ids = case.ids
    with case.fenced() as (session, _):
        case.ground.delete(case.topic)
        raised(Refused, lambda: session.check_ids(ids))
        case.ground.create(case.topic)
        raised(Refused, lambda: session.check_ids(ids))
    with case.sink.session(case.key, ids) as session:
        raised(Refused, session.fence)


def a_refused_record_is_named_when_it_is_alone(case: SinkCase) -> None:
    """Random bytes, for the target compresses before it judges a record's size."""
    case.ground.limit(case.topic, 20_000)
    large: Record = (3, 1_700_000_000_000, b"large", os.urandom(50_000), None)
    with case.fenced() as (session, _):
        refused = raised(RefusedAt, lambda: write(session, [*records(3), large]))
        assert refused.offset in (None, 3) and refused.among in (1, 4)
    with case.fenced() as (session, position):
        position = write_and_commit(case, session, position, records(3))
        refused = raised(RefusedAt, lambda: write(session, [large]))
        assert refused.offset == 3
    assert newest(case) == position


def a_refused_record_takes_nothing_with_it(case: SinkCase) -> None:
    case.ground.limit(case.topic, 20_000)
    large: Record = (3, 1_700_000_000_000, b"large", os.urandom(50_000), None)
    with case.fenced() as (session, position):
        raised(RefusedAt, lambda: write(session, [*records(3), large]))
    with case.fenced() as (session, position):
        write_and_commit(case, session, position, records(3))
    assert case.values() == [b"v0", b"v1", b"v2"]


def the_receipt_range_is_what_the_position_covers(case: SinkCase) -> None:
    with case.fenced() as (session, position):
        chunk = chunk_of(records(3), write(session, records(3)), until=9)
        moved = commit(case, session, position, chunk)
    assert list(moved.coverage) == [OffsetRange(0, 9)]
    assert newest(case).coverage == moved.coverage


def repeating_a_chunk_changes_nothing(case: SinkCase) -> None:
    """An attempt dies behind its last record and before its commit, and another one does the same work."""
    with case.fenced() as (session, _):
        write(session, records(5))
    first = case.visible()
    with case.fenced() as (session, position):
        session.check_target(position)
        write_and_commit(case, session, position, records(5))
    assert [record for _, record in case.visible()] == records(5)
    assert first in ([], case.visible())


def what_is_written_again_without_some_records_has_them_no_more(case: SinkCase) -> None:
    """The filter was changed after an attempt died."""
    with case.fenced() as (session, _):
        write(session, records(5))
    with case.fenced() as (session, position):
        session.check_target(position)
        left = [record for record in records(5) if record[0] % 2]
        commit(case, session, position, replace(chunk_of(left, write(session, left)), range=OffsetRange(0, 5)))
    assert [record for _, record in case.visible()] == left


def a_replaced_session_cannot_change_what_its_successor_wrote(case: SinkCase) -> None:
    other: Record = (2, 1_700_000_000_002, b"k2", b"another", None)
    with case.fenced() as (old, position), case.fenced() as (new, then):
        write_and_commit(case, new, then, records(5))

        def late() -> None:
            chunk = chunk_of([*records(2), other], write(old, [*records(2), other]))
            commit(case, old, position, chunk)

        raised(Fenced, late)
    assert [record for _, record in case.visible()] == records(5)


FOREIGN: list[Check] = [a_foreign_record_is_noticed, a_foreign_record_between_two_chunks_is_noticed]
# Each guarantee promises what the ones after it promise, and more.
NONE: list[Check] = [
    what_was_written_and_is_not_committed_is_counted,
    what_is_not_committed_is_not_in_the_position,
    a_session_cannot_commit_after_a_newer_one_did,
    the_position_is_read_after_fencing,
    a_chunk_without_records_moves_the_position,
    our_own_records_are_not_foreign,
    a_target_that_was_re_created_is_refused,
    the_receipt_range_is_what_the_position_covers,
]
LEADER: list[Check] = [*NONE, a_refused_record_is_named_when_it_is_alone]
ACKNOWLEDGED: list[Check] = [
    *LEADER,
    a_committed_chunk_is_visible_with_its_position,
    chunks_of_one_session_follow_each_other,
    the_placement_says_where_the_records_are,
    the_verifier_reads_what_was_written,
]
_ONCE: list[Check] = [
    *ACKNOWLEDGED,
    a_fenced_session_cannot_commit,
    a_lost_end_is_noticed,
    a_foreign_record_is_noticed,
    a_foreign_record_between_two_chunks_is_noticed,
    a_refused_record_takes_nothing_with_it,
]
IDEMPOTENT: list[Check] = [
    *_ONCE,
    repeating_a_chunk_changes_nothing,
    what_is_written_again_without_some_records_has_them_no_more,
    a_replaced_session_cannot_change_what_its_successor_wrote,
]
_OF_RECORDS = (
    the_placement_says_where_the_records_are,
    the_verifier_reads_what_was_written,
    what_is_written_again_without_some_records_has_them_no_more,
)
LATEST: list[Check] = [check for check in IDEMPOTENT if check not in _OF_RECORDS]  # `latest` has more
TRANSACTIONAL: list[Check] = [*_ONCE, what_is_not_committed_is_not_there]
PROMISED: Mapping[Guarantee, Sequence[Check]] = {
    "transactional": TRANSACTIONAL,
    "idempotent": IDEMPOTENT,
    "latest": LATEST,
    "acknowledged": ACKNOWLEDGED,
    "leader": LEADER,
    "none": NONE,
}
