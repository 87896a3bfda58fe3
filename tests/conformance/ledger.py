"""Checks of what every `Ledger` must do: an implementation passes all, a broken one fails at least one."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from kafka_replication.ledger.entries import POSITIONS, RECEIPTS, Deleted, Entry, Receipt, Start
from kafka_replication.ledger.port import Ledger
from kafka_replication.ledger.view import Owner
from kafka_replication.model.errors import LedgerUnreadable, Stalled
from kafka_replication.model.offsets import Coverage, OffsetRange, PartitionKey
from kafka_replication.runtime.deadline import Deadline
from tests.conformance.ground import raised
from tests.conformance.ledger_world import World, gap, position, receipt, verified

MANY = 120  # receipts


def entries_come_back_as_they_were_written(world: World) -> None:
    key = world.key()
    world.write((key, position(7)), (key, verified(5)), (key, gap(1, 3)), (key, receipt(0, 7)))
    view = world.ledger().view()
    assert view.positions == {key: position(7)} and view.verified == {key: verified(5)}
    assert view.gaps == {key: (gap(1, 3),)}
    assert world.ledger().position(key) == position(7) and world.ledger().verified(key) == verified(5)
    assert world.ledger().receipts({key: None}).of(key, 1) == [receipt(0, 7)]


def other_replications_of_a_target_topic_are_known(world: World) -> None:
    other = world.neighbour(0)
    owner, ledger = Owner(other.replication, position(1).ids.target_topic), world.ledger()
    world.write((world.key(), position(1)))
    assert owner not in ledger.view().owners.get("orders", ())
    world.write((other, position(1)))
    assert owner in ledger.view().owners["orders"]
    assert Owner(world.name, owner.topic_id) not in ledger.view().owners["orders"]


def the_newest_committed_entry_counts(world: World) -> None:
    key, ledger = world.key(), world.ledger()
    for next_offset in (5, 9):
        world.write((key, position(next_offset)), (key, verified(next_offset)))
        for reader in (ledger, world.ledger()):
            assert reader.position(key) == position(next_offset) and reader.verified(key) == verified(next_offset)
            assert reader.view().positions == {key: position(next_offset)}
            assert reader.view().verified == {key: verified(next_offset)}
    world.write((key, receipt(0, 4)))
    world.write((key, receipt(0, 6)))
    assert ledger.receipts({key: None}).of(key, 1) == [receipt(0, 6)]


def nothing_is_hidden_by_an_open_transaction(world: World) -> None:
    """The last stable offset stays below an entry that is committed after somebody else's transaction began."""
    key, other = world.key(), world.neighbour(0)
    world.write((key, position(1)))
    ledger = world.ledger(Deadline.after(2))
    assert ledger.position(key) == position(1)
    readings: list[Callable[[Ledger], object]] = [
        lambda ledger: ledger.position(key),
        lambda ledger: ledger.view().positions[key],
        lambda ledger: ledger.receipts({key: None}).of(key, 1),
    ]
    newest: list[object] = [position(2), position(2), [receipt(0, 2)]]
    with world.transaction("somebody else") as open_transaction:
        for entry in (position(0), receipt(0, 1)):
            ledger.write(open_transaction, other, entry)
        open_transaction.flush()
        world.write((key, position(2)), (key, receipt(0, 2)))
        for read, expected in zip(readings, newest, strict=True):
            for reader in (ledger, world.ledger(Deadline.after(1))):
                with suppress(Stalled):  # it may wait, and give up
                    assert read(reader) == expected, "an entry that is committed was not seen"
    for read, expected in zip(readings, newest, strict=True):
        assert read(world.ledger()) == expected


def aborted_entries_are_never_seen(world: World) -> None:
    key, ledger = world.key(), world.ledger()
    world.write((key, position(1)), (key, receipt(0, 1)))
    assert ledger.position(key) == position(1)
    with world.transaction() as transaction:
        for entry in (position(9), verified(9), gap(5, 6), receipt(1, 9)):
            ledger.write(transaction, key, entry)
        transaction.flush()
    for reader in (ledger, world.ledger()):
        assert reader.position(key) == position(1)
        view = reader.view()
        assert (view.positions, view.verified, view.gaps) == ({key: position(1)}, {}, {})
        assert reader.receipts({key: None}).of(key, 1) == [receipt(0, 1)]


