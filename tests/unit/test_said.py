"""What Spark's log says about the end of its application."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from kafka_replication.spark.reach import SparkLog
from stack.ports import free_ports

TRY = "26/11/24 10:31:05 WARN StandaloneAppClient$ClientEndpoint: Failed to connect to master {}"
LOGIN = "Caused by: javax.security.sasl.SaslException: DIGEST-MD5: digest response format violation."
NO_LOGIN = "java.lang.IllegalStateException: Expected SaslMessage, received something else"
KILLED = "26/11/24 10:32:05 ERROR StandaloneSchedulerBackend: Application has been killed. Reason: {}"
GIVING_UP = KILLED.format("All masters are unresponsive! Giving up.")


@pytest.fixture
def answering() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def closed() -> str:
    return f"127.0.0.1:{free_ports(1)[0]}"


def said(master: str, *lines: str) -> SparkLog:
    log = SparkLog(f"spark://{master}")
    for line in lines:
        log.hear(line + "\n")
    return log


def name(log: SparkLog) -> str | None:
    return log.failure.name if log.failure else None


def test_a_log_without_a_cause_has_none(answering: str) -> None:
    assert name(said(answering)) is None
    assert name(said(answering, "WARN NativeCodeLoader: Unable to load", LOGIN)) is None


def test_the_second_try_in_vain_is_heard_once(answering: str) -> None:
    log = SparkLog(f"spark://{answering}")
    assert [log.hear(line) for line in (TRY.format(answering), LOGIN, *[TRY.format(answering)] * 2)] == [
        False,
        False,
        True,
        False,
    ]


def test_one_of_two_masters_may_be_away(answering: str, closed: str) -> None:
    tries = [TRY.format(closed)] * 3
    assert name(said(f"{closed},{answering}", *tries)) is None
    assert name(said(f"{closed},{answering}", *tries, *[TRY.format(answering)] * 2)) == "spark-not-registered"


@pytest.mark.parametrize("login", [LOGIN, NO_LOGIN])
def test_a_master_that_answers_and_refuses_the_secret(answering: str, login: str) -> None:
    assert name(said(answering, *[TRY.format(answering), login] * 2)) == "spark-secret-refused"
    assert name(said(answering, login, GIVING_UP)) == "spark-secret-refused"


def test_a_master_that_does_not_answer(closed: str) -> None:
    for lines in ([TRY.format(closed)] * 2, [GIVING_UP]):
        log = said(closed, *lines)
        assert name(log) == "spark-master-silent" and closed in (log.failure.what if log.failure else "")


def test_an_application_that_somebody_ended(answering: str) -> None:
    log = said(answering, KILLED.format("Master removed our application: KILLED"))
    assert name(log) == "spark-application-removed"
    assert log.failure is not None and "KILLED" in log.failure.what


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("Invalid maximum heap size: -Xmxnonsense", "Invalid maximum heap size: -Xmxnonsense"),
        (
            'Exception in thread "main" java.io.IOException: Cannot run program "/not/there": error=2',
            'java.io.IOException: Cannot run program "/not/there": error=2',
        ),
        ("WARNING: Using incubator modules: jdk.incubator.vector", ""),
    ],
)
def test_why_nothing_was_submitted(line: str, why: str) -> None:
    assert said("", "WARNING: Using incubator modules: jdk.incubator.vector", line).not_submitted == why
