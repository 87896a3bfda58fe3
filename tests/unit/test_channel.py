"""What the launcher and its driver say to each other, and how each hears that the other one is gone."""

from __future__ import annotations

import os
import socket
import stat
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from kafka_replication.model.offsets import PartitionKey, TopicPartition
from kafka_replication.spark.channel import MOST_STRANGERS, TOKEN_BYTES, DriverSide, Gone, LauncherSide, Listener
from kafka_replication.spark.jobs import Answer, JobEnd, RangeResult
from tests.support.jobs import job_with

JOB = job_with(source={"sasl.password": "secret"}, copy={"chunk_records": 7})


def result(number: int) -> RangeResult:
    return RangeResult(key=PartitionKey("orders-dr", TopicPartition("orders", number), "orders"))


@pytest.fixture
def sides(tmp_path: Path) -> Iterator[tuple[LauncherSide, DriverSide]]:
    path = tmp_path / "socket"
    with closing(Listener(path)) as listening:
        driver = DriverSide(str(path))
        launcher = listening.accept(lambda: False)
    assert launcher is not None
    yield launcher, driver
    launcher.close()
    driver.close()


def test_jobs_go_one_way_and_results_the_other(sides: tuple[LauncherSide, DriverSide]) -> None:
    launcher, driver = sides
    jobs = driver.jobs()
    for _ in range(2):
        launcher.send(JOB)
        assert next(jobs) == JOB
        threads = [threading.Thread(target=driver.send, args=(Answer(result=result(n)),)) for n in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        driver.send(Answer(end=JobEnd(error="Spark gave up")))
        answers = [answer for some in launcher.answers() for answer in some]
        results = [answer.result for answer in answers if isinstance(answer.result, RangeResult)]
        assert sorted(one.key.source.partition for one in results) == list(range(20))
        assert answers[-1] == Answer(end=JobEnd(error="Spark gave up"))
    launcher.close()
    assert list(jobs) == []


def test_a_result_is_there_before_the_job_ends(sides: tuple[LauncherSide, DriverSide]) -> None:
    launcher, driver = sides
    driver.send(Answer(result=result(1)))
    assert next(launcher.answers()) == [Answer(result=result(1))]


def test_a_launcher_that_is_gone_is_heard_of(tmp_path: Path) -> None:
    """As the operating system closes what a killed process had open."""
    path = tmp_path / "socket"
    with closing(Listener(path)) as listening:
        driver = DriverSide(str(path))
        accepted, _ = listening.socket.accept()
        accepted.close()
    with pytest.raises(Gone):
        next(driver.jobs())
    driver.close()


def test_a_driver_that_is_gone_is_heard_of(sides: tuple[LauncherSide, DriverSide]) -> None:
    launcher, driver = sides
    driver.send(Answer(result=result(1)))
    driver.close()
    answers = launcher.answers()
    assert next(answers) == [Answer(result=result(1))]
    with pytest.raises(Gone):
        next(answers)


def test_nobody_is_waited_for_once_spark_has_ended(tmp_path: Path) -> None:
    with closing(Listener(tmp_path / "socket")) as listening:
        assert listening.accept(lambda: True) is None


def test_only_the_owner_may_connect(tmp_path: Path) -> None:
    """Whatever the folder's rights are."""
    before = os.umask(0o000)
    try:
        with closing(Listener(tmp_path / "socket")):
            assert stat.S_IMODE((tmp_path / "socket").stat().st_mode) & 0o077 == 0
    finally:
        os.umask(before)


@pytest.mark.parametrize("said", [b"", b"x" * TOKEN_BYTES, b"x"], ids=["nothing", "another token", "part of one"])
def test_a_stranger_that_connects_first_gets_nothing_and_the_driver_its_job(tmp_path: Path, said: bytes) -> None:
    """Whoever runs as the same user, or as root, can open the socket."""
    path = tmp_path / "socket"
    with closing(Listener(path)) as listening, socket.socket(socket.AF_UNIX) as stranger, ThreadPoolExecutor(1) as pool:
        stranger.connect(str(path))
        stranger.sendall(said)
        accepted = pool.submit(listening.accept, lambda: False)
        driver = DriverSide(str(path))
        launcher = accepted.result()
        assert launcher is not None
        launcher.send(JOB)
        assert next(driver.jobs()) == JOB
        assert stranger.recv(1) == b"", "it is told nothing, and its connection is closed"
        launcher.close()
        driver.close()


def test_strangers_that_keep_their_connections_do_not_use_up_the_files_of_this_process(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with closing(Listener(path)) as listening, ExitStack() as stack, ThreadPoolExecutor(1) as pool:
        is_over = threading.Event()
        accepted = pool.submit(listening.accept, is_over.is_set)
        strangers = [stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(MOST_STRANGERS + 1)]
        for stranger in strangers:
            stranger.connect(str(path))
        assert strangers[0].recv(1) == b"", "the first one is shut out for the last one"
        driver = DriverSide(str(path))
        launcher = accepted.result()
        assert launcher is not None
        launcher.close()
        driver.close()


def test_the_token_is_in_a_file_for_the_owner_alone(tmp_path: Path) -> None:
    with closing(Listener(tmp_path / "socket")):
        [token] = [each for each in tmp_path.iterdir() if each.name != "socket"]
        assert stat.S_IMODE(token.stat().st_mode) == 0o600 and len(token.read_bytes()) == TOKEN_BYTES
