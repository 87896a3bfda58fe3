"""A task keeps to its share of the throughput limit, and hears of the brokers' quotas."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest
from confluent_kafka import ThrottleEvent

from kafka_replication.kafka.callbacks import Throttling
from kafka_replication.kafka.consumer_pool import Pace, paced
from kafka_replication.runtime.events import Event
from kafka_replication.spark.small_ranges import frugal
from tests.support.jobs import job_with


class Time:
    """A clock that only moves by sleeping."""

    def __init__(self) -> None:
        self.now, self.longest = 0.0, 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.longest = max(self.longest, seconds)


def test_no_more_is_carried_than_allowed_in_the_time() -> None:
    time = Time()
    pace = Pace(1_000, lambda: time.now, time.sleep)
    for _ in range(10):
        pace.spend(700)
        pace.wait()
    assert time.now == pytest.approx(7.0)
    assert time.longest <= 0.5  # so that a signal is handled


def test_time_that_was_not_used_is_not_caught_up() -> None:
    time = Time()
    pace = Pace(1_000, lambda: time.now, time.sleep)
    time.now = 100.0
    pace.spend(5_000)
    assert pace.seconds == pytest.approx(5.0)


def test_without_a_limit_nothing_waits() -> None:
    time = Time()
    pace = Pace(None, lambda: time.now, time.sleep)
    pace.spend(10**12)
    pace.wait()
    assert (time.now, pace.seconds, pace.step(123)) == (0.0, 0.0, 123)


def test_what_is_carried_at_a_time_takes_half_a_second() -> None:
    assert Pace(100_000).step(1 << 20) == 50_000
    assert Pace(100_000_000).step(1 << 20) == 1 << 20
    assert Pace(1).step(1 << 20) == 1


def test_a_consumer_fetches_no_more_ahead_than_a_second_allows_unless_the_connection_says_so() -> None:
    assert paced({"a": "b"}, None) == {"a": "b"}
    assert paced({}, 500_000)["fetch.message.max.bytes"] == 500_000
    assert paced({"fetch.message.max.bytes": 7}, 500_000)["fetch.message.max.bytes"] == 7


def test_the_ranges_that_are_worked_on_at_a_time_share_the_limit() -> None:
    job = job_with(copy={"throughput_limit": 10_000})
    assert job.shared(4).replication.copying.throughput_limit == 2_500
    assert frugal(replace(job.shared(4), together=5)).replication.copying.throughput_limit == 500
    unlimited = job_with()
    assert unlimited.shared(4) == unlimited


def test_quotas_are_added_up_and_said_once_in_a_while(caplog: pytest.LogCaptureFixture) -> None:
    throttling = Throttling("orders-3", "target")
    with caplog.at_level(logging.INFO):
        for _ in range(5):
            throttling(ThrottleEvent("broker", 2, 1.5))
        throttling(ThrottleEvent("broker", 2, 0.0))
    assert throttling.seconds == 7.5
    assert [record.getMessage().count("orders-3") for record in caplog.records] == [1]
    assert str(Event.THROTTLED) in caplog.text


def test_a_callback_of_the_connection_is_left_alone() -> None:
    throttling = Throttling("orders-3", "target")
    assert throttling.listening({})["throttle_cb"] is throttling
    assert throttling.listening({"throttle_cb": "mine"})["throttle_cb"] == "mine"
