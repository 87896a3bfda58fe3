"""Chunks that were written without transactions: what is lost and what is doubled is counted exactly."""

from __future__ import annotations

import random
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

import pytest

from kafka_replication.ledger.entries import FailedRecord, Ids, Place, Receipt, Transform
from kafka_replication.ledger.placement import KafkaSegments, Part, Segment
from kafka_replication.model.choices import Delivery
from kafka_replication.model.errors import NotReady
from kafka_replication.model.offsets import Coverage, OffsetRange, PartitionKey, TopicPartition
from kafka_replication.verification.digests import DIGEST_KIND, Digest
from kafka_replication.verification.matching import Seen, Sent
from kafka_replication.verification.read_back import DeliveryTask, near_to, verify_delivery
from kafka_replication.verification.verify import PartDigest, ReceiptFinding, Sides, VerifyResult

KEY = PartitionKey("unit", TopicPartition("orders", 0), "orders")
CHUNK = 10


@dataclass
class World:
    """A source of 100 distinct records, a target log, and chunks of ten that were sent one after the other."""

    source: list[bytes] = field(default_factory=lambda: [b"%d" % n for n in range(100)])
    log: list[bytes] = field(default_factory=list)
    receipts: list[Receipt] = field(default_factory=list)
    log_start: int = 0
    source_start: int = 0
    quarantine: set[int] = field(default_factory=set)  # source offsets
    hides: bool = False  # the target has too few replicas

    def send(self, chunk: int, lost: Sequence[int] = (), twice: Sequence[int] = ()) -> None:
        sent = self.source[chunk * CHUNK : (chunk + 1) * CHUNK]
        first = len(self.log)
        for number, content in enumerate(sent):
            self.log += [content] * (0 if number in lost else 2 if number in twice else 1)
        segment = Segment(partition=0, first=first, last=first + CHUNK - 1, count=CHUNK, digest=b"".join(sent).hex())
        after = self.receipts[-1].parts[0].until if self.receipts else 0
        self.receipts.append(receipt(chunk, segment, after))

    def verify(
        self,
        delivery: Delivery = "leader_ack",
        accept: float = 0.0,
        judged: int | None = None,
        retried: OffsetRange | None = None,
    ) -> VerifyResult:
        chunks = tuple(replace(one, delivery=delivery) for one in self.receipts)
        task = DeliveryTask(
            key=KEY,
            receipts=chunks,
            level="digest",
            judged_until=judged,
            accept_loss=accept,
            retried=Coverage.of([retried] if retried else []),
        )
        return verify_delivery(task, self, cast("Sides", _Sides(self)))

    def read(self, part: Part, digest: Digest | None) -> PartDigest:
        assert digest is not None
        found = self.log[part.first : part.until]
        return PartDigest(len(found), b"".join(found).hex())

    def quarantined(self, failed: FailedRecord) -> bool:
        return failed.offset in self.quarantine


@dataclass
class _Sides:
    world: World

    def source_log(self) -> OffsetRange:
        return OffsetRange(self.world.source_start, len(self.world.source))

    def target_log(self, expected: int) -> OffsetRange:  # nothing arrives late here
        return OffsetRange(self.world.log_start, len(self.world.log))

    def check_all_shown(self, until: int) -> None:
        assert until == len(self.world.log)
        if self.world.hides:
            raise NotReady("too few replicas", "bring them back")

    def source(self, wanted: OffsetRange, without: Container[int] = ()) -> Iterator[Sent]:
        records = list(enumerate(self.world.source))[wanted.from_ : wanted.until]
        return (Sent(offset, content) for offset, content in records if offset not in without)

    def around(self, wanted: OffsetRange) -> Iterator[Sent]:
        return self.source(wanted)

    def target(self, wanted: OffsetRange) -> Iterator[Seen]:
        records = list(enumerate(self.world.log))[wanted.from_ : wanted.until]
        return (Seen(place, content) for place, content in records)


def receipt(chunk: int, segment: Segment, after: int) -> Receipt:
    return Receipt(
        generation=1,
        range=OffsetRange(chunk * CHUNK, (chunk + 1) * CHUNK),
        count=CHUNK,
        bytes=100,
        digest=segment.digest,
        digest_kind=DIGEST_KIND,
        engine="unit",
        placement=KafkaSegments((segment,)),
        ids=Ids("c", "s", "t"),
        run_id="unit",
        time="2030-01-31T06:00:00.000Z",
        after=after,
    )


