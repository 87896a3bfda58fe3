"""Checks of what every sink has to do that keeps the newest record of each key, beside those of `sink.LATEST`."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

from kafka_replication.copying.sink import Record, RefusedAt
from kafka_replication.ledger.account import Change
from kafka_replication.ledger.entries import Position
from kafka_replication.ledger.placement import NewestByKey
from kafka_replication.ledger.writing import apply
from kafka_replication.model.errors import Refused, ReplicationError
from kafka_replication.model.offsets import OffsetRange
from kafka_replication.verification.newest import Comparison, KeyReader, NewestRecords, at_keys, stands_alone
from tests.conformance.ground import raised
from tests.conformance.sink import Check, newest
from tests.conformance.sink_case import SinkCase, chunk_of, commit, write, write_and_commit
from tests.conformance.sink_case import records as different


def records(keys: str, first: int = 0, value: bytes = b"v%d") -> list[Record]:
    """A record for each letter, which is its key, at the offsets from ``first`` on."""
    return [
        (offset, 1_700_000_000_000 + offset, key.encode(), value % offset, None)
        for offset, key in enumerate(keys, first)
    ]


def there(case: SinkCase) -> dict[bytes | None, bytes | None]:
    """The value at each key, as a reader finds it."""
    found = [record for _, record in case.visible()]
    assert len({record[2] for record in found}) == len(found), "two records of one key"
    return {record[2]: record[3] for record in found}


def only_the_newest_record_of_each_key_is_there(case: SinkCase) -> None:
    with case.fenced() as (session, position):
        position = write_and_commit(case, session, position, records("abacb"))
        assert there(case) == {b"a": b"v2", b"b": b"v4", b"c": b"v3"}
        write_and_commit(case, session, position, records("cd", 5))
    assert there(case) == {b"a": b"v2", b"b": b"v4", b"c": b"v5", b"d": b"v6"}


def an_older_range_changes_only_what_nothing_newer_has(case: SinkCase) -> None:
    """As a backfill copies it."""
    with case.fenced() as (session, position):
        position = write_and_commit(case, session, position, records("ab", 10))
        write_and_commit(case, session, position, records("ac", 0))
    assert there(case) == {b"a": b"v10", b"b": b"v11", b"c": b"v1"}


def a_session_that_was_replaced_long_ago_adds_nothing_older(case: SinkCase) -> None:
    with case.fenced() as (old, position):
        writer = old.begin()
        with case.fenced() as (new, then):
            write_and_commit(case, new, then, records("abcab"))
        writer.write(records("abc"))
        writer.finish("")
    assert there(case) == {b"a": b"v3", b"b": b"v4", b"c": b"v2"}
    assert newest(case).next_offset == 5 != position.next_offset


def a_later_generation_lies_over_an_earlier_one(case: SinkCase) -> None:
    """A copier of before the reset wakes up in the middle of its chunk."""
    with case.fenced() as (old, _):
        late = old.begin()
        with closing(case.target.session(case.key)) as reset:
            reset.fence()
            position = Position(generation=2, ids=case.ids, start=0, next_offset=0)
            assert apply(reset.ledger, reset.transaction, [Change(key=case.key, write=(position,))])
        with case.fenced() as (session, position):
            write_and_commit(case, session, position, records("ab"))
        late.write(records("ba", 100))
        raised(ReplicationError, lambda: late.finish(""))  # all that is there is of another generation
    assert there(case) == {b"a": b"v0", b"b": b"v1"}


def a_tombstone_stays_and_hides_nothing_newer(case: SinkCase) -> None:
    gone: Record = (2, 1_700_000_000_002, b"a", None, None)
    with case.fenced() as (session, position):
        position = write_and_commit(case, session, position, [*records("ab"), gone])
        assert there(case) == {b"a": None, b"b": b"v1"}
        write_and_commit(case, session, position, records("b", 3))
    assert there(case) == {b"a": None, b"b": b"v3"}


def a_record_without_a_key_is_refused(case: SinkCase) -> None:
    nameless: Record = (2, 1_700_000_000_002, None, b"v2", None)
    with case.fenced() as (session, _):
        refused = raised(RefusedAt, lambda: write(session, [*records("ab"), nameless]))
    assert refused.offset == 2 and "key" in refused.what


def keys_of_any_bytes_are_different_keys(case: SinkCase) -> None:
    keys = [b"", b"\xff", b"base64:", b"base64:/w==", '\u00e4/"\n'.encode(), b"\x00", b"A", b"a", b" a"]
    batch: list[Record] = [(n, 1_700_000_000_000 + n, key, b"v%d" % n, None) for n, key in enumerate(keys)]
    with case.fenced() as (session, position):
        write_and_commit(case, session, position, batch)
    assert there(case) == {key: b"v%d" % n for n, key in enumerate(keys)}
    with case.sink.verifier(case.key) as reader:
        assert isinstance(reader, KeyReader)
        assert all(at.verdict.is_right for at in at_keys(case.key.source, NewestRecords.of(batch), reader))


def the_verifier_finds_what_is_at_the_keys(case: SinkCase) -> None:
    one, two = records("abac"), records("bd", 4)
    with case.fenced() as (session, position):
        placement = write(session, one)
        chunk = chunk_of(one, placement)
        position = commit(case, session, position, chunk)
    receipt = case.receipt(chunk)
    assert isinstance(placement, NewestByKey)
    assert (placement.first, placement.last, placement.keys) == (0, 3, 3)
    with case.sink.verifier(case.key) as reader:
        assert isinstance(reader, KeyReader)
        assert stands_alone(placement, reader)
        comparison = Comparison(key=case.key, receipt=receipt, made=NewestRecords.of(one))
        assert not list(comparison.wrong(reader)) and comparison.superseded == 1
        with case.fenced() as (session, position):
            write_and_commit(case, session, position, two)
        assert not stands_alone(placement, reader)
        comparison = Comparison(key=case.key, receipt=receipt, made=NewestRecords.of(one))
        assert not list(comparison.wrong(reader)) and comparison.superseded == 2
        other = [*one[:3], (3, 1_700_000_000_003, b"c", b"another", None), *records("e", 6)]
        found = at_keys(case.key.source, NewestRecords.of(other), reader)
        assert [at.offset for at in found if not at.verdict.is_right] == [3, 6]


def what_cannot_be_taken_back_stops_who_leaves_it_out(case: SinkCase) -> None:
    """The filter was changed after an attempt died."""
    with case.fenced() as (session, _):
        write(session, different(5))
    with case.fenced() as (session, position):
        session.check_target(position)
        left = [record for record in different(5) if record[0] % 2]
        chunk = replace(chunk_of(left, write(session, left)), range=OffsetRange(0, 5))
        assert "offset 0" in raised(Refused, lambda: commit(case, session, position, chunk)).what
    assert newest(case) == position


def what_an_attempt_left_is_replaced_or_stops_who_changes_it(case: SinkCase) -> None:
    """A transform was changed after an attempt died: the same offsets and keys, and other values."""
    with case.fenced() as (session, _):
        write(session, records("ab"))
    changed = records("ab", value=b"changed %d")
    with case.fenced() as (session, position):
        session.check_target(position)
        chunk = chunk_of(changed, write(session, changed))
        refusal: Refused | None = None
        try:
            commit(case, session, position, chunk)
        except Refused as error:
            refusal = error
    if refusal is None:
        assert there(case) == {b"a": b"changed 0", b"b": b"changed 1"}
        return
    assert "offset 0" in refusal.what and newest(case) == position
    with case.fenced() as (session, position):
        session.check_target(position)
        write_and_commit(case, session, position, records("ab"))
    assert there(case) == {b"a": b"v0", b"b": b"v1"}, "with the former transform it goes on"


ALL: list[Check] = [
    only_the_newest_record_of_each_key_is_there,
    an_older_range_changes_only_what_nothing_newer_has,
    a_session_that_was_replaced_long_ago_adds_nothing_older,
    a_later_generation_lies_over_an_earlier_one,
    a_tombstone_stays_and_hides_nothing_newer,
    a_record_without_a_key_is_refused,
    keys_of_any_bytes_are_different_keys,
    the_verifier_finds_what_is_at_the_keys,
    what_cannot_be_taken_back_stops_who_leaves_it_out,
    what_an_attempt_left_is_replaced_or_stops_who_changes_it,
]