def reading_on_is_reading_from_the_start(world: World, seed: int | None = None) -> None:
    seed = random.randrange(10**6) if seed is None else seed
    print(f"seed {seed}")
    dice, ledger, readers = random.Random(seed), world.ledger(), [world.ledger()]
    for step in range(8):
        entries: list[tuple[PartitionKey, Entry]] = []
        for _ in range(dice.randint(1, 6)):
            number = dice.randint(1, 50)
            start = Start(source_cluster="S", source_topic="s", start_from="latest", offset=number, time="t")
            deleted = Deleted(source_topic="s", run_id=f"run-{number}", time="t")
            choices: list[Entry] = [position(number), verified(number), gap(number, number + 1), start, deleted]
            entry = dice.choice(choices)
            entries.append((world.key(dice.randrange(40)), entry))
        world.write(*entries)
        asked = world.key(dice.randrange(40))
        fresh = world.ledger()
        for reader in readers:
            assert reader.position(asked) == fresh.position(asked), f"seed {seed}, step {step}"
            assert reader.view() == fresh.view(), f"seed {seed}, step {step}"
        readers.append(ledger if step == 3 else fresh)


def foreign_entries_harm_nobody(world: World) -> None:
    key = world.key()
    world.write((key, position(3)), (key, receipt(0, 3)))
    place = (key.ledger_partition + 1) % 16
    for topic in (POSITIONS, RECEIPTS):
        for record_key in (b"", b"\xff\xfe", b"{}", b'["position"]', b'["unheard of","somebody","t",0,"t"]'):
            world.put(topic, key.ledger_partition, record_key, b"not json")
        world.put(topic, place, key.entry("position"), b"not json")  # ours, where it does not belong
    ledger = world.ledger()
    assert ledger.view().positions == {key: position(3)}
    assert ledger.receipts({key: None}).of(key, 1) == [receipt(0, 3)]


def a_spoilt_entry_is_named_and_stops_its_own_replication_only(world: World) -> None:
    key, other = world.key(), world.neighbour(0)
    world.write((key, position(3)), (other, position(4)))
    world.put(POSITIONS, key.ledger_partition, key.entry("position"), b"not json")
    for read in (lambda: world.ledger().view(), lambda: world.ledger().position(key)):
        refused = raised(LedgerUnreadable, read)
        assert str(key.ledger_partition) in refused.what and key.replication in refused.what
        assert refused.remedy
    others = World(world.ground, other.replication)
    assert others.ledger().view().positions == {other: position(4)}
    world.write((key, position(5)))
    assert world.ledger().view().positions == {key: position(5)}, "an older, spoilt entry counts no more"


def a_deleted_receipt_is_gone_with_its_transaction(world: World) -> None:
    key, ledger = world.key(), world.ledger()
    world.write((key, receipt(0, 2)), (key, receipt(2, 4)))
    with world.transaction() as transaction:
        ledger.delete(transaction, key, receipt(0, 2))
    assert len(world.ledger().receipts({key: None}).of(key, 1)) == 2, "the transaction was aborted"
    with world.transaction() as transaction:
        ledger.delete(transaction, key, receipt(0, 2))
        ledger.write(transaction, key, receipt(4, 6))
        transaction.commit()
    assert world.ledger().receipts({key: None}).of(key, 1) == [receipt(2, 4), receipt(4, 6)]


def old_receipts_can_be_deleted_and_nothing_else(world: World) -> None:
    """Those that a check says, if the target does not delete old ones by itself. So many that a ledger which keeps the
    last ones together has stored most.
    """
    key = world.key()
    chunks = [receipt(number, number + 1) for number in range(MANY)]
    world.write((key, position(MANY)), (key, verified(MANY)), (key, gap(3, 4)), *((key, chunk) for chunk in chunks))
    again = replace(chunks[1], run_id="another")
    world.write(*((key, receipt(number, number + 1, 2)) for number in range(MANY)), (key, again))
    world.write((key, verified(MANY)))
    asked = list[Receipt]()

    def may_go(of: PartitionKey, old: Receipt) -> bool:
        asked.append(old)
        return of == key and old.generation == 1 and old.range.from_ < 5

    deleted = world.ledger().expire(may_go)
    read = world.ledger().receipts({key: None})
    left = read.of(key, 1)
    assert set(left) <= {chunks[0], again, *chunks[2:]} and len(left) == MANY - deleted
    assert all(chunk in left for chunk in chunks[5:]) and len(read.of(key, 2)) == MANY
    assert read.incomplete(key) == (deleted > 0), "who reads is told that receipts may be missing"
    assert bool(asked) == (deleted > 0)
    view = world.ledger().view()
    assert (view.positions, view.verified) == ({key: position(MANY)}, {key: verified(MANY)}) and view.gaps[key]
    world.write((key, receipt(MANY, MANY + 1)))
    assert world.ledger().receipts({key: read.ends[key.ledger_partition]}).of(key, 1) == [receipt(MANY, MANY + 1)]


