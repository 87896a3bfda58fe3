"""The head of a ledger of a target without transactions: its epochs; old receipts, what is deleted, when, and what readers
are told.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_replication.ledger.entries import RECEIPTS, Entry, Receipt
from kafka_replication.model.errors import LedgerUnreadable, Unreachable
from kafka_replication.model.offsets import PartitionKey, TopicPartition
from kafka_replication.model.times import now
from kafka_replication.targets import journal
from kafka_replication.targets.journal import EXPIRE_SECONDS, Head, Journal, JournalStorage, LedgerRecord
from kafka_replication.targets.journal_ledger import EntryWriter, JournalLedger
from tests.conformance.ledger_world import position, receipt

KEY = PartitionKey("orders", TopicPartition("orders", 0), "orders")
MANY = 120  # so many at once do not stay in the head
Stored = dict[tuple[str, int, str], LedgerRecord]


@dataclass
class MemoryShelf(JournalStorage):
    """A `JournalStorage` that can be away when it is to remove something."""

    replication: str = "orders"
    away: bool = False
    at: Head = field(default_factory=lambda: Head(replication="orders"))
    entries: Stored = field(default_factory=Stored)

    def ledger_exists(self) -> bool:
        return True

    def create_ledger(self) -> None: ...

    def head(self) -> Head:
        return self.at

    def heads(self) -> list[Head]:
        return [self.at]

    def replace(self, before: Head, after: Head) -> bool:
        assert before == self.at
        stored = Head.of(after.as_json(), at=(before.at or 0) + 1)
        assert replace(stored, at=None) == replace(after, at=None), "the head comes back as it was written"
        self.at = stored
        return True

    def store(self, records: Sequence[LedgerRecord]) -> None:
        self.entries |= {one.place: one for one in records}

    def remove(self, records: Sequence[LedgerRecord]) -> None:
        if self.away:
            raise Unreachable("it is away", "bring it back")
        for one in records:
            self.entries.pop(one.place)

    def stored(self, place: tuple[str, int, str]) -> LedgerRecord | None:
        return self.entries.get(place)

    def stored_since(self, replication: str, offset: int, topics: Iterable[str]) -> Iterator[LedgerRecord]:
        yield from [one for one in self.entries.values() if one.offset >= offset and one.topic in set(topics)]


def write(shelf: MemoryShelf, *entries: Entry) -> None:
    writer, ledger = (
        EntryWriter(Journal(shelf), "writer", "a test", lambda topic, partition: None),
        JournalLedger(shelf),
    )
    writer.fence()
    writer.begin()
    for entry in entries:
        ledger.write(writer, KEY, entry)
    writer.commit()


def left(shelf: MemoryShelf) -> list[int]:
    return [one.range.from_ for one in JournalLedger(shelf).receipts({KEY: None}).of(KEY, 1)]


@pytest.fixture
def shelf() -> MemoryShelf:
    """Its receipts are stored by themselves, all but the last one."""
    shelf = MemoryShelf()
    write(shelf, position(MANY), *(receipt(number, number + 1) for number in range(MANY)))
    write(shelf, receipt(MANY, MANY + 1))
    assert len([one for one in shelf.entries.values() if one.topic == RECEIPTS]) == MANY
    return shelf


def below(offset: int) -> Callable[[PartitionKey, Receipt], bool]:
    def decide(key: PartitionKey, old: Receipt) -> bool:
        assert key == KEY
        return old.range.from_ < offset

    return decide


def test_what_may_go_is_deleted_and_readers_are_told_from_where_receipts_are_whole(shelf: MemoryShelf) -> None:
    assert not JournalLedger(shelf).receipts({KEY: None}).incomplete(KEY)
    assert JournalLedger(shelf).expire(below(5)) == 5
    assert left(shelf) == list(range(5, MANY + 1))
    read = JournalLedger(shelf).receipts({KEY: None})
    whole = read.log_starts[KEY.ledger_partition]
    assert read.incomplete(KEY) and whole == 6, "a position comes first"
    assert not JournalLedger(shelf).receipts({KEY: whole}).incomplete(KEY)
    assert JournalLedger(shelf).position(KEY) == position(MANY)


def test_receipts_that_are_in_the_head_stay(shelf: MemoryShelf) -> None:
    assert JournalLedger(shelf).expire(below(1_000)) == MANY
    assert left(shelf) == [MANY]


def test_old_receipts_are_looked_for_once_a_day(shelf: MemoryShelf) -> None:
    assert JournalLedger(shelf).expire(below(1)) == 1
    assert JournalLedger(shelf).expire(below(5)) == 0
    shelf.at = replace(shelf.at, expired=now(EXPIRE_SECONDS + 1))
    assert JournalLedger(shelf).expire(below(5)) == 4


def test_an_end_in_the_middle_leaves_receipts_that_may_be_missing(shelf: MemoryShelf) -> None:
    shelf.away = True
    with pytest.raises(Unreachable):
        JournalLedger(shelf).expire(below(5))
    assert left(shelf) == list(range(MANY + 1))
    assert JournalLedger(shelf).receipts({KEY: None}).incomplete(KEY), "said before the first one is deleted"


def test_a_receipt_that_cannot_be_read_stays(shelf: MemoryShelf) -> None:
    place, broken = next((at, one) for at, one in shelf.entries.items() if one.topic == RECEIPTS)
    shelf.entries[place] = replace(broken, value="{}")
    shelf.entries["a", 0, "b"] = LedgerRecord(7, RECEIPTS, 0, "not ours", value="{}")
    assert JournalLedger(shelf).expire(below(2)) == 1
    assert place in shelf.entries and ("a", 0, "b") in shelf.entries


def test_a_session_has_a_higher_epoch_than_all_that_may_still_write_its_records() -> None:
    head, old = Head(replication="orders"), Head(replication="orders").fenced_by("of entries").fenced_by("of entries")
    assert old.epoch == 1, "it writes no records"
    for name in "abc":
        head = head.fenced_by(name, copies=True)
    assert head.epoch == 1
    assert head.left_by("a", 1).fenced_by("a", copies=True).epoch == 1
    assert head.left_by("a", 7) is head, "that is another session"
    head = head.fenced_by("a", copies=True)
    assert (head.epoch, head.fenced_by("b", copies=True).epoch) == (2, 2), "one crash of a run is one epoch"
    assert head.fenced_by("a", copies=True).epoch == 3
    assert Head.of(head.as_json()) == head


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.booleans()), max_size=60), st.integers(2, 4))
def test_epochs_grow_whatever_is_forgotten(begun: list[tuple[str, bool]], most: int) -> None:
    head, left_behind = Head(replication="orders"), dict[str, int]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(journal, "MOST_SESSIONS", most)
        for writer, leaves in begun:
            head = head.fenced_by(writer, copies=True)
            assert head.epoch > left_behind.get(writer, 0)
            if leaves:
                head = head.left_by(writer, head.session)
            else:
                left_behind[writer] = head.epoch


def test_a_head_of_before_is_read() -> None:
    before = Head(replication="orders", next_offset=3).as_json()
    assert "expired" not in before and Head.of(before) == Head(replication="orders", next_offset=3)


def test_the_error_of_a_head_that_somebody_changed_shows_nothing_of_it() -> None:
    with pytest.raises(LedgerUnreadable, match="ValueError") as raised:
        Head.of({**Head(replication="orders").as_json(), "next": f"m{4}rk"})
    assert f"m{4}rk" not in "".join(traceback.format_exception(raised.value))
