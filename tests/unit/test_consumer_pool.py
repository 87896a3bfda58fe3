"""Idle consumers: used again, few, and never those of the process that forked this one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer

from kafka_replication.kafka import consumer_pool

NOWHERE = {"bootstrap.servers": "127.0.0.1:1", "log_level": "0"}


@pytest.fixture(autouse=True)
def empty() -> Iterator[None]:
    consumer_pool.close_idle()
    yield
    consumer_pool.close_idle()


def make(config: Any, group: str) -> Consumer:
    return Consumer({**config, "group.id": group})


def lend(group: str, reads: tuple[str, str] | None = None) -> Consumer:
    with consumer_pool.borrowed(NOWHERE, group, make, reads=reads) as consumer:
        return consumer


def is_closed(consumer: Consumer) -> bool:
    try:
        consumer.assignment()
    except RuntimeError:
        return True
    return False


def test_an_idle_consumer_is_lent_again() -> None:
    one = lend("a")
    assert lend("b") is not one
    assert lend("a") is one


def test_one_that_has_read_a_topic_of_this_name_does_not_read_a_new_one() -> None:
    """It may get no records of it. Other topics it reads."""
    one = lend("a", ("orders", "id-1"))
    assert lend("a", ("payments", "id-2")) is one
    assert lend("a", ("orders", "id-1")) is one
    other = lend("a", ("orders", "id-3"))
    assert other is not one
    assert lend("a", ("orders", "id-1")) is one
    assert lend("a", ("payments", "id-2")) in (one, other)
    assert lend("a") not in (one, other), "it does not know which topic it reads"


def test_two_at_a_time_are_two() -> None:
    with consumer_pool.borrowed(NOWHERE, "a", make) as one, consumer_pool.borrowed(NOWHERE, "a", make) as other:
        assert one is not other


def test_the_one_that_was_idle_for_longest_is_closed_when_there_are_too_many() -> None:
    consumers = [lend(str(number)) for number in range(consumer_pool.MOST)]
    lend("0")
    lend("one more")
    assert [number for number, consumer in enumerate(consumers) if is_closed(consumer)] == [1]


def test_a_consumer_whose_body_raised_is_closed() -> None:
    with pytest.raises(ValueError, match="x"), consumer_pool.borrowed(NOWHERE, "a", make) as consumer:
        raise ValueError("x")
    assert is_closed(consumer)


def test_none_is_left_when_they_are_closed() -> None:
    one = lend("a")
    consumer_pool.close_idle()
    assert is_closed(one)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # of Python 3.12, as this process has threads
def test_a_forked_process_leaves_the_consumers_of_its_parent_alone() -> None:
    one = lend("a")
    child = os.fork()
    if child == 0:
        loan = consumer_pool.borrow(NOWHERE, "a", make)  # not given back: a client of a forked process may never end
        consumer_pool.close_idle()
        os._exit(0 if loan.consumer is not one else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert not is_closed(one)
    assert lend("a") is one
