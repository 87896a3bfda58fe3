"""One admin client of a cluster in a process: a cluster that is away holds up nobody else, and each of its users once."""

from __future__ import annotations

import os
import signal
import threading
import uuid
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pytest

from kafka_replication.kafka import clients
from kafka_replication.model.errors import Unreachable
from tests.support.waiting import SAFETY

USERS = 8


@dataclass
class Connecting:
    """Every attempt to connect. That to the cluster that is away lasts until it is ``given_up``."""

    name: str = field(default_factory=lambda: uuid.uuid4().hex)  # no other test's clusters
    asked: deque[str] = field(default_factory=deque)
    begun: threading.Event = field(default_factory=threading.Event)
    given_up: threading.Event = field(default_factory=threading.Event)

    @property
    def away(self) -> dict[str, Any]:
        return {"bootstrap.servers": f"away-{self.name}:9092"}

    @property
    def healthy(self) -> dict[str, Any]:
        return {"bootstrap.servers": f"healthy-{self.name}:9092"}

    def admin(self, config: Any, timeout: float = 20.0, topic: str | None = None) -> object:
        address = config["bootstrap.servers"]
        self.asked.append(address)
        if address == self.healthy["bootstrap.servers"]:
            return object()
        self.begun.set()
        assert self.given_up.wait(SAFETY)
        raise Unreachable(f"{address} is away", "start it")


class Counted(dict[str, Any]):
    """Settings that count who has looked at them."""

    looked = threading.Semaphore(0)

    def items(self) -> Any:
        self.looked.release()
        return super().items()


@pytest.fixture
def connecting(monkeypatch: pytest.MonkeyPatch) -> Iterator[Connecting]:
    made = Connecting()
    monkeypatch.setattr(clients, "admin", made.admin)
    yield made
    made.given_up.set()


def test_users_of_a_healthy_cluster_do_not_wait_for_one_that_is_away(connecting: Connecting) -> None:
    with ThreadPoolExecutor(2) as threads:
        try:
            waiting = threads.submit(clients.shared_admin, connecting.away)
            assert connecting.begun.wait(SAFETY)
            client = threads.submit(clients.shared_admin, connecting.healthy).result(SAFETY / 4)
        finally:
            connecting.given_up.set()
    with pytest.raises(Unreachable):
        waiting.result()
    assert clients.shared_admin(connecting.healthy) is client


def test_users_of_a_cluster_that_is_away_wait_side_by_side(connecting: Connecting) -> None:
    settings = Counted(connecting.away)
    with ThreadPoolExecutor(USERS) as threads:
        waiting = [threads.submit(clients.shared_admin, settings) for _ in range(USERS)]
        for _ in range(USERS):
            assert settings.looked.acquire(timeout=SAFETY)
        connecting.given_up.set()
    assert [type(user.exception()) for user in waiting] == [Unreachable] * USERS
    assert len(connecting.asked) < USERS  # one, and perhaps a thread that came late
    with pytest.raises(Unreachable):  # it is asked again by who comes later
        clients.shared_admin(connecting.away)


def test_who_is_interrupted_while_it_connects_leaves_it_to_the_others(
    connecting: Connecting, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(config: Any, *_: object) -> object:
        monkeypatch.setattr(clients, "admin", connecting.admin)
        raise SystemExit(143)

    monkeypatch.setattr(clients, "admin", interrupted)
    with pytest.raises(SystemExit):
        clients.shared_admin(connecting.healthy)
    assert clients.shared_admin(connecting.healthy) is clients.shared_admin(connecting.healthy)
    assert len(connecting.asked) == 1


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # of Python 3.12, as this process has threads
def test_a_process_that_is_forked_meanwhile_connects_by_itself(connecting: Connecting) -> None:
    client = clients.shared_admin(connecting.healthy)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(clients.shared_admin, connecting.away)
        assert connecting.begun.wait(SAFETY)
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(int(SAFETY / 4))  # ends the process if it waits for a thread that it does not have
            connecting.given_up.set()
            own = clients.shared_admin(connecting.healthy)
            try:
                clients.shared_admin(connecting.away)
            except Unreachable:
                os._exit(0 if own is not client else 1)
            os._exit(2)
        ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        connecting.given_up.set()
    assert ended == 0
    assert isinstance(waiting.exception(), Unreachable)
    assert clients.shared_admin(connecting.healthy) is client