def judged(chunk: int, lost: int = 0, duplicates: int = 0) -> ReceiptFinding:
    return ReceiptFinding(range=OffsetRange(chunk * CHUNK, (chunk + 1) * CHUNK), lost=lost, duplicates=duplicates)


@pytest.mark.parametrize("delivery", ["at_least_once", "leader_ack", "fire_and_forget"])
def test_chunks_that_lie_where_they_should_need_no_source(delivery: Delivery) -> None:
    world = World()
    for chunk in range(3):
        world.send(chunk)
    world.source_start = 100
    result = world.verify(delivery)
    assert (result.error, result.verified) == (None, Coverage.of([OffsetRange(0, 30)]))
    assert (result.lost, result.duplicates, result.judged, result.judged_until) == (0, 0, (), 30)


def test_left_overs_of_a_dead_attempt_are_duplicates_of_the_chunk_that_they_belong_to() -> None:
    world = World()
    world.send(0)
    world.log += world.source[10:17]
    world.send(1)
    result = world.verify("at_least_once")
    assert (result.error, result.judged, result.duplicates) == (None, (judged(1, duplicates=7),), 7)


def test_what_was_judged_before_is_not_counted_again() -> None:
    world = World()
    world.log += world.source[0:7]
    world.send(0)
    assert world.verify("at_least_once", judged=7).duplicates == 0


def test_a_chunk_below_what_was_judged_before_is_explained_from_its_begin() -> None:
    """The target lost its end after it was read back. What the chunk itself lost is counted, and nothing else."""
    world = World()
    world.send(0)
    del world.log[4:]
    world.receipts.clear()
    world.send(1, twice=[3])
    result = world.verify("leader_ack", judged=10)
    assert (result.error, result.lost, result.duplicates, result.judged_until) == (None, 0, 1, 15)


def test_left_overs_of_what_is_not_copied_yet_are_counted_where_they_are_found() -> None:
    world = World()
    world.send(0)
    world.log += world.source[10:13]
    result = world.verify("at_least_once")
    assert (result.error, result.duplicates, result.judged_until) == (None, 3, 13)


@pytest.mark.parametrize("told", [True, False])
def test_chunks_of_transactions_behind_them_are_no_duplicates(told: bool) -> None:
    """The first chunk after a change to exactly_once has an `after`, the second has none."""
    world = World()
    world.log += world.source[0:4]
    world.send(0)
    world.send(1)
    in_transaction = replace(world.receipts.pop(), after=None)
    chunks = tuple(replace(one, delivery="exactly_once") for one in world.receipts)
    others = (in_transaction,) if told else ()
    task = DeliveryTask(key=KEY, receipts=chunks, level="digest", judged_until=0, accept_loss=0.0, others=others)
    result = verify_delivery(task, world, cast("Sides", _Sides(world)))
    assert (result.error, result.duplicates) == (None, 4 if told else 14)


def test_losses_and_duplicates_belong_to_their_chunks() -> None:
    world = World()
    world.send(0, lost=[2, 3])
    world.send(1, twice=[0])
    world.send(2)
    result = world.verify(accept=0.1)
    assert (result.error, result.lost, result.duplicates, result.records) == (None, 2, 1, 28)
    assert result.judged == (judged(0, lost=2), judged(1, duplicates=1))


@pytest.mark.parametrize(("accept", "verified"), [(0.0, 0), (0.099, 0), (0.1, 20), (1.0, 20)])
def test_more_than_the_accepted_share_is_an_error_that_says_how_much(accept: float, verified: int) -> None:
    world = World()
    world.send(0)
    world.send(1, lost=[8, 9])
    result = world.verify(accept=accept)
    assert (result.verified.span, result.judged) == (verified, (judged(1, lost=2),))
    assert verified or "2 of 20 records were lost in delivery" in (result.error or "")


def test_what_the_target_may_hide_is_not_lost() -> None:
    world = World(hides=True)
    world.send(0)
    assert world.verify().verified.span == 10, "nothing is missing"
    world.send(1, lost=[8, 9])
    result = world.verify(accept=1.0)
    assert (result.error, result.retriable, result.verified.span) == ("too few replicas", True, 0)
    world.hides = False
    assert world.verify(accept=1.0).lost == 2


def test_at_least_once_never_accepts_a_loss() -> None:
    world = World()
    world.send(0, lost=[5])
    result = world.verify("at_least_once", accept=1.0)
    assert result.error is not None and "1 records were acknowledged and are not on the target" in result.error


