"""Checks of what every `Standing` has to do. Each gets a case of its own and raises AssertionError."""

from __future__ import annotations

from kafka_replication.copying.sink import Record
from kafka_replication.ledger.entries import Position
from kafka_replication.model.errors import ReplicationError
from kafka_replication.model.offsets import Coverage, OffsetRange, TopicPartition
from kafka_replication.targets.port import Standing
from kafka_replication.verification.digests import Fingerprint, record_digest
from tests.conformance.ground import raised
from tests.conformance.sink import FOREIGN_RECORD, Check
from tests.conformance.sink_case import SinkCase, digest_of_all, records, write, write_and_commit

HIDDEN_SECONDS = 10.0


def place(case: SinkCase) -> TopicPartition:
    return TopicPartition(case.topic, 0)


def copied(case: SinkCase) -> Position:
    """The position after two chunks of three and two records, which readers see."""
    with case.fenced() as (session, position):
        position = write_and_commit(case, session, position, records(3))
        position = write_and_commit(case, session, position, records(2, 3))
    assert place(case) in case.target.standing.stable_ends([place(case)])[0]
    return position


def shown(standing: Standing, at: TopicPartition, wanted: OffsetRange | None = None) -> list[Record]:
    with standing.reader(at) as reader:
        return list(reader.content(standing.logs([at])[at] if wanted is None else wanted))


def in_a_new_topic_is_nothing(case: SinkCase) -> None:
    standing, at = case.target.standing, place(case)
    log = standing.logs([at])[at]
    assert log.span == 0 and standing.ends([at]) == ({at: log.until}, {})
    assert shown(standing, at) == [] and standing.first_record(at, log) is None


def committed_records_are_shown_at_their_places_with_their_digests(case: SinkCase) -> None:
    copied(case)
    standing, at = case.target.standing, place(case)
    found = shown(standing, at)
    assert [record[1:4] for record in found] == [record[1:4] for record in records(5)]
    assert [record[0] for record in found] == [offset for offset, _ in case.visible()]
    middle = OffsetRange(found[1][0], found[3][0])
    assert shown(standing, at, middle) == found[1:3], "a part alone"
    assert standing.first_record(at, standing.logs([at])[at]) == found[0][0]
    assert standing.first_record(at, middle) == found[1][0]
    whole = standing.logs([at])[at]
    with standing.reader(at) as reader:
        total = Fingerprint()
        seen = list(reader.seen(whole, total))
        assert [digest for _, digest in seen] == [record_digest(*record[1:]) for record in records(5)]
        assert total.hexdigest() == digest_of_all(records(5)) and reader.records == 5
        alone = Fingerprint()
        reader.add_to(alone, OffsetRange(seen[3][0], whole.until))
        assert alone.hexdigest() == digest_of_all(records(2, 3)) and reader.records == 7


def the_end_is_behind_our_last_record_and_nothing_is_hidden(case: SinkCase) -> None:
    position = copied(case)
    standing, at = case.target.standing, place(case)
    end = position.target_end + standing.commit_takes
    assert standing.ends([at]) == standing.stable_ends([at], HIDDEN_SECONDS) == ({at: end}, {})
    assert standing.logs([at])[at].until == end and standing.starts([at]) == ({at: 0}, {})
    assert standing.certain_ends([at]) in ({}, {at: end})
    assert standing.at_rest(at, position.target_end) == OffsetRange(0, end)
    standing.check_all_shown(at, end)
    assert standing.hiding([at]) == set() and not standing.left_open(at)
    assert standing.hidden_by(at, case.key.transactional_id) == Coverage()


def what_is_not_committed_is_not_shown(case: SinkCase) -> None:
    copied(case)
    at = place(case)
    with case.fenced() as (session, position):
        session.check_target(position)
        write(session, records(2, 5))
        open_now = case.opened().standing
        assert len(shown(open_now, at)) == 5
    after = case.opened().standing
    ends, failures = after.stable_ends([at])
    assert len(shown(after, at, OffsetRange(0, ends[at]))) == 5 and not failures


def records_of_others_are_shown_behind_ours(case: SinkCase) -> None:
    copied(case)
    at = place(case)
    before, _ = case.target.standing.ends([at])
    case.ground.write(case.topic, FOREIGN_RECORD)
    standing = case.opened().standing
    behind = OffsetRange(before[at], standing.ends([at])[0][at])
    assert behind.span >= 1 and standing.first_record(at, behind) is not None
    assert len(shown(standing, at)) == 6 and len(shown(standing, at, behind)) == 1


def a_topic_that_is_gone_has_no_end(case: SinkCase) -> None:
    copied(case)
    case.ground.delete(case.topic)
    standing, at = case.opened().standing, place(case)
    ends, _ = standing.ends([at])
    assert at not in ends and at not in standing.logs([at])
    raised(ReplicationError, lambda: shown(standing, at, OffsetRange(0, 5)))


ALL: list[Check] = [
    in_a_new_topic_is_nothing,
    committed_records_are_shown_at_their_places_with_their_digests,
    the_end_is_behind_our_last_record_and_nothing_is_hidden,
    what_is_not_committed_is_not_shown,
    records_of_others_are_shown_behind_ours,
    a_topic_that_is_gone_has_no_end,
]
