"""Requests about topics that the client does not answer."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

from confluent_kafka import KafkaError

from kafka_replication.kafka import topics


class Late(Future[Any]):
    """What a process finds that slept longer than the answer may take."""

    def result(self, timeout: float | None = None) -> Any:
        raise TimeoutError


def test_a_client_that_does_not_answer_in_time_is_an_error_that_a_retry_can_help() -> None:
    (answer,) = topics._ask(object(), "orders", lambda _: {"orders": Late()}, 0.0).values()  # type: ignore[arg-type]
    assert isinstance(answer, KafkaError) and answer.code() == KafkaError._TIMED_OUT
