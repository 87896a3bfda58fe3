"""Checks of what every transaction port has to do. Each check gets a case of its own and raises AssertionError."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from kafka_replication.ledger.port import TransactionPort
from kafka_replication.model.errors import Fenced, ReplicationError
from tests.conformance.ground import Ground, raised


@dataclass
class TransactionCase:
    """A way to open sessions of one id, and a fresh topic of two partitions."""

    ground: Ground
    make: Callable[[str], TransactionPort]  # a new session under this id
    topic: str = field(default_factory=lambda: f"contract-{uuid.uuid4().hex[:8]}")

    def __post_init__(self) -> None:
        self.ground.create(self.topic, 2)

    @contextmanager
    def session(self) -> Iterator[TransactionPort]:
        session = self.make(f"contract/{self.topic}")
        try:
            yield session
        finally:
            session.close()

    @contextmanager
    def fenced(self) -> Iterator[TransactionPort]:
        with self.session() as session:
            session.fence()
            yield session

    def send(self, session: TransactionPort, *values: bytes, partition: int = 0) -> None:
        for value in values:
            session.send(self.topic, partition, b"k", value)

    def visible(self, partition: int = 0) -> list[bytes | None]:
        """The values that a reader finds; fails where a transaction stays open."""
        return self.ground.entries(self.topic, partition)

    def peek(self) -> list[bytes | None]:
        """The values that a reader finds now, also while a transaction is open."""
        return self.ground.peek(self.topic)


Check = Callable[[TransactionCase], None]


def what_is_committed_is_visible_in_order(case: TransactionCase) -> None:
    with case.fenced() as session:
        for batch in ((b"1", b"2"), (b"3",)):
            session.begin()
            case.send(session, *batch)
            session.commit()
    assert case.visible() == [b"1", b"2", b"3"]


def a_transaction_spans_partitions(case: TransactionCase) -> None:
    with case.fenced() as session:
        session.begin()
        case.send(session, b"0")
        case.send(session, b"1", partition=1)
        session.commit()
    assert (case.visible(0), case.visible(1)) == ([b"0"], [b"1"])


def what_is_acknowledged_is_not_visible_before_the_commit(case: TransactionCase) -> None:
    with case.fenced() as session:
        session.begin()
        case.send(session, b"1")
        session.flush()
        assert case.peek() == []
        session.commit()
    assert case.visible() == [b"1"]


def closing_aborts(case: TransactionCase) -> None:
    with case.fenced() as session:
        session.begin()
        case.send(session, b"1")
        session.flush()
    assert case.visible() == []


def a_fenced_session_cannot_commit(case: TransactionCase) -> None:
    with case.fenced() as old, case.session() as new:
        old.begin()
        case.send(old, b"old")
        old.flush()
        new.fence()
        raised(Fenced, old.commit)
        new.begin()
        case.send(new, b"new")
        new.commit()
    assert case.visible() == [b"new"]


def a_fenced_session_cannot_begin_again(case: TransactionCase) -> None:
    """`begin` itself may not notice; what follows does."""
    with case.fenced() as old, case.fenced():

        def commit() -> None:
            old.begin()
            case.send(old, b"old")
            old.commit()

        raised(Fenced, commit)
    assert case.visible() == []


def fencing_ends_what_an_earlier_session_left_open(case: TransactionCase) -> None:
    old = case.make(f"contract/{case.topic}")
    old.fence()
    old.begin()
    case.send(old, b"left open")
    old.flush()  # and nothing more: its process died
    with case.fenced() as new:
        new.begin()
        case.send(new, b"new")
        new.commit()
    assert case.visible() == [b"new"]


def ids_do_not_disturb_each_other(case: TransactionCase) -> None:
    with case.fenced() as one:
        other = case.make(f"contract/{case.topic}/other")
        one.begin()
        case.send(one, b"one")
        other.fence()
        other.close()
        one.commit()
    assert case.visible() == [b"one"]


def an_error_is_one_of_ours(case: TransactionCase) -> None:
    with case.fenced() as session:

        def commit() -> None:
            session.begin()
            session.send(case.topic, 7, b"k", b"no such partition")
            session.commit()

        raised(ReplicationError, commit)
    assert case.visible() == []


def nothing_is_written_after_what_failed(case: TransactionCase) -> None:
    other = TransactionCase(case.ground, case.make)
    with case.fenced() as session:

        def commit() -> None:
            session.begin()
            session.send(case.topic, 7, b"k", b"no such partition")
            session.send(other.topic, 0, b"k", b"after it")
            session.commit()

        raised(ReplicationError, commit)
    assert other.visible() == []


# What a port promises whose guarantee is ``ordered``: entries of one topic are acknowledged before those of the next
# are sent. One that is ``atomic`` promises more.
ORDERED: list[Check] = [
    what_is_committed_is_visible_in_order,
    a_transaction_spans_partitions,
    closing_aborts,
    fencing_ends_what_an_earlier_session_left_open,
    ids_do_not_disturb_each_other,
    an_error_is_one_of_ours,
    nothing_is_written_after_what_failed,
]
ATOMIC: list[Check] = [
    *ORDERED,
    what_is_acknowledged_is_not_visible_before_the_commit,
    a_fenced_session_cannot_commit,
    a_fenced_session_cannot_begin_again,
]