def generations_are_kept_apart(world: World) -> None:
    key = world.key()
    world.write((key, position(9)), (key, verified(9)), (key, receipt(0, 9)), (key, gap(9, 10)))
    world.write((key, position(0, 2)), (key, receipt(0, 9, 2)))
    view, receipts = world.ledger().view(), world.ledger().receipts({key: None})
    assert view.position(key, 1) is None and view.position(key, 2) == position(0, 2)
    assert view[key].verified.coverage == Coverage() == view[key].given_up()
    assert receipts.generations(key) == {1, 2} and receipts.of(key, 2) == [receipt(0, 9, 2)]


def receipts_are_read_from_where_they_are_needed(world: World) -> None:
    key, other, ledger = world.key(), world.neighbour(0), world.ledger()
    neighbours = World(world.ground, other.replication)
    chunks = [receipt(first, first + 10) for first in (0, 10, 20)]
    for chunk in chunks:
        world.write((key, chunk))
        neighbours.write((other, chunk))
    read = ledger.receipts({key: None})
    assert read.of(key, 1) == chunks
    offsets = [stored.offset for stored in read.stored[key]]
    assert offsets == sorted(offsets) and max(offsets) < read.ends[key.ledger_partition]
    for number, offset in enumerate(offsets):
        assert ledger.receipts({key: offset}).of(key, 1) == chunks[number:]
        seen = Coverage.of([OffsetRange(0, 10 * number)])
        assert read.unverified_from(key, 1, seen) == offset
    end = read.unverified_from(key, 1, Coverage.of([OffsetRange(0, 30)]))
    assert ledger.receipts({key: end}).of(key, 1) == []
    world.write((key, receipt(30, 40)))
    assert ledger.receipts({key: end}).of(key, 1) == [receipt(30, 40)]
    assert ledger.receipts({key: 10**9}).of(key, 1) == [*chunks, receipt(30, 40)], "an offset of another topic"


def receipts_come_above_the_ends_that_were_named_before(world: World) -> None:
    """Also one that was written, and not committed, when the ends were asked for."""
    key, ledger = world.key(), world.ledger()
    world.write((key, receipt(0, 1)))
    with world.transaction() as transaction:
        ledger.write(transaction, key, receipt(1, 2))
        transaction.flush()
        ends = ledger.receipt_ends()
        transaction.commit()
    assert set(ends) == set(range(16))
    assert ledger.receipts({key: ends[key.ledger_partition]}).of(key, 1) == [receipt(1, 2)]


def open_transactions_are_named_by_their_keys(world: World) -> None:
    key, other, ledger = world.key(), world.neighbour(0), world.ledger()
    assert ledger.undecided() == set()
    with world.transaction() as transaction:
        ledger.write(transaction, key, position(1))
        ledger.write(transaction, other, position(1))
        transaction.flush()
        assert ledger.undecided() == {key}
        transaction.commit()
    assert ledger.view().positions == {key: position(1)}
    assert ledger.undecided() == set()


def a_replication_without_entries_has_an_empty_view(world: World) -> None:
    ledger = world.ledger()
    ledger.ensure(world.replication())
    ledger.ensure(world.replication())
    assert ledger.exists()
    assert ledger.view() == world.ledger().view()
    assert not ledger.view().positions and ledger.position(world.key()) is None
    assert ledger.receipts({world.key(): None}).all(world.key()) == [] and ledger.receipts({}).stored == {}
    assert ledger.obstacle() is None


ALL: dict[str, Callable[[World], None]] = {
    check.__name__.replace("_", " "): check
    for check in (
        a_replication_without_entries_has_an_empty_view,
        entries_come_back_as_they_were_written,
        the_newest_committed_entry_counts,
        other_replications_of_a_target_topic_are_known,
        nothing_is_hidden_by_an_open_transaction,
        aborted_entries_are_never_seen,
        reading_on_is_reading_from_the_start,
        foreign_entries_harm_nobody,
        a_spoilt_entry_is_named_and_stops_its_own_replication_only,
        a_deleted_receipt_is_gone_with_its_transaction,
        old_receipts_can_be_deleted_and_nothing_else,
        generations_are_kept_apart,
        receipts_are_read_from_where_they_are_needed,
        receipts_come_above_the_ends_that_were_named_before,
        open_transactions_are_named_by_their_keys,
    )
}