def test_a_record_that_the_source_does_not_have_is_another_writer_s() -> None:
    world = World()
    world.send(0)
    world.log.append(b"foreign")
    world.send(1)
    result = world.verify()
    assert (
        result.error is not None
        and "holds 1 records that the source does not have, the first at offset 10" in result.error
    )
    assert (result.verified, result.judged) == (Coverage(), ())


def test_a_source_that_no_longer_has_a_damaged_chunk_cannot_show_what_is_lost() -> None:
    world = World()
    world.send(0, lost=[1])
    world.source_start = 5
    assert "cannot show what is missing" in (world.verify(accept=1.0).error or "")


def test_what_was_given_up_is_not_searched_for_the_origin_of_a_record() -> None:
    world = World()
    world.send(2)
    searched = near_to(world.receipts, OffsetRange(0, 100), Coverage.of([OffsetRange(10, 20)]))
    assert list(searched) == [OffsetRange(20, 30), OffsetRange(0, 10), OffsetRange(30, 100)]


def test_copies_that_the_target_removed_before_they_were_read_are_unverifiable() -> None:
    world = World()
    world.send(0)
    world.log_start = 3
    assert "unverifiable" in (world.verify(accept=1.0).error or "")


def test_a_leader_that_died_takes_the_end_of_one_chunk_and_the_next_one_takes_its_place() -> None:
    world, dice = World(), random.Random(7)
    world.send(0)
    world.send(1)
    del world.log[dice.randrange(11, 20) :]
    kept = len(world.log)
    world.send(2)
    result = world.verify(accept=0.5)
    assert (result.error, result.lost, result.duplicates) == (None, 20 - kept, 0)
    assert result.judged == (judged(1, lost=20 - kept),)


def set_aside(world: World, chunk: int, *numbers: int) -> None:
    """Replace the receipt of the chunk that was sent last by one that quarantined these of its records."""
    was, places = world.receipts[-1], [chunk * CHUNK + number for number in numbers]
    (segment,) = segments_of(was)
    failures = tuple(
        FailedRecord(
            offset=offset,
            kind="too_large",
            reason="",
            error="",
            size=1,
            key_digest="",
            digest="",
            place=Place("quarantine", 0, offset),
        )
        for offset in places
    )
    count = CHUNK - len(places)
    left = replace(segment, last=segment.first + count - 1, count=count)
    world.receipts[-1] = replace(
        was, count=count, quarantined=len(places), failures=failures, placement=KafkaSegments((left,))
    )


def segments_of(one: Receipt) -> tuple[Segment, ...]:
    assert isinstance(one.placement, KafkaSegments)
    return one.placement.segments


def test_a_record_in_quarantine_is_not_lost() -> None:
    world = World()
    world.send(0, lost=[2, 5])
    set_aside(world, 0, 2)
    world.quarantine = {2}
    result = world.verify(accept=1.0)
    assert (result.error, result.lost, result.judged) == (None, 1, (judged(0, lost=1),))


@pytest.mark.parametrize("lost", [[2], [2, 5]])
def test_a_record_that_was_lost_on_its_way_to_quarantine_is_never_accepted(lost: list[int]) -> None:
    """Whether its chunk is as its receipt says, or lost others, too."""
    world = World()
    world.send(0, lost=lost)
    set_aside(world, 0, 2)
    result = world.verify(accept=1.0)
    assert "offset 2 is not in quarantine" in (result.error or "")
    assert not result.verified


def test_a_record_that_was_retried_is_no_duplicate() -> None:
    world = World()
    world.send(0, lost=[2])
    set_aside(world, 0, 2)
    world.quarantine = {2}
    world.log.append(world.source[2])
    assert world.verify("at_least_once").duplicates == 1
    assert world.verify("at_least_once", retried=OffsetRange(9, 10)).duplicates == 0


def test_a_chunk_that_a_transform_made_is_compared_with_its_receipt_alone() -> None:
    """The first one that a replication copied with transactions after it had copied without."""
    world = World()
    world.send(0)
    world.send(1)
    world.receipts[1] = replace(world.receipts[1], transform=Transform("shop:now", "sha256:2"))
    assert world.verify().error is None
    world.log.pop()
    result = world.verify(accept=1.0)
    assert "made with shop:now (sha256:2), differs from its receipt" in (result.error or "")
    assert not result.verified
